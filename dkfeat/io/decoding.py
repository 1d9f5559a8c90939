"""The bytes of one shard, read with every check that they allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dkfeat.errors import ShardError
from dkfeat.io import columns, rows
from dkfeat.io.entries import ShardEntry
from dkfeat.io.seal import check_seal
from dkfeat.io.shards import ShardFooter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ShardData", "check_whole", "decode", "open_footer", "read_footer"]

_LIMITS = {"thrift_string_size_limit": 1 << 24, "thrift_container_size_limit": 1 << 20}
_FAULTS = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, MemoryError)


@dataclass(frozen=True, slots=True, eq=False)
class ShardData:
    """Rows of a shard, or of a stretch of it."""

    encoded: Any
    """PackedCodes, csr_matrix or ndarray of float32, by the layout; None if it was not asked for."""
    y: NDArray[Any] | None
    """Labels, shape (n_rows,), or all labels end to end with `label_offsets`."""
    label_offsets: NDArray[np.int64] | None
    """Multi-label only, shape (n_rows + 1,)."""
    qid: NDArray[np.int64] | None
    """Query of each row, where kept."""
    weight: NDArray[np.float64] | None = None
    """Weight of each row, where kept."""
    kept: Mapping[str, pa.Array] = field(default_factory=dict)
    """Further columns, by name."""


def read_footer(data: bytes | memoryview, what: str) -> ShardFooter:
    """Read what a shard says of itself, unchecked against its rows."""
    return ShardFooter.from_metadata(_open(data, what).metadata.metadata, what)


def open_footer(file: BinaryIO, what: str) -> ShardFooter:
    """Read what a shard says of itself from an open file, of which only the end is read."""
    try:
        found = pq.ParquetFile(file, pre_buffer=False, **_LIMITS)
    except _FAULTS as fault:
        raise _unreadable(what, fault) from fault
    return ShardFooter.from_metadata(found.metadata.metadata, what)


def check_whole(data: memoryview, what: str) -> tuple[ShardFooter, str]:
    """Check a shard with nothing but itself: seal, page checksums, rows.

    Returns
    -------
    footer : ShardFooter
        What it says of itself.
    sha256 : str
        SHA-256 of the file.

    Raises
    ------
    ShardError
        When anything does not hold.
    """
    sha256 = check_seal(data)
    if sha256 is None:
        message = f"{what}: damaged or cut: its own checksum does not hold"
        raise ShardError(message)
    file = _open(data, what)
    footer = ShardFooter.from_metadata(file.metadata.metadata, what)
    table = _table(file, None, what)
    if table.num_rows != footer.rows or file.metadata.num_rows != footer.rows:
        message = f"{what}: its footer states {footer.rows:,} rows, {table.num_rows:,} are there"
        raise ShardError(message)
    return footer, sha256


def decode(
    data: bytes | memoryview,
    entry: ShardEntry,
    *,
    spec_fp: str,
    schema: Mapping[str, str],
    n_columns: int,
    only: Sequence[str] | None = None,
    page_checksums: bool = True,
) -> ShardData:
    """Rows of a shard whose bytes are trusted, checked against its manifest.

    Parameters
    ----------
    data : bytes or memoryview
        The whole file.
    entry : ShardEntry
        The manifest's record of it.
    spec_fp : str
        Fingerprint of the spec.
    schema : mapping
        Columns and types that the manifest states.
    n_columns : int
        Width of the features: bytes of a row of codes, else columns.
    only : sequence of str, optional
        Columns to read; all by default. The features count as "encoded".
    page_checksums : bool, default=True
        Whether to verify them; they add nothing where the SHA-256 of these bytes was just compared.

    Raises
    ------
    ShardError
        When footer, schema, rows or values are not what they should be.
    """
    what = entry.name
    file = _open(data, what, page_checksums=page_checksums)
    footer = ShardFooter.from_metadata(file.metadata.metadata, what)
    if footer.spec_fp != spec_fp or footer.entry(what, entry.size, entry.sha256) != entry:
        message = f"{what}: its footer does not agree with the manifest"
        raise ShardError(message)
    if file.metadata.num_rows != entry.rows:
        message = f"{what}: has {file.metadata.num_rows:,} rows, the manifest states {entry.rows:,}"
        raise ShardError(message)
    kinds = columns.kinds(file.schema_arrow)
    if kinds != dict(schema):
        message = f"{what}: its columns are {kinds}, the manifest states {dict(schema)}"
        raise ShardError(message)
    table = _table(file, _chosen(kinds, only), what)
    try:
        return ShardData(*rows.from_table(table, n_columns))
    except ShardError as fault:
        message = f"{what}: {fault}"
        raise ShardError(message) from fault


def _chosen(kinds: Mapping[str, str], only: Sequence[str] | None) -> list[str] | None:
    if only is None:
        return None
    features = {"codes", "indices", "values", "features"}
    return [name for name in kinds if name in only or (name in features and "encoded" in only)]


def _open(data: bytes | memoryview, what: str, *, page_checksums: bool = True) -> pq.ParquetFile:
    try:
        source = pa.BufferReader(pa.py_buffer(data))
        return pq.ParquetFile(source, page_checksum_verification=page_checksums, pre_buffer=False, **_LIMITS)
    except _FAULTS as fault:
        raise _unreadable(what, fault) from fault


def _unreadable(what: str, fault: BaseException) -> ShardError:
    return ShardError(f"{what}: damaged, not a Parquet file that can be read: {str(fault)[:200]}")


def _table(file: pq.ParquetFile, only: Sequence[str] | None, what: str) -> pa.Table:
    try:
        return file.read(columns=only, use_threads=False)
    except _FAULTS as fault:
        message = f"{what}: damaged: {str(fault)[:200]}"
        raise ShardError(message) from fault
