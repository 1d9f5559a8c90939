"""Settings of searches for neighbours and for duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dkfeat.config.settings import Positive, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighborsConfig(Settings):
    """One run of `dkfeat.neighbors.search` into a folder."""

    out: str
    """Target: a folder, or its URL. Queries that are files are first featurized into a folder beside it, with -queries
    after its name."""
    n_neighbors: Positive = 10
    """Rows found for each query."""
    rerank: Positive | None = None
    """Compare this many rows exactly with each query, such as 100; needs the source of SHARDS. Left out: similarities
    are estimated from codes."""
    source: str | tuple[str, ...] | None = None
    """Files from which SHARDS were made, to compare rows exactly. Repeatable."""
    query_source: str | tuple[str, ...] | None = None
    """Files from which QUERIES were made, if these are shards, to compare rows exactly. Repeatable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicatesConfig(Settings):
    """One search of `dkfeat.neighbors.duplicates`."""

    out: str
    """Folder for the pairs and groups, which all workers see; of an interrupted search, it is continued."""
    threshold: float = 0.8
    """Similarity from which two rows are duplicates, above 0 and at most 1."""
    verify: Literal["codes", "exact"] = "codes"
    """Compare candidates by their codes, or by the exact kernel of their rows, which are read again from SOURCE."""
    source: tuple[str, ...] = ()
    """Source from which the shards were made: a path, glob or URL; with ``--verify exact``. Repeatable."""
