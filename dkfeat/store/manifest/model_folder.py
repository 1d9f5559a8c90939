"""Model folders: on a local disk, or in an object store."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dkfeat.canonical import dumps, fingerprint, parse_object
from dkfeat.errors import CommitError, ConfigError, ShardError
from dkfeat.filesystems.urls import path_in
from dkfeat.store.manifest.metadata import ARRAY_NAME, MODEL_FILE, SIDECAR_NAME
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import Storage, faults_as, read_existing
from dkfeat.store.storage.local import LocalStorage, check_folder_writable

SEAL = "sha256"
"""Key in ``model.json`` of the fingerprint of all other keys; models of version 0.1 lack it."""
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")


class LocalFolder(LocalStorage):
    """Folder of a model on a local disk; it may be a symbolic link, but its files may not.

    Temporary files are in the folder itself, because it has no folder of metadata.
    """

    _temporary, _hidden = "", "."

    def check_writable(self) -> None:
        """Check, without writing, that files can be created here."""
        check_folder_writable(Path(self.url))

    def size(self, name: str) -> int | None:
        """Size of a file in bytes, or None if it does not exist."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return (Path(self.url) / name).lstat().st_size
        return None

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace a file atomically; missing folders are created."""
        Path(self.url).mkdir(parents=True, exist_ok=True)
        super().replace(name, data, durable=durable)

    @contextmanager
    def saving(self) -> Iterator[Callable[[], bool]]:
        """Hold a shared lock while a model is saved; the kernel frees it if the process is killed.

        Yields a function that returns True if no other process saves a model here, and none can begin before the end of
        the ``with`` block. It returns False if another one does, or if the file system has no locks for folders.
        """
        Path(self.url).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.url, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

        def is_locked(kind: int) -> bool:
            with suppress(OSError):
                fcntl.flock(descriptor, kind)
                return True
            return False

        try:
            is_shared = is_locked(fcntl.LOCK_SH)
            yield lambda: is_shared and is_locked(fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)

    def list(self, folder: str, *, sizes: bool = True, after: str = "") -> dict[str, int]:
        """Return the names of the files; the path itself if it is a file, and nothing if it does not exist."""
        path = Path(self.url) / folder
        if path.is_dir():
            return super().list(folder, sizes=sizes, after=after)
        return {self.url: -1} if path.exists() and not folder else {}


def open_model_folder(folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Storage:
    """Open the folder of a model at a path or URL; options apply only to an object store."""
    text = os.fspath(folder)
    if not text or "\0" in text:
        raise ConfigError(f"model={text!a} is not the path of a folder; give one such as models/letter")
    path = path_in(text)
    return open_storage(text, storage_options) if path is None else LocalFolder(str(Path(path).absolute()))


def read_model_file(folder: Storage) -> bytes | None:
    """Read the bytes of ``model.json``; None if it does not exist."""
    return read_existing(folder, MODEL_FILE)


def seal_model_file(facts: Mapping[str, Any]) -> bytes:
    """Return the text of ``model.json`` with these values, and with their fingerprint under the key `SEAL`."""
    plain = parse_object(dumps(dict(facts)), MODEL_FILE)
    return dumps({**plain, SEAL: fingerprint(plain)})


def parse_model_file(text: bytes, where: str) -> dict[str, Any]:
    """Return the values in the text of ``model.json``; `where` names it in errors.

    Raises
    ------
    ShardError
        If the text is not strict JSON, or its values are not those that were written.
    """
    facts = parse_object(text, where)
    sha256 = facts.pop(SEAL, None)
    try:
        is_unchanged = sha256 is None or fingerprint(facts) == sha256
    except (ValueError, RecursionError):  # values that dkfeat never writes
        is_unchanged = False
    if not is_unchanged:
        raise ShardError(f"{where}: it was changed after it was written; train again or restore the file from a copy")
    return facts


def model_files(names: Iterable[str]) -> set[str]:
    """Select the names of arrays, sidecar and temporary files of models; ``model.json`` is not one of them."""
    kinds = (ARRAY_NAME, SIDECAR_NAME, _TEMPORARY)
    return {name for name in names if any(kind.fullmatch(name) for kind in kinds)}


def check_model_folder(folder: Storage) -> None:
    """Check that a model can be saved here; the check leaves no files behind.

    The folder must be empty, or hold a model or the leftovers of a first save that was killed before its model.json.

    Raises
    ------
    ConfigError
        If the folder holds something that is not a model.
    CommitError
        If files cannot be created there.
    """
    is_local = isinstance(folder, LocalFolder)
    if not is_local:
        folder.check_writable()
    with faults_as(CommitError, f"{folder.url:.200} cannot be read"):
        names = set(folder.list(""))
    has_model = MODEL_FILE in names and any(map(ARRAY_NAME.fullmatch, names))
    may_be_replaced = has_model or names == model_files(names)
    if not may_be_replaced:
        raise ConfigError(
            f"{folder.url} contains something that is not a dkfeat model; choose another folder for the model"
        )
    if is_local:
        folder.check_writable()
