"""Accuracy of linear machines against the number of features: code shared by two experiments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dkfeat import DartFeatures, FourierFeatures, GCWSFeatures, NystroemFeatures

from .best_machines import GAMMAS, rbf_best
from .experiment import Context
from .figures import MARKERS, Style
from .machines import decades, linear_accuracies
from .rows import load_rows

__all__ = [
    "GAMMA_ROWS",
    "PASSES",
    "Line",
    "Sizes",
    "best_gammas",
    "coded_map",
    "lines_of",
    "needed_k",
    "paint_lines",
    "plain",
    "point",
]

PASSES = 100
"""Maximum number of passes of LIBLINEAR over features."""
CODED = ("gcws", "dart")
"""Methods whose features are sparse: one-hot codes."""
GAMMA_ROWS = 2_000
"""Maximum number of training rows on which γ is chosen."""


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
    most_work: float = math.inf
    """Maximum product of training rows, classes and k for points with sparse features; points above it are left out."""
    most_dense_work: float = math.inf
    """Maximum product for points with dense features."""

    def of(self, rows: int, classes: int, *, dense: bool = True) -> list[int]:
        """Return the numbers of components that are within the limit for a set."""
        most = self.most_dense_work if dense else self.most_work
        return [k for k in self.repeats if rows * max(1, classes - (classes == 2)) * k <= most]


def best_gammas(ctx: Context, trained: Mapping[str, int]) -> dict[str, float]:
    """Find γ of the best exact RBF machine of each set, on at most `GAMMA_ROWS` of its training rows."""
    gammas = list(GAMMAS[2::6] if ctx.quick else GAMMAS[2::3])
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
    train = features.fit(found.X).transform(found.X).astype(np.float64)
    test = features.transform(found.X_test).astype(np.float64)
    solver: dict[str, Any] = {"loss": "squared_hinge", "passes": PASSES, "seed": seed}
    if method in CODED:  # rows hold k ones: scale them to length 1, which the other features nearly have
        train, test = train / math.sqrt(k), test / math.sqrt(k)
    else:  # at large C the dual solver stays far from the optimum, to the disadvantage of dense features
        solver |= {"dual": False, "tol": 0.01}
    return linear_accuracies(train, found.y, test, found.y_test, grid, **solver)


def coded_map(method: str, k: int, bits: int, level_bits: int, random_state: int) -> GCWSFeatures | DartFeatures:
    """Make a map of k codes, each of `bits` bits and, for "gcws", `level_bits` more of the level."""
    if method == "dart":
        return DartFeatures(k, bits=bits, random_state=random_state)
    return GCWSFeatures(k, i_bits=bits, t_bits=level_bits, random_state=random_state)


def lines_of(
    ctx: Context,
    name: str,
    methods: Mapping[str, Mapping[str, Any]],
    sizes: Mapping[str, Sequence[int]],
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
    sizes : mapping
        Numbers of components of each line.
    plan : Sizes
    rows : sequence of two int or None
        As in `point`.
    """
    shared = {"name": name, "rows": list(rows), "seed": ctx.seed}
    grids = {
        label: list(plan.grid if method["method"] in CODED else plan.dense_grid) for label, method in methods.items()
    }
    tasks = {
        _key(name, method, k, repeat): {**shared, **method, "grid": grids[label], "k": k, "repeat": repeat}
        for label, method in methods.items()
        for k in reversed(sizes[label])  # the longest first
        for repeat in range(plan.repeats[k])
    }
    found = ctx.cached_all(point, tasks, str(ctx.data))
    lines = []
    for label, method in methods.items():
        means, spreads, by_c = [], [], []
        for k in sizes[label]:
            tried = np.array([found[_key(name, method, k, repeat)] for repeat in range(plan.repeats[k])])
            best = int(tried.mean(axis=0).argmax())
            means.append(float(tried[:, best].mean()))
            spreads.append(float(tried[:, best].std(ddof=1)) if len(tried) > 1 else 0.0)
            by_c.append([float(mean) for mean in tried.mean(axis=0)])
        lines.append(
            Line(label, sizes[label], means, spreads, [plan.repeats[k] for k in sizes[label]], by_c, grids[label])
        )
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
    return f"{name}-{method['method']}{code}-{k}-{repeat}"
