"""Checks of the options of sources, and types of labels."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from dkfeat.errors import ConfigError
from dkfeat.messages import printable, read_number
from dkfeat.validation import as_label, check_integer

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
LARGEST_BLOCK = 1 << 31  # rows and values of a piece are counted in 32 bits
MOST_EXACT = 2**53
"""Bound of the magnitude below which float64 has every integer."""


@cache
def choices_of(cls: Any) -> dict[str, tuple[object, ...]]:
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
    return check_integer(size, name, low=1, high=LARGEST_BLOCK)


def as_paths(urlpath: object) -> tuple[str, ...]:
    """Convert a path, pattern or URL, or several of them, to a tuple."""
    given = (urlpath,) if isinstance(urlpath, str | os.PathLike) else urlpath
    found = tuple(os.fspath(path) for path in given) if isinstance(given, Sequence) else ()
    if not found or not all(found):
        raise ConfigError(
            f"urlpath={printable(repr(urlpath))[:100]}, but it must be a path, pattern or URL, or a list of at least "
            "one of these"
        )
    return found


def limit_of_bad_rows(most: object) -> float:
    """Convert ``max_bad_rows`` to a number of rows, an int, or a share of them, a float."""
    found = most.item() if isinstance(most, np.number) else most
    if isinstance(most, str):
        text = most.strip()
        with suppress(ValueError):
            number = read_number(text.removesuffix("%"), int if text.isdigit() else float)
            found = number / 100 if text.endswith("%") else number
    is_rows = isinstance(found, int) and not isinstance(found, bool) and found >= 0
    if is_rows or (isinstance(found, float) and 0 <= found <= 1):
        return found  # type: ignore[return-value]  # it is a number
    raise ConfigError(
        f"max_bad_rows={most!r}, but it must be a number of rows such as 100 or a share of them such as 0.01"
    )


def declared_labels(labels: Sequence[float], label_dtype: str) -> tuple[float, ...]:
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
        raise ConfigError(
            f"labels holds {inexact[0]!r}, which is not exact in {dtype}, the type of the labels; give labels that are "
            f'all exact in it, or pass label_dtype="{other}"'
        )
    return found


def declared_words(labels: Any) -> tuple[str, ...]:
    """Return the distinct words that are labels, in the order of their bytes.

    Examples
    --------
    >>> declared_words(["no", "yes", "Maybe"])
    ('Maybe', 'no', 'yes')
    """
    wrong = [label for label in labels if not isinstance(label, str)]
    if wrong:
        raise ConfigError(f"labels holds {wrong[0]!r:.100} among words, but labels are all words or all numbers")
    return tuple(sorted(set(labels), key=str.encode))


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


def plain_value(value: Any) -> Any:
    """Convert tuples to lists, at any depth."""
    return [plain_value(item) for item in value] if isinstance(value, tuple) else value


def is_int64(label: float) -> bool:
    """Return True if a label is an integer of int64."""
    return int(label) == label and -(2**63) <= label < 2**63


def exact_integers(labels: np.ndarray) -> np.ndarray:
    """Return the mask of the float64 labels that are exact as int64."""
    exact: np.ndarray = (labels == np.trunc(labels)) & (np.abs(labels) < MOST_EXACT)
    return exact
