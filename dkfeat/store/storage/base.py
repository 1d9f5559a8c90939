"""Storage of a data set: the few operations that the commit protocol needs, each of them atomic.

A name is a path relative to the data set's root with forward slashes, such as ``data/part-….parquet``. A `Storage` is
small and can be pickled, so that tasks carry it to workers. An object store implements the same methods: its `create`
is one PUT that the store rejects if the object exists.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dkfeat.canonical import MAX_BYTES, check_length
from dkfeat.errors import ConfigError, DkfeatError, ShardError, TargetBusyError, cause_of
from dkfeat.filesystems.urls import shown_url

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile


Item = TypeVar("Item")
Result = TypeVar("Result")

DATA = "data"
META = "_dkfeat"
TMP = f"{META}/tmp"
SET_ASIDE = f"{META}/set-aside"
SPEC = f"{META}/spec.json"
LOCK = f"{META}/lock.json"
SUCCESS = "_SUCCESS"

_TEMPORARY = re.compile(r".+\.[0-9a-f]{32}\.tmp", re.DOTALL)
_PROBE = "probe-"
_PROBED = re.compile(_PROBE + "[0-9a-f]{32}|lock-after-.+[.]json")  # the latter in object stores of version 0.2
_UNKNOWN = "unknown"
_THREADS = 16
"""Number of requests to a store at a time, because each takes 30 ms or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Run named by a lock."""

    run_id: str
    """Id of the run."""
    host: str
    """Machine that it runs on."""
    pid: int | None
    """Process id of the run on that machine."""
    since: str
    """Time at which the run took the lock, as an ISO date and time."""
    alive: bool | None
    """True if the run is alive, False if it has ended, None if this cannot be determined from here."""

    @classmethod
    def of(cls, values: Mapping[str, Any], alive: bool | None) -> Holder:
        """Make a `Holder` from the values of a lock, which may be invalid; long texts are truncated."""
        texts = {key: ascii(values.get(key) or _UNKNOWN)[:80].strip("'") for key in ("run_id", "host", "since")}
        pid = values.get("pid")
        return cls(**texts, pid=pid if type(pid) is int else None, alive=alive)

    def __str__(self) -> str:
        if self.run_id == self.host == _UNKNOWN:
            return "a run that has not yet written its id"
        return f"run {self.run_id} (host {self.host}, pid {self.pid}, since {self.since})"

    def busy_error(self, where: str) -> TargetBusyError:
        """Make the error to raise when this run holds the lock of target `where`."""
        if self.alive:
            return TargetBusyError(f"{where} is being written by {self}; wait for it or choose another target")
        return TargetBusyError(
            f"{where} is, or was, being written by {self}, and it cannot be determined from here whether that run is "
            f"alive; when it has ended, call `dkfeat break-lock {where} {self.run_id!r}` and run again"
        )


def parse_holder(text: bytes) -> dict[str, Any]:
    """Read the values of a lock; the result is empty for a file that dkfeat did not write."""
    with suppress(ValueError, RecursionError):
        holder = json.loads(text)
        if isinstance(holder, dict):
            return holder
    return {}


class Lock(Protocol):
    """Exclusive right to write to a target, held until `release`."""

    holder: Mapping[str, Any]
    """Values of the lock, including "run_id" and "since"."""

    def rename(self, run_id: str) -> None:
        """Hold the lock under another run id from now on."""

    def release(self) -> None:
        """Release the lock; a second call does nothing."""


class Storage(ABC):
    """Folder of files that are created whole or not at all, and never changed.

    Storage errors are raised as `OSError`, a missing file as `FileNotFoundError`, an existing one as `FileExistsError`.
    """

    is_remote = False
    """True if each call takes milliseconds, as in an object store."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Path or URL without secrets, for messages and for `open_storage`."""

    @abstractmethod
    def check_writable(self) -> None:
        """Check before any work that files can be created here; the check leaves nothing behind.

        Raises
        ------
        CommitError
            If files cannot be created.
        """

    @abstractmethod
    def path_of(self, url: str) -> PurePath | None:
        """Convert a path or URL to a path in this kind of storage; None if it is elsewhere."""

    def keep_apart(self, files: Iterable[SourceFile], patterns: Iterable[str]) -> None:
        """Raise an error if target and source contain each other, or a recursive source pattern searches the target.

        In a store, objects below the name of a source would hide it from the next lookup.

        Raises
        ------
        ConfigError
            If so; the message names the file or the pattern.
        """
        root = self.path_of(self.url)
        for file in files:
            path = self.path_of(file.url)
            if path is None or root is None:
                continue
            if root in path.parents or path in (root, *root.parents):
                relation = "is inside" if root in path.parents else "is also the name, or a parent, of"
                raise ConfigError(
                    f"source {file.name} {relation} the target {self.url}; choose another folder for the shards"
                )
        for pattern in patterns:
            fixed, recursive, _ = pattern.partition("**")
            path = self.path_of(fixed or ".") if recursive else None
            if root is not None and path in (root, *root.parents):
                raise ConfigError(
                    f"the source's pattern {shown_url(pattern)} also searches the target {self.url}; "
                    "choose a folder outside its search area for the shards"
                )

    @abstractmethod
    def prepare(self) -> None:
        """Create the missing folders of a data set; calling it again is safe."""

    @abstractmethod
    def probe(self) -> None:
        """Test that files can be created here and that creating one twice fails; only the lock's holder may call it.

        Raises
        ------
        CommitError
            If the test fails; nothing is left behind.
        """

    def creates_twice(self, create: Callable[[str, bytes], None]) -> bool:
        """Create a probe file twice, and return True if the second call did not fail; the file is removed."""
        name = f"{META}/{_PROBE}{uuid.uuid4().hex}"
        try:
            create(name, b"probe")
            with suppress(FileExistsError):
                create(name, b"again")
                return True
            return False
        finally:
            with suppress(OSError):
                self.remove(name, durable=False)

    @abstractmethod
    def acquire(self, holder: Mapping[str, Any], *, break_lock: str | None = None) -> Lock:
        """Lock the target for writing, or raise an error at once if another run holds it.

        On a local disk the missing folders of the lock file are created; `Lock.release` removes them if nothing else
        was made in them.

        Parameters
        ----------
        holder : mapping
            Plain JSON values that identify this run: run_id, host, pid, since.
        break_lock : str, optional
            Run id of a holder on another host that is known to have ended.

        Raises
        ------
        CommitConflictError
            If another run holds the target; the message names it.
        """

    @abstractmethod
    def holder(self) -> Holder | None:
        """Return the run that holds the lock, or held it and died; None if the lock is free. Nothing is changed."""

    @abstractmethod
    def create(
        self,
        name: str,
        data: bytes | memoryview,
        *,
        before_publish: Callable[[], object] | None = None,
        durable: bool = True,
    ) -> None:
        """Create a file with all its bytes, durably, unless it exists.

        Before: no such file, or a complete one, which raises `FileExistsError` and stays unchanged. After: the complete
        file, on disk. If the process dies during the call: no such file, but perhaps a temporary one, which `sweep`
        removes. Calling again is safe.

        The function `before_publish` is called when only the last step is left; its error ends the call. On a local
        disk the temporary file exists before this call, and the last step fails with `FileNotFoundError` if the file
        was removed. So a process that ends the condition that `before_publish` checks, and then calls `sweep`,
        prevents the last step, unless it is done already. In an object store the request may still arrive later.

        A file that is not `durable` survives the process, but perhaps not a crash of the machine.
        """

    @abstractmethod
    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Create a file or replace all of its bytes; a reader sees the former bytes or the new ones."""

    @abstractmethod
    def open(self, name: str) -> BufferedReader:
        """Open a regular file for reading with seek; a symbolic link below the root is an error."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Read all bytes of a file."""

    @abstractmethod
    def read_part(self, name: str, start: int, stop: int) -> bytes:
        """Read the bytes of a file from `start` to `stop`; fewer if the file is shorter."""

    @abstractmethod
    def load(self, name: str) -> memoryview:
        """Read all bytes of a large file, if possible into memory that pyarrow reuses for the next one."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Size of a file in bytes, or None if it does not exist."""

    @abstractmethod
    def list(self, folder: str, *, sizes: bool = True) -> dict[str, int]:
        """Names in a folder, sorted, with their sizes; the result is never cached.

        Without `sizes` they may all be -1, which saves a local disk most of the work.
        """

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> builtins.list[Result]:
        """Apply a function that reads from here to each item; in threads if each call takes milliseconds."""
        if not self.is_remote:
            return [function(item) for item in items]
        with ThreadPoolExecutor(_THREADS) as pool:
            return [*pool.map(function, items)]

    @abstractmethod
    def remove(self, name: str, *, durable: bool = True) -> None:
        """Remove a file; a missing file is not an error. If it is not `durable`, a crash may bring the file back."""

    @abstractmethod
    def set_aside(self, name: str) -> str:
        """Move a damaged file to the folder `SET_ASIDE`, with unchanged bytes, and return its new name."""

    def leftovers(self) -> tuple[str, ...]:
        """List the files that `sweep` removes, temporary files and probes; a run in progress may still use them."""
        names = [] if self.is_remote else self.list(TMP, sizes=False)
        temporary = [f"{TMP}/{name}" for name in names if _TEMPORARY.fullmatch(name)]
        return (*temporary, *(f"{META}/{name}" for name in self.list(META, sizes=False) if _PROBED.fullmatch(name)))

    def sweep(self) -> int:
        """Remove temporary files and probes of dead runs; only the lock's holder may call it. Returns their number."""
        left = self.leftovers()
        for name in left:
            self.remove(name, durable=False)
        return len(left)

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Free space in bytes, or None if the storage does not report it."""


@contextmanager
def faults_as(kind: type[DkfeatError], text: str) -> Iterator[None]:
    """Convert storage errors to an error of dkfeat; `text` comes before the cause."""
    try:
        yield
    except DkfeatError:
        raise
    except OSError as fault:
        raise kind(f"{text}: {cause_of(fault)}") from fault


def read_existing(storage: Storage, name: str, max_bytes: int = MAX_BYTES) -> bytes | None:
    """Read a file of at most `max_bytes` bytes; None if it does not exist, `ShardError` if it cannot be read."""
    where = f"{storage.url}/{name}"
    with faults_as(ShardError, f"{where} cannot be read"), suppress(FileNotFoundError):
        check_length(storage.size(name) or 0, where, max_bytes)
        return storage.read(name)
    return None


def read_required(storage: Storage, name: str, hint: str, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a file as `read_existing` does; if it does not exist, the `ShardError` ends with `hint`."""
    data = read_existing(storage, name, max_bytes)
    if data is None:
        raise ShardError(f"{storage.url}/{name} is missing: {hint}")
    return data


def read_listed(storage: Storage, name: str, manifest: str, size: int, sha256: str) -> bytes:
    """Read a file that a manifest lists with its size and SHA-256; `ShardError` if it has others."""
    data = read_required(storage, name, f"{manifest} lists it; restore it from a copy")
    if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
        raise ShardError(f"{storage.url}/{name}: damaged: its SHA-256 is not that of its name; restore it from a copy")
    return data


def file_name(name: str) -> str:
    """Last part of the name of a file inside a data set.

    Raises
    ------
    ValueError
        If the name is not inside the data set.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"{name!a} is not the name of a file inside a data set")
    return parts[-1]
