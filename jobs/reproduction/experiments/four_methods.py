"""Four linearisations of two kernels: GMM and RBF, each by random samples and by landmarks.

The papers train LIBLINEAR on k features of four kinds and compare accuracy at equal k:

* GMM-GCWS, ``dkfeat.GCWSFeatures``: samples of the GMM kernel, 8 bits of each.
* GMM-NYS, ``dkfeat.NystroemFeatures(kernel="gmm")``: Nyström features of the GMM kernel, from k rows of the data.
* RBF-NYS, ``dkfeat.NystroemFeatures(kernel="rbf_cosine")``: Nyström features of the RBF kernel.
* RBF-RFF, ``dkfeat.FourierFeatures(normalize=False)``: random Fourier features of the RBF kernel.

GMM features use unscaled values, RBF features rows of length 1; γ is the best one of the exact RBF machine. The papers
state that RBF-RFF needs many more features than GMM-GCWS, and that GMM-NYS is a strong rival of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..experiment import Context, Experiment, Picture, Results, Table, Verdict
from ..machines.accuracies import decades
from ..machines.best import linear_best
from ..pages.figures import Style
from .curves import GAMMA_ROWS, Line, Sizes, best_gammas, lines_of, needed_k, paint_lines, plain

SETS: Mapping[str, str] = {
    "letter": "Letter",
    "covtype20k": "Covertype, 20,000 rows",
    "rcv1": "RCV1, 23,750 rows",
}
METHODS = {"GMM-GCWS": "gcws", "GMM-NYS": "gmm-nys", "RBF-NYS": "rbf-nys", "RBF-RFF": "rff"}
GCWS, GMM_NYS, RBF_NYS, RFF = METHODS
FULL = Sizes({32: 3, 64: 3, 128: 3, 256: 2, 512: 1, 1024: 1}, decades(-1, 1), decades(0, 3))
QUICK = Sizes({32: 2, 128: 2, 512: 1}, (1.0, 10.0), (1.0, 10.0, 100.0, 1000.0))
FULL_ROWS, QUICK_ROWS = (15_000, 15_000), (1_500, 1_500)


def run(ctx: Context) -> Results:
    """Measure all available sets."""
    plan, rows = (QUICK, QUICK_ROWS) if ctx.quick else (FULL, FULL_ROWS)
    available = {name: found for name in SETS if (found := ctx.rows(name)) is not None}
    trained = {name: min(rows[0], len(found.y)) for name, found in available.items()}
    gammas = best_gammas(ctx, trained)
    linear = ctx.cached_all(
        linear_best,
        {
            name: {
                "name": name,
                "seed": ctx.seed,
                "rows": trained[name],
                "test_rows": rows[1],
                "grid": decades(-2, 3),
            }
            for name in available
        },
        str(ctx.data),
    )
    measured: list[dict[str, Any]] = []
    for name in available:
        gamma = gammas[name]
        methods = {
            label: {
                "method": method,
                "bits": 8 if method == "gcws" else None,
                "gamma": gamma if label.startswith("RBF") else None,
            }
            for label, method in METHODS.items()
        }
        lines = lines_of(ctx, name, methods, plan, rows)
        measured.append(
            {
                "name": name,
                "title": SETS[name],
                "gamma": gamma,
                "linear": linear[name]["accuracy"],
                "lines": lines,
            }
        )
    return Results(_tables(measured), [_picture(each, plan) for each in measured], _verdicts(measured))


def _line(each: Mapping[str, Any], label: str) -> Line:
    found: Line = next(line for line in each["lines"] if line.label == label)
    return found


def _tables(measured: Sequence[Mapping[str, Any]]) -> list[Table]:
    rows: list[list[Any]] = []
    for name, title in SETS.items():
        each = next((each for each in measured if each["name"] == name), None)
        if each is None:
            rows.append([title, "no data", *([None] * (len(METHODS) + 1))])
            continue
        for at, k in enumerate(_line(each, GCWS).k):
            rows.append([title, k, *(_line(each, label).mean[at] for label in METHODS), each["linear"]])
    needed = [
        [each["title"], _line(each, RFF).mean[-1], *(_needed(each, label) for label in METHODS)] for each in measured
    ]
    return [
        Table(
            "Test accuracy in percent at equal k",
            ["Set", "k", *METHODS, "Linear"],
            rows,
            "Means over the repetitions at the best C.",
        ),
        Table(
            "Features that reach what RBF-RFF has at its largest k",
            ["Set", "Accuracy, %", *METHODS],
            needed,
            "Interpolated linearly in log k between the measured values.",
        ),
    ]


def _needed(each: Mapping[str, Any], label: str) -> str:
    line = _line(each, label)
    k = needed_k(line, _line(each, RFF).mean[-1])
    if k is None:
        return f"> {line.k[-1]:,}"
    return f"≤ {line.k[0]:,}" if k <= line.k[0] else f"{round(k):,}"


def _verdicts(measured: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    factors: dict[str, float] = {}
    words: dict[str, str] = {}
    for each in measured:
        level = _line(each, RFF).mean[-1]
        k, of_rff = needed_k(_line(each, GCWS), level), needed_k(_line(each, RFF), level)
        factor = factors[each["title"]] = of_rff / k if k and of_rff else 0.5
        at_least = "at least " if k and k <= _line(each, GCWS).k[0] else ""
        words[each["title"]] = f"{at_least}{factor:.1f} times as many"
    gaps = {
        each["title"]: float(np.mean(np.subtract(_line(each, GMM_NYS).mean, _line(each, RFF).mean)))
        for each in measured
    }
    landmarks = {
        each["title"]: float(np.mean(np.subtract(_line(each, GMM_NYS).mean, _line(each, RBF_NYS).mean)))
        for each in measured
    }
    some = bool(measured)
    return [
        Verdict(
            "RBF-RFF needs more features than GMM-GCWS for the same accuracy.",
            min(factors.values()) > 1 if some else None,
            _listed(words),
        ),
        Verdict(
            "GMM-NYS is better than RBF-RFF at equal k, in the mean over k.",
            min(gaps.values()) > 0 if some else None,
            _listed({title: f"{gap:+.1f} points" for title, gap in gaps.items()}),
        ),
        Verdict(
            "With landmarks too, GMM is at least as accurate as the tuned RBF kernel, in the mean over k and the sets.",
            float(np.mean(list(landmarks.values()))) >= 0 if some else None,
            _listed({title: f"{gap:+.1f} points" for title, gap in landmarks.items()}),
        ),
    ]


def _listed(words: Mapping[str, str]) -> str:
    return "; ".join(f"{title}: {word}" for title, word in words.items()) + "." if words else ""


def _picture(each: Mapping[str, Any], plan: Sizes) -> Picture:
    repeats = ", ".join(f"{count} at k = {k:,}" for k, count in plan.repeats.items())
    return Picture(
        each["name"],
        each["title"],
        partial(_paint, each),
        {"linear": each["linear"], "gamma": each["gamma"], "lines": plain(each["lines"])},
        f"Test accuracy on {each['title']} against the number of features, at the best C; γ = {each['gamma']:g}. Bars "
        f"are one standard deviation over repetitions ({repeats}).",
    )


def _paint(each: Mapping[str, Any], figure: Any, style: Style) -> None:
    paint_lines(figure, each["lines"], range(len(METHODS)), {"linear": each["linear"]}, style)


EXPERIMENT = Experiment(
    name="four_methods",
    title="GMM-GCWS, GMM-NYS, RBF-NYS and RBF-RFF",
    source="P. Li, C.-H. Zhang, Theory of the GMM Kernel, WWW 2017: figures 1 to 6",
    split_note=(
        "All training and test rows of the files. Rows are not scaled for GMM features, and scaled to length 1 for RBF "
        "features and the linear machine. The tables have the best test accuracy over C."
    ),
    differences=(
        "Machines have squared hinge loss and no bias, and are trained for all classes at once by Newton's method, to "
        "within 1/10,000 of LIBLINEAR's objective or below it. C is 0.1, 1 and 10 for GCWS, and 1 to 1,000 for dense "
        "features. The linear machine on the rows is LIBLINEAR's as it stops after 1,000 passes.",
        f"γ is that of the exact RBF machine on at most {GAMMA_ROWS:,} training rows, searched among 21 values from "
        "0.001 to 500.",
        "Letter has all rows of the papers. Covertype and RCV1 are parts of their sets, whose accuracies cannot be "
        "compared with the papers', but the order of the methods can.",
        "The papers have their accuracies as curves only, without numbers, so no distance from them can be stated; the "
        "statements above are what can be compared.",
        f"Quick mode takes at most {QUICK_ROWS[0]:,} training and test rows and k up to 512.",
    ),
    run=run,
)
