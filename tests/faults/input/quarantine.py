"""Runs that set bad rows aside, and what they leave; shared by the tests of text and of Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dkfeat
from tests.engine.helpers import featurized


def run(source: Any, target: Path, **options: Any) -> Any:
    """Featurize with any number of bad rows set aside."""
    return featurized(source, target, on_bad_row="quarantine", **{"max_bad_rows": 1.0, **options})


def features_of(target: Path) -> tuple[list[Any], list[Any]]:
    """Features and labels of a data set."""
    encoded, y = (getattr(part, "toarray", lambda part=part: part)() for part in dkfeat.open_shards(target).to_scipy())
    return encoded.tolist(), y.tolist()


def set_aside(target: Path) -> list[Any]:
    """Records of the bad rows of a data set."""
    return list(dkfeat.open_shards(target).quarantine())
