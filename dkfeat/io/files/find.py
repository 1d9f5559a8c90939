"""Input files: listed by path, glob or URL, compared with what was listed, and opened."""

from __future__ import annotations

import glob
import io
import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

from dkfeat.blocks import SourceFile
from dkfeat.errors import ConfigError, ParseError, SourceError, SourceNotFoundError, SpecConflictError
from dkfeat.io.files.decompress import MAGIC_BYTES, DecompressedStream, compression_of_magic, compression_of_name
from dkfeat.io.files.lines import ByteStream
from dkfeat.io.files.remote import RemoteFile, gone, identity_now, list_files, read_heads, unreadable
from dkfeat.io.storage.urls import is_url, printable


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
        is_local = os.path.lexists(urlpath) or not is_url(urlpath)
        matches = _find_local(urlpath) if is_local else _find_remote(urlpath, storage_options)
        for match in matches:
            if match.url in found:
                raise ConfigError(f"{printable(match.url)} is named twice by the source; name each file once")
            found[match.url] = match
    systems = {match.system for match in found.values()}
    if len(systems) > 1:
        raise ConfigError("the files of a source must be on one file system; got " + ", ".join(sorted(systems)))
    roots = {match.root for match in found.values()}
    root = os.path.commonpath(roots) if roots else ""
    files = sorted((match.pinned(root) for match in found.values()), key=lambda file: os.fsencode(file.name))
    for file, head in zip(files, _heads(files, storage_options), strict=True):
        _check_magic(file, head)
    return tuple(files)


def check_unchanged(file: SourceFile, storage_options: Mapping[str, Any] | None = None) -> None:
    """Compare a file with what is known of it.

    Raises
    ------
    SpecConflictError
        Its size or time of change differs, or it is gone.
    """
    try:
        remote = is_url(file.url)
        now = identity_now(file.url, storage_options) if remote else _local_identity(os.stat(file.url))  # noqa: PTH116  # Path would change names like "a//b"
    except FileNotFoundError:
        raise gone(file) from None
    except OSError as error:
        raise unreadable(file.url, error) from error
    changed = [
        f"{key} {file.identity[key]} became {value}" for key, value in now.items() if file.identity[key] != value
    ]
    if changed:
        raise SpecConflictError(f"{printable(file.url)} has changed since the source was listed ({', '.join(changed)})")


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


@contextmanager
def open_bytes(file: SourceFile, storage_options: Mapping[str, Any] | None = None) -> Iterator[BinaryIO]:
    """Open a file as it is stored, for random access; unbuffered."""
    with _open(file, 0, storage_options) as raw:
        yield raw


class _Found(NamedTuple):
    """A file that exists; small, for there may be a million."""

    system: str
    path: str
    root: str
    url: str
    size: int
    mtime_ns: int | None
    etag: str | None = None

    def pinned(self, root: str) -> SourceFile:
        """Make the source file, whose name is relative to `root`."""
        folder = root.rstrip("/") + "/"
        # twenty times as fast as relpath
        name = self.path[len(folder) :] if self.path.startswith(folder) else os.path.relpath(self.path, root)
        return SourceFile(
            name=name.replace(os.sep, "/"),
            url=self.url,
            size=self.size,
            mtime_ns=self.mtime_ns,
            etag=self.etag,
            compression=compression_of_name(self.path),
        )


