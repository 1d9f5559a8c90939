"""Parquet files of a source: opened under limits, with every fault told as an error of the file."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from dkfeat.blocks import SourceFile
from dkfeat.errors import DkfeatError, ParquetError, SourceError
from dkfeat.io.files import open_bytes, printable

__all__ = ["Footer", "footers", "may_match", "open_parquet", "reading"]

MOST_GROUP_ROWS = 2**31 - 1
"""Rows that a row group may declare: beyond what any writer makes, within what is counted in 32 bits."""

_LIMITS = {"thrift_string_size_limit": 1 << 26, "thrift_container_size_limit": 1 << 22}
_BUFFER_BYTES = 64 << 20
_FOOTER_THREADS = 16
_MOST_FOOTERS = 20_000
_FAULTS = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, OverflowError, MemoryError)


@dataclass(frozen=True, slots=True)
class Footer:
    """What is needed of a file's footer: counts of its row groups, in order."""

    rows: tuple[int, ...]
    """Rows."""
    row_bytes: tuple[int, ...]
    """Bytes of the values of all its rows as they will be held in memory, by the footer's own counts."""
    chosen: tuple[bool, ...]
    """Whether rows of it may pass the source's filters, by its statistics."""


@contextmanager
def open_parquet(
    file: SourceFile, storage_options: Mapping[str, Any] | None, n_columns: int = 1
) -> Iterator[pq.ParquetFile]:
    """Open a file to read `n_columns` of it: a local one in parts of about 64 MiB in all, a remote one by row groups.

    Raises
    ------
    ParquetError
        It is no Parquet file, or damaged.
    SourceError, SpecConflictError
        It cannot be read, or is gone.
    """
    with _opened(file, storage_options) as source:
        is_local = isinstance(source, pa.OSFile)
        with reading(file):
            parquet = pq.ParquetFile(
                source,
                buffer_size=min(max(_BUFFER_BYTES // max(n_columns, 1), 1 << 14), 1 << 20) if is_local else 0,
                pre_buffer=not is_local,  # few large requests: the columns of a row group, as they are stored
                page_checksum_verification=True,
                **_LIMITS,
            )
        with parquet:
            _check_counts(parquet.metadata, file)
            yield parquet


@contextmanager
def reading(file: SourceFile, row_group: int | None = None) -> Iterator[None]:
    """Turn what pyarrow raises on damaged bytes into a `ParquetError` with its place."""
    try:
        yield
    except DkfeatError:
        raise
    except _FAULTS as fault:
        if isinstance(fault, OSError) and fault.errno is not None:
            message = f"{printable(file.url)} cannot be read: {fault.strerror or fault}"
            raise SourceError(message) from fault
        detail = printable(" ".join(str(fault).split()))[:200]
        if isinstance(fault, MemoryError):
            reason = f"rows need more memory than there is: {detail or 'out of memory'}"
        else:
            reason = f"damaged, or no Parquet file: {detail}"
        raise ParquetError(reason, path=printable(file.url), row_group=row_group) from fault


def footers(
    files: Sequence[SourceFile],
    storage_options: Mapping[str, Any] | None,
    token: str,
    read: Callable[[SourceFile, pq.ParquetFile], Footer],
) -> list[Footer]:
    """Footers of files, read side by side and remembered while the files are unchanged.

    `token` names what `read` depends on beside the file.
    """

    def one(file: SourceFile) -> Footer:
        key = (file.url, *file.identity.values(), token)
        found = _known.get(key)
        if found is None:
            with open_parquet(file, storage_options) as parquet:
                found = read(file, parquet)
            _known.put(key, found)
        return found

    if len(files) == 1:
        return [one(files[0])]
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        return list(pool.map(one, files))


def may_match(parquet: pq.ParquetFile, file: SourceFile, condition: Any, options: Mapping[str, Any] | None) -> set[int]:
    """Row groups that may hold rows for which an expression is true, by the statistics in the footer."""
    with _opened(file, options) as source, reading(file):
        fragment = ds.ParquetFileFormat().make_fragment(source)
        subset = fragment.subset(filter=condition, schema=parquet.schema_arrow)
        return {group.id for group in subset.row_groups}


@contextmanager
def _opened(file: SourceFile, storage_options: Mapping[str, Any] | None) -> Iterator[pa.NativeFile]:
    with open_bytes(file, storage_options) as raw:
        if isinstance(raw, io.FileIO):  # a local file, which pyarrow reads without Python's lock
            with reading(file):
                source = pa.OSFile(file.url)
            with source:
                yield source
        else:
            yield pa.PythonFile(io.BufferedReader(raw), mode="r")  # type: ignore[type-var]  # what is opened is raw


def _check_counts(metadata: pq.FileMetaData, file: SourceFile) -> None:
    total = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if not 0 <= rows <= MOST_GROUP_ROWS:
            reason = f"the row group declares {rows:,} rows; at most {MOST_GROUP_ROWS:,} are read"
            raise ParquetError(reason, path=printable(file.url), row_group=group)
        total += rows
    if total != metadata.num_rows:
        reason = f"damaged: its row groups declare {total:,} rows, the file {metadata.num_rows:,}"
        raise ParquetError(reason, path=printable(file.url))


class _Remembered:
    """The footers read last."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[Any, ...], Footer] = OrderedDict()
        self._lock = Lock()

    def get(self, key: tuple[Any, ...]) -> Footer | None:
        with self._lock:
            return self._found.get(key)

    def put(self, key: tuple[Any, ...], footer: Footer) -> None:
        with self._lock:
            self._found[key] = footer
            if len(self._found) > _MOST_FOOTERS:
                self._found.popitem(last=False)


_known = _Remembered()
