"""Parquet files found and cut: folders, and row groups into splits."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dkfeat.blocks import SourceFile, Split
from dkfeat.io.parquet_files import Footer
from dkfeat.io.remote import is_url, open_filesystem, open_retries

__all__ = ["cut_file", "folder_pattern", "looks_like_parquet"]

ENDINGS = (".parquet", ".parq", ".pq")


def cut_file(file: SourceFile, footer: Footer, blocksize: int, first_number: int) -> Iterator[Split]:
    """Cut a file into runs of row groups of up to `blocksize` bytes of rows each; at least one split.

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
    """Pattern that finds the Parquet files of a folder at any depth; what is no folder stays itself."""
    if not _is_folder(path, storage_options):
        return path
    return (path if is_url(path) else glob.escape(path)).rstrip("/") + f"/**/*{ENDINGS[0]}"


def looks_like_parquet(urlpaths: Sequence[str]) -> bool:
    """Whether paths are meant as Parquet: by their endings, or folders of this machine that hold such files.

    Examples
    --------
    >>> looks_like_parquet(["day-*.parquet"]), looks_like_parquet(["rows.svm"])
    (True, False)
    """
    return bool(urlpaths) and all(
        path.rstrip("/").lower().endswith(ENDINGS) or _holds_parquet(path) for path in urlpaths
    )


def is_hidden(name: str) -> bool:
    """Whether a file of a folder is none of its data, by the names on its path.

    Examples
    --------
    >>> is_hidden("day=1/part-0.parquet"), is_hidden("_delta_log/00010.checkpoint.parquet")
    (False, True)
    """
    return any(part.startswith(("_", ".")) for part in name.split("/"))


def _is_folder(path: str, storage_options: Mapping[str, Any] | None) -> bool:
    if not is_url(path):
        return os.path.isdir(path)  # noqa: PTH112  # Path would change names like "a//b"
    if glob.has_magic(path):
        return False
    system, place = open_filesystem(path, storage_options)
    return bool(open_retries(path, storage_options or {}).call("look up", lambda: system.isdir(place)))


def _holds_parquet(path: str) -> bool:
    if not os.path.isdir(path):  # noqa: PTH112  # Path would change names like "a//b"
        return False
    return any(name.endswith(ENDINGS[0]) for _, _, names in os.walk(path) for name in names)
