"""Where a data set is kept: the few operations that the commit protocol needs, each of them atomic.

A name is a path relative to the data set's root with forward slashes, such as ``data/part-….parquet``. A `Storage` is
a small value that pickles, so tasks carry it to workers. An object store fits behind the same methods: its `create` is
one PUT that the store refuses where there is an object, its `acquire` such a PUT of the lock.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from dkfeat.errors import ConfigError
from dkfeat.io.remote import is_url, protocol_of, shown_url

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile

__all__ = [
    "DATA",
    "LOCK",
    "META",
    "SET_ASIDE",
    "SPEC",
    "SUCCESS",
    "TMP",
    "Holder",
    "Lock",
    "Storage",
    "file_name",
    "is_read_only",
    "open_storage",
]

DATA = "data"
META = "_dkfeat"
TMP = f"{META}/tmp"
SET_ASIDE = f"{META}/set-aside"
SPEC = f"{META}/spec.json"
LOCK = f"{META}/lock.json"
SUCCESS = "_SUCCESS"
_READ_ONLY = {"http", "https", "data", "zip", "tar"}

_TEMPORARY = re.compile(r".+\.[0-9a-f]{32}\.tmp", re.DOTALL)
PROBE = "probe-"
_PROBED = re.compile(PROBE + "[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Whom a lock names."""

    run_id: str
    """Id of the run."""
    host: str
    """Machine that it runs on."""
    pid: int | None
    """Its process there."""
    since: str
    """When it took the lock, as an ISO date and time."""
    alive: bool | None
    """Whether it runs still; None where that cannot be told from here."""

    @classmethod
    def of(cls, values: Mapping[str, Any], alive: bool | None) -> Holder:
        """Read what the holder wrote of itself, without trust."""
        run_id, host, since = (
            ascii(values.get(key) or "unknown")[:80].strip("'") for key in ("run_id", "host", "since")
        )
        pid = values.get("pid")
        return cls(run_id=run_id, host=host, since=since, pid=pid if type(pid) is int else None, alive=alive)


class Lock(Protocol):
    """The right to write to a target, held until `release`."""

    def release(self) -> None:
        """Give the right up; a second call does nothing."""


