"""Tables and verdicts of the experiment `accuracy_curves`, from its lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..experiment import Table, Verdict
from .curves import Line, needed_k

__all__ = ["BITS", "NRFF", "SETS", "label", "nrff_line", "tables", "verdicts", "with_bits"]

SETS: Mapping[str, str] = {
    "letter": "Letter",
    "satimage": "Satimage",
    "robotnavi": "RobotNavi",
    "shuttle": "Shuttle",
    "magic": "Magic",
    "musk": "Musk",
    "covtype20k": "Covertype, 20,000 rows",
    "ijcnn1val": "IJCNN, validation part",
    "rcv1": "RCV1, 23,750 rows",
    "sector": "Sector",
    "webspam500": "Webspam, 500 rows",
}
BITS = (1, 2, 4, 8, 12)
NRFF = "NRFF"
AT = (64, 256, 1024, 4096)
"""Numbers of components at which accuracies are compared."""


def tables(measured: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Make the tables: smallest k that beats the linear machine, ratio of sample numbers, and accuracy at equal k."""
    return [_beaten(measured), _factors(measured), _at(measured)]


def label(bits: int, *, whole: bool) -> str:
    """Return the label of a GCWS line; `whole` means that the bits keep the whole coordinate."""
    return f"GCWS, b = {bits}" + (" (all)" if whole else "")


def _eight(each: Mapping[str, Any]) -> Line:
    found: Line = next(line for line in each["lines"] if line.label.startswith("GCWS, b = 8"))
    return found


def nrff_line(each: Mapping[str, Any]) -> Line:
    """Return the line of NRFF."""
    found: Line = next(line for line in each["lines"] if line.label == NRFF)
    return found


def with_bits(each: Mapping[str, Any], bits: int) -> Line | None:
    """Return the line of b bits, or of fewer bits that already keep the whole coordinate."""
    lines = {line.label: line for line in each["lines"]}
    known = (lines.get(label(fewer, whole=True)) for fewer in BITS if fewer <= bits)
    return lines.get(label(bits, whole=False)) or next((line for line in known if line is not None), None)


def _beaten(measured: Sequence[Mapping[str, Any]]) -> Table:
    rows: list[list[Any]] = []
    for name, title in SETS.items():
        each = next((each for each in measured if each["name"] == name), None)
        if each is None:
            rows.append([title, *(["no data"] + [None] * (len(BITS) + 1))])
            continue
        cells: list[Any] = [each["levels"]["linear"]]
        for line in (*(with_bits(each, bits) for bits in BITS), nrff_line(each)):
            beaten = None if line is None else line.first_above(each["levels"]["linear"])
            cells.append(beaten if beaten or line is None else f"> {line.k[-1]:,}")
        rows.append([title, *cells])
    return Table(
        "Smallest k that beats the linear machine",
        ["Set", "Linear, %", *(f"GCWS, b = {bits}" for bits in BITS), NRFF],
        rows,
        "Of the k that were measured, with the mean over the repetitions at the best C. More bits than the "
        "number of columns needs change nothing.",
    )


def _factor(each: Mapping[str, Any]) -> tuple[float, float, float | None]:
    """Return the k from which NRFF has the accuracy of its largest k, this accuracy, and the k from which GCWS does."""
    line = nrff_line(each)
    return needed_k(line, line.mean[-1]) or line.k[-1], line.mean[-1], needed_k(_eight(each), line.mean[-1])


def _factors(measured: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for each in measured:
        k, accuracy, enough = _factor(each)
        first = _eight(each).k[0]
        fewer = "< 1" if enough is None else f"{'> ' if enough <= first else ''}{k / enough:.1f}"
        shown = None if enough is None else round(enough)
        rows.append([each["title"], f"{each['gamma']:g}", accuracy, round(k), shown, fewer])
    return Table(
        "How many fewer samples GCWS needs for the same accuracy",
        ["Set", "γ", "NRFF at its largest k, %", "k of NRFF", "k of GCWS, b = 8", "Factor"],
        rows,
        "The smallest k that reaches the accuracy, interpolated linearly in log k between the measured values; < 1: "
        "GCWS does not reach it up to the largest measured k.",
    )


def _at(measured: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for each in measured:
        eight, nrff = _eight(each), nrff_line(each)
        cells = []
        for k in AT:
            cells += [line.mean[line.k.index(k)] if k in line.k else None for line in (eight, nrff)]
        rows.append([each["title"], *cells, *(each["levels"][level] for level in ("exact GMM", "exact RBF"))])
    heads = [f"{name}, k = {k:,}" for k in AT for name in ("GCWS", "NRFF")]
    return Table(
        "Accuracy in percent at equal k, GCWS with b = 8", ["Set", *heads, "Exact GMM", "Exact RBF"], rows
    )  # fmt: skip


def _lost(each: Mapping[str, Any], k: int) -> float | None:
    """Return the accuracy that codes of one bit lose against codes of eight, in points."""
    one, eight = with_bits(each, 1), _eight(each)
    return eight.mean[eight.k.index(k)] - one.mean[one.k.index(k)] if one is not None and k in one.k else None


def verdicts(measured: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Compare the measurements with the statements of the paper."""
    factors = [_factor(each) for each in measured]
    fewer = [enough is not None and enough < k for k, _, enough in factors]
    ratios = [k / enough if enough is not None else 0.5 for k, _, enough in factors]
    against = [each["title"] for each, less in zip(measured, fewer, strict=True) if not less]
    beats = [each for each in measured if _eight(each).first_above(each["levels"]["linear"])]
    slow = [each["title"] for each in measured if each not in beats]
    better = [each for each in measured if each["levels"]["exact RBF"] > each["levels"]["exact GMM"]]
    also = [each["title"] for each in better if each["title"] not in against]
    neither = [each["title"] for each in better if each["title"] in against]
    lost = {k: [gap for each in measured if (gap := _lost(each, k)) is not None] for k in (256, 4096)}
    some = bool(measured)
    return [
        Verdict(
            "For the accuracy that NRFF has at its largest k, GCWS of 8 bits needs fewer samples, on most sets.",
            sum(fewer) > len(fewer) / 2 if some else None,
            f"On {sum(fewer)} of {len(fewer)} sets, by a median factor of {np.median(ratios):.1f}"
            f"{'; not on ' + ', '.join(against) if against else ''}."
            if some
            else "",
        ),
        Verdict(
            "This also holds where the exact RBF machine is better than the exact GMM machine.",
            len(also) > len(better) / 2 if better else None,
            f"On {len(also)} of {len(better)} such sets{': ' + ', '.join(also) if also else ''}"
            f"{'; not on ' + ', '.join(neither) if neither else ''}."
            if better
            else "",
        ),
        Verdict(
            "With enough samples GCWS of 8 bits is more accurate than the linear machine, on most sets.",
            len(beats) > len(measured) / 2 if some else None,
            f"On {len(beats)} of {len(measured)}{'; not on ' + ', '.join(slow) if slow else ''}." if some else "",
        ),
        Verdict(
            "Codes of one bit are less accurate than codes of eight bits.",
            bool(np.median(lost[256]) > 0) if lost[256] else None,
            " ".join(
                f"At k = {k:,} by {np.median(gaps):.1f} points in the median, {max(gaps):.1f} at most."
                for k, gaps in lost.items()
                if gaps
            ),
        ),
    ]
