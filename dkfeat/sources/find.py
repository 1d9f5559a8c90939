"""Lookup of input files by path, glob or URL."""

from __future__ import annotations

import fnmatch
import glob
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from dkfeat.blocks import SourceFile
from dkfeat.errors import ConfigError, ParseError, SourceError, SourceNotFoundError
from dkfeat.filesystems.urls import (
    WEB_PROTOCOLS,
    identifying,
    is_url,
    listed_size,
    open_filesystem,
    open_retries,
    protocol_of,
)
from dkfeat.messages import counted, logger_of, printable
from dkfeat.sources.contents import (
    MAGIC_BYTES,
    compression_of_magic,
    compression_of_name,
    local_identity,
    open_bytes,
    remote_identity,
    source_errors,
)

logger = logger_of(__name__)

_MOST_SHOWN = 3
_WITH_BUCKETS = ("s3", "gs")
_EQUAL_NAMES = (
    "; the user information and the query of a URL, which may be secret, are no part of a file's name: "
    "if files differ only in these, download each of them under its own name"
)


def find_files(
    urlpaths: Iterable[str], storage_options: Mapping[str, Any] | None = None, *, checks: bool = True
) -> tuple[SourceFile, ...]:
    """Find the files that paths, patterns and URLs name, in byte-wise order of their names.

    The path of an existing file is not a pattern, even with wildcards. In a glob pattern ``**`` matches folders at
    any depth. Patterns match files only. In local patterns a wildcard matches no hidden name; a warning names such
    files in the folders searched. Symbolic links are followed; a file has the name of its link. Names of files are
    relative to the root of the source, with forward slashes. The root does not depend on the files found: it is the
    folder of a path, or the folders of a pattern before its first wildcard; for several paths and patterns it is the
    innermost common folder. A warning names files that are links to other files of the source. User information and
    query of a URL, which may be secret, are no part of a name.

    Parameters
    ----------
    urlpaths : iterable of str
        Local paths and patterns, or fsspec URLs; all on one file system.
    storage_options : mapping, optional
        Options of fsspec.
    checks : bool, default=True
        Call `check_contents`.

    Returns
    -------
    files : tuple of SourceFile
        At least one file.

    Raises
    ------
    SourceNotFoundError
        If a path or pattern matches no file, or names a folder.
    ParseError
        If the first bytes of a file contradict its suffix.
    SourceError
        If a file cannot be read.
    ConfigError
        If a file is named twice, or files are on different file systems.
    """
    matches: dict[str, _Match] = {}
    for urlpath in urlpaths:
        is_local = os.path.lexists(urlpath) or not is_url(urlpath)
        for match in _find_local(urlpath) if is_local else _find_remote(urlpath, storage_options):
            if match.path in matches:
                hint = "" if matches[match.path].url == match.url else _EQUAL_NAMES
                raise ConfigError(f"{printable(match.url)} is named twice by the source; name each file once{hint}")
            matches[match.path] = match
    systems = {match.system for match in matches.values()}
    if len(systems) > 1:
        raise ConfigError("the files of a source must be on one file system; got " + ", ".join(sorted(systems)))
    root = os.path.commonpath({match.root for match in matches.values()})
    found = [(match.source_file(root), match.inode) for match in matches.values()]
    found.sort(key=lambda pair: pair[0].name)  # UTF-8 has the order of its characters
    files = tuple(file for file, _ in found)
    if checks:
        check_contents(files, storage_options)
    _warn_of_links(found)
    return files


def check_contents(files: Sequence[SourceFile], storage_options: Mapping[str, Any] | None = None) -> None:
    """Raise `ParseError` if the first bytes of a file contradict its suffix, such as gzip data in ``day1.svm``."""
    for file, head in zip(files, _heads(files, storage_options), strict=True):
        _check_magic(file, head)


def _warn_of_links(found: Sequence[tuple[SourceFile, int]]) -> None:
    """Warn of local files that are links to other files of the source, if there are any."""
    firsts: dict[tuple[int, int, int | None], SourceFile] = {}
    links = []
    for file, inode in found:
        if inode and file.size:
            first = firsts.setdefault((inode, file.size, file.mtime_ns), file)
            if first is not file:
                links.append(f"{printable(file.name)} to {printable(first.name)}")
    if links:
        logger.warning(
            "%s of the source %s to another file of it, such as %s: rows are read twice; name each file once",
            counted(len(links), "file"),
            "is a link" if len(links) == 1 else "are links",
            ", ".join(links[:_MOST_SHOWN]),
        )


