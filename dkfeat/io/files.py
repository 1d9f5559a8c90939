"""Which files a source names, what they are, and how they are opened."""

from __future__ import annotations

import glob
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from dkfeat.blocks import SourceFile
from dkfeat.errors import ConfigError, ParseError, SourceError, SourceNotFoundError, SpecConflictError
from dkfeat.io.decompress import MAGIC_BYTES, DecompressedStream, compression_of_magic, compression_of_name
from dkfeat.io.lines import ByteStream

__all__ = ["check_unchanged", "find_files", "open_content", "printable"]

_READ_AHEAD_BYTES = 4 << 20
_USER = re.compile(r"://[^/@\s]*@")
_QUERY = re.compile(r"(https?://[^?\s]*\?)\S+")  # as in signed URLs


def find_files(urlpaths: Iterable[str], storage_options: Mapping[str, Any] | None = None) -> tuple[SourceFile, ...]:
    """Files that paths, patterns and URLs name, in byte-wise order of their names.

    A path that exists is taken literally, whatever characters it holds; otherwise it is a glob pattern, in which
    ``**`` matches folders of any depth. Patterns pass over folders. Symbolic links are followed and keep their own
    name. A name is relative to the root of the source, with forward slashes. The root does not depend on what is found:
    it is the folder of a path, the part of a pattern before its first folder or name with a wildcard, and the innermost
    folder above these where there are several.

    Parameters
    ----------
    urlpaths : iterable of str
        Local paths and patterns, or fsspec URLs; all on one file system.
    storage_options : mapping, optional
        For fsspec.

    Returns
    -------
    files : tuple of SourceFile
        At least one.

    Raises
    ------
    SourceNotFoundError
        A path or pattern matches no file, or names a folder.
    ParseError
        The first bytes of a file disagree with the ending of its name.
    SourceError
        A file cannot be read.
    ConfigError
        A file is named twice, or files are on several file systems.
    """
    found: dict[str, _Found] = {}
    for urlpath in urlpaths:
        is_local = os.path.lexists(urlpath) or not _is_url(urlpath)
        matches = _find_local(urlpath) if is_local else _find_remote(urlpath, storage_options)
        for match in matches:
            if match.url in found:
                message = f"{printable(match.url)} is named twice by the source; name each file once"
                raise ConfigError(message)
            found[match.url] = match
    systems = {match.system for match in found.values()}
    if len(systems) > 1:
        message = "the files of a source must be on one file system; got " + ", ".join(sorted(systems))
        raise ConfigError(message)
    root = os.path.commonpath([match.root for match in found.values()]) if found else ""
    files = [
        SourceFile(
            name=os.path.relpath(match.path, root).replace(os.sep, "/"),
            url=match.url,
            compression=compression_of_name(match.path),
            **match.identity,
        )
        for match in found.values()
    ]
    for file in files:
        with _open(file, 0, storage_options) as raw:
            _check_magic(file, raw.read(MAGIC_BYTES))
    return tuple(sorted(files, key=lambda file: os.fsencode(file.name)))


def check_unchanged(file: SourceFile, storage_options: Mapping[str, Any] | None = None) -> None:
    """Compare a file with what is known of it.

    Raises
    ------
    SpecConflictError
        Its size or time of change differs, or it is gone.
    """
    try:
        if _is_url(file.url):
            system, path = _file_system(file.url, storage_options)
            now = _remote_identity(system.info(path))
        else:
            now = _local_identity(os.stat(file.url))  # noqa: PTH116  # Path would change names like "a//b"
    except FileNotFoundError:
        message = f"{printable(file.url)} is gone since the source was listed; restore it or start afresh"
        raise SpecConflictError(message) from None
    changed = [
        f"{key} {file.identity[key]} became {value}" for key, value in now.items() if file.identity[key] != value
    ]
    if changed:
        message = f"{printable(file.url)} has changed since the source was listed ({', '.join(changed)})"
        raise SpecConflictError(message)


@contextmanager
def open_content(
    file: SourceFile, start: int = 0, storage_options: Mapping[str, Any] | None = None
) -> Iterator[ByteStream]:
    """Stream of a file's text, decompressed, from byte `start` of plain files on."""
    with _open(file, start, storage_options) as raw:
        if file.compression is None:
            yield raw  # type: ignore[misc]  # every raw file that we open can readinto
        else:
            yield DecompressedStream(raw, file.compression, printable(file.url))


def printable(text: str) -> str:
    r"""Make a name fit for messages: control characters escaped, what may be secret in a URL left out.

    Examples
    --------
    >>> print(printable("red \x1b[31m"), printable("s3://key:secret@host/rows.svm"))
    red \x1b[31m s3://host/rows.svm
    """
    text = _QUERY.sub(r"\1...", _USER.sub("://", text))
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


class _Found:
    """A file that exists."""

    __slots__ = ("identity", "path", "root", "system", "url")

    def __init__(self, system: str, path: str, root: str, url: str, identity: dict[str, Any]) -> None:
        self.system, self.path, self.root, self.url, self.identity = system, path, root, url, identity