class Storage(ABC):
    """A folder of files that are created whole or not at all, and never changed.

    Faults of the store come as `OSError`; a missing file as `FileNotFoundError`, an existing one as `FileExistsError`.
    """

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, without secrets: for messages and for `open_storage`."""

    @abstractmethod
    def check_writable(self) -> None:
        """Tell before any work, and leaving nothing behind, whether files can be created here.

        Raises
        ------
        CommitError
            If not.
        """

    @abstractmethod
    def place(self, url: str) -> PurePath | None:
        """Where a path or URL lies in this kind of storage; None if it lies elsewhere."""

    def keep_apart(self, files: Iterable[SourceFile], patterns: Iterable[str]) -> None:
        """Refuse to hold a source, and to lie where a recursive pattern of the source would look.

        Raises
        ------
        ConfigError
            Naming the file or the pattern.
        """
        root = self.place(self.url)
        for file in files:
            place = self.place(file.url)
            if place is not None and root in place.parents:
                message = f"source {file.name} lies in the target {self.url}; give the shards a folder of their own"
                raise ConfigError(message)
        for pattern in patterns:
            fixed, recursive, _ = pattern.partition("**")
            place = self.place(fixed or ".") if recursive else None
            if root is not None and place in (root, *root.parents):
                looked = f"the source's pattern {shown_url(pattern)} looks into the target {self.url}"
                message = f"{looked}; give shards a folder beside it"
                raise ConfigError(message)

    @abstractmethod
    def prepare(self) -> None:
        """Make the folders of a data set where they are missing; calling it again is safe."""

    @abstractmethod
    def probe(self) -> None:
        """Prove that files can be created here and that creating one twice fails; only the lock's holder may.

        Raises
        ------
        CommitError
            Otherwise; nothing is left behind.
        """

    @abstractmethod
    def acquire(self, holder: Mapping[str, Any], *, break_lock: str | None = None) -> Lock:
        """Become the only writer, or say at once who is.

        Parameters
        ----------
        holder : mapping
            Plain JSON values that name this run: run_id, host, pid, since.
        break_lock : str, optional
            Run id of a holder on another host that is known to be gone.

        Raises
        ------
        CommitConflictError
            Naming the holder.
        """

    def holder(self) -> Holder | None:
        """Who holds the lock, or held it and died; None if it is free. Takes and changes nothing."""
        try:
            text = self.read(LOCK)
        except FileNotFoundError:
            return None
        values: object = {}
        with suppress(ValueError, RecursionError):
            values = json.loads(text)
        return Holder.of(values if isinstance(values, dict) else {}, None)

    @abstractmethod
    def create(self, name: str, data: bytes | memoryview) -> None:
        """Create a file with all its bytes, durably, unless there is one.

        Before: no such file, or a whole one (`FileExistsError`, nothing changes). After: the whole file, on disk. If
        the call dies half-way: no such file, at most a temporary one that `sweep` removes. Calling again is safe.
        """

    @abstractmethod
    def open(self, name: str) -> BufferedReader:
        """Open a regular file for reading with seek; a symbolic link below the root is refused."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """All bytes of a file."""

    def load(self, name: str) -> memoryview:
        """All bytes of a large file, in memory that pyarrow keeps at hand for the next one."""
        with self.open(name) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            buffer = memoryview(pa.allocate_buffer(size)).cast("B")
            filled = 0
            while filled < size and (got := file.readinto(buffer[filled:])):
                filled += got
            return buffer[:filled]

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Bytes of a file, or None if there is none."""

    @abstractmethod
    def list(self, folder: str) -> dict[str, int]:
        """Names in a folder, sorted, with their sizes; never a stale answer."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file durably; a missing one is no fault."""

    @abstractmethod
    def set_aside(self, name: str) -> str:
        """Move a damaged file out of the way, keep its bytes, and return its new name."""

    def leftovers(self) -> tuple[str, ...]:
        """Temporary files and probes, which dead runs left unless a run is going on: what `sweep` removes."""
        temporary = [f"{TMP}/{name}" for name in self.list(TMP) if _TEMPORARY.fullmatch(name)]
        return (*temporary, *(f"{META}/{name}" for name in self.list(META) if _PROBED.fullmatch(name)))

    @abstractmethod
    def sweep(self) -> int:
        """Remove temporary files and probes that dead runs left; only the lock's holder may. Returns how many went."""

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Room left, or None where the store does not say."""


def file_name(name: str) -> str:
    """Last part of the name of a file inside a data set.

    Raises
    ------
    ValueError
        For a name that leads elsewhere.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        message = f"{name!a} is not the name of a file inside a data set"
        raise ValueError(message)
    return parts[-1]


def open_storage(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Storage:
    """Storage at a place; nothing is read or written yet.

    Parameters
    ----------
    url : str or Path
        Path of a folder, a ``file://`` URL, or the URL of a place in an object store, such as
        ``s3://bucket/features/train``. It need not exist.
    storage_options : mapping, optional
        Settings of the store, see `dkfeat.io.object_store.ObjectStorage`; a local folder takes none.

    Raises
    ------
    ConfigError
        For a kind of storage that is not supported, or a URL that holds credentials.

    Examples
    --------
    >>> open_storage("features/train").url.endswith("features/train")
    True
    >>> open_storage("s3://bucket/features/train/").url
    's3://bucket/features/train'
    """
    text = str(url)
    is_remote = "://" in text and is_url(text)
    if is_remote and protocol_of(text) != "file":
        if is_read_only(text):
            message = (
                f"target {shown_url(text)} is not supported; give a local folder or such as s3://bucket/features/train"
            )
            raise ConfigError(message)
        from dkfeat.io.object_store import ObjectStorage  # the arrows back: they need the base class above

        return ObjectStorage(text, storage_options)
    from dkfeat.io.local import LocalStorage

    if storage_options:
        message = f"a local target takes no storage options, got {sorted(storage_options)}"
        raise ConfigError(message)
    path = text.partition("://")[2] if is_remote else text
    if not path or "\0" in path:
        message = f"target={text!a} names no folder; give a path such as features/train"
        raise ConfigError(message)
    return LocalStorage(path)


def is_read_only(url: str) -> bool:
    """Whether files can be read from a URL, but no data set is kept there: a web page's, an archive's, a chained one.

    Examples
    --------
    >>> is_read_only("https://host/rows.svm"), is_read_only("s3://bucket/features")
    (True, False)
    """
    return "::" in url or protocol_of(url) in _READ_ONLY