def _find_local(pattern: str) -> Iterator[_Found]:
    is_literal = os.path.lexists(pattern)
    paths: Iterable[str] = [pattern]
    n_found = 0
    if is_literal:
        root = os.path.dirname(os.path.abspath(pattern))  # noqa: PTH100, PTH120  # does not follow links
    else:
        root = os.path.abspath(_fixed_part(pattern))  # noqa: PTH100  # as above
        paths = glob.iglob(pattern, recursive=True)  # noqa: PTH207  # keeps "./"
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116  # as above
        except FileNotFoundError:
            raise SourceNotFoundError(f"{printable(path)} is a symbolic link to a file that does not exist") from None
        except OSError as error:
            raise unreadable(path, error) from error
        if stat.S_ISDIR(status.st_mode):
            if not is_literal:
                continue
            raise _is_folder(path)
        if not stat.S_ISREG(status.st_mode):
            raise SourceNotFoundError(f"{printable(path)} is not a regular file; a source is read several times")
        full = os.path.abspath(path)  # noqa: PTH100  # does not follow links
        try:
            full.encode()
        except UnicodeEncodeError:
            raise SourceError(f"{printable(path)}: the name is not UTF-8; rename the file") from None
        n_found += 1
        yield _Found("local", full, root, full, **_local_identity(status))
    if not n_found:
        raise SourceNotFoundError(f"no file matches {printable(pattern)}")


def _find_remote(urlpath: str, storage_options: Mapping[str, Any] | None) -> Iterator[_Found]:
    try:
        listing = list_files(urlpath, storage_options)
    except IsADirectoryError:
        raise _is_folder(urlpath) from None
    except OSError as error:
        raise unreadable(urlpath, error) from error
    if not listing.found:
        bucket = None if listing.missing_bucket is None else printable(listing.missing_bucket)
        why = "" if bucket is None else f": there is no bucket {bucket}, or these credentials do not show it"
        raise SourceNotFoundError(f"no file matches {printable(urlpath)}{why}")
    path = listing.path
    root = "/" + (os.path.dirname(path) if listing.is_literal else _fixed_part(path)).lstrip("/")  # noqa: PTH120  # a URL
    for name, url, identity in listing.found:
        yield _Found(listing.system, "/" + name.lstrip("/"), root, url, **identity)


def _fixed_part(pattern: str) -> str:
    """Folders that a pattern names before its first wildcard."""
    *folders, _ = pattern.split("/")
    fixed = "/".join(itertools.takewhile(lambda folder: not glob.has_magic(folder), folders))
    return fixed or "/" * pattern.startswith("/")


def _local_identity(status: os.stat_result) -> dict[str, Any]:
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns}


class _LocalFile(io.FileIO):
    """A file on a disk, named by the errors of each read: a network disk may fail at any of them."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "rb")

    def read(self, size: int | None = -1, /) -> bytes:
        """As a raw file."""
        with self._named():
            return super().read(-1 if size is None else size)

    def readinto(self, buffer: Any, /) -> int:
        """As a raw file."""
        with self._named():
            return super().readinto(buffer)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unreadable(str(self.name), error) from error


@contextmanager
def _open(file: SourceFile, start: int, storage_options: Mapping[str, Any] | None) -> Iterator[BinaryIO]:
    try:
        if is_url(file.url):
            raw: Any = RemoteFile(file, storage_options)
        else:
            raw = _LocalFile(file.url)  # closed below
        raw.seek(start)
    except FileNotFoundError:
        raise gone(file) from None
    except OSError as error:
        raise unreadable(file.url, error) from error
    with raw:
        yield raw


def _heads(files: Sequence[SourceFile], storage_options: Mapping[str, Any] | None) -> Iterator[bytes]:
    """First bytes of each file."""
    if files and is_url(files[0].url):  # then all are, and a store answers many requests at a time
        try:
            yield from read_heads(files, MAGIC_BYTES, storage_options)
        except OSError as error:
            raise unreadable(files[0].url, error) from error
        return
    for file in files:
        with _open(file, 0, storage_options) as raw:
            yield raw.read(MAGIC_BYTES)


def _check_magic(file: SourceFile, head: bytes) -> None:
    actual = compression_of_magic(head)
    if actual != file.compression and head:
        named, found = file.compression or "plain text", actual or "something else"
        raise ParseError(
            f"the name says {named}, the first bytes say {found}; rename the file after what it holds",
            path=printable(file.url),
            offset=0,
        )


def _is_folder(path: str) -> SourceNotFoundError:
    where = printable(path)
    return SourceNotFoundError(f"{where} is a folder; name files or a pattern such as {where.rstrip('/')}/*.svm")
