"""Options that sources of files share, and their checks."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import chain
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import printable
from dkfeat.sources.base import is_int64
from dkfeat.validation import as_label, check_integer

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_NOT_OF_ROWS = {"urlpath", "storage_options", "on_bad_row", "max_bad_rows", "max_line_bytes"}
_MOST_BYTES = 1 << 31  # rows and values of a piece are counted in 32 bits


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options that all sources of files share; immutable, and checked when they are created.

    Raises
    ------
    dkfeat.errors.ConfigError
        If a setting is out of range.
    """

    kind: ClassVar[str]
    can_quarantine: ClassVar[bool] = True
    _to_resolve: ClassVar[tuple[str, ...]] = ("n_features", "zero_based", "label_dtype")

    urlpath: str | Sequence[str]
    """Path, glob or fsspec URL, or several; stored as a tuple."""
    n_features: int | None = field(default=None, kw_only=True)
    """Number of columns, from 1 to 2**63 - 1; None: found in the files' metadata, or by a scan."""
    blocksize: int | str = field(default="64MiB", kw_only=True)
    """Bytes of text, or of Parquet rows in memory, that a task reads at a time, at most 2 GiB. It is the target size of
    the rows of a split and of a piece. Stored as a number of bytes."""
    dtype: Literal["float32", "float64"] = field(default="float32", kw_only=True)
    """Type of the values; a value that overflows it is an error."""
    labels: tuple[float, ...] | None = field(default=None, kw_only=True)
    """Allowed labels, such as -1 and 1; any other is an error. None: all."""
    label_dtype: Literal["auto", "int64", "float64"] = field(default="auto", kw_only=True)
    """Type of the labels; "auto": int64 if all labels are integers of int64, else float64. This is decided by `labels`
    if given, else by the labels of the whole source. Integers are never rounded: one that is not exact in the type is
    an error. A label with a point or an exponent is a float64 number, and an integer only below 2**53 in magnitude."""
    on_bad_row: Literal["raise", "quarantine"] = field(default="raise", kw_only=True)
    """Treatment of bad rows: an error, or set aside with their locations. It is not stored in the spec."""
    max_bad_rows: float | str = field(default=0.01, kw_only=True)
    """Maximum number of bad rows of a batch with quarantine: an int is a number of rows, a float a share of all rows,
    such as 0.01; 1.0 sets no limit. Text is one of these, or a percentage such as "1%"; it is stored as a number. With
    more bad rows a run ends and commits nothing. It is not stored in the spec."""
    storage_options: Mapping[str, Any] | None = field(default=None, kw_only=True, repr=False, hash=False)
    """Options of fsspec; they may hold secrets, so they are neither shown nor stored."""

    def __post_init__(self) -> None:
        self._set("urlpath", _paths(self.urlpath))
        if self.n_features is not None:
            self._set("n_features", check_integer(self.n_features, "n_features", low=1, high=2**63 - 1))
        self._set("blocksize", parse_size("blocksize", self.blocksize))
        for name, accepted in _choices(type(self)).items():  # type: ignore[arg-type]  # classes can be hashed
            value = getattr(self, name)
            if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in accepted):
                raise ConfigError(f"{name}={value!r}, but it must be one of {', '.join(map(repr, accepted))}")
        self._set("max_bad_rows", _limit_of_bad_rows(self.max_bad_rows))
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
        """Paths, globs and URLs in which `files` looks for files."""
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
        """Return plain values of all options that affect rows or pieces, and `kind`."""
        names = [item.name for item in fields(self) if item.name not in _NOT_OF_ROWS]
        return {"kind": self.kind, **{name: _plain(getattr(self, name)) for name in names}}

    @classmethod
    def recognises(cls, paths: Sequence[str]) -> bool:  # noqa: ARG003  # subclasses use it
        """Return True if all paths are those of files of this format, by their names."""
        return False

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return `to_mapping` of a source with default options."""
        return cls("-").to_mapping()


@cache
def _choices(cls: Any) -> dict[str, tuple[object, ...]]:
    """Return the accepted values of the options whose type is ``bool``, ``Literal`` or both, by name."""
    choices = {}
    for name, hint in get_type_hints(cls).items():
        kinds = get_args(hint) if get_origin(hint) is Union else (hint,)
        if all(kind is bool or get_origin(kind) is Literal for kind in kinds):
            choices[name] = tuple(
                chain.from_iterable((True, False) if kind is bool else get_args(kind) for kind in kinds)
            )
    return choices


def parse_size(name: str, size: int | str) -> int:
    """Convert a size such as ``"64MiB"``, ``"1.5 GB"`` or 4096 to bytes; `name` is the option's name, for errors.

    Examples
    --------
    >>> parse_size("blocksize", "64MiB")
    67108864
    """
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]{1,18}(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", size)
        if match is None or match[2].lower() not in _UNITS:
            raise ConfigError(
                f'{name}={size!r}, but it must be a number of bytes, or a size with a unit such as "64MiB"'
            )
        size = int(float(match[1]) * _UNITS[match[2].lower()])
    return check_integer(size, name, low=1, high=_MOST_BYTES)


def _paths(urlpath: object) -> tuple[str, ...]:
    given = (urlpath,) if isinstance(urlpath, str | os.PathLike) else urlpath
    found = tuple(os.fspath(path) for path in given) if isinstance(given, Sequence) else ()
    if not found or not all(found):
        raise ConfigError(
            f"urlpath={printable(repr(urlpath))[:100]}, but it must be a path, pattern or URL, or a list of at least "
            "one of these"
        )
    return found


def _limit_of_bad_rows(most: object) -> float:
    """Convert ``max_bad_rows`` to a number of rows, an int, or a share of them, a float."""
    found = most
    if isinstance(most, str):
        text = most.strip()
        with suppress(ValueError):
            number = int(text) if text.isdigit() else float(text.removesuffix("%"))
            found = number / 100 if text.endswith("%") else number
    is_rows = isinstance(found, int) and not isinstance(found, bool) and found >= 0
    if is_rows or (isinstance(found, float) and 0 <= found <= 1):
        return found  # type: ignore[return-value]  # it is a number
    raise ConfigError(
        f"max_bad_rows={most!r}, but it must be a number of rows such as 100 or a share of them such as 0.01"
    )


def _declared_labels(labels: Sequence[float], label_dtype: str) -> tuple[float, ...]:
    """Return the sorted distinct labels that a source allows, integers as int."""
    if not isinstance(labels, Iterable):
        raise ConfigError(f"labels={labels!r:.100}, but it must be a list of numbers such as [-1, 1]")
    found = tuple(sorted({_plain_label(label) for label in labels}))
    if not found:
        raise ConfigError("labels is empty, but rows have labels; leave labels out to allow all")
    is_int = label_dtype == "int64" or (label_dtype == "auto" and dtype_of_labels(found) == "int64")
    inexact = [label for label in found if not (is_int64(label) if is_int else _is_float64(label))]
    if inexact:
        dtype, other = ("int64", "float64") if is_int else ("float64", "int64")
        remedy = (
            f'pass label_dtype="{other}"'
            if label_dtype == dtype
            else "give labels that are all integers of int64, or all exact in float64"
        )
        raise ConfigError(
            f"labels holds {inexact[0]!r}, which is not exact in {dtype}, the type of the labels; {remedy}"
        )
    return found


def _is_float64(label: float) -> bool:
    return isinstance(label, float) or (abs(label) < 2**1023 and float(label) == label)


def dtype_of_labels(labels: Sequence[float]) -> Literal["int64", "float64"]:
    """Choose the type of the labels from the allowed labels: int64 if all are integers, else float64.

    Examples
    --------
    >>> dtype_of_labels([-1, 1]), dtype_of_labels([0.5, 1])
    ('int64', 'float64')
    """
    return "int64" if all(map(is_int64, labels)) else "float64"


def _plain_label(label: object) -> float:
    is_number = isinstance(label, int | float | np.number) and not isinstance(label, bool)
    found = as_label(label) if is_number else math.nan
    if isinstance(found, float) and not math.isfinite(found):
        raise ConfigError(f"labels holds {label!r}, but labels are finite numbers")
    return found


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
