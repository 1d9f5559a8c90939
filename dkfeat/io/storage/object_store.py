"""Storage, and its lock, in an object store or any other fsspec file system that creates files exclusively."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any, cast

from dkfeat import canonical as strict_json
from dkfeat.errors import CommitConflictError, CommitError, ConfigError, TargetBusyError, cause_of
from dkfeat.io.storage import crash_points
from dkfeat.io.storage.base import LOCK, META, PROBE, SET_ASIDE, Holder, Storage, file_name, parse_holder
from dkfeat.io.storage.urls import (
    code_of,
    holds_credentials,
    open_filesystem,
    open_retries,
    printable,
    protocol_of,
    shown_url,
)

logger = logging.getLogger(__name__)

MOST_BYTES = 5 << 30
"""Maximum number of bytes in a request, a limit of S3; shards are far smaller."""
CLAIM = "lock-after-"
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_ROUNDS, _LONGEST_CHAIN = 20, 50
_PROBES = 3  # more than one, because another run may remove a probe between its two creations


class ObjectStorage(Storage):
    """Storage in an object store.

    A file is one object, created by one request, which the store rejects if the object exists. So there are no partial
    objects, temporary files or unfinished uploads. Requests are retried after transient faults, for ``retry_seconds``.
    Because the response to a successful request may be lost, an existing file with exactly the bytes to create counts
    as created. A pickle of this object contains the options, including credentials.

    Parameters
    ----------
    url : str
        URL of the data set, such as ``s3://bucket/features/train``.
    options : mapping, optional
        Options of fsspec, and of dkfeat: ``retry_seconds`` (60 by default), and ``exclusive_create``. Set the latter to
        False for a store that cannot create exclusively; then a second writer cannot be excluded.

    Raises
    ------
    ConfigError
        If the URL has no bucket or path, or has credentials, or an option has the wrong type.

    Examples
    --------
    >>> ObjectStorage("memory://features/train/", {"secret": "not shown"})
    ObjectStorage('memory://features/train')
    """

    is_remote = True

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})
        protocol, path = protocol_of(url), url.partition("://")[2].rstrip("/")
        user = path.partition("/")[0].rpartition("@")[0]
        if holds_credentials(url) or ":" in user:
            raise ConfigError(f"target {shown_url(url)} contains credentials; pass them as target_options")
        parts = path.lstrip("/").split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise ConfigError(
                f"target {printable(url)!a} is not the URL of a folder in a store, such as s3://bucket/features/train"
            )
        self._url = f"{protocol}://{path}"
        self._exclusive = self._options.get("exclusive_create", True)
        if not isinstance(self._exclusive, bool):
            raise ConfigError(f"storage option exclusive_create={self._exclusive!r:.40}, but it must be true or false")
        self._retries = open_retries(self._url, self._options)
        self._is_proven = False

    def __repr__(self) -> str:
        return f"ObjectStorage({self._url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStorage, (self._url, self._options)

    @property
    def url(self) -> str:  # noqa: D102 -- Storage says it
        return self._url

    @cached_property
    def _system(self) -> Any:
        return open_filesystem(self._url, self._options)[0]

    @cached_property
    def _root(self) -> str:
        return open_filesystem(self._url, self._options)[1].rstrip("/")

    def prepare(self) -> None:
        """Do nothing: an object store has no folders to create."""

    def check_writable(self) -> None:  # noqa: D102 -- Storage says it
        self.probe()

    def probe(self) -> None:  # noqa: D102 -- Storage says it
        if self._is_proven:
            return
        try:
            put = partial(self._put, exclusive=self._exclusive)
            created_twice = all(self.creates_twice(put) for _ in range(_PROBES))
        except OSError as fault:
            raise CommitError(
                f"{self._url}: cannot create objects here: {cause_of(fault)}; check that the bucket exists, "
                "and that the credentials are valid and allow reading, listing, writing and deleting"
            ) from fault
        if created_twice and self._exclusive:
            raise CommitError(
                f"{self._url}: an object was created twice; this store cannot exclude a second writer. Choose another, "
                "or make sure yourself that there is only one writer and pass the option exclusive_create=False"
            )
        self._is_proven = True

    def replace(self, name: str, data: bytes) -> None:  # noqa: D102 -- Storage says it
        self._put(name, data, exclusive=False)

    def acquire(self, holder: Mapping[str, Any], *, break_lock: str | None = None) -> ObjectLock:  # noqa: D102 -- Storage
        if not self._exclusive:
            logger.warning("%s: exclusive_create=False: a second writer cannot be excluded", self._url)
        return ObjectLock(self, holder, break_lock=break_lock)

    def holder(self) -> Holder | None:  # noqa: D102 -- Storage says it
        first = _read(self, LOCK)
        return None if first is None else _holder(_last_claimant(self, first))

    def create(  # noqa: D102 -- Storage says it
        self, name: str, data: bytes | memoryview, *, before_publish: Callable[[], object] | None = None
    ) -> None:
        if len(data) >= MOST_BYTES:
            raise OSError(
                f"{name} has {len(data):,} bytes, but an object is created by one request of fewer than {MOST_BYTES:,}"
            )
        crash_points.passed("before_tmp")
        if not self._exclusive and self.size(name) is not None:
            raise FileExistsError(name)
        if before_publish is not None:
            before_publish()
        self._put(name, data, exclusive=self._exclusive)
        crash_points.passed("after_publish")

    def _put(self, name: str, data: bytes | memoryview, *, exclusive: bool) -> None:
        path, content = self._path(name), bytes(data)
        settings: dict[str, Any] = {"mode": "create"} if exclusive else {}
        if protocol_of(self._url) in ("s3", "gs"):
            settings["chunksize"] = len(content) + 1  # one request, whatever the size
        try:
            self._retries.call(f"create {name}", lambda: self._system.pipe_file(path, content, **settings))
        except FileExistsError:
            # a retried request may find the object that its first attempt created: equal bytes count as created
            with suppress(FileNotFoundError):  # removed meanwhile by another run
                if self.size(name) == len(content) and self.read(name) == content:
                    return
            raise

    def open(self, name: str) -> io.BufferedReader:  # noqa: D102 -- Storage says it
        return io.BufferedReader(cast("io.RawIOBase", io.BytesIO(self.read(name))))

    def read(self, name: str) -> bytes:  # noqa: D102 -- Storage says it
        path = self._path(name)
        return self._retries.call(f"read {name}", lambda: self._system.cat_file(path))

    def read_part(self, name: str, start: int, stop: int) -> bytes:  # noqa: D102 -- Storage says it
        path = self._path(name)
        return self._retries.call(f"read {name}", lambda: self._system.cat_file(path, start=start, end=stop))

    def load(self, name: str) -> memoryview:  # noqa: D102 -- Storage says it
        return memoryview(self.read(name))

    def size(self, name: str) -> int | None:  # noqa: D102 -- Storage says it
        path = self._path(name)

        def info() -> int | None:
            self._system.invalidate_cache(path)
            found = self._system.info(path)
            return int(found["size"]) if found["type"] == "file" else None

        try:
            return self._retries.call(f"size of {name}", info)
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> dict[str, int]:  # noqa: D102 -- Storage says it
        path = self._path(folder) if folder else self._root

        def ls() -> Iterable[Mapping[str, Any]]:
            self._system.invalidate_cache(path)
            try:
                return self._system.ls(path, detail=True, refresh=True)
            except FileNotFoundError as fault:  # a folder exists only if it contains an object
                if code_of(fault) == "NoSuchBucket":
                    raise
                return []

        found = self._retries.call(f"list {folder}", ls)
        prefix = path.lstrip("/") + "/"
        sizes = {
            item["name"].lstrip("/").removeprefix(prefix): int(item["size"] or 0)
            for item in found
            if item["type"] == "file" and item["name"].lstrip("/").startswith(prefix)
        }
        return {name: sizes[name] for name in sorted(sizes) if name}

    def remove(self, name: str) -> None:  # noqa: D102 -- Storage says it
        path = self._path(name)
        with suppress(FileNotFoundError):
            self._retries.call(f"remove {name}", lambda: self._system.rm_file(path))

    def set_aside(self, name: str) -> str:  # noqa: D102 -- Storage says it
        aside = f"{SET_ASIDE}/{file_name(name)}.{uuid.uuid4().hex}"
        source, destination = self._path(name), self._path(aside)
        self._retries.call(f"set {name} aside", lambda: self._system.cp_file(source, destination))
        self.remove(name)
        return aside

    def leftovers(self) -> tuple[str, ...]:  # noqa: D102 -- Storage says it
        names = self.list(META)
        probes = [name for name in names if name.startswith(PROBE)]
        claims = [name for name in names if name.startswith(CLAIM)]
        if claims:  # a claim on the lock of the current holder may be in use
            holder = self.holder()
            claims = [name for name in claims if holder is None or name != f"{CLAIM}{holder.run_id}.json"]
        return tuple(f"{META}/{name}" for name in (*probes, *claims))

    def free_bytes(self) -> int | None:  # noqa: D102 -- Storage says it
        return None

    def path_of(self, url: str) -> PurePosixPath | None:  # noqa: D102 -- Storage says it
        if protocol_of(url) != protocol_of(self._url) or "://" not in url:
            return None
        return PurePosixPath("/" + url.partition("://")[2].strip("/"))

    def _path(self, name: str) -> str:
        file_name(name)
        return f"{self._root}/{name}"


class ObjectLock:
    """A lock object that names its holder, held from construction to `release`.

    Parameters
    ----------
    store : Storage
        Storage whose `create` is exclusive.
    holder : mapping
        Plain JSON values that identify this run: run_id, host, pid, since.
    break_lock : str, optional
        Run id of a holder on another host whose lock may be broken.

    Raises
    ------
    TargetBusyError
        If another run holds the lock, or may still hold it.
    """

    def __init__(self, store: Storage, holder: Mapping[str, Any], *, break_lock: str | None = None) -> None:
        self._store = store
        self.holder: Mapping[str, Any] = {**holder, **this_process()}
        self._text = strict_json.dumps(self.holder)
        self._claims: list[str] = []
        try:
            self._take(break_lock)
        finally:
            with suppress(OSError):  # the next holder removes them
                for claim in self._claims:
                    store.remove(claim)
        self._open = True

    def rename(self, run_id: str) -> None:
        """Hold the lock under another run id from now on; there is no time at which nobody holds it."""
        self.holder = {**self.holder, "run_id": run_id}
        self._store.replace(LOCK, strict_json.dumps(self.holder))

    def release(self) -> None:
        """Remove the object, if it still names this run; a second call does nothing."""
        if not self._open:
            return
        self._open = False
        try:
            if (_read(self._store, LOCK) or {}).get("run_id") == self.holder["run_id"]:
                self._store.remove(LOCK)
        except OSError as fault:
            logger.warning(
                "%s/%s could not be removed: %s; the next run on this host takes it over", self._store.url, LOCK, fault
            )

    def _take(self, break_lock: str | None) -> None:
        for _ in range(_ROUNDS):
            with suppress(FileExistsError):
                self._store.create(LOCK, self._text)
                return
            first = _read(self._store, LOCK)
            if first is None:
                continue  # released meanwhile
            last = _last_claimant(self._store, first)
            self._check_ended(last, break_lock)
            claim = _claim_name(last)
            with suppress(FileExistsError):  # another run created the claim first: read the lock again
                self._store.create(claim, self._text)
                self._claims.append(claim)
                if _read(self._store, LOCK) == first:
                    logger.warning("%s: taking over from %s", self._store.url, _holder(last))
                    self._store.remove(LOCK)
        raise CommitConflictError(
            f"{self._store.url}: other runs keep taking the lock; wait for them or choose another target"
        )

    def _check_ended(self, values: Mapping[str, Any], break_lock: str | None) -> None:
        where = self._store.url
        if not _has_run_id(values):
            raise TargetBusyError(f"{where}/{LOCK} was not written by dkfeat; remove it if no run is writing here")
        holder = _holder(values)
        if holder.alive is not False and values["run_id"] != break_lock:
            raise holder.busy_error(where)


def _holder(values: Mapping[str, Any]) -> Holder:
    return Holder.of(values, is_alive(values))


def _last_claimant(store: Storage, holder: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(_LONGEST_CHAIN):
        if not _has_run_id(holder):
            return holder
        after = _read(store, _claim_name(holder))
        if after is None:
            return holder
        holder = after
    return holder


def _has_run_id(holder: Mapping[str, Any]) -> bool:
    """Return True if the values have a run id that may be part of a file name."""
    return isinstance(run_id := holder.get("run_id"), str) and _RUN_ID.fullmatch(run_id) is not None


def _claim_name(holder: Mapping[str, Any]) -> str:
    return f"{META}/{CLAIM}{holder['run_id']}.json"


def _read(store: Storage, name: str) -> Mapping[str, Any] | None:
    """Read the values of a lock object; empty if dkfeat did not write it, None if there is no such object."""
    try:
        return parse_holder(store.read(name))
    except FileNotFoundError:
        return None


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
    """Return True if a process, recorded by `this_process`, is alive; None if this cannot be determined from here.

    Nothing can be determined about a process on another host or in another container. A reused process id is
    recognised by the start time of the process.
    """
    here = this_process()
    if any(process.get(key) != here[key] for key in ("host", "machine")):
        return None
    if process.get("boot") != here["boot"]:
        return False
    if process.get("pid_namespace") != here["pid_namespace"]:
        return None
    pid = process.get("pid")
    return type(pid) is not int or _start_of(pid) == process.get("pid_start")


def _start_of(pid: int) -> str:
    """Return the start time of a process in the units of the system; empty if there is no such process."""
    if Path("/proc/self/stat").exists():
        fields = (
            _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        )  # the process name before it may contain any character
        return "" if len(fields) < 20 or fields[0] in "ZX" else fields[19]
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
