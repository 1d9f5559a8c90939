"""Storage in a folder of a local disk: exclusive create by hard link, every step flushed to disk."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from typing import Any

from dkfeat.errors import CommitError, ShardError, cause_of
from dkfeat.io.storage import crash_points
from dkfeat.io.storage.base import DATA, LOCK, META, PROBE, SET_ASIDE, TMP, Holder, Storage, file_name
from dkfeat.io.storage.locks import FileLock, lock_state
from dkfeat.io.storage.urls import is_url, protocol_of

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


class LocalStorage(Storage):
    """A data set in a local folder.

    Below the root no symbolic link is followed: each step of a name is opened relative to the folder before it, so a
    link planted in the data set cannot lead a read or a write outside. The root itself may be reached by links.

    Parameters
    ----------
    path : str
        Folder; made by `prepare`. Missing parents are made for a relative path only: where an absolute path has
        no parent, most often a disk is not mounted.

    Examples
    --------
    >>> LocalStorage("/data/features").url
    '/data/features'
    """

    def __init__(self, path: str) -> None:
        given = Path(path).expanduser()
        self._root = str(given.absolute())
        self._make_parents = not given.is_absolute()

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    @property
    def url(self) -> str:  # noqa: D102 -- Storage says it
        return self._root

    def place(self, url: str) -> Path | None:  # noqa: D102 -- Storage says it
        is_remote = "://" in url and is_url(url)
        if is_remote and protocol_of(url) != "file":
            return None
        return Path(url.partition("://")[2] if is_remote else url).resolve()

    def check_writable(self) -> None:  # noqa: D102 -- Storage says it
        root = Path(self._root)
        nearest = next(folder for folder in (root, *root.parents) if folder.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise CommitError(
                f"target {self._root} cannot be written: {nearest} is not a folder in which files can be made"
            )
        # the parents of a relative path are made; where an absolute one has none, most often a disk is not mounted
        if not self._make_parents and not root.parent.exists():
            raise CommitError(f"target {self._root} cannot be made: its parent folder is missing; make that first")

    def prepare(self) -> None:  # noqa: D102 -- Storage says it
        root = Path(self._root)
        root.mkdir(parents=self._make_parents, exist_ok=True)
        _flush_folder(str(root.parent))
        for folder in (DATA, META, TMP, SET_ASIDE):
            with self._folder(str(Path(folder).parent)) as parent:
                with suppress(FileExistsError):
                    os.mkdir(Path(folder).name, dir_fd=parent)
                os.fsync(parent)

    def probe(self) -> None:  # noqa: D102 -- Storage says it
        name = f"{META}/{PROBE}{uuid.uuid4().hex}"
        try:
            self.create(name, b"probe")
            try:
                self.create(name, b"again")
            except FileExistsError:
                return
            raise CommitError(f"{self._root}: a file was created twice; this storage cannot keep two writers apart")
        except CommitError:
            raise
        except OSError as fault:
            raise CommitError(
                f"{self._root}: cannot create files here: {cause_of(fault)}; choose a writable folder"
            ) from fault
        finally:
            with suppress(OSError):
                self.remove(name)

    def acquire(self, holder: Mapping[str, Any], *, break_lock: str | None = None) -> FileLock:  # noqa: D102 -- Storage
        with self._folder(META) as folder:
            return FileLock(folder, Path(LOCK).name, holder, where=self._root, break_lock=break_lock)

    def holder(self) -> Holder | None:  # noqa: D102 -- Storage says it
        try:
            with self._folder(META) as folder:
                state = lock_state(folder, Path(LOCK).name)
        except FileNotFoundError:
            return None
        if state is None:
            return None
        values, is_held = state
        named = Holder.of(values, is_held)
        # a lock of a shared disk may not reach the host that holds it
        return named if is_held or named.host == socket.gethostname() else replace(named, alive=None)

    def create(self, name: str, data: bytes | memoryview) -> None:  # noqa: D102 -- Storage says it
        parent, base = _cut(name)
        temporary = f"{base}.{uuid.uuid4().hex}.tmp"
        crash_points.passed("before_tmp")
        with self._folder(TMP) as tmp, self._folder(parent) as target:
            try:
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=tmp)
                try:
                    view = memoryview(data)
                    _write(descriptor, view[: len(view) // 2])
                    crash_points.passed("mid_write")
                    _write(descriptor, view[len(view) // 2 :])
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                crash_points.passed("after_tmp")
                _link_or_rename(temporary, base, tmp, target)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=tmp)
            os.fsync(target)

    def open(self, name: str) -> BufferedReader:  # noqa: D102 -- Storage says it
        return os.fdopen(self._open(name), "rb")

    def read(self, name: str) -> bytes:  # noqa: D102 -- Storage says it
        with os.fdopen(self._open(name), "rb") as file:
            return file.read()

    def size(self, name: str) -> int | None:  # noqa: D102 -- Storage says it
        parent, base = _cut(name)
        try:
            with self._folder(parent) as folder:
                return os.stat(base, dir_fd=folder, follow_symlinks=False).st_size
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> dict[str, int]:  # noqa: D102 -- Storage says it
        sizes = {}
        with self._folder(folder) as descriptor, os.scandir(descriptor) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # a probe of a run that went on meanwhile
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        return dict(sorted(sizes.items()))

    def remove(self, name: str) -> None:  # noqa: D102 -- Storage says it
        parent, base = _cut(name)
        with self._folder(parent) as folder:
            with suppress(FileNotFoundError):
                os.unlink(base, dir_fd=folder)
            os.fsync(folder)

    def set_aside(self, name: str) -> str:  # noqa: D102 -- Storage says it
        parent, base = _cut(name)
        aside = f"{base}.{uuid.uuid4().hex}"
        with self._folder(parent) as source, self._folder(SET_ASIDE) as target:
            os.rename(base, aside, src_dir_fd=source, dst_dir_fd=target)
            os.fsync(target)
            os.fsync(source)
        return f"{SET_ASIDE}/{aside}"

    def free_bytes(self) -> int | None:  # noqa: D102 -- Storage says it
        return shutil.disk_usage(self._root).free

    def _open(self, name: str) -> int:
        parent, base = _cut(name)
        with self._folder(parent) as folder:  # non-blocking, so that a planted pipe cannot stop us
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(base, flags, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", f"{self._root}/{name}")
        return descriptor

    @contextmanager
    def _folder(self, name: str) -> Iterator[int]:
        try:
            descriptor = os.open(self._root, _FOLDER)
        except NotADirectoryError as fault:
            message = f"{self._root} is no folder of shards, as `dkfeat featurize ROWS --out FOLDER` makes them: "
            message += "it is a file" if Path(self._root).is_file() else str(fault.strerror)
            raise ShardError(message) from fault
        try:
            for part in Path(name).parts:
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def _cut(name: str) -> tuple[str, str]:
    return name.rpartition("/")[0], file_name(name)


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _link_or_rename(temporary: str, base: str, tmp: int, target: int) -> None:
    try:
        os.link(temporary, base, src_dir_fd=tmp, dst_dir_fd=target, follow_symlinks=False)
        crash_points.passed("after_publish")
    except OSError as fault:
        if fault.errno not in _NO_LINKS:
            raise
        _rename(temporary, base, tmp, target)
        crash_points.passed("after_publish")


def _rename(temporary: str, base: str, tmp: int, target: int) -> None:
    # No hard links on this file system: the lock alone keeps two writers apart between these two calls.
    with suppress(FileNotFoundError):
        os.stat(base, dir_fd=target, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), base)
    os.rename(temporary, base, src_dir_fd=tmp, dst_dir_fd=target)


def _flush_folder(path: str) -> None:
    descriptor = os.open(path, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
