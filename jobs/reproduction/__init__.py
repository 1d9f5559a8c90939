"""The papers' tables and figures: one module of `experiments` each, on top of dkfeat.

Each module's docstring describes the paper's experiment, its rows and their normalisation, and the differences here
with reasons.
"""

from __future__ import annotations

import importlib

from .experiment import Experiment

__all__ = ["NAMES", "experiment"]

NAMES: tuple[str, ...] = (
    "svm_table",
    "accuracy_curves",
    "four_methods",
    "variance_theory",
    "gmm_convergence",
    "laplace_gram",
    "maclaurin",
    "darts",
)
"""Modules of experiments, in the order of the report."""


def experiment(name: str) -> Experiment:
    """Return the experiment of a module."""
    found: Experiment = importlib.import_module(f"{__name__}.experiments.{name}").EXPERIMENT
    return found
