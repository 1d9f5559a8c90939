"""Checks of the options that sources of every format have."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from dkfeat.errors import ConfigError
from dkfeat.io.scans import are_integers

__all__ = ["check_choices", "declared_labels", "dtype_of_labels", "integer", "parse_size", "paths"]

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_MOST_BYTES = 1 << 31  # rows and values of a piece are counted in 32 bits


def parse_size(name: str, size: int | str) -> int:
    """Bytes that a size such as ``"64MiB"``, ``"1.5 GB"`` or 4096 means; `name` is the setting it belongs to.

    Examples
    --------
    >>> parse_size("blocksize", "64MiB")
    67108864
    """
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", size)
        if match is None or match[2].lower() not in _UNITS:
            message = f'{name}={size!r}, but it must be a number of bytes or such as "64MiB"'
            raise ConfigError(message)
        size = int(float(match[1]) * _UNITS[match[2].lower()])
    return integer(name, size, _MOST_BYTES)


def integer(name: str, value: object, most: int) -> int:
    """Value of a setting that is an integer from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        message = f"{name}={value!r}, but it must be an integer from 1 to {most:,}"
        raise ConfigError(message)
    return int(value)


def paths(urlpath: object) -> tuple[str, ...]:
    """Paths, patterns and URLs of a source, at least one."""
    given = (urlpath,) if isinstance(urlpath, str | os.PathLike) else urlpath
    found = tuple(os.fspath(path) for path in given) if isinstance(given, Sequence) else ()
    if not found or not all(found):
        message = "urlpath is empty, but a source needs at least one path, pattern or URL"
        raise ConfigError(message)
    return found


def check_choices(source: object, choices: Mapping[str, tuple[object, ...]]) -> None:
    """Refuse settings of a source that are none of those accepted."""
    for name, accepted in choices.items():
        value = getattr(source, name)
        if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in accepted):
            message = f"{name}={value!r}, but it must be one of {', '.join(map(repr, accepted))}"
            raise ConfigError(message)


def declared_labels(labels: Sequence[float], label_dtype: str) -> tuple[float, ...]:
    """Labels that a source allows: sorted, each once, integers as int."""
    found = tuple(sorted({_plain_label(label) for label in labels}))
    if not found:
        message = "labels is empty, but rows have labels; leave it out to allow all"
        raise ConfigError(message)
    strange = [label for label in found if not are_integers(np.array([label], np.float64))]
    if label_dtype == "int64" and strange:
        message = (
            f'labels holds {strange[0]!r}, which is no integer below 2^53, but label_dtype="int64"; '
            'pass label_dtype="float64"'
        )
        raise ConfigError(message)
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
        message = f"labels holds {label!r}, but labels are finite numbers"
        raise ConfigError(message)
    return int(label) if int(label) == label else float(label)
