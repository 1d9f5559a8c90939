"""Accuracy of linear machines against the number of features: code shared by three experiments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat import DartFeatures, FourierFeatures, GCWSFeatures, NystroemFeatures
from dkfeat.blocks import PackedCodes
from dkfeat.compiled.sampling.codes import count_matches, in_whole_bytes

from ..experiment import Context
from ..machines.accuracies import decades
from ..machines.best import GAMMAS, rbf_best
from ..machines.squared_hinge import squared_hinge_accuracies
from ..pages.figures import MARKERS, Style
from ..rows import load_rows

__all__ = [
    "GAMMA_ROWS",
    "Line",
    "Sizes",
    "best_gammas",
    "coded_map",
    "equal_codes",
    "lines_of",
    "needed_k",
    "paint_lines",
    "plain",
    "point",
]

CODED = ("gcws", "dart")
"""Methods whose features are sparse: one-hot codes."""
GAMMA_ROWS = 2_000
"""Maximum number of training rows on which γ is chosen."""
GRAM_WORK = 0.125
"""Codes of a row times classes, of which ten count, relative to the rows, above which inner products take less time."""
CODES_AT_ONCE = 512
"""Number of rows that are compared with all others in one step."""


@dataclass(frozen=True, slots=True)
class Line:
    """Test accuracy in percent of one method against the number of components k."""

    label: str
    k: Sequence[int]
    mean: Sequence[float]
    """Mean over the repetitions, at the best C for this k."""
    spread: Sequence[float]
    """Standard deviation over the repetitions."""
    repeats: Sequence[int]
    by_c: Sequence[Sequence[float]]
    """Mean over the repetitions at each C."""
    C: Sequence[float] = ()

    def first_above(self, level: float) -> int | None:
        """Return the smallest k whose mean is above a level."""
        return next((k for k, mean in zip(self.k, self.mean, strict=True) if mean > level), None)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of components, and the number of repetitions of each with different seeds."""

    repeats: Mapping[int, int]
    grid: Sequence[float]
    """Values of C for sparse features, those of codes."""
    dense_grid: Sequence[float]
    """Values of C for dense features, whose best C is often much larger."""


def best_gammas(ctx: Context, trained: Mapping[str, int]) -> dict[str, float]:
    """Find γ of the best exact RBF machine of each set, on at most `GAMMA_ROWS` of its training rows."""
    gammas = list(GAMMAS[2::6] if ctx.quick else (*GAMMAS[:2], *GAMMAS[2::3]))
    shared = {"grid": decades(0, 4), "gammas": gammas, "seed": ctx.seed}
    tasks = {f"gamma-{name}": {**shared, "name": name, "rows": min(rows, GAMMA_ROWS)} for name, rows in trained.items()}
    found = ctx.cached_all(rbf_best, tasks, str(ctx.data))
    return {name: float(found[f"gamma-{name}"]["gamma"]) for name in trained}


def point(
    data: str,
    *,
    name: str,
    rows: Sequence[int | None],
    method: str,
    k: int,
    bits: int | None,
    gamma: float | None,
    grid: Sequence[float],
    seed: int,
    repeat: int,
    level_bits: int = 0,
) -> list[float]:
    """Compute the test accuracy, at each C, of a linear machine on features of a set.

    Parameters
    ----------
    data : str
        Folder of data sets.
    name : str
    rows : sequence of two int or None
        Maximum numbers of training and test rows.
    method : {"gcws", "dart", "nrff", "rff", "gmm-nys", "rbf-nys"}
    k : int
        Number of components.
    bits : int or None
        b, for "gcws" and "dart".
    gamma : float or None
        Gamma of the RBF kernels.
    grid : sequence of float
        Values of C.
    seed, repeat : int
        Rows are drawn by `seed`, features by `seed` and `repeat`.
    level_bits : int
        Bits of the level, for "gcws".
    """
    found = load_rows(data, name)
    assert found is not None
    found = found.sample(rows[0], rows[1], seed)
    random_state = 1000 * seed + repeat
    if method in CODED:
        features: Any = coded_map(method, k, bits or 8, level_bits, random_state)
    elif method in ("nrff", "rff"):
        features = FourierFeatures(k, gamma=gamma or 1.0, normalize=method == "nrff", random_state=random_state)
    else:
        kernel, params = ("gmm", None) if method == "gmm-nys" else ("rbf_cosine", {"gamma": gamma})
        features = NystroemFeatures(k, kernel=kernel, kernel_params=params, random_state=random_state)
    features.fit(found.X)
    train, test = (features.transform(X).astype(np.float32) for X in (found.X, found.X_test))
    gram = None
    if method in CODED:  # rows hold k ones: scale them to length 1, which the other features nearly have
        train, test = (rows * np.float32(1 / math.sqrt(k)) for rows in (train, test))
        if k * min(len(np.unique(found.y)), 10) > GRAM_WORK * len(found.y):
            gram = equal_codes(features.encode(found.X), k, (bits or 8) + level_bits)
    return squared_hinge_accuracies(train, found.y, test, found.y_test, grid, gram=gram)


def coded_map(method: str, k: int, bits: int, level_bits: int, random_state: int) -> GCWSFeatures | DartFeatures:
    """Make a map of k codes, each of `bits` bits and, for "gcws", `level_bits` more of the level."""
    if method == "dart":
        return DartFeatures(k, bits=bits, random_state=random_state)
    return GCWSFeatures(k, i_bits=bits, t_bits=level_bits, random_state=random_state)


