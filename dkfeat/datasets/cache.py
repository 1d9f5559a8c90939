"""Where fetched files are kept, one writer at a time."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dkfeat.errors import SourceError

__all__ = ["VARIABLE", "cache_folder", "create_whole", "locked"]

logger = logging.getLogger(__name__)

VARIABLE = "DKFEAT_CACHE"
_LOCK = ".lock"
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


def cache_folder() -> Path:
    """Folder for what dkfeat fetches; it need not exist yet.

    Returns
    -------
    folder : Path
        ``$DKFEAT_CACHE`` if that is set, else ``dkfeat`` in ``$XDG_CACHE_HOME``, else ``~/.cache/dkfeat``. A relative
        ``$XDG_CACHE_HOME`` does not count, as its specification says.

    Examples
    --------
    >>> import os
    >>> os.environ["DKFEAT_CACHE"] = "/data/cache"
    >>> str(cache_folder())
    '/data/cache'
    >>> del os.environ["DKFEAT_CACHE"]
    """
    if own := os.environ.get(VARIABLE):
        return Path(own).expanduser().absolute()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "dkfeat"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder and be its only writer for the ``with`` block; wait for another one, of any process, to end.

    A folder that is there and cannot be written needs no lock: a site may keep sets for all its users.

    Raises
    ------
    SourceError
        If the folder cannot be made, or its file system knows no locks.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as fault:
        if fault.errno in _READ_ONLY and folder.is_dir():
            yield
            return
        raise _unusable(folder, fault) from fault
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.warning("%s: another process is fetching into this folder; waiting for it", folder)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as fault:
            raise _unusable(folder, fault) from fault
        yield
    finally:
        os.close(descriptor)  # which gives the lock back, as the end of the process does


def create_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, in place of one of that name."""
    temporary = path.with_name(f"{path.name}.tmp")  # no other writer: see `locked`
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _unusable(folder: Path, fault: OSError) -> SourceError:
    return SourceError(
        f"{folder} cannot be used for fetched data sets: {fault.strerror or fault}; give a folder of a local disk, by "
        f"the variable {VARIABLE}, or for this call by `folder`"
    )
