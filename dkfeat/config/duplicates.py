"""Settings of a search for duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dkfeat.config.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicatesConfig(Settings):
    """One search of `dkfeat.neighbors.duplicates`."""

    out: str
    """Folder for the pairs and groups, which all workers see; of an interrupted search, it is continued."""
    threshold: float = 0.8
    """Similarity from which two rows are duplicates, above 0 and at most 1."""
    verify: Literal["codes", "exact"] = "codes"
    """Compare candidates by their codes, or by the exact kernel of their rows, which are read again from `source`."""
    source: tuple[str, ...] = ()
    """Source from which the shards were made: a path, glob or URL; for ``verify: exact``. Repeatable."""
