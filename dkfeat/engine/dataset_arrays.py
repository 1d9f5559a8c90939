"""A committed data set as Dask arrays, whose chunks are read from its shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from dkfeat.engine.dask_blocks import BlockArray, block_arrays
from dkfeat.engine.dataset_rows import DatasetRows
from dkfeat.io.reader import ShardReader

if TYPE_CHECKING:
    import dask.array as da

    from dkfeat.io.entries import ShardEntry

__all__ = ["dataset_arrays"]


def dataset_arrays(rows: DatasetRows, parts: Sequence[str], chunk_rows: int) -> tuple[da.Array, ...]:
    """Features, labels and, among `parts`, weights; nothing is read yet.

    Parameters
    ----------
    rows : DatasetRows
    parts : sequence of str
        As `DatasetRows.parts` gives them.
    chunk_rows : int
        Consecutive shards are one chunk as long as they have no more rows together.
    """
    spec, manifest = rows.reader.spec, rows.reader.manifest
    empty = replace(manifest, shards=(), sources=(), rows=0, nnz=0, n_empty_rows=0)  # what tasks carry stays small
    light = DatasetRows(ShardReader(rows.reader.storage, spec, empty), rows.verify)
    groups = _grouped([entry for entry in manifest.shards if entry.rows] or manifest.shards[:1], chunk_rows)
    dense = spec["output"]["layout"] == "dense"
    meta = np.empty((0, 0), np.float32) if dense else sparse.csr_matrix((0, 0), dtype=np.float32)
    arrays = [BlockArray(0, "dkfeat-X", meta, (int(spec["output"]["n_features_out"]),))]
    if spec["input"]["multilabel"]:
        n_classes = 0 if rows.classes is None else len(rows.classes)
        arrays.append(BlockArray(1, "dkfeat-y", sparse.csr_matrix((0, n_classes), dtype=np.uint8), (n_classes,)))
    else:
        arrays.append(BlockArray(1, "dkfeat-y", np.empty(0, spec["input"]["label_dtype"])))
    if "weight" in parts:
        arrays.append(BlockArray(2, "dkfeat-weight", np.empty(0)))
    return block_arrays(
        _load,
        (light, parts),
        groups,
        [sum(entry.rows for entry in group) for group in groups],
        arrays,
        name="dkfeat",
        token="-".join([manifest.sha256[:16], str(chunk_rows), *parts]),
    )


def _grouped(entries: Sequence[ShardEntry], most_rows: int) -> list[tuple[ShardEntry, ...]]:
    """Consecutive shards, together as long as they have at most so many rows."""
    groups: list[list[ShardEntry]] = []
    held = 0
    for entry in entries:
        if not groups or held + entry.rows > most_rows:
            groups.append([])
            held = 0
        groups[-1].append(entry)
        held += entry.rows
    return [tuple(group) for group in groups]


def _load(shared: tuple[DatasetRows, Sequence[str]], entries: Sequence[ShardEntry]) -> tuple[Any, ...]:
    """Features and labels of some shards, and what else is asked."""
    rows, parts = shared
    return rows.handed(rows.of_shards(entries, parts), True, parts)
