"""Formats of sources: names and classes, and the format that paths indicate."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dkfeat.errors import ConfigError
from dkfeat.messages import nearest, printable

if TYPE_CHECKING:
    from dkfeat.sources.base import Source


FORMATS = {
    "libsvm": "dkfeat.sources.libsvm.source:LibsvmSource",
    "parquet": "dkfeat.sources.parquet.source:ParquetSource",
    "jsonl": "dkfeat.sources.json_lines:JsonLinesSource",
}
"""Module and class of each format; the first is that of paths which no other format recognises."""
_OTHER = re.compile(r"(?i)\.(csv|tsv|xlsx?)(\.(gz|bz2|xz|zst))?$")


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

    Raises
    ------
    ConfigError
        If the paths are those of several formats.

    Examples
    --------
    >>> format_of(["day-*.parquet"]), format_of(["rows.svm"])
    ('parquet', 'libsvm')
    """
    default, *others = FORMATS
    for path in paths:
        if other := _OTHER.search(path):
            from dkfeat.sources.contents import not_read  # late: help pages need none of it

            where = printable(path)
            raise ConfigError(
                f"{where} is {other[1].upper()} by its name (for LIBSVM text give format='libsvm' (--format libsvm)); "
                f"{not_read(where)}"
            )
    found = {next((name for name in others if format_class(name).recognises([path])), default): path for path in paths}
    if len(found) > 1:
        shown = ", ".join(f"{name} (such as {printable(path)})" for name, path in found.items())
        raise ConfigError(f"the paths are of several formats, {shown}; give those of one, or format= (--format)")
    return next(iter(found))


def is_location(source: object) -> bool:
    """Return True for a path, glob or URL, and for a list of them.

    Examples
    --------
    >>> is_location(["a.svm", "b.svm"]), is_location([]), is_location([[0.5]])
    (True, False, False)
    """
    several = source if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    return bool(several) and all(isinstance(each, str | PathLike) for each in several)


def as_source(
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    storage_options: Mapping[str, Any] | None = None,
    kind: str = "auto",
    /,
    **options: Any,
) -> Source:
    """Convert a path, glob, URL or several of them to a source; return a source unchanged.

    Parameters
    ----------
    source : Source, path, glob, URL, or a list of these, or rows in memory as for `TableSource`
    storage_options : mapping or None
        Options of fsspec.
    kind : str
        Name of a format; "auto": the format that the paths indicate.
    **options
        Options of the format. Those at the default of the first format that has them count as left out.

    Raises
    ------
    ConfigError
        For anything else, and for options that the format does not have, and options together with a source object.
    """
    from dkfeat.sources.base import Source

    if isinstance(source, Source):
        if storage_options is not None:
            raise ConfigError(f"storage_options are given twice; a {type(source).__name__} has its own")
        return source
    if not is_location(source):
        from dkfeat.sources.memory import TableSource  # late: files need none of it

        return TableSource(source)
    paths = tuple(fspath(item) for item in ([source] if isinstance(source, str | PathLike) else source))
    name = format_of(paths) if kind == "auto" else kind
    made: Source = format_class(name)(paths, **_own_options(name, paths, options), storage_options=storage_options)
    return made


def _own_options(name: str, paths: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are not at a default; those of other formats are an error."""
    known = {of: {item.name: item.default for item in fields(format_class(of))} for of in FORMATS}
    defaults = {key: default for of in reversed(known.values()) for key, default in of.items()}
    given = {key: value for key, value in options.items() if not (key in defaults and _equal(value, defaults[key]))}
    foreign = sorted(given.keys() - known[name].keys())
    if foreign:
        others = [of for of in FORMATS if known[of].keys() >= set(foreign)]
        to_do = "leave it out" if others else nearest(foreign[0], list(known[name]), "options")
        if others and name == next(iter(FORMATS)):
            to_do = "leave it out or, for files of another format, name that by format= (--format)"
        shown = ", ".join(f"{option} (--{option.replace('_', '-')})" for option in foreign)
        raise ConfigError(f"{printable(paths[0])} is read as {name}, which has no option {shown}; {to_do}")
    return given


def _equal(value: Any, default: Any) -> bool:
    value = tuple(value) if isinstance(value, list) else value
    return type(value) is type(default) and bool(value == default)