class _Match(NamedTuple):
    """An existing file; the record is small because a source may have a million files."""

    system: str
    path: str
    """Absolute path that identifies the file; for a URL, without user information and query."""
    root: str
    url: str
    size: int
    mtime_ns: int | None
    etag: str | None = None
    inode: int = 0
    """Number of the file on its local disk; 0 for a URL."""

    def source_file(self, root: str) -> SourceFile:
        """Make the source file, whose name is relative to `root`."""
        folder = root.rstrip("/") + "/"
        # twenty times as fast as relpath
        name = self.path[len(folder) :] if self.path.startswith(folder) else os.path.relpath(self.path, root)
        return SourceFile(
            name=name,
            url=self.url,
            size=self.size,
            mtime_ns=self.mtime_ns,
            etag=self.etag,
            compression=compression_of_name(self.path),
        )


def _find_local(pattern: str) -> Iterator[_Match]:
    is_literal, hidden = os.path.lexists(pattern), list[str]()
    # neither `abspath` nor `glob` follows links or changes names such as "./a"
    fixed = os.path.dirname(pattern) if is_literal else _fixed_part(pattern)  # noqa: PTH120
    root, found = os.path.abspath(fixed), False  # noqa: PTH100
    for path, full in _expanded(pattern, hidden, is_literal=is_literal):
        try:
            status = os.stat(path)  # noqa: PTH116  # keeps "./"
        except FileNotFoundError:
            reason = f"{printable(path)} is a symbolic link to a file that does not exist"
            raise SourceNotFoundError(reason) from None
        except OSError:
            with source_errors(path):
                raise
        if not stat.S_ISREG(status.st_mode):
            if not stat.S_ISDIR(status.st_mode):
                raise SourceNotFoundError(
                    f"{printable(path)} is not a regular file, but a source is read several times"
                )
            if is_literal:
                raise _folder_error(path)
            continue
        try:
            full.encode()
        except UnicodeEncodeError:
            raise SourceError(f"{printable(path)}: the name is not UTF-8; rename the file") from None
        found = True
        size, mtime_ns = local_identity(status).values()
        yield _Match("local", full, root, full, size, mtime_ns, None, status.st_ino)
    left_out = sorted(os.path.relpath(path, fixed or ".") for path in hidden if os.path.isfile(path))  # noqa: PTH113
    warn_of_left_out(pattern, left_out, "a name that begins with . needs a pattern that begins with . too")
    if not found:
        raise SourceNotFoundError(f"no file matches {printable(pattern)}")


def _expanded(pattern: str, hidden: list[str], *, is_literal: bool) -> Iterator[tuple[str, str]]:
    """Yield the paths that match a local pattern, each also as an absolute one, as `glob` finds them, but faster.

    Paths that would match if a wildcard at the start of a name matched a dot are added to `hidden`.
    """
    head, _, last = pattern.rpartition("/")
    if is_literal or last == "**" or not glob.has_magic(last):
        paths = [pattern] if is_literal else glob.iglob(pattern, recursive=True)  # noqa: PTH207
        yield from ((path, os.path.abspath(path)) for path in paths)  # noqa: PTH100
        return
    head, matches = pattern.removesuffix(last), re.compile(fnmatch.translate(last)).match
    start = f"./{head}" if head.startswith("**") else head  # else `glob` leaves the folder itself out
    for folder in glob.iglob(start, recursive=True) if glob.has_magic(head) else [head]:  # noqa: PTH207
        full = os.path.join(os.path.abspath(folder), "")  # noqa: PTH100, PTH118
        with suppress(OSError):
            for name in os.listdir(folder or "."):  # noqa: PTH208
                if not matches(name):
                    continue
                if name[0] != "." or last[0] == ".":
                    yield folder + name, full + name
                elif last[0] in "*?":
                    hidden.append(folder + name)


def warn_of_left_out(where: str, names: Sequence[str], why: str, what: str = "file") -> None:
    """Warn of files that a pattern or a folder leaves out, or of columns of a file, if there are any."""
    if names:
        counts, shown = counted(len(names), what, "is", "are"), ", ".join(names[:_MOST_SHOWN])
        logger.warning("%s: %s left out, such as %s: %s", printable(where), counts, printable(shown), why)


