"""Near neighbours and duplicates under the min-max kernel, from the codes of rows."""

from dkfeat.neighbors.deduplication.duplicates import duplicates
from dkfeat.neighbors.deduplication.result import Duplicates
from dkfeat.neighbors.drop import drop_duplicates
from dkfeat.neighbors.estimator import GMMNeighbors
from dkfeat.neighbors.neighbor_search import search
from dkfeat.neighbors.table import Neighbors

__all__ = ["Duplicates", "GMMNeighbors", "Neighbors", "drop_duplicates", "duplicates", "search"]
