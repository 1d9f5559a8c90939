"""Laplace features by circulant and alternating circulant matrices: errors of Gram matrices, covariances, times.

Y. Mukuta, Y. Ushiku and T. Harada, "Alternating Circulant Random Features for Semigroup Kernels", AAAI 2018: Theorems 1
to 3, figure 1 and tables 2 to 5.

The paper compares four ways to arrange the weights of random Laplace features: all independent, one circulant matrix
for each block of d components, and a mixture of m circulant matrices for each block, with m = 2 and m = log2 d. Weights
are positive, so random signs cannot remove the dependence within a circulant block. The paper measures the covariance
of two neighbours in a block, the error of Gram matrices, and the times for a batch and for a single row.

Here rows are histograms of sum 1: grey values of digits, word counts of news texts, and Dirichlet draws. They are
padded with zeros to a power of two columns, as the fast transform would do, so that d is the same in theorems and
features. The parameter of each kernel is chosen so that the kernel's median over pairs of rows is 1/e.

`reproduction.theory.circulant` has the theorems, `dkfeat.LaplaceFeatures` the features, `dkfeat.kernels` both kernels.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..experiment import Cell, Context, Experiment, Picture, Results, Table, Verdict
from ..pages.panels import Curve, Panel, panels_picture
from ..sampling import MAX_DEVIATION, on_theory
from .laplace_measures import (
    BATCH,
    BLOCKS,
    KERNELS,
    METHODS,
    SHOWN,
    WIDTHS,
    gram_errors,
    histograms,
    neighbours,
    seconds_a_row,
)

SETTINGS: dict[str, Any] = {
    "quick": {"rows": 60, "repeats": 30, "pairs_repeats": 400, "words": 4096, "times": [1024, 4096]},
    "full": {"rows": 200, "repeats": 60, "pairs_repeats": 2000, "words": 16_384, "times": [1024, 4096, 16_384]},
}
Cells = dict[tuple[str, str, str], Any]
"""Measurements by rows, kernel and method."""
Times = dict[int, dict[str, list[float]]]
"""Seconds for a row in a batch and for a single row, by d and method."""


def run(context: Context) -> Results:
    """Measure errors, covariances and times."""
    settings = SETTINGS[context.mode]
    rows = histograms(context, settings["rows"], settings["words"])
    repeats, pairs_repeats = settings["repeats"], settings["pairs_repeats"]
    errors, first, covariances = ({} for _ in range(3))
    for source, X in rows.items():
        if X is not None and source in SHOWN:
            errors |= _measured(context, gram_errors, source, X, list(METHODS), repeats=repeats, blocks=list(BLOCKS))
            first |= _measured(context, gram_errors, source, X, ["random"], repeats=10 * repeats, blocks=[BLOCKS[0]])
        if X is not None:
            covariances |= _measured(context, neighbours, source, X, list(METHODS)[1:], repeats=pairs_repeats)
    times = {}
    for d in settings["times"]:
        context.progress(f"times, d = {d:,}")
        times[d] = context.cached(f"times-{d}", partial(seconds_a_row, d, context.seed))
    return Results(
        tables=[_errors_table(errors, rows), _covariances_table(covariances), _times_table(times)],
        pictures=[_errors_picture(errors, kernel) for kernel in KERNELS]
        + [_covariances_picture(covariances), _times_picture(times)],
        verdicts=_verdicts(errors, first, covariances, times),
    )


def _measured(context: Context, compute: Any, source: str, X: Any, methods: list[str], **settings: Any) -> Cells:
    """Compute the measurements of a function on rows, for both kernels and some methods."""
    name = f"{compute.__name__}-{source}-{X.shape[0]}x{X.shape[1]}"
    keys = {(source, kernel, method): f"{name}-{kernel}-{i}" for kernel in KERNELS for i, method in enumerate(methods)}
    common = {**settings, "seed": context.seed}
    tasks = {key: {"kernel": kernel, "method": method, **common} for (_, kernel, method), key in keys.items()}
    values = context.cached_all(compute, tasks, X)
    return {index: values[key] for index, key in keys.items()}


def _errors_table(errors: Cells, rows: dict[str, Any]) -> Table:
    whole = BLOCKS.index(1)
    table: list[list[Cell]] = []
    for source in SHOWN:
        if rows[source] is None:
            table.append([source, "no data", None, *[None] * len(METHODS)])
            continue
        for kernel in KERNELS:
            found = [errors[source, kernel, method] for method in METHODS]
            roots = [float(np.sqrt(each["mean"][whole])) for each in found]
            table.append([source, kernel, rows[source].shape[1], *roots])
    return Table("Relative error of Gram matrices, d components", ["rows", "kernel", "d", *METHODS], table)


def _covariances_table(covariances: Cells) -> Table:
    rows: list[list[Cell]] = []
    for source, kernel in dict.fromkeys(index[:2] for index in covariances):
        cells = [covariances[source, kernel, method] for method in list(METHODS)[1:]]
        rows.append([source, kernel, *[cell[name] for cell in cells for name in ("ratio", "theory")]])
    columns = [f"{method}{end}" for method in list(METHODS)[1:] for end in (", measured", ", theory")]
    title = "Covariance of neighbouring components over their variance"
    distances = [abs(cell["ratio"] - cell["theory"]) for cell in covariances.values()]
    distance = f"Median difference from the theorems: {np.median(distances):.2g}." if distances else ""
    return Table(title, ["rows", "kernel", *columns], rows, "Random features have none.", distance)


def _times_table(times: Times) -> Table:
    rows: list[list[Cell]] = []
    for index, name in enumerate(("in a batch", "alone")):
        for d, found in times.items():
            microseconds = [1e6 * found[method][index] for method in METHODS]
            gains = [microseconds[0] / each for each in microseconds[1:]]
            rows.append([name, d, *[round(each, 1) for each in microseconds], *[round(gain, 1) for gain in gains]])
    columns = [*(f"{method}, µs" for method in METHODS), *(f"{method}, times faster" for method in list(METHODS)[1:])]
    note = f"One core, d components, batches of {BATCH} rows. Random: a product by NumPy, with weights drawn before."
    return Table("Time of a row", ["row", "d", *columns], rows, note)


def _verdicts(errors: Cells, first: Cells, covariances: Cells, times: Times) -> list[Verdict]:
    whole, wrong = BLOCKS.index(1), []
    for source, kernel in dict.fromkeys(index[:2] for index in errors):
        means = [errors[source, kernel, method]["mean"][whole] for method in METHODS]
        if means != sorted(means):
            wrong.append(f"{source}, {kernel}")
    off = [(cell["ratio"] - cell["theory"]) / cell["error"] for cell in covariances.values()]
    gains = {
        method: [[found["random"][index] / found[method][index] for found in times.values()] for index in (0, 1)]
        for method in list(METHODS)[1:]
    }
    largest = max(times)
    return [
        Verdict(
            "Errors rank: random, alternating with m = log₂ d, alternating with m = 2, circulant.",
            not wrong,
            f"At d components, otherwise for {'; '.join(wrong)}."
            if wrong
            else f"At d components, all {len(first)} times.",
        ),
        Verdict("Random Laplace features have the variance of Theorem 1.", *on_theory(first.values())),
        Verdict(
            "Neighbouring components have the covariances of Theorems 2 and 3.",
            max(map(abs, off)) < MAX_DEVIATION,
            f"{len(off)} covariances, at most {max(map(abs, off)):.1f} standard errors off.",
        ),
        Verdict(
            "Alternating circulant features take less time than random ones, the more so the larger d is.",
            all(g[-1] > 1 and g == sorted(g) for method in list(METHODS)[1:3] for g in gains[method]),
            f"At d = {largest:,}, batch and single row: "
            + "; ".join(
                f"{method}: {gains[method][0][-1]:.1f} and {gains[method][1][-1]:.1f} times" for method in gains
            )
            + ".",
        ),
    ]


def _errors_picture(errors: Cells, kernel: str) -> Picture:
    panels = []
    for source in dict.fromkeys(index[0] for index in errors):
        curves = []
        for i, method in enumerate(METHODS):
            found = errors[source, kernel, method]
            curves.append(Curve(method, found["sizes"], np.sqrt(found["mean"]), i))
        random = errors[source, kernel, "random"]
        curves.append(Curve("Theorem 1", random["sizes"], np.sqrt(random["theory"]), -1, "dashes"))
        panels.append(Panel(source, "components", "relative error", curves, "log", "log"))
    text = "Root mean squared relative error of Gram matrices against the number of components. Dashes: Theorem 1."
    return panels_picture(f"errors-{kernel}", f"Figure 1: errors of Gram matrices, {kernel} kernel", panels, text)


def _covariances_picture(covariances: Cells) -> Picture:
    panels = []
    for kernel in KERNELS:
        curves = []
        for i, method in enumerate(list(METHODS)[1:], start=1):
            cells = [covariances[f"synthetic-{d}", kernel, method] for d in WIDTHS]
            curves.append(Curve("", WIDTHS, [cell["theory"] for cell in cells], i, "line"))
            measured, error = ([cell[name] for cell in cells] for name in ("ratio", "error"))
            curves.append(Curve(method, WIDTHS, measured, i, "marks", error))
        panels.append(Panel(f"{kernel} kernel, synthetic histograms", "d", "covariance / variance", curves, "log"))
    text = "Covariance of neighbouring components over their variance. Lines: Theorems 2 and 3; marks: measured."
    return panels_picture("covariances", "Covariance of neighbours against d", panels, text)


def _times_picture(times: Times) -> Picture:
    panels = []
    for index, name in enumerate((f"rows in batches of {BATCH}", "single rows")):
        curves = [
            Curve(method, list(times), [1e6 * found[method][index] for found in times.values()], i)
            for i, method in enumerate(METHODS)
        ]
        panels.append(Panel(name, "d", "µs a row", curves, "log", "log"))
    return panels_picture(
        "times", "Time of a row against d", panels, "Processor time of a row with d components against d."
    )


EXPERIMENT = Experiment(
    name="laplace_gram",
    title="Laplace features by alternating circulant matrices",
    source="Y. Mukuta, Y. Ushiku, T. Harada, Alternating Circulant Random Features for Semigroup Kernels, AAAI 2018: "
    "Theorems 1–3, figure 1, tables 2–5",
    split_note=(
        "Rows drawn by seed from the training halves of mnist10k (grey values) and news20 (counts of the words that "
        "most texts have), and Dirichlet draws; divided by their sums, padded with zeros to 2ⁿ columns."
    ),
    differences=[
        "The paper's histograms of visual words are not available; digits and texts are used instead.",
        "Parameters of the kernels are chosen so that their median over pairs of rows of any class is 1/e. For rows "
        "of sum 1 this makes the reciprocal kernel nearly constant, and its errors small.",
        "Times are those of other programs on one core of another machine: only their order and growth are compared. "
        "Lévy weights are transformed in float64.",
    ],
    run=run,
)
