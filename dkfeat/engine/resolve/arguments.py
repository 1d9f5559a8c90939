"""Sources and targets from the paths and URLs of callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import is_url
from dkfeat.sources.base import Source
from dkfeat.sources.libsvm.source import LibsvmSource
from dkfeat.sources.parquet.files import looks_like_parquet
from dkfeat.sources.parquet.source import ParquetSource
from dkfeat.store.commit.target import check_target
from dkfeat.store.outputs import check_place
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import Storage

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile


def as_source(
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    storage_options: Mapping[str, Any] | None = None,
    kind: object = None,
) -> Source:
    """Convert a path, glob, URL or several of them to a source with default options; return a source unchanged.

    The `kind` is "libsvm", "parquet" or None. If it is None, names with the suffix .parquet, .parq or .pq, and local
    folders with Parquet files, become a `ParquetSource`, all others a `LibsvmSource`.

    Raises
    ------
    ConfigError
        For anything else, and for storage options together with a source object.
    """
    if isinstance(source, Source):
        if storage_options is not None:
            raise ConfigError(f"storage_options are given twice; a {type(source).__name__} has its own")
        return source
    if isinstance(source, str | PathLike):
        source = [source]
    if isinstance(source, Sequence) and source and all(isinstance(item, str | PathLike) for item in source):
        paths = tuple(fspath(item) for item in source)
        if looks_like_parquet(paths) if kind is None else kind == ParquetSource.kind:
            return ParquetSource(paths, storage_options=storage_options)
        return LibsvmSource(paths, storage_options=storage_options)
    raise ConfigError(f"source={source!r:.100}, but it must be a path, a glob, a URL, a list of these or a source")


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
