"""Random Maclaurin features of dot-product kernels: their errors, accuracies and times.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012: figures 1 and 2, table 1.

The paper draws 100 points from the unit ball in 10 to 200 dimensions and measures how the error of their Gram matrix
falls with the number of components D, for three kernels. Then it trains LIBLINEAR on features of a polynomial kernel
and of an exponential one, and compares accuracy and times with LIBSVM and the exact kernel: with plain random features
(RF) and with those whose constant and linear terms are exact (H0/1).

Here columns are standardised over the training rows and rows divided by their lengths, because the kernels require rows
in the unit ball. The exponential kernel is exp(<x, y> / s^2), s the mean distance of two training rows. Where there are
more than two classes, a random half of them is one class and the rest is the other, as in the paper to our
recollection; accuracies are means over draws. Training rows are drawn by seed up to a limit. Results of each machine
are at its best C by test accuracy.

Linear machines lose most on Covertype. For this set there are also machines with more components, with its seven
classes, and the standard deviations of kernel values by theory.

`dkfeat.MaclaurinFeatures` has the maps, `reproduction.theory.maclaurin` the variances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..experiment import Cell, Context, Experiment, Picture, Results, Table, Verdict
from ..pages.panels import Curve, Panel, panels_picture
from .maclaurin_measures import (
    MAPS,
    SERIES,
    deviations,
    exact_machine,
    gram_errors,
    linear_machine,
    machine_of_products,
    prepared,
)  # fmt: skip

SETTINGS: dict[str, Any] = {
    "quick": {
        "dimensions": [10, 50, 200],
        "sizes": [10, 100, 1000, 5000],
        "repeats": 10,
        "rows": 1500,
        "components": [20, 100, 500],
        "machines": 2,
        "grids": {"polynomial": [0.0001, 0.01], "exponential": [1.0, 100.0]},
        "more": {"rows": 1000, "components": [500, 4000], "pairs": 100},
    },
    "full": {
        "dimensions": [10, 20, 50, 100, 200],
        "sizes": [10, 100, 1000, 5000],
        "repeats": 50,
        "rows": 10_000,
        "components": [20, 100, 500],
        "machines": 2,
        "grids": {"polynomial": [0.0001, 0.001, 0.01, 0.1], "exponential": [1.0, 10.0, 100.0, 1000.0]},
        "more": {"rows": 3000, "components": [500, 2000, 8000, 16_000], "pairs": 1000},
    },
}
"""Sizes by mode. Figure 1: dimensions, components, repetitions; table 1: rows, components, repetitions, values of C.

Experiments on Covertype with more components: rows, components, pairs of rows for the deviations.
"""
SETS = ("nursery", "spambase", "adult_a9a", "ijcnn1val", "covtype20k")
NAMES = {"polynomial": "(1 + ⟨x, y⟩)¹⁰", "exponential": "exp(⟨x, y⟩ / s²)"}
DRAWN = ("RF", "RF, kernel's measure")
"""Maps whose Gram matrices are compared."""
TRAINED = ("RF", "H0/1")
"""Maps whose machines are compared with the exact one."""
DIFFICULT = "covtype20k"
"""Set on which linear machines lose most."""
DISTANCE = "The paper's numbers are not known to us: only its statements are compared."
JUDGED = list(SERIES)[1:]
"""Kernels with verdicts on their errors: not the homogeneous one, for which 2,047 of 2,048 components of RF are 0."""
NEAR = 5
"""Points by which an accuracy may be below the exact machine's."""
MIN_ROWS = 9000
"""Minimum number of training rows to compare times: about the paper's, of which most sets have 10,000 and more."""
Errors = dict[tuple[str, int, str], Any]
"""Errors by kernel, dimension and map."""
Machines = dict[tuple[str, str], dict[str, Any]]
"""By data set and kernel: the exact machine, and linear ones by map and components."""


