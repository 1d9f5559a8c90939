"""Storage of a data set: the few operations that the commit protocol needs, each of them atomic, and its lock.

A name is a path relative to the data set's root with forward slashes, such as ``data/part-….parquet``. A `Storage` is
small and can be pickled, so that tasks carry it to workers. An object store implements the same methods: its `create`
is one PUT that the store rejects if the object exists.

The lock is a file that names its holder; the exclusive creation of the file decides who holds it. It only saves work: a
run looks before it publishes anything whether the file still names it, and only one run can create the next manifest.
"""

from __future__ import annotations

import builtins
import errno
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from dkfeat.canonical import MAX_BYTES, check_length, dumps
from dkfeat.errors import (
    CommitConflictError,
    CommitError,
    ConfigError,
    DkfeatError,
    ShardError,
    TargetBusyError,
    cause_of,
)
from dkfeat.messages import logger_of

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile

logger = logger_of(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

DATA = "data"
META = "_dkfeat"
DELTA = "_delta_log"
TMP = f"{META}/tmp"
SET_ASIDE = f"{META}/set-aside"
SPEC = f"{META}/spec.json"
LOCK = f"{META}/lock.json"
SUCCESS = "_SUCCESS"

_TEMPORARY = re.compile(r".+\.[0-9a-f]{32}\.tmp", re.DOTALL)
_PROBE = "probe-"
_PROBED = re.compile(_PROBE + "[0-9a-f]{32}|lock-after-.+[.]json")  # the latter in object stores of version 0.2
_PROBES = 3  # more than one, because another run may remove a probe between its two creations
_UNKNOWN = "unknown"
_THREADS = 16
"""Number of requests to a store at a time, because each takes 30 ms or more."""
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_LONGEST = 1 << 16
"""Number of bytes that are read of a lock, which may be any file."""
_ROUNDS = 20
_OVERLAP_SECONDS = 0.1
"""Time that a run waits after it replaced the lock of a dead run, which another run may do at the same moment."""
_held: set[str] = set()
"""Run ids of the locks that this process holds or is about to take."""

KILL_VARIABLE = "DKFEAT_KILL_AT"
"""Variable, read once at import, by which tests kill the process: "point:k" when it passes a point for the k-th time.

The points are named lines of code, where tests check that a resumed run loses nothing.
"""
kill_at = os.environ.get(KILL_VARIABLE)
_passes: Counter[str] = Counter()


def passed(point: str) -> None:
    """Count a pass of a crash point, and kill the process if `KILL_VARIABLE` asks for it.

    Examples
    --------
    >>> passed("after_plan")
    """
    if kill_at is not None:
        _passes[point] += 1
        if kill_at == f"{point}:{_passes[point]}":
            os.kill(os.getpid(), signal.SIGKILL)


def now() -> str:
    """Return the current time, for locks, logs and manifests."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


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
    def of(cls, values: Mapping[str, Any]) -> Holder:
        """Make a `Holder` from the values of a lock, which may be invalid; long texts are truncated."""
        texts = {key: ascii(values.get(key) or _UNKNOWN)[:80].strip("'") for key in ("run_id", "host", "since")}
        pid = values.get("pid")
        return cls(**texts, pid=pid if type(pid) is int else None, alive=is_alive(values) if values else False)

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


class Storage(ABC):
    """Folder of files that are created whole or not at all, and never changed.

    Storage errors are raised as `OSError`, a missing file as `FileNotFoundError`, an existing one as `FileExistsError`.
    """

    url: str
    """Path or URL without secrets, for messages and for `open_storage`."""
    is_remote = False
    """True if each call takes milliseconds, as in an object store."""
    is_exclusive = True
    """False if the caller takes care that no second run writes here."""
    _is_proven = False
    _remedy: str
    """Remedy in the message of a storage where files cannot be created."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def check_writable(self) -> None:
        """Check before any work that files can be created here; the check leaves nothing behind.

        Raises
        ------
        CommitError
            If files cannot be created.
        """
        self.probe()

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
        assert root is not None
        above, below = {str(path) for path in (root, *root.parents)}, f"{str(root).rstrip('/')}/"
        places: dict[str, str | None] = {}  # of the files' folders, as finding the place of a file takes long
        for file in files:
            folder, _, name = file.url.rpartition("/")
            if folder not in places:
                place = self.path_of(f"{folder}/")
                places[folder] = None if place is None else f"{str(place).rstrip('/')}/"
            if (start := places[folder]) is None:
                continue
            path = (start + name).rstrip("/")
            if not self.is_remote and os.path.islink(path):  # noqa: PTH114 -- a third of the time of a `Path`
                path = str(self.path_of(path))
            if (is_inside := path.startswith(below)) or path in above:
                relation = "is inside" if is_inside else "is also the name, or a parent, of"
                raise ConfigError(
                    f"source {file.name} {relation} the target {self.url}; choose another folder for the shards"
                )
        for pattern in patterns:
            fixed, recursive, _ = pattern.partition("**")
            searched = self.path_of(fixed or ".") if recursive else None
            if searched in (root, *root.parents):
                raise ConfigError(
                    f"the source's pattern {pattern} also searches the target {self.url}; "
                    "choose a folder outside its search area for the shards"
                )

    @abstractmethod
    def prepare(self, *more: str) -> None:
        """Create the missing folders of a data set, and further ones; calling it again is safe."""

    def probe(self) -> None:
        """Test that files can be created here and that creating one twice fails; only the lock's holder may call it.

        Raises
        ------
        CommitError
            If the test fails; nothing is left behind.
        """
        if self._is_proven:
            return
        try:
            created_twice = all(self._creates_twice() for _ in range(_PROBES))
        except OSError as fault:
            raise CommitError(f"{self.url}: cannot create files here: {cause_of(fault)}; {self._remedy}") from fault
        if created_twice and self.is_exclusive:
            raise CommitError(
                f"{self.url}: a file was created twice; this storage cannot exclude a second writer. Choose another, "
                "or make sure yourself that there is only one writer and pass the storage option exclusive_create=False"
            )
        self._is_proven = True

    def _creates_twice(self) -> bool:
        """Create a probe file twice, and return True if the second call did not fail; the file is removed."""
        name = f"{META}/{_PROBE}{uuid.uuid4().hex}"
        try:
            self.create(name, b"probe", durable=False)
            with suppress(FileExistsError):
                self.create(name, b"again", durable=False)
                return True
            return False
        finally:
            with suppress(OSError):
                self.remove(name, durable=False)

    def acquire(self, holder: Mapping[str, Any], *, break_lock: str | None = None) -> Lock:
        """Lock the target for writing, or raise an error at once if another run holds it; see `Lock`.

        On a local disk the missing folders of the lock file are created; `Lock.release` removes them if nothing else
        was made in them.
        """
        return Lock(self, holder, break_lock=break_lock)

    def holder(self) -> Holder | None:
        """Return the run that holds the lock, or held it and died; None if the lock is free. Nothing is changed."""
        values = self.lock_values()
        return None if values is None else Holder.of(values)

    def lock_values(self) -> dict[str, Any] | None:
        """Read the values of the lock file; empty if dkfeat did not write it, None if there is no such file."""
        try:
            text = self.read(LOCK, _LONGEST)
        except FileNotFoundError:
            return None
        with suppress(ValueError, RecursionError):
            values = json.loads(text)
            if isinstance(values, dict):
                return values
        return {}

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

    def read(self, name: str, most: int | None = None) -> bytes:
        """Read all bytes of a file, or at most the first `most`."""
        with self.open(name) as file:
            return file.read(most)

    def load(self, name: str, size: int) -> memoryview:
        """Read a large file, at most `size` bytes, if possible into memory that pyarrow reuses for the next one."""
        return memoryview(self.read(name, size))

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Size of a file in bytes, or None if it does not exist."""

    @abstractmethod
    def list(self, folder: str, *, sizes: bool = True, after: str = "") -> dict[str, int]:
        """Names in a folder, sorted, with their sizes; the result is never cached.

        Without `sizes` they may all be -1, which saves a local disk most of the work. Those up to `after` may be left
        out, which saves S3 a request for every 1,000 of them.
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

    def sweep(self) -> None:
        """Remove temporary files and probes of dead runs; only the lock's holder may call it."""
        for name in self.leftovers():
            self.remove(name, durable=False)


class Lock(AbstractContextManager["Lock"]):
    """Exclusive right to write to a target: a file that names its holder, held from construction to `release`.

    The lock of a run on this machine that has ended is taken over at once; its age is never used. If two runs do so at
    the same moment, the file names the last one, and the other one ends.

    Parameters
    ----------
    store : Storage
        Storage whose `create` is exclusive.
    holder : mapping
        Plain JSON values that identify this run: run_id, host, pid, since.
    break_lock : str, optional
        Run id of a holder on another host that is known to have ended.
    made : iterable of Path
        The target's folder and those around it, if they were created for the lock, parents first; `release` removes
        them if they are empty.

    Raises
    ------
    TargetBusyError
        If another run holds the lock, or may still hold it; the message names it.
    """

    def __init__(
        self, store: Storage, holder: Mapping[str, Any], *, break_lock: str | None = None, made: Iterable[Path] = ()
    ) -> None:
        self._store, self._made = store, tuple(made)[::-1]
        self.holder: Mapping[str, Any] = {**holder, **this_process()}
        _held.add(self.holder["run_id"])
        try:
            self._take(break_lock)
        except Exception:
            _held.discard(self.holder["run_id"])
            self._remove_folders(TMP, META, *self._made)
            raise
        except BaseException:  # interrupted, perhaps after the file was created
            self.release()
            raise

    def rename(self, run_id: str) -> None:
        """Hold the lock under another run id from now on; there is no time at which nobody holds it."""
        _held.add(run_id)
        _held.discard(self.holder["run_id"])
        self.holder = {**self.holder, "run_id": run_id}
        self._store.replace(LOCK, dumps(self.holder), durable=False)

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Remove the file, if it still names this run; a second call does nothing."""
        if self.holder["run_id"] not in _held or self.holder["pid"] != os.getpid():  # a fork does not hold it
            return
        try:
            found = self._store.lock_values()
            if found is not None and found.get("run_id") != self.holder["run_id"]:
                raise OSError(errno.EBUSY, f"it names {Holder.of(found)}")
            if found is not None:
                # before the lock: later, another run may use them
                self._remove_folders(TMP, SET_ASIDE, DATA, beside=Path(LOCK).name)
                self._store.remove(LOCK, durable=False)
            self._remove_folders(META, *self._made)
        except OSError as fault:
            where = self._store.url
            remedy = f"else call `dkfeat break-lock {where} {self.holder['run_id']}`"
            text = f"{where}/{LOCK} could not be removed: {cause_of(fault)}; the next run on this host takes it over, "
            logger.warning("%s%s", text, remedy)
        finally:
            _held.discard(self.holder["run_id"])

    def _remove_folders(self, *folders: str | Path, beside: str = "") -> None:
        """Remove folders of a target in which nothing was made, up to the first that is missing or not empty."""
        with suppress(OSError):
            usual = Path(TMP).name, Path(SET_ASIDE).name
            if not self._store.is_remote and {*self._store.list(META, sizes=False)} <= {*usual, beside}:
                for folder in folders:
                    Path(self._store.url, folder).rmdir()

    def _take(self, break_lock: str | None) -> None:
        text = dumps(self.holder)
        for _ in range(_ROUNDS):
            try:
                self._store.create(LOCK, text, durable=False)
                return
            except (FileExistsError, FileNotFoundError) as fault:  # not found: a holder's sweep took the temporary file
                former = self._store.lock_values()
                if former is None and isinstance(fault, FileNotFoundError):
                    raise
            if former is None:
                continue  # released meanwhile
            self._check_ended(former, break_lock)
            if self._store.lock_values() != former:
                continue  # taken over meanwhile
            logger.warning("%s: taking over from %s, which has ended", self._store.url, Holder.of(former))
            self._store.remove(LOCK, durable=False)
            with suppress(FileExistsError):
                self._store.create(LOCK, text, durable=False)
                time.sleep(_OVERLAP_SECONDS)
                if self._store.lock_values() == self.holder:
                    return
        raise CommitConflictError(
            f"{self._store.url}: other runs keep taking the lock; wait for them or choose another target"
        )

    def _check_ended(self, values: Mapping[str, Any], break_lock: str | None) -> None:
        where, run_id = self._store.url, values.get("run_id")
        if not (isinstance(run_id, str) and _RUN_ID.fullmatch(run_id)):
            if self._store.is_remote:
                raise TargetBusyError(f"{where}/{LOCK} was not written by dkfeat; remove it if no run is writing here")
            return  # on a disk, what a crash of the machine left
        holder = Holder.of(values)
        if holder.alive or (holder.alive is None and run_id != break_lock):
            raise holder.busy_error(where)


def this_process() -> dict[str, Any]:
    """Return plain JSON values that identify this process among those of all hosts.

    Returns
    -------
    identity : dict
        Keys host, machine (a hash), boot, pid_namespace, pid and pid_start; empty text for unknown values.
    """
    machine = _text("/etc/machine-id")
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return {
        "host": socket.gethostname(),
        "machine": hashlib.sha256(machine.encode()).hexdigest()[:16] if machine else "",
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": namespace,
        "pid": os.getpid(),
        "pid_start": _start_of(os.getpid()),
    }


def is_alive(process: Mapping[str, Any]) -> bool | None:
    """Return True if a lock's process, recorded by `this_process`, is alive; None if it cannot be told from here.

    Nothing can be determined about a process on another host or in another container. A reused process id is
    recognised by the start time of the process. Of this process, locks that it released, if in vain, are ended.
    """
    here = this_process()
    if process.get("host") == here["host"] and "machine" not in process:  # a local disk's lock of version 0.2
        pid = process.get("pid")
        return False if type(pid) is int and _start_of(pid) == "" else None
    if any(process.get(key) != here[key] for key in ("host", "machine")):
        return None
    if process.get("boot") != here["boot"]:
        return False
    if process.get("pid_namespace") != here["pid_namespace"]:
        return None
    pid = process.get("pid")
    if pid == here["pid"] and process.get("pid_start") == here["pid_start"]:
        return process.get("run_id") in _held
    if type(pid) is not int:
        return True
    start = _start_of(pid)
    return None if start is None else start == process.get("pid_start")


def _start_of(pid: int) -> str | None:
    """Return the start time of a process in the units of the system; empty if there is no such process.

    None if the process belongs to another user, and the system hides it.
    """
    if Path("/proc/self/stat").exists():
        text = _text(f"/proc/{pid}/stat")
        if not text:
            try:
                os.kill(pid, 0)  # sends no signal
            except PermissionError:
                return None
            except (OSError, OverflowError):
                return ""
        fields = text.rpartition(")")[2].split()  # the process name before it may contain any character
        return "" if len(fields) < 20 or fields[0] in "ZX" else fields[19]
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


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
        if (size := storage.size(name)) is not None:
            check_length(size, where, max_bytes)
            return storage.read(name, size)
    return None


def read_required(storage: Storage, name: str, hint: str, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a file as `read_existing` does; if it does not exist, the `ShardError` ends with `hint`."""
    data = read_existing(storage, name, max_bytes)
    if data is None:
        raise ShardError(f"{storage.url}/{name} is missing: {hint}")
    return data


def read_listed(storage: Storage, name: str, manifest: str, size: int, sha256: str) -> bytes:
    """Read a file that a manifest lists with its size and SHA-256; `ShardError` if it has others."""
    data = read_required(storage, name, f"{manifest} lists it (or is damaged itself); restore both from a copy")
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
