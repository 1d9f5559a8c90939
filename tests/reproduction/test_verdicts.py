"""Verdicts on the papers' statements, from made-up measurements that confirm them or do not."""

import pytest
from reproduction.experiments import curve_tables, four_methods, svm_table
from reproduction.experiments.curves import Line


def accuracies(name, **changes):
    """A set with the paper's accuracies, but for some; LIBLINEAR's is that of the linear machine."""
    paper = svm_table.REPORTED[name]
    found = {"linear": paper.linear, "LIBLINEAR": paper.linear, "RBF": paper.rbf, "GMM": paper.gmm} | changes
    machines = {machine: {"accuracy": accuracy} for machine, accuracy in found.items()}
    return {"name": name, "train": 1000, "test": 1000, "whole": True, "repeats": {}, **machines}


@pytest.mark.parametrize(
    ("changes", "repeats", "holds", "words"),
    [
        ({}, {}, True, "3 of 3 are within one point."),
        ({"RBF": 89.75 + 1.2}, {}, False, "2 of 3 are within one point; not CTG RBF +1.20."),
        ({"RBF": 89.75 + 1.2}, {"RBF": [88.0, 90.0, 92.0]}, True, "within chance CTG RBF +1.20 (z = -0.1)."),
        ({"RBF": 89.75 + 1.2}, {"RBF": [91.9, 92.0, 92.1]}, False, "not CTG RBF +1.20."),
        ({"linear": 67.0}, {}, False, "only where LIBLINEAR stops CTG linear +6.41."),
    ],
    ids=["equal", "far", "chance", "sure", "stopped"],
)
def test_accuracies__of_the_paper_or_not(changes, repeats, holds, words):
    verdict = svm_table._verdicts([{**accuracies("ctg", **changes), "repeats": repeats}])[0]
    assert verdict.holds is holds
    assert verdict.detail.endswith(words)


def line(label, *means):
    return Line(label, (16, 64, 256), means, (0.0,) * 3, (1,) * 3, ())


def curves(title, gcws, nrff):
    """A set on which the exact RBF machine is the better one."""
    lines = [line(curve_tables.label(8, whole=False), *gcws), line(curve_tables.NRFF, *nrff)]
    return {"title": title, "lines": lines, "levels": {"linear": 50.0, "exact RBF": 99.0, "exact GMM": 98.0}}


def test_curves__count_the_sets_on_which_gcws_needs_fewer_samples():
    sooner = curves("A", (60.0, 90.0, 95.0), (50.0, 60.0, 90.0))
    as_soon = curves("B", (50.0, 60.0, 90.0), (50.0, 60.0, 90.0))
    never = curves("C", (50.0, 60.0, 70.0), (50.0, 60.0, 90.0))
    most, of_better = curve_tables.verdicts([sooner, as_soon, never])[:2]
    assert (most.holds, of_better.holds) == (False, False)
    assert most.detail == "On 1 of 3 sets, by a median factor of 1.0; not on B, C."
    assert of_better.detail == "On 1 of 3 such sets: A; not on B, C."


def test_curves__samples_are_those_at_which_nrff_has_its_accuracy_first():
    flat = curves("A", (60.0, 90.0, 95.0), (60.0, 90.0, 90.0))
    most = curve_tables.verdicts([flat])[0]
    assert (most.holds, most.detail) == (False, "On 0 of 1 sets, by a median factor of 1.0; not on A.")


def test_four_methods__a_factor_from_the_smallest_k_is_a_bound():
    means = {"GMM-GCWS": (90.0, 95.0, 96.0), "RBF-RFF": (50.0, 60.0, 80.0)}
    lines = [line(label, *means.get(label, (70.0, 80.0, 90.0))) for label in four_methods.METHODS]
    verdict = four_methods._verdicts([{"title": "A", "lines": lines}])[0]
    assert (verdict.holds, verdict.detail) == (True, "A: at least 16.0 times as many.")
