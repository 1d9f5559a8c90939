"""Canonical JSON and its SHA-256: the one way in which settings become a fingerprint."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence

__all__ = ["canonical_json", "fingerprint"]


def canonical_json(value: object) -> str:
    """Text of plain JSON values that is equal exactly when the values are.

    Keys are sorted, there are no blanks, integers stay integers and floats are written by ``float.hex``
    inside ``{"float": ...}``, so 1 and 1.0 differ and no digit is lost.

    Parameters
    ----------
    value : None, bool, int, finite float, str, or nested lists and string-keyed mappings of these

    Returns
    -------
    text : str
        ASCII.

    Raises
    ------
    TypeError
        For any other type.
    ValueError
        For a float that is not finite, or a mapping that reads like a number, ``{"float": ...}``.

    Examples
    --------
    >>> canonical_json({"b": 1, "a": [0.5, None]})
    '{"a":[{"float":"0x1.0000000000000p-1"},null],"b":1}'
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def fingerprint(value: object) -> str:
    """SHA-256 of `canonical_json`, as 64 lowercase hexadecimal digits.

    Examples
    --------
    >>> fingerprint({})[:12]
    '44136fa355b3'
    """
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            message = f"canonical JSON holds finite numbers only, got {value!r}"
            raise ValueError(message)
        return {"float": value.hex()}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            message = f"canonical JSON needs string keys, got {list(value)!r}"
            raise TypeError(message)
        if list(value) == ["float"]:
            message = "canonical JSON keeps mappings with the single key 'float' for numbers; name the key otherwise"
            raise ValueError(message)
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    message = f"canonical JSON cannot hold {type(value).__name__}"
    raise TypeError(message)
