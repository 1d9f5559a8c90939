"""GMM of long rows under t-distributions: its limit, its variance, and estimates of the correlation.

P. Li and C.-H. Zhang, "Theory of the GMM Kernel", WWW 2017, Theorems 1 to 3 and figures 7 to 9.

The paper draws the n coordinates of two rows as pairs from a bivariate t-distribution and studies their GMM g_n as n
grows: at n = 1 its mean is f_1, and it tends to f_infinity where the distribution has a mean (more than 1 degree of
freedom), with an asymptotic variance where it has a variance (more than 2). Solving for the correlation gives an
estimate from g_n, which is compared with the cosine, an estimate that needs four moments.

No data are read, and nothing is normalised: both coordinates have the same scale.

`reproduction.theory.gmm` has the theorems, `dkfeat.kernels.gmm` the similarity. (`GCWSFeatures.estimate_correlation`
gives the same estimate from codes.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat import kernels

from ..experiment import Context, Experiment, Picture, Results, Table, Verdict
from ..pages.panels import Curve, Panel, panels_picture
from ..sampling import MAX_DEVIATION, mean_squares
from ..theory import gmm

SETTINGS: dict[str, Any] = {
    "quick": {"sizes": [1, 10, 100, 1000, 10_000], "repeats": 250},
    "full": {"sizes": [1, 10, 100, 1000, 10_000], "repeats": 3000},
}
DEGREES = (0.5, 1.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, None)
"""Degrees of freedom; None is the normal distribution."""
CORRELATIONS = (0.0, 0.5, 0.8)
LIMITS = (0.5, 1.5, 3.0, None)
"""Degrees of freedom whose means are drawn."""
VARIANCES = (3.0, 5.0, 8.0, None)
"""Degrees of freedom whose variances are drawn."""
MIN_DF = 5.0
"""Degrees of freedom from which Theorem 2 is checked at the longest rows."""
BETTER = 6.0
"""Degrees of freedom up to which measured errors must favour GMM; by theory they do up to 8.7 at correlation 0."""
Cells = dict[tuple[float | None, float], dict[str, Any]]


def draw_pair(random: np.random.Generator, df: float | None, rho: float, n: int) -> NDArray[np.float64]:
    """Draw two rows whose coordinates are n pairs from a t-distribution of correlation rho."""
    rows = random.standard_normal((2, n))
    rows[1] = rho * rows[0] + math.sqrt(1 - rho**2) * rows[1]
    return rows if df is None else rows / np.sqrt(random.chisquare(df, n) / df)


def similarities(*, df: float | None, rho: float, sizes: list[int], repeats: int, seed: int) -> Any:
    """Simulate growing rows: mean and spread of GMM, n times squared errors of GMM and of both correlations, by n."""
    random = np.random.default_rng([seed, round(100 * (df or 0)), round(100 * rho)])
    found = np.empty((2, repeats, len(sizes)))
    for i in range(repeats):
        x, y = draw_pair(random, df, rho, max(sizes))
        for j, n in enumerate(sizes):
            found[0, i, j] = kernels.gmm(x[None, :n], y[None, :n])[0, 0]
            found[1, i, j] = x[:n] @ y[:n] / (np.linalg.norm(x[:n]) * np.linalg.norm(y[:n]))
    similarity, cosine = found
    roots = np.sqrt(sizes)
    return {
        "mean": similarity.mean(axis=0),
        "spread": similarity.std(axis=0, ddof=1),
        "gmm": mean_squares(roots * (similarity - gmm.f_infinity(rho))),
        "rho_gmm": mean_squares(roots * (gmm.rho_from_gmm(similarity) - rho)),
        "rho_cosine": mean_squares(roots * (cosine - rho)),
    }


def run(context: Context) -> Results:
    """Simulate, and compare with the theorems."""
    settings = SETTINGS[context.mode]
    names = {(df, rho): f"t-{df or 'normal'}-{rho:g}" for df in DEGREES for rho in CORRELATIONS}
    tasks = {name: {"df": df, "rho": rho, **settings, "seed": context.seed} for (df, rho), name in names.items()}
    found = context.cached_all(similarities, tasks)
    cells = {index: found[name] for index, name in names.items()}
    sizes = settings["sizes"]
    return Results(
        tables=[_limits_table(cells, sizes), _estimates_table(cells, sizes)],
        pictures=[_limits(cells, sizes), _variances(cells, sizes), _estimates(cells, sizes)],
        verdicts=_verdicts(cells, settings),
    )


def _name(df: float | None) -> str:
    return "normal" if df is None else f"ν = {df:g}"


def _theories(df: float | None, rho: float) -> dict[str, float]:
    """Compute asymptotic variances times n; infinite if undefined."""
    nu = math.inf if df is None else df
    if nu <= 1:
        return dict.fromkeys(("gmm", "rho_gmm", "rho_cosine"), math.inf)
    return {
        "gmm": float(gmm.gmm_variance(rho, nu)),
        "rho_gmm": float(gmm.rho_from_gmm_variance(rho, nu)),
        "rho_cosine": float(gmm.rho_from_cosine_variance(rho, nu)),
    }


def _limits_table(cells: Cells, sizes: list[int]) -> Table:
    rows = [
        [
            _name(df),
            rho,
            float(gmm.f_1(rho)),
            mean[0],
            float(gmm.f_infinity(rho)),
            mean[-1],
            cells[df, rho]["spread"][-1],
        ]
        for df in LIMITS
        for rho in CORRELATIONS
        for mean in [cells[df, rho]["mean"]]
    ]
    columns = ["law", "ρ", "f₁", "mean, n = 1", "f∞", f"mean, n = {sizes[-1]:,}", "its standard deviation"]
    note = "Below 1 degree of freedom there is no mean, and no limit is claimed."
    distance = f"Largest difference from f∞: {max(_distances(cells).values()):.2g}."
    return Table("Mean of GMM", columns, rows, note, distance)


def _distances(cells: Cells) -> dict[Any, float]:
    """Return the distances of the mean of the longest rows from f∞, where there is a mean."""
    return {
        index: abs(cell["mean"][-1] - float(gmm.f_infinity(index[1])))
        for index, cell in cells.items()
        if (index[0] or math.inf) > 1
    }


def _estimates_table(cells: Cells, sizes: list[int]) -> Table:
    rows: list[list[Any]] = []
    ratios: list[float] = []
    for rho in CORRELATIONS:
        for df in DEGREES[2:]:
            row: list[Any] = [rho, _name(df)]
            for name, theory in _theories(df, rho).items():
                found = cells[df, rho][name]["mean"][-1]
                row += [found, theory if math.isfinite(theory) else "infinite"]
                ratios += [found / theory] if math.isfinite(theory) else []
            ratio = cells[df, rho]["rho_gmm"]["mean"][-1] / cells[df, rho]["rho_cosine"]["mean"][-1]
            rows.append([*row, ratio])
    columns = [
        "ρ",
        "law",
        "GMM",
        "Theorem 2",
        "ρ̂ from GMM",
        "Theorem 3",
        "ρ̂ from cosine",
        "Theorem 3",
        "ρ̂: GMM / cosine",
    ]
    distance = f"Median difference from the theorems: {np.median(np.abs(np.subtract(ratios, 1))):.1%}."
    return Table(f"n × mean squared error at n = {sizes[-1]:,}", columns, rows, distance=distance)


def _verdicts(cells: Cells, settings: dict[str, Any]) -> list[Verdict]:
    n, root = settings["sizes"][-1], math.sqrt(settings["repeats"])
    first = max(
        abs(cell["mean"][0] - float(gmm.f_1(rho))) * root / cell["spread"][0] for (_, rho), cell in cells.items()
    )
    far = _distances(cells)
    ratios, worst = [], 0.0
    for (df, rho), cell in cells.items():
        if (df or math.inf) >= MIN_DF:
            for name in ("gmm", "rho_gmm"):
                theory = _theories(df, rho)[name]
                ratios.append(cell[name]["mean"][-1] / theory)
                worst = max(worst, abs(ratios[-1] - 1) / (cell[name]["error"][-1] / theory))
    gains = {index: cell["rho_gmm"]["mean"][-1] / cell["rho_cosine"]["mean"][-1] for index, cell in cells.items()}
    heavy = max(gain for (df, _), gain in gains.items() if 2 < (df or math.inf) <= BETTER)
    normal = [gains[None, rho] for rho in CORRELATIONS]
    unsettled = cells[0.5, 0.5]["spread"]
    return [
        Verdict(
            "At n = 1 the mean is f₁ for every distribution.",
            first < MAX_DEVIATION,
            f"At most {first:.1f} standard errors off.",
        ),
        Verdict(
            "GMM tends to f∞ for every distribution that has a mean.",
            max(far.values()) < 0.01,
            f"The mean at n = {n:,} is at most {max(far.values()):.2g} off; the farthest is "
            f"{_name(max(far, key=lambda index: far[index])[0])}.",
        ),
        Verdict(
            "Without a mean it remains random.",
            unsettled[-1] > 0.5 * unsettled[1],
            f"ν = 0.5, ρ = 0.5: standard deviation {unsettled[1]:.2g} at n = 10, {unsettled[-1]:.2g} at n = {n:,}.",
        ),
        Verdict(
            f"The variances of GMM and of its estimate of ρ are as in Theorems 2 and 3, for ν of {MIN_DF:g} and more.",
            worst < MAX_DEVIATION,
            f"Measured over theory at n = {n:,}: {min(ratios):.3f} to {max(ratios):.3f}, at most {worst:.1f} standard "
            "errors off.",
        ),
        Verdict(
            "GMM estimates ρ better than the cosine where tails are heavy, and not much worse for normal data.",
            bool(heavy < 1 and min(normal) > 1),
            f"Mean squared error over that of the cosine: at most {heavy:.2f} for ν = 3 to {BETTER:g}, "
            f"{min(normal):.2f} to {max(normal):.2f} for normal data. By theory they cross at "
            f"ν = {_crossing(0.0):.1f} for ρ = 0 and {_crossing(0.8):.1f} for ρ = 0.8.",
        ),
    ]


def _crossing(rho: float) -> float:
    nu = np.linspace(4.5, 40, 3551)
    return float(nu[np.argmax(gmm.rho_from_gmm_variance(rho, nu) > gmm.rho_from_cosine_variance(rho, nu))])


def _limits(cells: Cells, sizes: list[int]) -> Picture:
    panels = []
    for rho in CORRELATIONS:
        curves = [
            Curve(_name(df), sizes, cells[df, rho]["mean"], i, error=cells[df, rho]["spread"])
            for i, df in enumerate(LIMITS)
        ]
        curves.append(Curve("f₁ and f∞", sizes[:2], [float(gmm.f_1(rho))] * 2, -1, "dashes"))
        curves.append(Curve("", sizes, [float(gmm.f_infinity(rho))] * len(sizes), -1, "dashes"))
        panels.append(Panel(f"ρ = {rho:g}", "n", "GMM", curves, "log"))
    text = (
        "Mean of GMM against the length of rows, with bars of one standard deviation, for four distributions and "
        "three correlations."
    )
    return panels_picture("limits", "Figure 7: GMM of growing rows", panels, text)


def _variances(cells: Cells, sizes: list[int]) -> Picture:
    panels = []
    for rho in CORRELATIONS:
        curves = []
        for i, df in enumerate(VARIANCES):
            cell = cells[df, rho]["gmm"]
            curves.append(Curve("", sizes[1:], [_theories(df, rho)["gmm"]] * (len(sizes) - 1), i, "dashes"))
            curves.append(Curve(_name(df), sizes[1:], cell["mean"][1:], i, error=cell["error"][1:]))
        panels.append(Panel(f"ρ = {rho:g}", "n", "n × squared error", curves, "log", ylim=(0, None)))
    text = "n times the mean squared distance of GMM from its limit. Dashes: Theorem 2; marks: measured."
    return panels_picture("variances", "Figure 8: spread of GMM about its limit", panels, text)


def _estimates(cells: Cells, sizes: list[int]) -> Picture:
    fine, panels = np.geomspace(2.2, 60, 150), []
    for rho in CORRELATIONS:
        curves = []
        for i, (name, label) in enumerate((("rho_gmm", "from GMM"), ("rho_cosine", "the cosine"))):
            theory = {nu: _theories(nu, rho)[name] for nu in fine}
            seen = [nu for nu in fine if theory[nu] < 30]
            curves.append(Curve("", seen, [theory[nu] for nu in seen], i, "line"))
            measured = [cells[df, rho][name]["mean"][-1] for df in DEGREES[2:-1]]
            error = [cells[df, rho][name]["error"][-1] for df in DEGREES[2:-1]]
            curves.append(Curve(label, list(DEGREES[2:-1]), measured, i, "marks", error))
        panels.append(Panel(f"ρ = {rho:g}", "degrees of freedom ν", "n × squared error", curves, "log", "log"))
    text = f"n times the squared error of two estimates. Lines: Theorem 3; marks: measured at n = {sizes[-1]:,}."
    return panels_picture("estimates", "Figure 9: the correlation from GMM and from the cosine", panels, text)


EXPERIMENT = Experiment(
    name="gmm_convergence",
    title="GMM of long rows under t-distributions",
    source="P. Li and C.-H. Zhang, Theory of the GMM Kernel, WWW 2017: Theorems 1–3, figures 7–9",
    split_note="No data. Coordinates of two rows are independent pairs of a bivariate t-distribution of equal scales.",
    differences=[
        "Shorter rows are the first columns of the longest ones, so the points of a curve are not independent.",
        "Theorems 2 and 3 are asymptotic. For 3 and 4 degrees of freedom the variances converge slowly: they are "
        "shown, but not checked.",
    ],
    run=run,
)
