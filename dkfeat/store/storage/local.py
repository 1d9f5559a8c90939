"""Storage in a folder of a local disk: exclusive create by hard link, every step flushed to disk."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedRandom, BufferedReader
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa

from dkfeat.errors import CommitError, ShardError, cause_of
from dkfeat.filesystems.urls import local_path
from dkfeat.store.storage import base
from dkfeat.store.storage.base import DATA, META, SET_ASIDE, SUCCESS, TMP, Lock, Storage, faults_as, file_name

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a link is an error, and a pipe does not block
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DISK_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_TRIES = 1000  # of a lock whose folders another run removes meanwhile; one takes microseconds


def _rename(temporary: str, last: str, tmp: int, target: int) -> None:
    os.rename(temporary, last, src_dir_fd=tmp, dst_dir_fd=target)


class LocalStorage(Storage):
    """Storage in a local folder.

    Below the root no symbolic link is followed: each part of a name is opened relative to its parent folder, so a link
    planted in the data set cannot lead a read or a write outside. The path of the root itself may contain links.

    Parameters
    ----------
    path : str
        Folder, created by `prepare`. Missing parents are created only for a relative path: if the parent of an
        absolute path is missing, a disk is usually not mounted.
    durable : bool, default=True
        False: files are not flushed to disk, so they survive the process, but not a crash of the machine.

    Examples
    --------
    >>> LocalStorage("/data/features").url
    '/data/features'
    """

    _temporary, _hidden = TMP, ""
    """Folder of temporary files, and the beginning of their names."""
    _remedy = "choose a writable folder"

    def __init__(self, path: str, *, durable: bool = True) -> None:
        self.durable = durable
        given = Path(os.path.expanduser(path))  # noqa: PTH111 - leaves names of unknown users as they are
        self.url = str(given.absolute())
        self._make_parents = not given.is_absolute()

    def path_of(self, url: str) -> Path | None:  # noqa: D102 -- Storage says it
        return local_path(url)

    def check_writable(self) -> None:  # noqa: D102 -- Storage says it
        root = Path(self.url)
        check_folder_writable(root, "target ")
        # if the parent of an absolute path is missing, a disk is usually not mounted
        if not self._make_parents and not root.parent.exists():
            raise CommitError(
                f"target {self.url} cannot be created: its parent folder does not exist; create that first"
            )

    def prepare(self, *more: str) -> None:  # noqa: D102 -- Storage says it
        self._make_folders(DATA, META, TMP, SET_ASIDE, *more)
        if self.durable and self.size(SUCCESS) is None:
            # new, or left by a run that was killed, perhaps before it flushed the name of a shard or of records
            flush_folder(Path(self.url).parent)
            flush_folder(self.url)
            for name in (DATA, META):
                with self._folder(name) as folder:
                    os.fsync(folder)

    def _make_folders(self, *names: str) -> list[Path]:
        """Create the root and folders in it; return what was missing of the root and its parents, parents first."""
        root = Path(self.url)
        made = list(takewhile(lambda path: not path.exists(), (root, *root.parents)))[::-1]
        root.mkdir(parents=self._make_parents, exist_ok=True)
        for folder in map(Path, names):
            with self._folder(str(folder.parent)) as parent, suppress(FileExistsError):
                os.mkdir(folder.name, dir_fd=parent)
        return made

    def acquire(self, holder: Mapping[str, Any], *, break_lock: str | None = None) -> Lock:  # noqa: D102 -- Storage
        def lock() -> Lock:
            return Lock(self, holder, break_lock=break_lock, made=self._make_folders(META, TMP))

        for _ in range(_TRIES):
            with suppress(FileNotFoundError, FileExistsError):  # another run removed its folders meanwhile
                return lock()
        return lock()

    def create(  # noqa: D102 -- Storage says it
        self,
        name: str,
        data: bytes | memoryview,
        *,
        before_publish: Callable[[], object] | None = None,
        durable: bool = True,
    ) -> None:
        self._publish(name, data, _link_or_rename, before_publish, durable)

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:  # noqa: D102 -- Storage says it
        self._publish(name, data, _rename, None, durable)

    def _publish(
        self,
        name: str,
        data: bytes | memoryview,
        move: Callable[[str, str, int, int], None],
        before_publish: Callable[[], object] | None,
        durable: bool,
    ) -> None:
        """Write a temporary file, and `move` it from there to its name."""
        half = len(data) // 2
        try:
            with self.writing(name, move=move, before_publish=before_publish, durable=durable) as file:
                _write(file.fileno(), memoryview(data)[:half])
                base.passed("mid_write")
                _write(file.fileno(), memoryview(data)[half:])
        except OSError as fault:
            if fault.errno in _DISK_FULL:
                room = f"it needs {len(data):,} bytes, {shutil.disk_usage(self.url).free:,} are free"
                text = f"{cause_of(fault)}; {room}: delete other files, or raise the limit (ulimit -f, quota)"
                raise OSError(fault.errno, text, name) from fault
            raise

    @contextmanager
    def writing(
        self,
        name: str,
        *,
        move: Callable[[str, str, int, int], None] = _rename,
        before_publish: Callable[[], object] | None = None,
        durable: bool = True,
    ) -> Iterator[BufferedRandom]:
        """Open a new file, which gets its name at the end of the ``with`` block; after an error nothing is left.

        All files that dkfeat makes are made here: under a name that nobody can guess, and created exclusively, so that
        no link that was put there before leads a write to another file. By default an existing file, or link, of the
        name is replaced.
        """
        parent, last = _parts(name)
        temporary, is_flushed = f"{self._hidden}{last}.{uuid.uuid4().hex}.tmp", durable and self.durable
        base.passed("before_tmp")
        with self._folder(self._temporary) as tmp, self._folder(parent) as target:
            try:
                with os.fdopen(os.open(temporary, _NEW, 0o666, dir_fd=tmp), "w+b") as file:
                    yield file
                    if is_flushed:
                        file.flush()
                        os.fsync(file.fileno())
                if before_publish is not None:
                    before_publish()
                base.passed("after_tmp")
                move(temporary, last, tmp, target)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=tmp)
            if is_flushed:
                os.fsync(target)

    def open(self, name: str) -> BufferedReader:  # noqa: D102 -- Storage says it
        parent, last = _parts(name)
        with self._folder(parent) as folder:
            try:
                descriptor = os.open(last, _READ, dir_fd=folder)
            except OSError as fault:
                if fault.errno == errno.ELOOP:
                    raise OSError(fault.errno, "a symbolic link; replace it by the file that it names", name) from None
                raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file; restore it from a copy", name)
        return os.fdopen(descriptor, "rb")

    def load(self, name: str, size: int) -> memoryview:  # noqa: D102 -- Storage says it
        with self.open(name) as file:
            buffer = memoryview(pa.allocate_buffer(size)).cast("B")
            filled = 0
            while filled < size and (got := file.readinto(buffer[filled:])):
                filled += got
            return buffer[:filled]

    def size(self, name: str) -> int | None:  # noqa: D102 -- Storage says it
        parent, last = _parts(name)
        try:
            with self._folder(parent) as folder:
                return os.stat(last, dir_fd=folder, follow_symlinks=False).st_size
        except FileNotFoundError:
            return None

    def list(  # noqa: D102 -- Storage says it
        self,
        folder: str,
        *,
        sizes: bool = True,
        after: str = "",  # noqa: ARG002 -- a folder is read in any order
    ) -> dict[str, int]:
        with self._folder(folder) as descriptor:
            if not sizes:
                return dict.fromkeys(sorted(os.listdir(descriptor)), -1)  # noqa: PTH208 -- of a descriptor
            found = {}
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # removed by a run meanwhile, such as its probe
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
        return {name: found[name] for name in sorted(found)}  # half the time of sorting pairs

    def remove(self, name: str, *, durable: bool = True) -> None:  # noqa: D102 -- Storage says it
        parent, last = _parts(name)
        with self._folder(parent) as folder, suppress(FileNotFoundError):
            os.unlink(last, dir_fd=folder)
            if durable and self.durable:
                os.fsync(folder)

    def set_aside(self, name: str) -> str:  # noqa: D102 -- Storage says it
        parent, last = _parts(name)
        aside = f"{last}.{uuid.uuid4().hex}"
        with self._folder(parent) as source, self._folder(SET_ASIDE) as target:
            os.rename(last, aside, src_dir_fd=source, dst_dir_fd=target)
            if self.durable:
                os.fsync(target)
                os.fsync(source)
        return f"{SET_ASIDE}/{aside}"

    @contextmanager
    def _folder(self, name: str) -> Iterator[int]:
        first, *others = name.split("/")
        try:  # only the last part must not be a link: the path of the root may contain links, and be one
            descriptor = os.open(f"{self.url}/{first}", _FOLDER | os.O_NOFOLLOW)
        except NotADirectoryError as fault:
            if Path(self.url).is_dir():
                raise
            message = f"{self.url} is not a folder of shards written by `dkfeat featurize ROWS --out FOLDER`: "
            message += "it is a file" if Path(self.url).is_file() else str(fault.strerror)
            raise ShardError(message) from fault
        try:
            for part in others:
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def _parts(name: str) -> tuple[str, str]:
    """Split the name of a file into its folder and its base name."""
    return name.rpartition("/")[0], file_name(name)


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _link_or_rename(temporary: str, last: str, tmp: int, target: int) -> None:
    try:
        os.link(temporary, last, src_dir_fd=tmp, dst_dir_fd=target, follow_symlinks=False)
    except OSError as fault:
        if fault.errno not in _NO_LINKS:
            raise
        # No hard links on this file system: between these two calls only the lock excludes a second writer.
        with suppress(FileNotFoundError):
            os.stat(last, dir_fd=target, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), last) from None
        os.rename(temporary, last, src_dir_fd=tmp, dst_dir_fd=target)
    base.passed("after_publish")


def check_folder_writable(path: Path, what: str = "") -> None:
    """Raise `CommitError` if files cannot be created in a folder or, if it is missing, in the nearest one above it.

    `what` comes before the path in the message.
    """
    with faults_as(CommitError, f"{what}{str(path)[:200]} cannot be written"):
        nearest = next(each for each in (path, *path.absolute().parents) if each.exists() or each.is_symlink())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise CommitError(
            f"{what}{path} cannot be written: {nearest} is not a writable folder; choose another or change its mode"
        )


def flush_folder(path: str | Path) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(path, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
