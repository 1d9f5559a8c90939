"""Parquet files of a data set: opened and read with limits, any fault an error that names the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dkfeat.errors import ShardError

_LIMITS = {"thrift_string_size_limit": 1 << 24, "thrift_container_size_limit": 1 << 20}
_FAULTS = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, MemoryError)


def open_parquet(data: bytes | memoryview | BinaryIO, what: str, *, page_checksums: bool = True) -> pq.ParquetFile:
    """Open a Parquet file, and read its footer.

    Raises
    ------
    ShardError
        If it is damaged or no Parquet file; the message begins with `what`.
    """
    try:
        source = pa.BufferReader(pa.py_buffer(data)) if isinstance(data, bytes | memoryview) else data
        return pq.ParquetFile(source, page_checksum_verification=page_checksums, pre_buffer=False, **_LIMITS)
    except _FAULTS as fault:
        raise ShardError(f"{what}: damaged, not a Parquet file that can be read: {str(fault)[:200]}") from fault


def read_table(file: pq.ParquetFile, only: Sequence[str] | None, what: str) -> pa.Table:
    """Read columns of an open Parquet file.

    Raises
    ------
    ShardError
        If they are damaged; the message begins with `what`.
    """
    try:
        return file.read(columns=only, use_threads=False)
    except _FAULTS as fault:
        raise ShardError(f"{what}: damaged: {str(fault)[:200]}") from fault