def run(context: Context) -> Results:
    """Measure errors, accuracies and times."""
    settings = SETTINGS[context.mode]
    keys = {
        (series, d, method): f"gram-{i}-{d}-{j}"
        for d in reversed(settings["dimensions"])
        for i, series in enumerate(SERIES)
        for j, method in enumerate(DRAWN)
    }
    common = {"sizes": settings["sizes"], "repeats": settings["repeats"], "seed": context.seed}
    tasks = {key: {"series": series, "d": d, "method": method, **common} for (series, d, method), key in keys.items()}
    found = context.cached_all(gram_errors, tasks)
    errors = {index: found[key] for index, key in keys.items()}
    machines: Machines = {}
    more: dict[str, Any] = {}
    for name in SETS:
        data = context.rows(name)
        if data is None:
            continue
        if name == DIFFICULT:
            most = settings["more"]["rows"]
            rows = prepared(data.sample(most, most, seed=context.seed))
            more = {kernel: _more(context, f"{name}-{len(rows.y)}-{kernel}", rows, kernel) for kernel in NAMES}
        rows = prepared(data.sample(settings["rows"], settings["rows"], seed=context.seed))
        for kernel in NAMES:
            machines[name, kernel] = _measured(context, f"{name}-{len(rows.y)}-{kernel}", rows, kernel)
            machines[name, kernel]["rows"] = len(rows.y)
    return Results(
        tables=[
            *(_table(machines, kernel, settings["components"]) for kernel in NAMES),
            _deviations_table(more, settings),
        ],
        pictures=[
            _errors_picture(errors, settings),
            *(_accuracies_picture(machines, kernel, settings["components"]) for kernel in NAMES if machines),
            *([_more_picture(more, settings)] if more else []),
        ],
        verdicts=[*_error_verdicts(errors, settings), *_machine_verdicts(machines, settings["components"])],
    )


def _measured(context: Context, key: str, rows: Any, kernel: str) -> dict[str, Any]:
    """Measure one kernel's machines on one data set."""
    settings = SETTINGS[context.mode]
    common = {
        "kernel": kernel,
        "grid": settings["grids"][kernel],
        "repeats": settings["machines"],
        "seed": context.seed,
    }
    exact = context.cached_all(exact_machine, {f"exact-{key}": common}, rows)[f"exact-{key}"]
    keys = {(m, size): f"linear-{key}-{i}-{size}" for i, m in enumerate(TRAINED) for size in settings["components"]}
    tasks = {name: {"method": method, "size": size, **common} for (method, size), name in keys.items()}
    linear = context.cached_all(linear_machine, tasks, rows)
    return {"exact": exact, "linear": {index: linear[name] for index, name in keys.items()}}


def _more(context: Context, key: str, rows: Any, kernel: str) -> dict[str, Any]:
    """Measure machines with many components, and deviations of kernel values by theory."""
    settings = SETTINGS[context.mode]
    sizes, common = settings["more"]["components"], {"kernel": kernel, "seed": context.seed}
    keys = {(m, size): f"more-{key}-{i}-{size}" for i, m in enumerate(MAPS) for size in sizes} | {
        (None, 0): f"more-{key}-exact"
    }
    tasks = {
        name: {"method": method, "size": size, "grid": settings["grids"][kernel], **common}
        for (method, size), name in keys.items()
    }
    found = context.cached_all(machine_of_products, tasks, rows)
    theory = {"size": sizes[0], "pairs": settings["more"]["pairs"], **common}
    return {
        "machines": {index: found[name] for index, name in keys.items()},
        "deviations": context.cached_all(deviations, {f"deviations-{key}": theory}, rows)[f"deviations-{key}"],
    }


