"""Queries of a search: rows in memory, files that are featurized as the data set was, or shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.blocks import PackedCodes
from dkfeat.engine.dataset.dataset import ShardDataset
from dkfeat.engine.resolve.resolve import inherit_row_options
from dkfeat.errors import SpecConflictError
from dkfeat.neighbors.codes import sampled_map
from dkfeat.sources.base import Source
from dkfeat.sources.formats import as_source
from dkfeat.validation import check_columns, rows_as_csr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.maps._sampled import SampledMap


def is_location(queries: Any) -> bool:
    """Return True for a source, or for paths of files or of a folder of shards."""
    if isinstance(queries, str | PathLike | Source):
        return True
    return isinstance(queries, Sequence) and bool(queries) and all(isinstance(q, str | PathLike) for q in queries)


def source_like(data: ShardDataset, queries: Any, storage_options: Mapping[str, Any] | None) -> Source:
    """Make the source of queries; options left out are those of the data set's rows, except the options of labels.

    Queries need no labels: a column of labels that the files do not have is left out.

    Raises
    ------
    SourceNotFoundError
        If no file matches.
    SpecConflictError
        If another option differs from that of the data set.
    """
    found: Source = as_source(queries, None if isinstance(queries, Source) else storage_options)
    files = found.files()  # a missing file is the first thing to report
    # float64: whatever numbers stand for unknown labels
    return inherit_row_options(found, data.shards.storage.url, data.spec["input"], "float64", files)


def checked_queries(data: ShardDataset, fitted: SampledMap, queries: Any) -> Any:
    """Return shards of the data set's map, or an array as a csr_matrix of its columns.

    Raises
    ------
    SpecConflictError
        If shards were made by another map.
    InputError
        If an array has another number of columns.
    """
    if not isinstance(queries, ShardDataset):
        queries = rows_as_csr(queries, name="queries")
        check_columns(queries.shape[1], fitted.n_features_in_, type(fitted).__name__)
    elif sampled_map(queries).fingerprint() != fitted.fingerprint():
        raise SpecConflictError(
            f"{queries.shards.storage.url} was made by another map than {data.shards.storage.url}; "
            "featurize the queries with --like"
        )
    return queries


def batches(
    fitted: SampledMap, queries: Any, size: int, *, without_self: bool
) -> Iterator[tuple[int, PackedCodes, NDArray[np.int64]]]:
    """Yield the number of the first query of each batch, their codes, and the rows that they are not compared with."""
    first = 0
    for codes in _codes(fitted, queries, size):
        n = len(codes.empty)
        yield first, codes, own_rows(first, n, without_self=without_self)
        first += n


def own_rows(first: int, n: int, *, without_self: bool) -> NDArray[np.int64]:
    """Return the rows with which consecutive queries are not compared; -1 stands for none."""
    return np.arange(first, first + n) if without_self else np.full(n, -1)


def _codes(fitted: SampledMap, queries: Any, size: int) -> Iterator[PackedCodes]:
    if isinstance(queries, ShardDataset):
        for codes, _ in queries.batches(size, shuffle=False, decode=False):
            yield codes
        return
    for first in range(0, queries.shape[0], size):
        yield fitted.encode(queries[first : first + size])
