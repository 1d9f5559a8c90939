"""What tests of sources share: the same rows in every layout of Parquet, and whole sources scanned and read back."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from dkfeat.sources.base import Scan, Source

S = TypeVar("S", bound=Source)

LAYOUTS = ("columns", "list", "large_list", "fixed_size_list", "binary", "tensor", "pairs", "struct")


def feature_columns(X: sparse.csr_matrix, layout: str) -> dict[str, Any]:
    """The rows of X as Parquet columns."""
    dense = X.toarray()
    width = X.shape[1]
    if layout == "columns":
        return {f"c{column:03d}": dense[:, column] for column in range(width)}
    if layout == "binary":
        return {"features": pa.array([row.astype("<f4").tobytes() for row in dense], pa.binary(4 * width))}
    if layout == "tensor":
        storage = pa.array(dense.tolist(), pa.list_(pa.from_numpy_dtype(dense.dtype), width))
        return {
            "features": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(storage.type.value_type, [width]), storage)
        }
    if layout in ("list", "large_list", "fixed_size_list"):
        value = pa.from_numpy_dtype(dense.dtype)
        kind = {"list": pa.list_(value), "large_list": pa.large_list(value), "fixed_size_list": pa.list_(value, width)}
        return {"features": pa.array(dense.tolist(), kind[layout])}
    lists = {
        "indices": pa.ListArray.from_arrays(X.indptr, pa.array(X.indices)),
        "values": pa.ListArray.from_arrays(X.indptr, pa.array(X.data)),
    }
    if layout == "struct":
        return {"features": pa.StructArray.from_arrays(list(lists.values()), names=list(lists))}
    return lists


def write(path: Path, columns: dict[str, Any] | pa.Table, **options: Any) -> str:
    """Write a file and give its path."""
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
    return str(path)


def scan(source: Source) -> Scan:
    """What `dkfeat.scan` finds, in this process."""
    files = source.files()
    source = source.inspect(files)
    splits = source.splits(files)
    parts = pickle.loads(pickle.dumps([source.scan_split(split) for split in splits]))
    return Scan.merge(source, files, splits, parts)


def resolved(source: S) -> S:
    """The source as `dkfeat.scan` would settle it, in this process."""
    return source.resolve(scan(source))


def pieces(source: Source, **options: Any) -> list[Any]:
    """All pieces of a source."""
    source = resolved(source)
    return [piece for split in source.splits() for piece in source.read(split, **options)]


def rows(source: Source, **options: Any) -> tuple[sparse.csr_matrix, np.ndarray]:
    """All features and labels of a source."""
    blocks = [piece.block for piece in pieces(source, **options)]
    return sparse.vstack([block.X for block in blocks], format="csr"), np.concatenate([block.y for block in blocks])
