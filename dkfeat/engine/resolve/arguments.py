"""Sources and targets from the paths and URLs of callers."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import is_url
from dkfeat.sources.base import Source
from dkfeat.store.commit.target import check_target
from dkfeat.store.outputs import check_place
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import Storage

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile


def as_path(path: object, name: str) -> str:
    """Convert the path or URL of the setting `name` to text; anything else is a `ConfigError`."""
    if isinstance(path, str | PathLike) and isinstance(text := fspath(path), str):
        return text
    hint = "; since 0.2 the target stands before the map: (source, target, map)" if hasattr(path, "transform") else ""
    raise ConfigError(f"{name}={path!r:.100}, but it must be a path or a URL{hint}")


def open_location(folder: str, options: Mapping[str, Any] | None, *, beside: object = None) -> Storage:
    """Open the storage at a path or URL; options with a path are an error, unless they are for the URL `beside`."""
    if beside is not None and not is_url(folder) and is_url(as_path(beside, "like")):
        options = None
    return open_storage(folder, options)


def open_target(
    target: object, source: Source, options: Mapping[str, Any] | None, *, beside: object = None
) -> tuple[Storage, tuple[SourceFile, ...]]:
    """Open a target for writing, and list the source; the target must be usable, and separate from the source.

    Raises
    ------
    ConfigError
        If the target is a model, or lies in a data set or a model.
    """
    place = as_path(target, "target")
    storage = open_location(place, options, beside=beside)
    check_place(place, "a data set", options if is_url(place) else None)
    files = tuple(source.files())
    storage.keep_apart(files, source.patterns)
    storage.check_writable()
    check_target(storage)
    return storage, files
