"""Pictures of codes, the entropy of their bits, and sizes of shards."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from dkfeat.blocks import PackedCodes
from dkfeat.errors import ConfigError
from dkfeat.plot.style import BLUE, GREY, axes_of
from dkfeat.validation import check_choice, check_integer

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.maps import FeatureMap
    from dkfeat.store.manifest.manifest import Manifest


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
