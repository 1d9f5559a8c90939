"""JSON read with suspicion: what a hostile or damaged file may hold is refused before it is used."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import Any

from dkfeat.errors import ShardError

__all__ = ["check_length", "dumps", "parse_object"]

MAX_BYTES = 512 << 20
_BATCH = 1000
LEAST_INTEGER, MOST_INTEGER = -(1 << 63), (1 << 64) - 1  # seeds need all 64 bits; counts have a limit of their own


def dumps(value: object) -> bytes:
    r"""UTF-8 text of plain JSON values: one line, keys in their order, no NaN or Infinity.

    An object's values may be iterators, which are written as lists; what they yield is held a thousand items at a time.

    Examples
    --------
    >>> dumps({"rows": 2, "names": iter("ab")})
    b'{"rows":2,"names":["a","b"]}\n'
    """
    if not isinstance(value, dict):
        return (_text(value) + "\n").encode()
    parts = BytesIO()
    parts.write(b"{")
    for place, (key, item) in enumerate(value.items()):
        parts.write(f"{',' * bool(place)}{_text(key)}:".encode())
        if isinstance(item, Iterator):
            opening = "["
            while batch := list(islice(item, _BATCH)):
                parts.write((opening + _text(batch)[1:-1]).encode())
                opening = ","
            parts.write(b"[]" if opening == "[" else b"]")
        else:
            parts.write(_text(item).encode())
    parts.write(b"}\n")
    return parts.getvalue()  # without a copy


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def parse_object(data: bytes, what: str, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Read one JSON object.

    Parameters
    ----------
    data : bytes
        UTF-8 text.
    what : str
        Name of the file, for the message.
    max_bytes : int, default=512 MiB
        Longer text is refused unread.

    Returns
    -------
    value : dict
        Numbers are finite; integers fit 64 bits, signed or unsigned.

    Raises
    ------
    ShardError
        For anything else: other text, duplicate keys, NaN, Infinity, a number out of range, nesting too deep.

    Examples
    --------
    >>> parse_object(b'{"rows": 2}', "example")
    {'rows': 2}
    >>> parse_object(b'{"rows": 2, "rows": 3}', "example")
    Traceback (most recent call last):
        ...
    dkfeat.errors.ShardError: example: not the strict JSON that dkfeat writes: key 'rows' is given twice
    """
    check_length(len(data), what, max_bytes)
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except RecursionError:
        message = f"{what}: not the strict JSON that dkfeat writes: nested too deep"
        raise ShardError(message) from None
    except ValueError as fault:
        message = f"{what}: not the strict JSON that dkfeat writes: {str(fault)[:200]}"
        raise ShardError(message) from None
    if not isinstance(value, dict):
        message = f"{what}: expected one JSON object, got {type(value).__name__}"
        raise ShardError(message)
    return value


def check_length(size: int, what: str, max_bytes: int = MAX_BYTES) -> None:
    """Refuse a text of an absurd number of bytes, best before it is in memory.

    Raises
    ------
    ShardError
        Naming `what`.
    """
    if size > max_bytes:
        message = f"{what}: {size:,} bytes, but at most {max_bytes:,} are read"
        raise ShardError(message)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        message = f"key {twice[:60]!r} is given twice"
        raise ValueError(message)
    return value


def _integer(digits: str) -> int:
    if len(digits) > 20 or not LEAST_INTEGER <= int(digits) <= MOST_INTEGER:
        message = f"integer {digits[:60]} does not fit 64 bits"
        raise ValueError(message)
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        message = f"number {digits[:60]} is out of range"
        raise ValueError(message)
    return value


def _constant(name: str) -> float:
    message = f"{name} is not a JSON number"
    raise ValueError(message)