def _table(machines: Machines, kernel: str, components: list[int]) -> Table:
    most = components[-1]
    rows: list[list[Cell]] = []
    for name in SETS:
        if (name, kernel) not in machines:
            rows.append([name, "no data", *[None] * (7 + len(TRAINED))])
            continue
        found = machines[name, kernel]
        exact, h01 = found["exact"], found["linear"]["H0/1", most]
        accuracies = [exact["accuracy"], *[found["linear"][method, most]["accuracy"] for method in TRAINED]]
        gains = [f"{exact[part] / max(h01[part], 1e-3):.1f}" for part in ("train", "test")]
        times = [cell for part, gain in zip(("train", "test"), gains, strict=True) for cell in (exact[part], gain)]
        size = _enough(found, components)
        few = exact["train"] / max(found["linear"]["H0/1", size]["train"], 1e-3)
        rows.append([name, found["rows"], *accuracies, *times, size, f"{few:.1f}"])
    columns = ["set", "training rows", "exact, %", *[f"{method}, %" for method in TRAINED]]
    columns += ["training exact, s", "H0/1 faster, times", "testing exact, s", "H0/1 faster, times"]
    columns += [f"H0/1 within {NEAR} points: components", "training faster, times"]
    note = (
        f"D = {most}. Times are those of one core and include the computation of features. Each machine has its best C."
    )
    return Table(f"Accuracy and speed-up, kernel {NAMES[kernel]}", columns, rows, note, DISTANCE)


def _deviations_table(more: dict[str, Any], settings: dict[str, Any]) -> Table:
    rows: list[list[Cell]] = []
    for kernel, name in NAMES.items():
        if not more:
            rows.append([name, "no data", *[None] * len(MAPS)])
            continue
        found = more[kernel]["deviations"]
        rows.append([name, found["difference"], *[found[method] for method in MAPS]])
    size = settings["more"]["components"][0]
    return Table(
        f"Kernel values of {DIFFICULT}: standard deviation over difference of classes",
        ["kernel", "difference of classes", *MAPS],
        rows,
        f"D = {size}. The difference is that between the mean kernel values of two rows of the same class and of two "
        "classes. The other columns have the standard deviation of a kernel value's estimate, by theory, over it: the "
        f"square of a number, times {size}, is the D at which they are equal.",
    )


def _error_verdicts(errors: Errors, settings: dict[str, Any]) -> list[Verdict]:
    judged = {index: np.array(cell["mean"]) for index, cell in errors.items() if index[0] in JUDGED}
    logs = np.log(settings["sizes"][1:])
    slopes = {index: float(np.polyfit(logs, np.log(mean[1:]), 1)[0]) for index, mean in judged.items()}
    paper, ours = ([slopes[index] for index in slopes if index[2] == method] for method in DRAWN)
    low, high = min(settings["dimensions"]), max(settings["dimensions"])
    growth = [mean[-1] / judged[series, low, m][-1] for (series, d, m), mean in judged.items() if d == high]
    gains = [mean[-1] / judged[series, d, DRAWN[1]][-1] for (series, d, m), mean in judged.items() if m == DRAWN[0]]
    return [
        Verdict(
            "The error falls with the number of components D, and as 1 / √D with degrees by the kernel's weights.",
            bool(max(paper) < -0.2 and max(abs(slope + 0.5) for slope in ours) < 0.15),
            f"Slope of the logarithms: RF {min(paper):.2f} to {max(paper):.2f}, by the kernel's weights "
            f"{min(ours):.2f} to {max(ours):.2f}; -0.5 is 1 / √D.",
        ),
        Verdict(
            "The error hardly depends on the dimension.",
            bool(max(growth) < 2.5),
            f"At d = {high} it is {min(growth):.2f} to {max(growth):.2f} times that at d = {low}, where points of the "
            "ball are shorter.",
        ),
        Verdict(
            "Degrees drawn by the kernel's weights give smaller errors than the paper's 1 / 2ⁿ⁺¹.",
            bool(min(gains) > 1),
            f"At D = {settings['sizes'][-1]:,} RF has {min(gains):.2f} to {max(gains):.2f} times their error.",
        ),
    ]


