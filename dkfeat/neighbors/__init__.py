"""Near neighbours and duplicates under the min-max kernel, from the codes of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dkfeat.neighbors.deduplication.duplicates import duplicates
from dkfeat.neighbors.deduplication.result import Duplicates
from dkfeat.neighbors.drop import drop_duplicates
from dkfeat.neighbors.neighbor_search import search
from dkfeat.neighbors.table import Neighbors

if TYPE_CHECKING:
    from dkfeat.neighbors.estimator import GMMNeighbors as GMMNeighbors

__all__ = ["Duplicates", "GMMNeighbors", "Neighbors", "drop_duplicates", "duplicates", "search"]


def __getattr__(name: str) -> Any:
    if name != "GMMNeighbors":
        raise AttributeError(f"module 'dkfeat.neighbors' has no attribute {name!r}")
    from dkfeat.neighbors.estimator import GMMNeighbors

    return GMMNeighbors