def _is_url(urlpath: str) -> bool:
    """Tell URLs from local paths, which are absolute in a `SourceFile`."""
    return ("://" in urlpath or "::" in urlpath) and not os.path.isabs(urlpath)  # noqa: PTH117  # a string test


def _find_local(pattern: str) -> Iterator[_Found]:
    if os.path.lexists(pattern):
        paths = [pattern]
        root = os.path.dirname(os.path.abspath(pattern))  # noqa: PTH100, PTH120  # does not follow links
    else:
        root = os.path.abspath(_fixed_part(pattern))  # noqa: PTH100  # as above
        paths = [path for path in glob.glob(pattern, recursive=True) if not Path(path).is_dir()]  # noqa: PTH207  # keeps "./"
        if not paths:
            message = f"no file matches {printable(pattern)}"
            raise SourceNotFoundError(message)
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116  # as above
        except FileNotFoundError:
            message = f"{printable(path)} is a symbolic link to a file that does not exist"
            raise SourceNotFoundError(message) from None
        except OSError as error:
            raise _unreadable(path, error) from error
        if stat.S_ISDIR(status.st_mode):
            raise _is_folder(path)
        if not stat.S_ISREG(status.st_mode):
            message = f"{printable(path)} is not a regular file; a source is read several times"
            raise SourceNotFoundError(message)
        full = os.path.abspath(path)  # noqa: PTH100  # does not follow links
        try:
            full.encode()
        except UnicodeEncodeError:
            message = f"{printable(path)}: the name is not UTF-8; rename the file"
            raise SourceError(message) from None
        yield _Found("local", full, root, full, _local_identity(status))


def _find_remote(urlpath: str, storage_options: Mapping[str, Any] | None) -> Iterator[_Found]:
    system, path = _file_system(urlpath, storage_options)
    try:
        is_literal = system.exists(path)
        paths = [path] if is_literal else sorted(system.glob(path))
        infos = [system.info(match) for match in paths]
    except OSError as error:
        raise _unreadable(urlpath, error) from error
    if is_literal and infos[0]["type"] == "directory":
        raise _is_folder(urlpath)
    matches = [info for info in infos if info["type"] == "file"]
    if not matches:
        message = f"no file matches {printable(urlpath)}"
        raise SourceNotFoundError(message)
    root = "/" + (os.path.dirname(path) if is_literal else _fixed_part(path)).lstrip("/")  # noqa: PTH120  # a URL
    for info in matches:
        name = info["name"]
        url, identity = system.unstrip_protocol(name), _remote_identity(info)
        yield _Found(str(system.protocol), "/" + name.lstrip("/"), root, url, identity)


def _fixed_part(pattern: str) -> str:
    """Folders that a pattern names before its first wildcard."""
    *folders, _ = pattern.split("/")
    fixed = "/".join(itertools.takewhile(lambda folder: not glob.has_magic(folder), folders))
    return fixed or "/" * pattern.startswith("/")


def _file_system(url: str, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    import fsspec  # late: local paths do without it

    try:
        return fsspec.core.url_to_fs(url, **(storage_options or {}))
    except (ValueError, ImportError) as error:
        message = f"{printable(url)} cannot be opened: {error}"
        raise ConfigError(message) from None


def _local_identity(status: os.stat_result) -> dict[str, Any]:
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _remote_identity(info: Mapping[str, Any]) -> dict[str, Any]:
    changed = next((info[key] for key in ("mtime", "LastModified", "created") if info.get(key)), None)
    if isinstance(changed, datetime):
        changed = changed.timestamp()
    etag = info.get("ETag") or info.get("etag")
    mtime_ns = None if changed is None or etag else int(changed * 1e9)
    return {"size": int(info["size"]), "mtime_ns": mtime_ns, "etag": etag}


@contextmanager
def _open(file: SourceFile, start: int, storage_options: Mapping[str, Any] | None) -> Iterator[BinaryIO]:
    try:
        if _is_url(file.url):
            system, path = _file_system(file.url, storage_options)
            raw = system.open(path, "rb", block_size=_READ_AHEAD_BYTES, cache_type="readahead")
        else:
            raw = open(file.url, "rb", buffering=0)  # noqa: PTH123, SIM115  # as above; closed below
        raw.seek(start)
    except FileNotFoundError:
        message = f"{printable(file.url)} is gone since the source was listed; restore it or start afresh"
        raise SpecConflictError(message) from None
    except OSError as error:
        raise _unreadable(file.url, error) from error
    with raw:
        yield raw


def _check_magic(file: SourceFile, head: bytes) -> None:
    actual = compression_of_magic(head)
    if actual != file.compression and head:
        named, found = file.compression or "plain text", actual or "something else"
        reason = f"the name says {named}, the first bytes say {found}; rename the file after what it holds"
        raise ParseError(reason, path=printable(file.url), offset=0)


def _is_folder(path: str) -> SourceNotFoundError:
    where = printable(path)
    return SourceNotFoundError(f"{where} is a folder; name files or a pattern such as {where.rstrip('/')}/*.svm")


def _unreadable(path: str, error: OSError) -> SourceError:
    return SourceError(f"{printable(path)} cannot be read: {error.strerror or error}")