def _machine_verdicts(machines: Machines, components: list[int]) -> list[Verdict]:
    most = components[-1]
    near, trains, tests, better = (
        f"With {most} components a linear machine comes within {NEAR} points of the exact one.",
        "It trains faster than the exact one.",
        "It tests faster than the exact one.",
        "H0/1 needs fewer components than RF.",
    )
    if not machines:
        return [Verdict(sentence, None, "No data.") for sentence in (near, trains, tests, better)]
    losses = {
        f"{name}, {kernel}": found["exact"]["accuracy"] - max(found["linear"][m, most]["accuracy"] for m in TRAINED)
        for (name, kernel), found in machines.items()
    }
    h01 = [
        found["linear"]["H0/1", size]["accuracy"] - found["linear"]["RF", size]["accuracy"]
        for found in machines.values()
        for size in components[:-1]
    ]
    worst = max(losses, key=lambda index: losses[index])
    return [
        Verdict(
            near, losses[worst] < NEAR, f"The best map of each: at most {losses[worst]:.1f} points below, on {worst}."
        ),
        _faster(machines, components, "train", trains),
        _faster(machines, components, "test", tests),
        Verdict(
            better,
            float(np.mean(h01)) > 0,
            f"At equal numbers below {most} it is {np.mean(h01):.1f} points better on average, in "
            f"{np.mean(np.array(h01) > 0):.0%} of all cases.",
        ),
    ]


def _enough(found: dict[str, Any], components: list[int]) -> int:
    """Return the smallest number of components with which H0/1 comes near the exact machine, or else the largest."""
    least = found["exact"]["accuracy"] - NEAR
    return next((size for size in components if found["linear"]["H0/1", size]["accuracy"] > least), components[-1])


def _faster(machines: Machines, components: list[int], part: str, sentence: str) -> Verdict:
    """Make a verdict on times, of sets with enough rows for an exact machine to be slow."""
    judged = {f"{name}, {kernel}": found for (name, kernel), found in machines.items() if found["rows"] >= MIN_ROWS}
    if not judged:
        return Verdict(sentence, None, f"Of fewer than {MIN_ROWS:,} rows both take fractions of a second.")

    def gains(size: Callable[[Any], int]) -> tuple[float, str]:
        found = {
            name: each["exact"][part] / max(each["linear"]["H0/1", size(each)][part], 1e-3)
            for name, each in judged.items()
        }
        slowest = min(found, key=lambda name: found[name])
        return found[slowest], f"{found[slowest]:.1f} times ({slowest}) to {max(found.values()):.1f} times"

    most = components[-1]
    least, all_gains = gains(lambda _: most)
    return Verdict(
        sentence,
        least > 1,
        f"H0/1 with {most} components, sets of {MIN_ROWS:,} rows and more: {all_gains}. With the fewest components "
        f"within {NEAR} points: {gains(lambda each: _enough(each, components))[1]}.",
        f"The exact machine is fast where few rows become support vectors, as on ijcnn1val; there {most} components "
        "take longer, though far fewer suffice.",
    )


def _errors_picture(errors: Errors, settings: dict[str, Any]) -> Picture:
    panels = []
    for series in SERIES:
        curves = []
        for i, d in enumerate(settings["dimensions"]):
            for method, look in zip(DRAWN, ("both", "dashes"), strict=True):
                label = f"d = {d}" if look == "both" else ""
                curves.append(Curve(label, settings["sizes"], errors[series, d, method]["mean"], i, look))
        panels.append(Panel(f"K = {series}", "components", "mean absolute error", curves, "log", "log"))
    text = (
        "Mean absolute error of Gram matrices of 100 points of the unit ball, over the kernel's largest value. Marks: "
        "RF of the paper; dashes: degrees drawn by the kernel's weights."
    )
    return panels_picture("errors", "Figure 1: errors of Maclaurin features", panels, text)


def _accuracies_picture(machines: Machines, kernel: str, components: list[int]) -> Picture:
    panels = []
    for name in SETS:
        if (name, kernel) not in machines:
            continue
        found, curves = machines[name, kernel], []
        for i, method in enumerate(TRAINED):
            cells = [found["linear"][method, size] for size in components]
            values, error = ([cell[part] for cell in cells] for part in ("accuracy", "error"))
            curves.append(Curve(method, components, values, i, error=error))
        exact = [found["exact"]["accuracy"]] * len(components)
        curves.append(Curve("exact kernel", components, exact, -1, "dashes"))
        panels.append(Panel(name, "components", "accuracy, %", curves, "log"))
    text = (
        f"Test accuracy against the number of components, kernel {NAMES[kernel]}. Dashes: the exact kernel machine. "
        "Standard errors include those of the draws of classes."
    )
    return panels_picture(f"accuracy-{kernel}", f"Figure 2: accuracy, {kernel} kernel", panels, text)