def _find_remote(urlpath: str, storage_options: Mapping[str, Any] | None) -> Iterator[_Match]:
    """Look up a URL, literally if the file exists, else as a pattern."""
    with source_errors(urlpath):  # some file systems connect when they are created
        system, path = open_filesystem(urlpath, storage_options)
    retries = open_retries(urlpath, storage_options or {})
    is_web = protocol_of(urlpath) in WEB_PROTOCOLS

    def look_up() -> tuple[bool, list[Mapping[str, Any]]]:
        system.invalidate_cache()
        try:
            return True, [system.info(path)]
        except FileNotFoundError as missing:
            matches: Mapping[str, Any] = {}
            with suppress(FileNotFoundError):  # no such bucket
                matches = system.glob(path, detail=True)
            fault = missing.__cause__  # fsspec takes any failure of a web server for a missing file
            if is_web and not matches and fault is not None and getattr(fault, "status", None) not in (404, 410):
                raise fault from None
            return False, [matches[name] for name in sorted(matches)]

    with source_errors(urlpath):
        is_literal, infos = retries.call("list", look_up)
        if is_literal and infos[0]["type"] == "directory":
            raise _folder_error(urlpath)
        files = [info for info in infos if info["type"] == "file"]
        # consoles of stores create an empty object in place of a folder
        files = [info for info in files if info["size"] or not info["name"].endswith("/")]
        if not files:
            bucket, hint = path.lstrip("/").partition("/")[0] if protocol_of(urlpath) in _WITH_BUCKETS else "", ""
            if bucket and not glob.has_magic(bucket) and not retries.call("look up", lambda: system.exists(bucket)):
                hint = f": there is no bucket {printable(bucket)}, or the credentials give no access to it"
            raise SourceNotFoundError(f"no file matches {printable(urlpath)}{hint}")
    names = system.protocol
    kind = names if isinstance(names, str) else names[0]
    path = identifying(path)  # fsspec's path of a web page is its URL
    root = "/" + (os.path.dirname(path) if is_literal else _fixed_part(path)).lstrip("/")  # noqa: PTH120  # a URL
    for info in files:
        name, url = "/" + identifying(info["name"]).lstrip("/"), system.unstrip_protocol(info["name"])
        yield _Match(kind, name, root, url, **remote_identity(info))


def _fixed_part(pattern: str) -> str:
    """Return the folders of a pattern before its first wildcard."""
    *folders, _ = pattern.split("/")
    fixed = "/".join(itertools.takewhile(lambda folder: not glob.has_magic(folder), folders))
    return fixed or "/" * pattern.startswith("/")


def _heads(files: Sequence[SourceFile], storage_options: Mapping[str, Any] | None) -> Iterator[bytes]:
    """Read the first bytes of each file."""
    if not files or not is_url(files[0].url):
        for file in files:
            with open_bytes(file, storage_options) as raw:
                yield raw.read(MAGIC_BYTES)
        return
    paths = [open_filesystem(file.url, storage_options)[1] for file in files if file.size]
    ends = [min(MAGIC_BYTES, file.size) for file in files if file.size]

    def read() -> list[bytes]:  # a store serves many requests at a time
        system, _ = open_filesystem(files[0].url, storage_options)
        heads = system.cat_ranges(paths, [0] * len(paths), ends, on_error="return")
        for head in heads:  # older versions of fsspec return errors whatever `on_error` is
            if isinstance(head, Exception):
                raise head
        return heads

    retries = open_retries(files[0].url, storage_options or {})
    with source_errors(files[0].url):
        heads = iter(retries.call("read the beginnings of files", read))
    for file in files:
        if file.size:
            yield next(heads)
        else:
            with source_errors(file.url), listed_size(0):  # an empty body, or an error
                system, path = open_filesystem(file.url, storage_options)
                yield retries.call("read", lambda: system.cat_file(path))  # noqa: B023 -- called at once


def _check_magic(file: SourceFile, head: bytes) -> None:
    actual = compression_of_magic(head)
    if actual != file.compression and head:
        found = f"{actual} data" if actual else "in no known compressed format"
        raise ParseError(
            f"the suffix means {file.compression or 'plain text'}, but the content is {found}; "
            "rename the file to match its content",
            path=printable(file.url),
            offset=0,
        )


def _folder_error(path: str) -> SourceNotFoundError:
    where = printable(path)
    return SourceNotFoundError(
        f"{where} is a folder; name files or a pattern such as '{where.rstrip('/')}/*.svm' or '*.jsonl', or read its "
        "Parquet files with dkfeat.ParquetSource (--format parquet)"
    )
