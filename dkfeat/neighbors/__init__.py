"""Near neighbours and duplicates under the min-max kernel, from the codes of rows."""

from dkfeat.neighbors.estimator import GMMNeighbors

__all__ = ["GMMNeighbors"]
