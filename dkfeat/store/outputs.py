"""Checks before any work that a result replaces no input, no part of a data set or model, and no foreign file."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from glob import glob
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import local_path
from dkfeat.html import MARK
from dkfeat.messages import printable
from dkfeat.store.manifest.metadata import kind_of, show_kind
from dkfeat.store.manifest.model_folder import LocalFolder, open_model_folder
from dkfeat.store.shards.columns import TABLES
from dkfeat.store.storage.base import Storage

PNG_MARK = ("Software", "dkfeat")
"""Key and value of the text in PNG files that dkfeat writes."""
PARQUET_MARK = "result of dkfeat"
"""Key in the metadata of Parquet files that may be replaced."""
_MARKS = (MARK.encode(), "\0".join(PNG_MARK).encode(), PARQUET_MARK.encode())
_MARKED_BYTES = 4096
"""Bytes at the beginning, and at the end, that may have a mark; Parquet has its metadata there."""
_DATA_SETS = ("features", *TABLES)
_OPEN = ("a checkpoint", "an evaluation", "a comparison")
"""Kinds of folders that may also hold other files and folders."""
_AROUND = {"pairs": "duplicates", "groups": "duplicates"}
"""Kinds of folders that are parts of a folder of another kind."""


def check_outputs(
    files: Iterable[str | PathLike[str]], *, inputs: Iterable[str] = (), overwrite: bool = False
) -> list[Path]:
    """Check that the files of one result may be written on this machine; nothing is written or read completely.

    If one of the existing files has dkfeat's mark, all of them are an earlier result, which may be replaced.

    Parameters
    ----------
    files : iterable of str or path
        Files to write.
    inputs : iterable of str
        Paths, patterns, folders and URLs that the same command reads.
    overwrite : bool, default=False
        Allow that existing files without dkfeat's mark are replaced.

    Returns
    -------
    paths : list of Path
        Absolute paths without links.

    Raises
    ------
    ConfigError
        If a file is an input, lies in a data set or a model, is not a regular file on this machine, or exists and may
        not be replaced.
    CommitError
        If its folder is not writable.
    """
    paths = [_as_file(file) for file in files]
    for folder in dict.fromkeys(path.parent for path in paths):
        check_outside(folder)
        open_model_folder(folder).check_writable()
    existing = [path for path in paths if path.exists()]
    read = _local_inputs(inputs) if existing else []
    for path in existing:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{printable(str(path))} exists and is not a regular file; name a file to write")
        is_parquet = path.suffix == ".parquet"  # of a folder only such files are read
        if any(path.samefile(other) or (is_parquet and other in path.parents) for other in read):
            raise ConfigError(f"{printable(str(path))} is an input of this command; choose another file for the result")
    if existing and not overwrite and not any(map(_has_mark, existing)):
        raise ConfigError(
            f"{printable(str(existing[0]))} exists and is not recognised as an earlier result of dkfeat; choose "
            "another name, remove the file or, if there is this option, pass overwrite=True (--overwrite)"
        )
    return paths


def check_folder(
    folder: str | PathLike[str],
    names: Iterable[str],
    *,
    kind: str | None = None,
    inputs: Iterable[str] = (),
    overwrite: bool = False,
) -> Path:
    """Check the named files of one result in a folder of its own as `check_outputs` does; return its path."""
    root = _local(fspath(folder))
    check_outside(root, kind=kind)
    check_outputs([root / name for name in names], inputs=inputs, overwrite=overwrite)
    return root


def check_outside(
    place: str | PathLike[str], storage_options: Mapping[str, Any] | None = None, *, kind: str | None = None
) -> None:
    """Check that results of a kind may be written into a folder, given by path or URL; without a kind, single files.

    The folder must not be of another kind, and lie in none that holds no other files: a data set, a model, ….

    Raises
    ------
    ConfigError
        If it is or does; the message names both kinds.
    """
    inner, *outer = _folders(fspath(place))
    if kind is not None:
        check_kind(open_model_folder(inner, storage_options), kind)
    for folder in outer if kind is not None else (inner, *outer):
        found = kind_of(open_model_folder(folder, storage_options))
        if found not in (None, *_OPEN, _AROUND.get(kind or "")):
            lies = "the output would be" if folder == inner else f"{printable(fspath(place))} is"
            raise ConfigError(
                f"{lies} in {printable(folder)}, which holds {show_kind(found)} and may hold no other files; "
                "choose another place"
            )


def check_kind(folder: Storage, kind: str) -> None:
    """Check that a folder is of one kind of `kind_of`, or of none."""
    found = kind_of(folder)
    is_begun = found == "a run" and kind in (*_DATA_SETS, "a checkpoint")
    if found not in (None, kind) and not is_begun and not (found == "a data set" and kind in _DATA_SETS):
        raise ConfigError(
            f"{folder.url} holds {show_kind(found)}, but the output of this command is {show_kind(kind)}; "
            "choose another folder"
        )


def _folders(place: str) -> list[str]:
    """Return a folder and those that contain it, up to the root or the bucket."""
    path = local_path(place)
    if path is not None:
        return [str(folder) for folder in (path, *path.parents)]
    scheme, _, rest = place.partition("://")
    parts = rest.strip("/").split("/")
    return [f"{scheme}://{'/'.join(parts[:n])}" for n in range(len(parts), 0, -1)]


def write_output(path: str | PathLike[str], data: str | bytes) -> None:
    """Create or replace a file on this machine atomically; missing folders are created, and a link is followed."""
    file = _as_file(path)
    LocalFolder(str(file.parent)).replace(file.name, data.encode() if isinstance(data, str) else data)


def _as_file(file: str | PathLike[str]) -> Path:
    text = fspath(file)
    if text == "-" or text.endswith("/"):
        raise ConfigError(f"{text!a} is not the name of a file; name a file to write")
    path = _local(text)
    if Path(text).exists() and not path.exists():  # /dev/stdout of a pipe has no other path
        raise ConfigError(f"{printable(text)} exists and is not a regular file; name a file to write")
    return path


def _local(text: str) -> Path:
    if not text or "\0" in text:
        raise ConfigError(f"{text!a} is not the name of a file; name a file to write")
    path = local_path(text)
    if path is None:
        raise ConfigError(f"{printable(text)} is a URL, but this result is written to this machine only; give a path")
    return path


def _local_inputs(inputs: Iterable[str]) -> list[Path]:
    given = [path for path in map(local_path, inputs) if path is not None]
    found = [[str(path)] if path.exists() else glob(str(path), recursive=True) for path in given]  # noqa: PTH207
    return [path for path in map(Path, chain(*found)) if path.exists()]


def _has_mark(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        ends = file.read(_MARKED_BYTES)
        file.seek(max(0, path.stat().st_size - _MARKED_BYTES))
        ends += file.read()
        return any(mark in ends for mark in _MARKS)
    return False
