"""Parquet files: finding, opening with limits, counts of their footers, and cutting into splits."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import DkfeatError, ParquetError, SourceError, cause_of
from dkfeat.filesystems.urls import is_url, open_filesystem, open_retries
from dkfeat.messages import printable
from dkfeat.sources.contents import open_bytes, source_errors
from dkfeat.sources.find import warn_of_left_out

ENDINGS = (".parquet", ".parq", ".pq")
MOST_GROUP_ROWS = 2**31 - 1
"""Maximum number of rows of a row group: more than any writer makes, and counted in 32 bits."""

_LIMITS = {"thrift_string_size_limit": 1 << 26, "thrift_container_size_limit": 1 << 22}
_BUFFER_BYTES = 64 << 20
_FAULTS = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, OverflowError, MemoryError)


@dataclass(frozen=True, slots=True)
class Footer:
    """Counts of a file's row groups, in order."""

    rows: tuple[int, ...]
    """Number of rows of each row group."""
    row_bytes: tuple[int, ...]
    """Size in memory of the rows of each row group, in bytes, estimated from the counts in the footer."""
    chosen: tuple[bool, ...]
    """True for each row group of which rows may pass the source's filters, by its statistics."""
    condition: Any = None
    """Expression of the source's filters; None if it has none."""


@contextmanager
def open_parquet(
    file: SourceFile, storage_options: Mapping[str, Any] | None, n_columns: int = 1
) -> Iterator[pq.ParquetFile]:
    """Open a file to read `n_columns` columns: a local one by buffers of about 64 MiB in all, else by row groups.

    Raises
    ------
    ParquetError
        If the file is not a Parquet file, or damaged.
    SourceError, SpecConflictError
        If the file cannot be read, or is gone.
    """
    with _opened(file, storage_options) as source:
        is_local = isinstance(source, pa.OSFile)
        with reading(file):
            parquet = pq.ParquetFile(
                source,
                buffer_size=min(max(_BUFFER_BYTES // max(n_columns, 1), 1 << 14), 1 << 20) if is_local else 0,
                pre_buffer=not is_local,  # few large requests, for all columns of a row group
                page_checksum_verification=True,
                **_LIMITS,
            )
        with parquet:
            _check_counts(parquet.metadata, file)
            yield parquet


@contextmanager
def reading(file: SourceFile, row_group: int | None = None) -> Iterator[None]:
    """Turn errors of pyarrow about damaged bytes into a `ParquetError` with the location."""
    try:
        yield
    except DkfeatError:
        raise
    except _FAULTS as fault:
        if isinstance(fault, OSError) and fault.errno is not None:
            raise SourceError(f"{printable(file.url)} cannot be read: {cause_of(fault)}") from fault
        detail = printable(" ".join(str(fault).split()))[:200]
        if isinstance(fault, MemoryError):
            reason = f"rows need more memory than there is: {detail or 'out of memory'}"
        elif "decrypt" in detail:
            reason = f"encrypted, but only plain files and columns are read; decrypt it first: {detail}"
        else:
            reason = f"damaged, or not a Parquet file: {detail}"
        raise ParquetError(reason, path=printable(file.url), row_group=row_group) from fault


def matching_groups(
    parquet: pq.ParquetFile, file: SourceFile, condition: Any, options: Mapping[str, Any] | None
) -> set[int]:
    """Return the numbers of the row groups that may have rows for which an expression is true, by their statistics."""
    with _opened(file, options) as source, reading(file):
        fragment = ds.ParquetFileFormat().make_fragment(source)
        subset = fragment.subset(filter=condition, schema=parquet.schema_arrow)
        return {group.id for group in subset.row_groups}


@contextmanager
def _opened(file: SourceFile, storage_options: Mapping[str, Any] | None) -> Iterator[pa.NativeFile]:
    with open_bytes(file, storage_options) as raw:
        if isinstance(raw, io.FileIO):  # a local file, which pyarrow reads without the GIL
            with reading(file):
                source = pa.OSFile(file.url)
            with source:
                yield source
        else:
            yield pa.PythonFile(io.BufferedReader(raw), mode="r")  # type: ignore[type-var]  # the opened file is raw


def _check_counts(metadata: pq.FileMetaData, file: SourceFile) -> None:
    total = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if not 0 <= rows <= MOST_GROUP_ROWS:
            raise ParquetError(
                f"the row group declares {rows:,} rows, but at most {MOST_GROUP_ROWS:,} are read",
                path=printable(file.url),
                row_group=group,
            )
        total += rows
    if total != metadata.num_rows:
        raise ParquetError(
            f"damaged: its row groups declare {total:,} rows, but the file {metadata.num_rows:,}",
            path=printable(file.url),
        )


def cut_file(file: SourceFile, footer: Footer, blocksize: int, first_number: int) -> Iterator[Split]:
    """Cut a file into splits: runs of row groups with up to `blocksize` bytes of rows; at least one split.

    Examples
    --------
    >>> footer = Footer(rows=(5, 5, 5), row_bytes=(400, 500, 900), chosen=(True, True, True))
    >>> file = SourceFile(name="a.parquet", url="a.parquet", size=900)
    >>> [(split.start, split.stop) for split in cut_file(file, footer, 1000, 0)]
    [(0, 2), (2, 3)]
    """
    runs: list[list[int]] = []
    for group, is_chosen in enumerate(footer.chosen):
        adjoins = bool(runs) and runs[-1][1] == group
        if not is_chosen or (not adjoins and not footer.rows[group]):
            continue
        if adjoins and sum(footer.row_bytes[runs[-1][0] : group + 1]) <= blocksize:
            runs[-1][1] = group + 1
        else:
            runs.append([group, group + 1])
    for number, (start, stop) in enumerate(runs or [[0, 0]], first_number):
        yield Split(number=number, file=file, start=start, stop=stop)


def folder_pattern(path: str, storage_options: Mapping[str, Any] | None) -> str:
    """Return the pattern of the Parquet files in a folder at any depth; other paths are returned unchanged."""
    if not _is_folder(path, storage_options):
        return path
    return (path if is_url(path) else glob.escape(path)).rstrip("/") + f"/**/*{ENDINGS[0]}"


def is_hidden(name: str) -> bool:
    """Return True if a part of a path begins with _ or ., by which writers mark files that are not data.

    Examples
    --------
    >>> is_hidden("day=1/part-0.parquet"), is_hidden("_delta_log/00010.checkpoint.parquet")
    (False, True)
    """
    return any(part.startswith(("_", ".")) for part in name.split("/"))


def warn_of_other_endings(folder: str) -> None:
    """Warn of files below a local folder with a suffix of Parquet files that a folder leaves out."""
    found = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]  # noqa: PTH118
    others = (path for path in found if path.lower().endswith(ENDINGS) and not path.endswith(ENDINGS[0]))
    names = sorted(os.path.relpath(path, folder) for path in others)
    names = [name for name in names if not is_hidden(name)]
    warn_of_left_out(folder, names, f"of a folder only names that end with {ENDINGS[0]} are read; give a pattern")


def _is_folder(path: str, storage_options: Mapping[str, Any] | None) -> bool:
    if not is_url(path):
        return os.path.isdir(path)  # noqa: PTH112  # Path would change names like "a//b"
    if glob.has_magic(path):
        return False
    with source_errors(path):
        system, folder = open_filesystem(path, storage_options)
        return bool(open_retries(path, storage_options or {}).call("look up", lambda: system.isdir(folder)))


def holds_parquet(path: str) -> bool:
    """Return True for a local folder with ``.parquet`` files at any depth."""
    if not os.path.isdir(path):  # noqa: PTH112  # Path would change names like "a//b"
        return False
    return any(name.endswith(ENDINGS[0]) for _, _, names in os.walk(path) for name in names)
