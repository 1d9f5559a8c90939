"""Nearest rows of queries, as arrays, as a graph, or as a table that is read when it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp

from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.errors import ConfigError
from dkfeat.validation import check_integer

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIMILARITY, ROW, ERROR = COLUMNS = ("similarity", "neighbor", "standard_error")
"""Columns of a table with the arrays of `Neighbors`."""


class Neighbors:
    """Nearest rows of queries; made by `search`, or by `Neighbors.open` from a folder that `search` wrote.

    The arrays of a result in a folder are read when they are first used.

    Parameters
    ----------
    n_rows : int
        Number of rows among which neighbours were searched.
    arrays : tuple of three ndarrays, or ShardDataset
        Similarities, rows and errors, or a table of them.
    without_self : bool, default=False
        True if the queries are the rows, and no row is its own neighbour.
    """

    def __init__(
        self,
        n_rows: int,
        arrays: tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]] | ShardDataset,
        *,
        without_self: bool = False,
    ) -> None:
        self.n_rows = n_rows
        self.without_self = without_self
        self._given = arrays

    @classmethod
    def open(cls, folder: str | PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> Self:
        """Open a folder that `search` wrote.

        Parameters
        ----------
        folder : str or path
            The ``target`` of `search`.
        storage_options : mapping or None
            Options of fsspec for a URL.

        Raises
        ------
        dkfeat.errors.ShardError
            If nothing is committed there.
        dkfeat.errors.ConfigError
            If the folder holds something else.
        """
        table = open_shards(folder, storage_options=storage_options)
        if table.layout != "neighbors":
            raise ConfigError(
                f"{fspath(folder)} holds {'features' if table.has_features else table.layout}, not neighbours; "
                "give the target of dkfeat.neighbors.search, or the folder after --out of `dkfeat neighbors`"
            )
        settings = table.spec["neighbors"]
        return cls(settings["n_rows"], table, without_self=settings["without_self"])

    @property
    def folder(self) -> str | None:
        """Folder or URL of the table; None for a result in memory."""
        return self._given.shards.storage.url if isinstance(self._given, ShardDataset) else None

    @property
    def n_neighbors(self) -> int:
        """Number of neighbours of each query."""
        if isinstance(self._given, ShardDataset):
            return int(self._given.spec["neighbors"]["n_neighbors"])
        return self._given[1].shape[1]

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        if isinstance(self._given, ShardDataset):
            return self._given.n_rows // self.n_neighbors
        return len(self._given[1])

    def __repr__(self) -> str:
        where = "" if self.folder is None else f", {self.folder!r}"
        return f"Neighbors({self.n_neighbors:,} of {self.n_queries:,} queries among {self.n_rows:,} rows{where})"

    @property
    def similarities(self) -> NDArray[np.float64]:
        """Similarities in descending order, shape (n_queries, n_neighbors): the exact kernel, or else estimates."""
        return self._arrays[0]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Numbers of the rows in the data set's order, from 0, shape (n_queries, n_neighbors).

        Of equally similar rows the lower one is first.
        """
        return self._arrays[1]

    @property
    def errors(self) -> NDArray[np.float64]:
        """Standard errors of the similarities, shape (n_queries, n_neighbors); zeros if these are exact."""
        return self._arrays[2]

    def medians(self, rank: int) -> tuple[float, float]:
        """Return the medians over the queries of the similarity and the standard error at a rank, from 1.

        Of a folder, only these two columns are read, file by file. Without queries the medians are NaN.
        """
        place = check_integer(rank, "rank", low=1, high=self.n_neighbors) - 1
        names = (SIMILARITY, ERROR)
        parts = [[np.empty(0)] * 2, *([part[name][:, place] for name in names] for part in self._parts(names))]
        values = (np.concatenate(column) for column in zip(*parts, strict=True))
        similarity, error = (float(np.median(column)) if len(column) else float("nan") for column in values)
        return similarity, error

    def to_graph(self) -> sp.csr_matrix:
        """Make the graph of queries and their nearest rows, with the distances 1 - similarity.

        It has the form of scikit-learn's ``KNeighborsTransformer(mode="distance")``, which estimators with
        ``metric="precomputed"`` take: in the graph of all rows, each row is its own first neighbour, at distance 0.

        Returns
        -------
        graph : csr_matrix of shape (n_queries, n_rows), float64
            Rows of n_neighbors edges, or of n_neighbors + 1 in the graph of all rows, in ascending order of distance.
        """
        distances, rows = np.clip(1.0 - self.similarities, 0.0, 1.0), self.rows
        if self.without_self:
            distances = np.column_stack([np.zeros(len(rows)), distances])
            rows = np.column_stack([np.arange(len(rows)), rows])
        bounds = np.arange(len(rows) + 1) * rows.shape[1]
        return sp.csr_matrix((distances.ravel(), rows.ravel(), bounds), shape=(len(rows), self.n_rows))

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        if not isinstance(self._given, ShardDataset):
            return self._given
        none = np.empty((0, self.n_neighbors))
        parts = [{SIMILARITY: none, ROW: none.astype(np.int64), ERROR: none}, *self._parts(COLUMNS)]
        similarities, rows, errors = (np.concatenate([part[name] for part in parts]) for name in COLUMNS)
        return similarities, rows, errors

    def _parts(self, names: tuple[str, ...]) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield some of the arrays, for all queries at once or for those of each file."""
        if not isinstance(self._given, ShardDataset):
            yield dict(zip(COLUMNS, self._given, strict=True))
            return
        table = self._given
        for entry in table.manifest.shards:
            found = table.shards.read(entry, table.verifies, only=names).kept
            yield {name: found[name].to_numpy().reshape(-1, self.n_neighbors) for name in names}
