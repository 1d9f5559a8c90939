"""Accuracy of linear machines on features against their number: what two experiments have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dkfeat import FourierFeatures, GCWSFeatures, NystroemFeatures

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
    "lines_of",
    "needed_k",
    "paint_lines",
    "plain",
    "point",
]

PASSES = 100
"""Of LIBLINEAR over features, at most."""
GAMMA_ROWS = 2_000
"""Training rows on which γ is chosen."""


@dataclass(frozen=True, slots=True)
class Line:
    """Test accuracy in percent of one method against the number of components k."""

    label: str
    k: Sequence[int]
    mean: Sequence[float]
    """Over the repetitions, at the C that is best for this k."""
    spread: Sequence[float]
    """Standard deviation over the repetitions."""
    repeats: Sequence[int]
    by_c: Sequence[Sequence[float]]
    """Mean at each C."""
    C: Sequence[float] = ()

    def first_above(self, level: float) -> int | None:
        """Smallest k whose mean is above a level."""
        return next((k for k, mean in zip(self.k, self.mean, strict=True) if mean > level), None)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of components, and how often each is repeated with other random numbers."""

    repeats: Mapping[int, int]
    grid: Sequence[float]
    """Values of C on sparse features, of GCWS."""
    dense_grid: Sequence[float]
    """Values of C on dense features, the best of which is often much larger."""
    most_work: float = math.inf
    """Training rows times classes times k beyond which a point on sparse features is left out."""
    most_dense_work: float = math.inf
    """The same on dense features."""

    def of(self, rows: int, classes: int, *, dense: bool = True) -> list[int]:
        """Numbers of components that are not too many for a set."""
        most = self.most_dense_work if dense else self.most_work
        return [k for k in self.repeats if rows * max(1, classes - (classes == 2)) * k <= most]


def best_gammas(ctx: Context, trained: Mapping[str, int]) -> dict[str, float]:
    """γ of the best exact RBF machine of each set, on at most `GAMMA_ROWS` of its training rows."""
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
) -> list[float]:
    """Test accuracy at each C of a linear machine on features of a set.

    Parameters
    ----------
    data : str
        Folder of data sets.
    name : str
    rows : sequence of two int or None
        At most so many training and test rows.
    method : {"gcws", "nrff", "rff", "gmm-nys", "rbf-nys"}
    k : int
        Components.
    bits : int or None
        b, of "gcws".
    gamma : float or None
        Of the RBF kernels.
    grid : sequence of float
        Values of C.
    seed, repeat : int
        Rows are drawn by the first, features by both.
    """
    found = load_rows(data, name)
    assert found is not None
    found = found.some(rows[0], rows[1], seed)
    random_state = 1000 * seed + repeat
    if method == "gcws":
        features: Any = GCWSFeatures(k, i_bits=bits or 8, random_state=random_state)
    elif method in ("nrff", "rff"):
        features = FourierFeatures(k, gamma=gamma or 1.0, normalize=method == "nrff", random_state=random_state)
    else:
        kernel, params = ("gmm", None) if method == "gmm-nys" else ("rbf_cosine", {"gamma": gamma})
        features = NystroemFeatures(k, kernel=kernel, kernel_params=params, random_state=random_state)
    train = features.fit(found.X).transform(found.X).astype(np.float64)
    test = features.transform(found.X_test).astype(np.float64)
    solver: dict[str, Any] = {"loss": "squared_hinge", "passes": PASSES, "seed": seed}
    if method == "gcws":  # rows of k ones: to length 1, as the others nearly are
        train, test = train / math.sqrt(k), test / math.sqrt(k)
    else:  # the dual solver is far from the optimum where C is large, and so unfair to features that want it so
        solver |= {"dual": False, "tol": 0.01}
    return linear_accuracies(train, found.y, test, found.y_test, grid, **solver)


def lines_of(
    ctx: Context,
    name: str,
    methods: Mapping[str, Mapping[str, Any]],
    sizes: Mapping[str, Sequence[int]],
    plan: Sizes,
    rows: Sequence[int | None],
) -> list[Line]:
    """Lines of several methods on one set.

    Parameters
    ----------
    ctx : Context
    name : str
        Of the set.
    methods : mapping
        ``method``, ``bits`` and ``gamma`` of each line by its label.
    sizes : mapping
        Numbers of components of each line.
    plan : Sizes
    rows : sequence of two int or None
        As of `point`.
    """
    shared = {"name": name, "rows": list(rows), "seed": ctx.seed}
    grids = {
        label: list(plan.grid if method["method"] == "gcws" else plan.dense_grid) for label, method in methods.items()
    }
    tasks = {
        _key(name, method, k, repeat): {**shared, **method, "grid": grids[label], "k": k, "repeat": repeat}
        for label, method in methods.items()
        for k in reversed(sizes[label])  # the long ones first
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
    """Components that reach a level, between the measured ones by a straight line over log k; None: not reached.

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
    """Draw lines over log k, in these colours of the style, with bars of one standard deviation, and level lines.

    Their names stand above.
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
    """Lines as JSON values."""
    return [asdict(line) for line in lines]


def _key(name: str, method: Mapping[str, Any], k: int, repeat: int) -> str:
    bits = method.get("bits")
    return f"{name}-{method['method']}{'' if bits is None else bits}-{k}-{repeat}"
