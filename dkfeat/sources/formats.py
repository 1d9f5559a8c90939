"""Formats of sources: names and classes, and the format that paths indicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dkfeat.errors import ConfigError
from dkfeat.messages import nearest

if TYPE_CHECKING:
    from dkfeat.sources.base import Source


FORMATS = {
    "libsvm": "dkfeat.sources.libsvm.source:LibsvmSource",
    "parquet": "dkfeat.sources.parquet.source:ParquetSource",
}
"""Module and class of each format; the first is that of paths which no other format recognises."""


def format_class(name: str) -> type[Any]:
    """Return the class of sources of a format.

    Raises
    ------
    ConfigError
        If there is no such format; the message names the nearest one.

    Examples
    --------
    >>> format_class("libsvm").kind
    'libsvm'
    """
    if name not in FORMATS:
        raise ConfigError(f"there is no source format {name!r:.100}; {nearest(str(name), list(FORMATS), 'formats')}")
    module, _, cls = FORMATS[name].partition(":")
    found: type[Any] = getattr(import_module(module), cls)
    return found


def format_of(paths: Sequence[str]) -> str:
    """Return the name of the format whose class recognises the paths.

    Examples
    --------
    >>> format_of(["day-*.parquet"]), format_of(["rows.svm"])
    ('parquet', 'libsvm')
    """
    default, *others = FORMATS
    return next((name for name in others if format_class(name).recognises(paths)), default)


def as_source(
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    storage_options: Mapping[str, Any] | None = None,
    kind: str | None = None,
) -> Source:
    """Convert a path, glob, URL or several of them to a source with default options; return a source unchanged.

    The `kind` is the name of a format; None: the format that the paths indicate.

    Raises
    ------
    ConfigError
        For anything else, and for storage options together with a source object.
    """
    from dkfeat.sources.base import Source

    if isinstance(source, Source):
        if storage_options is not None:
            raise ConfigError(f"storage_options are given twice; a {type(source).__name__} has its own")
        return source
    if isinstance(source, str | PathLike):
        source = [source]
    if isinstance(source, Sequence) and source and all(isinstance(item, str | PathLike) for item in source):
        paths = tuple(fspath(item) for item in source)
        made: Source = format_class(kind or format_of(paths))(paths, storage_options=storage_options)
        return made
    raise ConfigError(f"source={source!r:.100}, but it must be a path, a glob, a URL, a list of these or a source")
