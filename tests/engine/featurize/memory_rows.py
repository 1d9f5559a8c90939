"""Rows in memory that the workers of a test's cluster make, and that cannot be unpickled in its driver."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd

DRIVER = "DKFEAT_TEST_DRIVER"
"""Variable with the process id of the driver, set before its workers start."""


class Guarded(pd.DataFrame):
    """Table that ends a test if it comes to the driver."""

    @property
    def _constructor(self):
        return Guarded

    def __setstate__(self, state):
        assert os.environ.get(DRIVER) != str(os.getpid()), "a partition came to the driver"
        super().__setstate__(state)


def table(n_rows: int = 60, seed: int = 0) -> pd.DataFrame:
    """Numbers, nulls, categories, text, times and words as labels, under an index that is no column."""
    rng = np.random.default_rng(seed)
    income = rng.lognormal(8, 1, n_rows)
    plan = rng.choice(["basic", "family", None], n_rows)
    columns = {
        "age": rng.integers(20, 70, n_rows),
        "income": np.where(rng.random(n_rows) < 0.2, np.nan, income),
        "plan": pd.Categorical(plan, ["basic", "family"]),
        "note": [f"word{row % 7} and word{row % 3}" if row % 5 else None for row in range(n_rows)],
        "seen": pd.date_range("2026-01-01", periods=n_rows, freq="7h"),
        "active": rng.random(n_rows) < 0.5,
        "label": np.where(income > 3_000, "high", "low"),
    }
    return pd.DataFrame(columns, index=[f"row {row}" for row in range(n_rows)])


def partition(number: int) -> Guarded:
    """One of four partitions of other sizes; the second one has no notes."""
    made = table(20 + number, seed=number)
    return Guarded(made.assign(note=None) if number == 1 else made)
