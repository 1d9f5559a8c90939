"""Options that sources of files share, and their checks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import chain
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from dkfeat.errors import ConfigError
from dkfeat.io.sources.base import are_integers
from dkfeat.io.storage.urls import printable
from dkfeat.validation import check_integer

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_NOT_OF_ROWS = {"urlpath", "storage_options", "on_bad_row", "max_line_bytes"}
_MOST_BYTES = 1 << 31  # rows and values of a piece are counted in 32 bits


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options of every source that is made of files; immutable, and checked when they are made.

    Raises
    ------
    dkfeat.errors.ConfigError
        If a setting is out of range.
    """

    kind: ClassVar[str]
    can_quarantine: ClassVar[bool] = True
    _to_resolve: ClassVar[tuple[str, ...]] = ("n_features", "zero_based", "label_dtype")

    urlpath: str | Sequence[str]
    """Path, glob or fsspec URL, or several; kept as a tuple."""
    n_features: int | None = field(default=None, kw_only=True)
    """Number of columns, 1 to 2**63 - 1; None: found in the files' metadata, or by a scan."""
    blocksize: int | str = field(default="64MiB", kw_only=True)
    """Bytes of rows in a split and in a piece, 1 to 2 GiB; kept as an int."""
    dtype: Literal["float32", "float64"] = field(default="float32", kw_only=True)
    """Type of the values; one that overflows it is an error."""
    labels: tuple[float, ...] | None = field(default=None, kw_only=True)
    """Labels allowed; any other is an error. None: all."""
    label_dtype: Literal["auto", "int64", "float64"] = field(default="auto", kw_only=True)
    """Type of the labels; "auto": int64 if every label in `labels`, or without these in the whole source, is an integer
    below 2**53 in magnitude."""
    on_bad_row: Literal["raise", "quarantine"] = field(default="raise", kw_only=True)
    """Treatment of bad rows: an error, or set aside with their locations. No spec holds it."""
    storage_options: Mapping[str, Any] | None = field(default=None, kw_only=True, repr=False, hash=False)
    """For fsspec; may hold secrets, so it is neither shown nor stored."""

    def __post_init__(self) -> None:
        self._set("urlpath", _paths(self.urlpath))
        if self.n_features is not None:
            self._set("n_features", check_integer(self.n_features, "n_features", low=1, high=2**63 - 1))
        self._set("blocksize", parse_size("blocksize", self.blocksize))
        for name, accepted in _choices(type(self)).items():  # type: ignore[arg-type]  # classes can be hashed
            value = getattr(self, name)
            if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in accepted):
                raise ConfigError(f"{name}={value!r}, but it must be one of {', '.join(map(repr, accepted))}")
        if self.labels is not None:
            self._set("labels", _declared_labels(self.labels, self.label_dtype))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        shown = {item.name: getattr(self, item.name) for item in fields(self) if item.repr}
        shown["urlpath"] = tuple(printable(path) for path in self.urlpath)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def patterns(self) -> tuple[str, ...]:
        """Paths, globs and URLs that `files` looks up."""
        return tuple(self.urlpath)

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Names of the options that must be resolved before rows can be read."""
        return tuple(name for name in self._to_resolve if getattr(self, name) in (None, "auto"))

    @property
    def is_quarantined(self) -> bool:
        """True if bad rows are set aside."""
        return self.on_bad_row == "quarantine"

    def to_mapping(self) -> dict[str, Any]:
        """Plain values of all options that affect rows or pieces, and `kind`."""
        names = [item.name for item in fields(self) if item.name not in _NOT_OF_ROWS]
        return {"kind": self.kind, **{name: _plain(getattr(self, name)) for name in names}}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """`to_mapping` of a source whose options are all left open."""
        return cls("-").to_mapping()


@cache
def _choices(cls: Any) -> dict[str, tuple[object, ...]]:
    """Values that options of types ``bool``, ``Literal`` or both accept, by name."""
    choices = {}
    for name, hint in get_type_hints(cls).items():
        kinds = get_args(hint) if get_origin(hint) is Union else (hint,)
        if all(kind is bool or get_origin(kind) is Literal for kind in kinds):
            choices[name] = tuple(
                chain.from_iterable((True, False) if kind is bool else get_args(kind) for kind in kinds)
            )
    return choices


def parse_size(name: str, size: int | str) -> int:
    """Convert a size to bytes, such as ``"64MiB"``, ``"1.5 GB"`` or 4096; `name` is the setting it belongs to.

    Examples
    --------
    >>> parse_size("blocksize", "64MiB")
    67108864
    """
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", size)
        if match is None or match[2].lower() not in _UNITS:
            raise ConfigError(f'{name}={size!r}, but it must be a number of bytes or such as "64MiB"')
        size = int(float(match[1]) * _UNITS[match[2].lower()])
    return check_integer(size, name, low=1, high=_MOST_BYTES)


def _paths(urlpath: object) -> tuple[str, ...]:
    given = (urlpath,) if isinstance(urlpath, str | os.PathLike) else urlpath
    found = tuple(os.fspath(path) for path in given) if isinstance(given, Sequence) else ()
    if not found or not all(found):
        raise ConfigError("urlpath is empty, but a source needs at least one path, pattern or URL")
    return found


def _declared_labels(labels: Sequence[float], label_dtype: str) -> tuple[float, ...]:
    """Sort the labels that a source allows, each once, integers as int."""
    found = tuple(sorted({_plain_label(label) for label in labels}))
    if not found:
        raise ConfigError("labels is empty, but rows have labels; leave it out to allow all")
    strange = [label for label in found if not are_integers(np.array([label], np.float64))]
    if label_dtype == "int64" and strange:
        raise ConfigError(
            f'labels holds {strange[0]!r}, which is no integer below 2^53, but label_dtype="int64"; '
            'pass label_dtype="float64"'
        )
    return found


def dtype_of_labels(labels: Sequence[float]) -> Literal["int64", "float64"]:
    """Type that holds the labels allowed; no others occur.

    Examples
    --------
    >>> dtype_of_labels([-1, 1]), dtype_of_labels([0.5, 1])
    ('int64', 'float64')
    """
    return "int64" if are_integers(np.array(labels, np.float64)) else "float64"


def _plain_label(label: object) -> float:
    if isinstance(label, bool) or not isinstance(label, int | float | np.number) or not np.isfinite(label):
        raise ConfigError(f"labels holds {label!r}, but labels are finite numbers")
    return int(label) if int(label) == label else float(label)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
