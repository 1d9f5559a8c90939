"""Model folders: on a local disk, or in an object store."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkfeat.canonical import check_length
from dkfeat.errors import CommitError, ConfigError
from dkfeat.io.manifest.sidecar import LANDMARKS_NAME
from dkfeat.io.storage import open_storage
from dkfeat.io.storage.base import SPEC
from dkfeat.io.storage.urls import is_url, protocol_of

if TYPE_CHECKING:
    from dkfeat.io.storage.base import Storage


MODEL_FILE = "model.json"
ARRAY_NAME = re.compile(r"(coef|intercept)-[0-9a-f]{12}\.npy")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")


class LocalPlace:
    """A folder; a file in it is replaced in one step."""

    def __init__(self, folder: str) -> None:
        self._root = Path(folder)
        self.where = str(self._root)
        """The folder, for messages."""

    @property
    def storage(self) -> Storage:
        """The same for what only reads."""
        return open_storage(self._root)

    def check(self) -> None:
        """Find out, without writing, whether a model can be saved here; see `check_target`."""
        root = self._root
        if root.exists() and not (root.is_dir() and _may_hold_model(self.names())):
            raise _other(self.where)
        existing = next(path for path in (root, *root.absolute().parents) if path.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            raise CommitError(
                f"{root} cannot be written: {existing} is not a folder in which files can be made; choose another"
            )

    def size(self, name: str) -> int | None:
        """Bytes of a file, or None if there is none."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return (self._root / name).stat().st_size
        return None

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        return (self._root / name).read_bytes()

    def replace(self, name: str, data: bytes) -> None:
        """Give a file these bytes in one step: temporary beside it, flushed to disk, renamed."""
        self._root.mkdir(parents=True, exist_ok=True)
        path = self._root / name
        temporary = path.with_name(f".{name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        folder = os.open(self._root, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def names(self) -> list[str]:
        """Names of the files."""
        return [path.name for path in self._root.iterdir()]

    def remove(self, name: str) -> None:
        """Delete a file."""
        (self._root / name).unlink(missing_ok=True)


class StorePlace:
    """A place in an object store; an object is replaced by one request."""

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        from dkfeat.io.storage.object_store import ObjectStorage

        storage = open_storage(url, storage_options)
        if not isinstance(storage, ObjectStorage):
            raise ConfigError(f"{storage.url} is no place in an object store")
        self.storage = storage
        """The same for what only reads."""
        self.where = storage.url
        """Its URL, for messages."""
        self.size, self.read, self.replace, self.remove = storage.size, storage.read, storage.replace, storage.remove

    def check(self) -> None:
        """Find out, leaving nothing behind, whether a model can be saved here; see `check_target`."""
        self.storage.check_writable()
        if not _may_hold_model(self.names()) or self.storage.size(SPEC) is not None:
            raise _other(self.where)

    def names(self) -> list[str]:
        """Names of the objects."""
        return list(self.storage.list(""))


def model_place(
    folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> LocalPlace | StorePlace:
    """Place of a model at a path or URL; options are for an object store alone."""
    text = os.fspath(folder)
    if "://" not in text or not is_url(text):
        return LocalPlace(text)
    return LocalPlace(text.partition("://")[2]) if protocol_of(text) == "file" else StorePlace(text, storage_options)


def read_facts(place: LocalPlace | StorePlace) -> bytes | None:
    """Text of ``model.json``, or None where there is none."""
    size = place.size(MODEL_FILE)
    if size is None:
        return None
    check_length(size, f"{place.where}/{MODEL_FILE}")
    return place.read(MODEL_FILE)


def _may_hold_model(names: Iterable[str]) -> bool:
    """Tell if a place has a model, nothing, or what a first save left that was killed before its ``model.json``."""
    names = set(names)
    ours = (ARRAY_NAME, LANDMARKS_NAME, _TEMPORARY)
    return MODEL_FILE in names or all(any(kind.fullmatch(name) for kind in ours) for name in names)


def _other(where: str) -> ConfigError:
    return ConfigError(f"{where} holds something that is not a dkfeat model; choose another folder for it")
