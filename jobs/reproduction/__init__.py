"""The papers' tables and figures: one module an experiment, over dkfeat's public interface.

Each module's docstring says what the paper did, on which rows and how normalised, and what differs here and why.
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
)
"""Modules of experiments, in the order of the report."""


def experiment(name: str) -> Experiment:
    """Experiment of a module."""
    found: Experiment = importlib.import_module(f"{__name__}.{name}").EXPERIMENT
    return found
