"""Runs that are continued after a fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engine.helpers import featurized
from tests.invariants import assert_dataset_whole, dataset_state


def assert_resumes(source: Any, target: Path, golden: Any, *, finished: bool = True, **options: Any) -> int:
    """Run a job to its end: shards that exist stay, and the result is that of an undisturbed run.

    Parameters
    ----------
    source, target : object
        Of the run that was interrupted before its commit.
    golden : tuple
        State of the data set of an undisturbed run.
    finished : bool, default=True
        Whether the interrupted run ended by itself, so that it left no lock and no temporary file.
    **options : object
        Of the new run.

    Returns
    -------
    int
        Number of shards that were there.
    """
    assert_dataset_whole(target, finished=finished, committed=False)
    made = {path: path.stat().st_mtime_ns for path in target.glob("data/*")}
    featurized(source, target, **options)
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert dataset_state(target) == golden
    assert_dataset_whole(target, committed=True)
    return len(made)
