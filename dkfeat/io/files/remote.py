"""Input files behind URLs: listed, compared with what was listed, and read range by range."""

from __future__ import annotations

import glob
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from dkfeat.blocks import SourceFile
from dkfeat.errors import SourceError, SpecConflictError, cause_of
from dkfeat.io.storage.urls import open_filesystem, open_retries, printable, protocol_of

READ_AHEAD_BYTES = 4 << 20
_WITH_BUCKETS = ("s3", "gs")


class RemoteListing(NamedTuple):
    """Files that a URL or a pattern of them matches."""

    system: str
    """Name of the file system's kind."""
    path: str
    """URL or pattern without the protocol."""
    is_literal: bool
    """True if that is the name of one file, not a pattern."""
    found: Sequence[tuple[str, str, dict[str, Any]]]
    """Path, URL and identity of each file."""
    missing_bucket: str | None = None
    """Name of the bucket, where nothing is found because there is no such bucket."""


def list_files(urlpath: str, options: Mapping[str, Any] | None) -> RemoteListing:
    """Look a URL up, as it stands if there is such a file, else as a pattern.

    Raises
    ------
    OSError
        As the store answers; `IsADirectoryError` for a folder.
    """
    system, path = open_filesystem(urlpath, options)
    retries = open_retries(urlpath, options or {})

    def look_up() -> tuple[bool, list[Mapping[str, Any]]]:
        system.invalidate_cache()
        try:
            return True, [system.info(path)]
        except FileNotFoundError:
            with suppress(FileNotFoundError):  # no such bucket
                matches = system.glob(path, detail=True)
                return False, [matches[name] for name in sorted(matches)]
            return False, []

    is_literal, infos = retries.call("list", look_up)
    if is_literal and infos[0]["type"] == "directory":
        raise IsADirectoryError(path)
    found = [
        (info["name"], system.unstrip_protocol(info["name"]), _identity(info))
        for info in infos
        if info["type"] == "file"
    ]
    bucket = path.lstrip("/").partition("/")[0] if protocol_of(urlpath) in _WITH_BUCKETS and not found else ""
    is_missing = bucket and not glob.has_magic(bucket) and not retries.call("look up", lambda: system.exists(bucket))
    return RemoteListing(str(system.protocol), path, is_literal, found, bucket if is_missing else None)


def read_heads(files: Sequence[SourceFile], n_bytes: int, options: Mapping[str, Any] | None) -> list[bytes]:
    """First bytes of each file, many requests at a time."""
    heads = dict.fromkeys((file.url for file in files), b"")
    full = [file for file in files if file.size]
    if full:
        places = [open_filesystem(file.url, options) for file in full]
        system, paths = places[0][0], [path for _, path in places]
        ends = [min(n_bytes, file.size) for file in full]

        def read() -> list[bytes]:
            found = system.cat_ranges(paths, [0] * len(paths), ends, on_error="return")
            for item in found:  # older versions of fsspec return faults whatever they are asked
                if isinstance(item, Exception):
                    raise item
            return found

        read_bytes = open_retries(full[0].url, options or {}).call("read the beginnings of files", read)
        heads |= {file.url: bytes(head) for file, head in zip(full, read_bytes, strict=True)}
    return [heads[file.url] for file in files]


def identity_now(url: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Ask the store what a file is now: size, and ETag or time of change."""
    system, path = open_filesystem(url, options)

    def info() -> Mapping[str, Any]:
        system.invalidate_cache(path)
        return system.info(path)

    return _identity(open_retries(url, options or {}).call("look up", info))


class RemoteFile(io.RawIOBase):
    """A file of a store, read by ranges while it is as it was listed.

    Parameters
    ----------
    file : SourceFile
        As it was listed. Where it has an ETag, the store is asked for ranges of that version alone.
    options : mapping, optional
        For fsspec.

    Raises
    ------
    SpecConflictError
        The file changed or is gone; also from reading.
    OSError
        As the store answers.
    """

    def __init__(self, file: SourceFile, options: Mapping[str, Any] | None) -> None:
        super().__init__()
        self._file = file
        self._retries = open_retries(file.url, options or {})
        system, path = open_filesystem(file.url, options)

        def opened() -> Any:
            return system.open(path, "rb", block_size=READ_AHEAD_BYTES, cache_type="readahead")

        self._raw = self._retries.call("open", opened)
        now = _identity(details) if isinstance(details := getattr(self._raw, "details", None), Mapping) else {}
        if now.get("etag") and file.etag and (now["etag"], now["size"]) != (file.etag, file.size):
            self._raw.close()
            raise self._changed()

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to another byte; nothing is read."""
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        """Position of the next byte."""
        return self._raw.tell()

    def readinto(self, view: Any, /) -> int:
        """Fill the front of `view` and say how far; 0 at the end."""

        def read() -> int:
            try:
                return self._raw.readinto(view)
            except OSError as fault:
                if type(fault).__name__ == "FileExpired":  # s3fs noticed by itself
                    raise FileExistsError from fault
                raise

        try:
            return self._retries.call("read", read)
        except FileNotFoundError:
            raise gone(self._file) from None
        except FileExistsError:  # a condition of the request failed: it has another ETag
            raise self._changed() from None
        except OSError as fault:
            raise unreadable(self._file.url, fault) from None

    def close(self) -> None:
        """Free what reading needs."""
        if not self.closed and hasattr(self, "_raw"):
            self._raw.close()
        super().close()

    def _changed(self) -> SpecConflictError:
        return SpecConflictError(
            f"{printable(self._file.url)} has changed since the source was listed; its ETag was {self._file.etag}"
        )


def gone(file: SourceFile) -> SpecConflictError:
    """Error for a file that was listed and is not there any more."""
    return SpecConflictError(f"{printable(file.url)} is gone since the source was listed; restore it or start afresh")


def unreadable(path: str, error: OSError) -> SourceError:
    """Error for a file that the operating system or a store does not let us read."""
    return SourceError(f"{printable(path)} cannot be read: {cause_of(error)}")


def _identity(info: Mapping[str, Any]) -> dict[str, Any]:
    changed = next((info[key] for key in ("mtime", "LastModified", "created") if info.get(key)), None)
    if isinstance(changed, datetime):
        changed = changed.timestamp()
    etag = info.get("ETag") or info.get("etag")
    mtime_ns = None if changed is None or etag else int(changed * 1e9)
    return {"size": int(info["size"]), "mtime_ns": mtime_ns, "etag": etag}