def equal_codes(rows: PackedCodes, k: int, bits: int) -> NDArray[np.float32]:
    """Compute the share of equal codes of all pairs of rows: the inner products of their features of length 1.

    Examples
    --------
    >>> from dkfeat import GCWSFeatures
    >>> features, X = GCWSFeatures(64, i_bits=4, random_state=0), np.arange(1.0, 9.0).reshape(2, 4)
    >>> rows = features.fit_transform(X).astype(np.float32) / 8
    >>> bool(np.all(equal_codes(features.encode(X), 64, 4) == (rows @ rows.T).toarray()))
    True
    """
    codes, wide = in_whole_bytes(rows.codes, k, bits)
    shares = np.empty((len(codes), len(codes)), np.float32)
    for at in range(0, len(codes), CODES_AT_ONCE):
        block = slice(at, at + CODES_AT_ONCE)
        shares[block, at:] = count_matches(codes[block], codes[at:], k, wide) / np.float32(k)
        shares[at:, block] = shares[block, at:].T
    shares[rows.empty] = 0
    shares[:, rows.empty] = 0
    return shares


def lines_of(
    ctx: Context,
    name: str,
    methods: Mapping[str, Mapping[str, Any]],
    plan: Sizes,
    rows: Sequence[int | None],
) -> list[Line]:
    """Measure the lines of several methods on one set.

    Parameters
    ----------
    ctx : Context
    name : str
        Name of the set.
    methods : mapping
        ``method``, ``bits`` and ``gamma`` of each line by its label, and ``level_bits`` if there are any.
    plan : Sizes
    rows : sequence of two int or None
        As in `point`.
    """
    shared, sizes = {"name": name, "rows": list(rows), "seed": ctx.seed}, tuple(plan.repeats)
    grids = {
        label: list(plan.grid if method["method"] in CODED else plan.dense_grid) for label, method in methods.items()
    }
    tasks = {
        _key(name, method, k, repeat): {**shared, **method, "grid": grids[label], "k": k, "repeat": repeat}
        for label, method in methods.items()
        for k in reversed(sizes)  # the longest first
        for repeat in range(plan.repeats[k])
    }
    found = ctx.cached_all(point, tasks, str(ctx.data))
    lines = []
    for label, method in methods.items():
        means, spreads, by_c = [], [], []
        for k in sizes:
            tried = np.array([found[_key(name, method, k, repeat)] for repeat in range(plan.repeats[k])])
            best = int(tried.mean(axis=0).argmax())
            means.append(float(tried[:, best].mean()))
            spreads.append(float(tried[:, best].std(ddof=1)) if len(tried) > 1 else 0.0)
            by_c.append([float(mean) for mean in tried.mean(axis=0)])
        lines.append(Line(label, sizes, means, spreads, list(plan.repeats.values()), by_c, grids[label]))
    return lines


def needed_k(line: Line, level: float) -> float | None:
    """Interpolate the k that reaches a level, linearly in log k; None if no measured k reaches it.

    Examples
    --------
    >>> needed_k(Line("a", [16, 64], [80.0, 90.0], [0, 0], [1, 1], []), 85.0)
    32.0
    """
    for at, (k, mean) in enumerate(zip(line.k, line.mean, strict=True)):
        if mean >= level:
            if at == 0:
                return float(k)
            before = line.mean[at - 1]
            share = (level - before) / (mean - before)
            return float(2 ** (math.log2(line.k[at - 1]) * (1 - share) + math.log2(k) * share))
    return None


def paint_lines(
    figure: Any, lines: Sequence[Line], looks: Sequence[int], levels: Mapping[str, float], style: Style
) -> None:
    """Draw lines over log k in the given colours, with bars of one standard deviation, and labelled horizontal lines.

    The legend is above the axes.
    """
    axes = figure.subplots()
    for line, look in zip(lines, looks, strict=True):
        shape = {"color": style.colors[look], "marker": MARKERS[look], "capsize": 2.5, "elinewidth": 1}
        axes.errorbar(line.k, line.mean, yerr=line.spread, label=line.label, **shape)
    for (label, level), dashes in zip(levels.items(), ("-", "--", ":"), strict=False):
        axes.axhline(level, color=style.muted, linestyle=dashes, linewidth=1.4, label=label)
    every = sorted({k for line in lines for k in line.k})
    axes.set_xscale("log", base=2)
    shown = every[:: 1 + (len(every) > 8)]
    axes.set_xticks(shown, [f"{k:,}" for k in shown])
    axes.minorticks_off()
    axes.set(xlabel="components k", ylabel="test accuracy (%)")
    ends = [mean - spread for line in lines for mean, spread in zip(line.mean, line.spread, strict=True)]
    tops = [mean for line in lines for mean in line.mean]
    low, high = min(*ends, *levels.values()), max(*tops, *levels.values())
    axes.set_ylim(max(0.0, low - 0.04 * (high - low)), min(100.5, high + 0.06 * (high - low)))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)


def plain(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Convert lines to plain JSON values."""
    return [asdict(line) for line in lines]


def _key(name: str, method: Mapping[str, Any], k: int, repeat: int) -> str:
    bits, level_bits = method.get("bits"), method.get("level_bits")
    code = "" if bits is None else f"{bits}.{level_bits}" if level_bits else bits
    return f"{name}-{method['method']}{code}-k{k}-{repeat}"
