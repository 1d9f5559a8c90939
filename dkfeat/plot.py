"""Pictures of kernel estimates, feature maps, codes and shards, drawn on matplotlib axes.

Each function takes plain arrays, or an object of dkfeat that holds them, and an optional `ax`; it draws there, or on a
figure of its own, and returns the axes, so that you can change titles, limits and colours. Needs the extra ``plot``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

from dkfeat.blocks import PackedCodes
from dkfeat.errors import ConfigError
from dkfeat.maps._kernel_estimates import error_band
from dkfeat.store.outputs import PNG_MARK
from dkfeat.validation import check_choice, check_integer

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.maps import FeatureMap
    from dkfeat.store.manifest.manifest import Manifest

__all__ = [
    "accuracy_against_k",
    "code_entropy",
    "code_histogram",
    "kernel_estimates",
    "shard_sizes",
    "variance_curves",
]

BLUE, RED, GREY = "#1f5fa8", "#b8433a", "#8a8f98"

LINES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"))
"""Colours of the Okabe-Ito palette, which are distinct for colour-blind readers too, each with its own marker."""
LEVELS = (("#000000", "-"), ("#555555", "--"), ("#555555", ":"))

STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "grid.color": "#e4e6ea",
    "axes.axisbelow": True,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "legend.frameon": False,
}


def has_matplotlib() -> bool:
    """Return True if matplotlib, of the extra ``plot``, is installed."""
    return find_spec("matplotlib") is not None


def check_plots() -> None:
    """Raise an error if matplotlib is not installed.

    Raises
    ------
    ConfigError
        If matplotlib is not installed; the message names the extra that installs it.
    """
    if not has_matplotlib():
        raise ConfigError("pictures need matplotlib, which is not installed; run: pip install 'dkfeat[plot]'")


def axes_of(ax: Any, width: float = 6.4, height: float = 4.4) -> Any:
    """Return `ax`, or if it is None the axes of a new figure of `width` by `height` inches.

    A new figure belongs to pyplot, so that notebooks and windows show it. The user's global figure settings stay
    unchanged.
    """
    check_plots()
    if ax is not None:
        return ax
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE):
        return plt.subplots(figsize=(width, height), layout="constrained")[1]


def draw(paint: Callable[[Any], None], width: float = 6.0, height: float = 4.2) -> bytes:
    """Draw a figure and return it as PNG.

    Parameters
    ----------
    paint : callable
        Function that draws on the matplotlib axes passed to it.
    width, height : float, default=6.0 and 4.2
        Size in inches, at 130 pixels per inch.

    Returns
    -------
    png : bytes
    """
    check_plots()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
        canvas = FigureCanvasAgg(figure)  # no window, whatever backend is set
        paint(figure.add_subplot())
        buffer = io.BytesIO()
        canvas.print_png(buffer, metadata=dict([PNG_MARK]))
    return buffer.getvalue()


def kernel_estimates(
    exact: Any, estimates: ArrayLike | None = None, *, deviations: ArrayLike | None = None, ax: Any = None
) -> Any:
    """Draw estimates of a kernel against its exact values, a dot for each pair of rows.

    Parameters
    ----------
    exact : array of any shape, or KernelPairs
        Exact values; or the result of ``features.kernel_pairs(X)``, which has all three arrays.
    estimates : array of the same shape, or None
        Estimates of the kernel for the same pairs.
    deviations : array of the same shape, or None
        Theoretical standard error of each estimate, for a band of two standard errors on either side.
    ax : matplotlib.axes.Axes or None
        Axes to draw in; None makes a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If the arrays differ in shape, or there are no estimates.
    dkfeat.errors.ConfigError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import dkfeat.plot
    >>> ax = dkfeat.plot.kernel_estimates([0.2, 0.5], [0.25, 0.48], deviations=[0.03, 0.04])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('exact kernel', 'estimate')
    """
    name = "kernel"
    if estimates is None and hasattr(exact, "estimates"):
        name, exact, estimates, deviations = exact.kernel, exact.exact, exact.estimates, exact.deviations
    if estimates is None:
        raise ValueError(
            "estimates are missing; pass them beside the exact values, or pass the result of features.kernel_pairs(X)"
        )
    arrays = [np.asarray(values, np.float64) for values in (exact, estimates, deviations) if values is not None]
    if len({array.shape for array in arrays}) > 1 or not arrays[0].size:
        listed = ", ".join(str(array.shape) for array in arrays)
        raise ValueError(f"arrays have the shapes {listed}, but they must have one shape and at least one element")
    true, found, *deviation = (array.reshape(-1) for array in arrays)
    axes = axes_of(ax, 5.6, 5.0)
    low, high = float(min(true.min(), found.min())), float(max(true.max(), found.max()))
    axes.plot([low, high], [low, high], color=GREY, linewidth=1, zorder=2)
    if deviation:
        at, half = error_band(true, *deviation)
        label = "theory, ± 2 standard errors"
        axes.fill_between(at, at - 2 * half, at + 2 * half, color=RED, alpha=0.18, linewidth=0, label=label)
    error = float(np.sqrt(np.mean((found - true) ** 2)))
    size = 12 if len(true) <= 1000 else 5
    dots = f"{len(true):,} pairs of rows,\nRMS error {error:.3g}"
    axes.scatter(true, found, s=size, alpha=0.45, color=BLUE, linewidths=0, zorder=3, label=dots)
    axes.set(xlabel=f"exact {name}", ylabel="estimate")
    axes.legend(fontsize=9, frameon=False, loc="upper left")
    return axes


Curve = tuple[ArrayLike, ArrayLike]


def variance_curves(
    curves: FeatureMap | Sequence[FeatureMap] | Mapping[str, FeatureMap | Curve], *, ax: Any = None
) -> Any:
    """Draw the theoretical variance of kernel estimates against the kernel's value.

    Parameters
    ----------
    curves : FeatureMap, sequence of them, or mapping
        Maps, fitted or not, with a theoretical variance, exact or a bound (see `GCWSFeatures.expected_error_at`, which
        all maps have), or a mapping from names to maps. Values of a mapping may also be pairs of arrays: kernel values,
        and variances at these values.
    ax : matplotlib.axes.Axes or None
        Axes to draw in; None makes a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    dkfeat.errors.ConfigError
        If a map has no theoretical variance or a parameter is out of range, or if matplotlib is not installed.

    See Also
    --------
    dkfeat.theory : Variances of a single component, as functions.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import dkfeat, dkfeat.plot
    >>> ax = dkfeat.plot.variance_curves([dkfeat.GCWSFeatures(512), dkfeat.FourierFeatures(512)])
    >>> [line.get_label() for line in ax.lines]
    ['GCWSFeatures(n_components=512)', 'FourierFeatures(n_components=512)']
    """
    if not isinstance(curves, Mapping):
        maps = curves if isinstance(curves, Sequence) else [curves]
        curves = {" ".join(repr(features).split()): features for features in maps}  # scikit-learn breaks long ones
    lines = {name: _line(name, curve) for name, curve in curves.items()}
    axes = axes_of(ax)
    for (name, (at, variance)), (color, _) in zip(lines.items(), cycle(LINES), strict=False):
        axes.plot(at, np.where(variance > 0, variance, np.nan), color=color, linewidth=1.6, label=name)
    axes.set(xlabel="kernel", ylabel="variance of an estimate", yscale="log")
    axes.legend(fontsize=9, frameon=False)
    return axes


def _line(name: str, curve: FeatureMap | Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if not isinstance(curve, tuple | list):
        at = np.linspace(*curve.kernel_range, 257)
        errors = curve.expected_error_at(at)
        if errors is None:
            raise ConfigError(
                f"{name}: theory has no variance for {type(curve).__name__}; measure it with kernel_pairs(X)"
            )
        return at, np.asarray(errors) ** 2
    at, variance = (np.asarray(values, dtype=np.float64) for values in curve)
    if at.shape != variance.shape or at.ndim != 1:
        raise ConfigError(f"{name}: kernel values of shape {at.shape} came with variances of shape {variance.shape}")
    return at, variance


def accuracy_against_k(results: Any, *, levels: Mapping[str, float] | None = None, ax: Any = None) -> Any:
    """Plot accuracies against the number of components, on a log axis.

    Parameters
    ----------
    results : Comparison, or mapping of str to pairs of sequences
        Result of `dkfeat.compare`; or a mapping from names to a pair: numbers of components, and accuracies in [0, 1].
    levels : mapping of str to float, or None
        Accuracies of models without components, such as an exact kernel machine, by name. None: those of a comparison.
    ax : matplotlib.axes.Axes or None
        Axes to draw on; None creates a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    dkfeat.errors.ConfigError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import dkfeat.plot
    >>> ax = dkfeat.plot.accuracy_against_k({"gcws": ([64, 128], [0.91, 0.94])}, levels={"linear": 0.85})
    >>> [line.get_label() for line in ax.lines]
    ['gcws', 'linear']
    """
    axes = axes_of(ax, 7.4, 4.6)
    from matplotlib.ticker import NullLocator  # `axes_of` has checked that matplotlib is installed

    lines, flat = (results, {}) if isinstance(results, Mapping) else _of_comparison(results)
    for (name, (size, accuracy)), (color, marker) in zip(lines.items(), cycle(LINES), strict=False):
        percent = [100 * share for share in accuracy]
        axes.plot(list(size), percent, color=color, marker=marker, markersize=5, linewidth=1.6, label=name)
    for (name, share), (color, style) in zip({**flat, **(levels or {})}.items(), cycle(LEVELS), strict=False):
        axes.axhline(100 * share, color=color, linestyle=style, linewidth=1.2, label=name)
    if not isinstance(results, Mapping):
        chosen = results.recommended
        ring: dict[str, Any] = {"marker": "o", "markersize": 13, "fillstyle": "none", "color": "#000000"}
        label = "recommended\n(by held-out rows)"
        axes.plot([chosen.k], [100 * chosen.accuracy], linestyle="none", label=label, **ring)
        axes.set_title(f"{results.n_train:,} training rows, {results.n_test:,} test rows")
    sizes = sorted({int(size) for line in lines.values() for size in line[0]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("components k (log scale)")
    axes.set_ylabel("test accuracy (%)")
    axes.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return axes


def _of_comparison(comparison: Any) -> tuple[dict[str, tuple[list[int], list[float]]], dict[str, float]]:
    lines: dict[str, tuple[list[int], list[float]]] = {}
    for each in comparison.results:
        if each.k is not None:
            size, accuracy = lines.setdefault(each.name, ([], []))
            size.append(each.k)
            accuracy.append(each.accuracy)
    return lines, {each.name: each.accuracy for each in comparison.results if each.k is None}


_MOST_BARS = 256


def code_histogram(
    codes: ShardDataset | PackedCodes | NDArray[Any],
    *,
    features: FeatureMap | None = None,
    bits: int | None = None,
    component: int | None = None,
    max_rows: int = 20_000,
    ax: Any = None,
) -> Any:
    """Draw the frequency of each code: flat if all bits are used, with peaks if rows share sampled coordinates.

    Parameters
    ----------
    codes : ShardDataset, PackedCodes, or ndarray of shape (n_rows, n_components) of int
        A data set of the layout "codes", packed codes, or plain codes from 0.
    features : GCWSFeatures, DartFeatures or None
        The map that packed codes come from.
    bits : int or None
        Bits of plain codes; None: as many as the largest code has.
    component : int or None
        Count only the codes of this component, from 0; None: of all components.
    max_rows : int, default=20,000
        Maximum number of rows to draw from a data set.
    ax : matplotlib.axes.Axes or None
        Axes to draw in; None makes a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    dkfeat.errors.ConfigError
        If the argument holds no codes, or matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np
    >>> import dkfeat.plot
    >>> ax = dkfeat.plot.code_histogram(np.array([[0, 1], [3, 2]]))
    >>> len(ax.patches)
    4
    """
    values, n_bits, _ = _codes_of(codes, features, bits, max_rows)
    n_rows = len(values)
    if component is not None:
        values = values[:, check_integer(component, "component", low=0, high=values.shape[1] - 1)]
    counts = np.bincount(values.reshape(-1), minlength=1 << n_bits)
    n_bars = min(len(counts), _MOST_BARS)
    shares = counts.reshape(n_bars, -1).sum(axis=1) / max(1, counts.sum())
    width = len(counts) // n_bars
    axes = axes_of(ax)
    axes.bar(np.arange(n_bars) * width, shares, width=0.9 * width if n_bars < 64 else width, color=BLUE, align="edge")
    axes.axhline(1 / n_bars, color=GREY, linestyle="--", linewidth=1.2, label="all equally often")
    of = "all components" if component is None else f"component {component:,}"
    together = "" if width == 1 else f", {width:,} codes a bar"
    axes.set(xlabel=f"code, {n_bits} bits", ylabel=f"share of the codes{together}", xlim=(0, len(counts)))
    axes.set_title(f"{of} of {n_rows:,} rows")
    axes.legend(fontsize=9, frameon=False)
    return axes


def code_entropy(
    codes: ShardDataset | PackedCodes | NDArray[Any],
    *,
    features: FeatureMap | None = None,
    bits: int | None = None,
    max_rows: int = 20_000,
    ax: Any = None,
) -> Any:
    """Draw the entropy of each bit of the codes: 1 if half of the rows have it, 0 if all rows agree.

    A bar is the mean over the components; its whisker reaches from their 5th to their 95th percentile.

    Parameters
    ----------
    codes, features, bits, max_rows, ax
        See `code_histogram`.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    dkfeat.errors.ConfigError
        If the argument holds no codes, or matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np
    >>> import dkfeat.plot
    >>> ax = dkfeat.plot.code_entropy(np.array([[0, 1], [1, 1]]), bits=2)
    >>> [float(bar.get_height()) for bar in ax.patches]
    [0.5, 0.0]
    """
    values, n_bits, i_bits = _codes_of(codes, features, bits, max_rows)
    places = np.arange(n_bits)
    shares = np.stack([((values >> place) & 1).mean(axis=0) for place in places])
    entropies = (entr(shares) + entr(1 - shares)) / np.log(2)
    mean = entropies.mean(axis=1)
    low, high = np.percentile(entropies, [5, 95], axis=1)
    axes = axes_of(ax)
    reach = np.maximum([mean - low, high - mean], 0)
    axes.bar(places, mean, color=BLUE, yerr=reach, ecolor=GREY, capsize=3, width=0.7)
    names = [f"{place}" if place < i_bits else f"t{place - i_bits}" for place in places]
    axes.set_xticks(places, names)
    counts = [np.bincount(column) for column in values.T]
    total = float(np.mean([entr(count / len(values)).sum() for count in counts])) / np.log(2)
    axes.set(xlabel="bit of a code, lowest first", ylabel="entropy (bits)", ylim=(0, 1.05))
    axes.set_title(f"{total:.2f} of {n_bits} bits a code, {len(values):,} rows")
    return axes


def _codes_of(
    codes: Any, features: FeatureMap | None, bits: int | None, max_rows: int
) -> tuple[NDArray[np.int64], int, int]:
    """Return plain codes of shape (n_rows, n_components), without rows that have no features, their bits and i_bits."""
    if isinstance(codes, PackedCodes):
        if features is None or features.layout != "codes":
            raise ConfigError("packed codes need their map; pass as features= the map whose encode made them")
        return _unpacked([codes], features)
    if hasattr(codes, "batches"):
        if codes.spec["output"]["layout"] != "codes":
            raise ConfigError(
                f"these shards hold the layout {codes.spec['output']['layout']!r}, not codes; the maps gcws and dart "
                "make codes"
            )
        rows = codes.batches(check_integer(max_rows, "max_rows", low=1), random_state=0, decode=False)
        return _unpacked([batch for batch, *_ in islice(rows, 1)], codes.map)
    values = np.asarray(codes)
    if values.ndim != 2 or not values.size or values.dtype.kind not in "iu" or values.min() < 0:
        raise ConfigError(
            f"codes have shape {values.shape} and dtype {values.dtype}, but they must be integers from 0, of shape "
            "(n_rows, n_components); a data set and the result of encode(X) are accepted too"
        )
    needed = max(1, int(values.max()).bit_length())
    n_bits = needed if bits is None else check_integer(bits, "bits", low=needed, high=18)
    return values.astype(np.int64), n_bits, n_bits


def _unpacked(parts: list[PackedCodes], features: FeatureMap) -> tuple[NDArray[np.int64], int, int]:
    params = features.to_spec()["params"]
    bits = (features.n_features_out // params["n_components"]).bit_length() - 1
    mask = (1 << bits) - 1
    rows = [np.asarray(features.decode(part).indices & mask, dtype=np.int64) for part in parts]
    values = np.concatenate([np.empty(0, np.int64), *rows]).reshape(-1, params["n_components"])
    if not len(values):
        raise ConfigError("no row has features, so there are no codes to draw; look at the source")
    return values, bits, params.get("i_bits", bits)


_MOST_SHARDS = 200
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def shard_sizes(
    shards: ShardDataset | Manifest | Sequence[int], *, unit: Literal["rows", "bytes"] = "rows", ax: Any = None
) -> Any:
    """Draw the size of each shard, in the source's order; equal bars mean evenly distributed work.

    Parameters
    ----------
    shards : ShardDataset, Manifest, or sequence of int
        A data set, its manifest, or plain sizes in `unit`.
    unit : {"rows", "bytes"}, default="rows"
    ax : matplotlib.axes.Axes or None
        Axes to draw in; None makes a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    dkfeat.errors.ConfigError
        If the unit is unknown, or matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import dkfeat.plot
    >>> ax = dkfeat.plot.shard_sizes([1000, 1000, 250])
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1000, 1000, 250]
    """
    chosen = check_choice(unit, "unit", ("rows", "bytes"))
    manifest = getattr(shards, "manifest", shards)
    entries = getattr(manifest, "shards", None)
    sizes = shards if entries is None else [entry.rows if chosen == "rows" else entry.size for entry in entries]
    values = np.asarray(sizes, dtype=np.float64)
    shown, divisor = "rows", 1
    if chosen == "bytes":  # the largest binary unit in which the largest size is at least 1
        power = min(len(_UNITS) - 1, max(0, int(values.max(initial=0)).bit_length() - 1) // 10)
        shown, divisor = _UNITS[power], 1 << (10 * power)
    values = values / divisor
    axes = axes_of(ax)
    from matplotlib.ticker import MaxNLocator  # `axes_of` has checked that matplotlib is installed

    if len(values) <= _MOST_SHARDS:
        axes.bar(np.arange(len(values)), values, color=BLUE, width=0.8)
    else:
        axes.stairs(values, np.arange(len(values) + 1) - 0.5, fill=True, color=BLUE)
    if len(values):
        name = f"mean {values.mean():,.{0 if divisor == 1 else 1}f} {shown}"
        axes.axhline(values.mean(), color="#1c1e21", linestyle="--", linewidth=1.2, label=name)
        axes.legend(fontsize=9, loc="lower right", framealpha=0.9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set(xlabel="shard", ylabel=shown, xlim=(-0.6, max(len(values), 1) - 0.4))
    return axes