def _more_picture(more: dict[str, Any], settings: dict[str, Any]) -> Picture:
    sizes, panels = settings["more"]["components"], []
    for kernel, name in NAMES.items():
        found = more[kernel]["machines"]
        for labels, words in (("halves", "two halves of the classes"), ("classes", "seven classes")):
            curves = [
                Curve(method, sizes, [found[method, size][labels] for size in sizes], i)
                for i, method in enumerate(MAPS)
            ]
            curves.append(Curve("exact kernel", sizes, [found[None, 0][labels]] * len(sizes), -1, "dashes"))
            panels.append(Panel(f"{name}, {words}", "components", "accuracy, %", curves, "log"))
    text = (
        f"Test accuracy on {DIFFICULT} with many components, {settings['more']['rows']:,} training rows. All machines "
        "are LIBSVM's, with inner products of features as kernel values. Dashes: the exact kernel."
    )
    return panels_picture("more", "More components, until linear machines meet the exact one", panels, text)


EXPERIMENT = Experiment(
    name="maclaurin",
    title="Random Maclaurin features of dot-product kernels",
    source="P. Kar and H. Karnick, Random Feature Maps for Dot Product Kernels, AISTATS 2012: figures 1–2, table 1",
    split_note=(
        "nursery, spambase, adult_a9a, ijcnn1val, covtype20k by their train and test files, at most 10,000 training "
        "rows (quick: 1,500) and as many for testing, drawn by seed; columns standardised, rows of length 1; of more "
        "than two classes a random half against the others, drawn by seed."
    ),
    differences=[
        "Cod-RNA is not available; ijcnn1val and covtype20k are parts of IJCNN and of Covertype; nursery is coded by "
        "ordinals.",
        "To our recollection the paper makes two classes of more at random. On 4,000 rows of Covertype, polynomial "
        "kernel, LIBLINEAR with 500 H0/1 features loses 2.7 points on seven classes, each against the others (RF 5.8), "
        "in 7 to 9 s, and 1.5 and 2.1 on two draws of halves (RF 2.2 and 4.4) in 1.5 to 3.0 s.",
        "LIBLINEAR's tolerance is 0.01, its default for the primal solver. At 0.1, H0/1 with 500 components loses "
        "another 1.6 to 2.2 points on 10,000 rows of Covertype, in 8 to 27% of the time, and on all seven classes it "
        "stays 5 to 11 points below the exact machine. Most of that is the solver, not the features: LIBSVM's machines "
        "of inner products of 500 H0/1 features lose 0.7 to 3.5 points on 3,000 rows (last figure). "
        "LIBLINEAR's dual solver at its default, 0.1, is "
        "as accurate as the primal one and takes twice as long.",
        "The scale of rows is no reason for losses: on 2,000 rows of Covertype, H0/1 is at most 2.8 points below the "
        "exact machine with columns standardised, in [0, 1] or unscaled and rows divided by their own length, and with "
        "rows divided by the largest length.",
        "In the exact machine's times LIBSVM computes kernel values from sparse rows during training, as in 2012. From "
        "dense rows, as scikit-learn passes them on, it takes 2.1 s instead of 5.1 s on 10,000 rows of Covertype. "
        "LIBSVM is fast where few rows become support vectors: with the polynomial kernel 911 of the 6,480 of nursery "
        "and 1,079 of the 9,990 of ijcnn1val, where its time grows 13 times for 4 times the rows. "
        "There 500 components take longer to train; 20 are within 5 points on ijcnn1val and take 6 to 11 times less.",
        "Each machine is shown at the smallest C less than 0.2 points below the best test accuracy, which favours all "
        "machines equally.",
        "In addition to the paper's measure on degrees, 1 / 2ⁿ⁺¹, our default is shown, which follows the kernel's "
        "weights. It has smaller errors. But for the polynomial kernel it draws mostly products of five sums, and a "
        "few such components carry little information. The paper's measure draws low degrees more often.",
        "For ⟨x, y⟩¹⁰ the paper's measure draws the only degree of the kernel once in 2,048 components: for small D "
        "most RF features are 0.",
    ],
    run=run,
)
