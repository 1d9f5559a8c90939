"""Near neighbours and duplicates under the min-max kernel, from the codes of rows."""

from dkfeat.neighbors.copies.duplicates import duplicates
from dkfeat.neighbors.copies.result import Duplicates
from dkfeat.neighbors.distinct import drop_duplicates
from dkfeat.neighbors.estimator import GMMNeighbors
from dkfeat.neighbors.index import index
from dkfeat.neighbors.nearest import search
from dkfeat.neighbors.result import Neighbors

__all__ = ["Duplicates", "GMMNeighbors", "Neighbors", "drop_duplicates", "duplicates", "index", "search"]
