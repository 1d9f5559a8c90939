"""JSON of the metadata: canonical text and its fingerprint, and strict reading with typed records."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from io import BytesIO
from itertools import islice
from threading import RLock
from typing import Annotated, Any, TypeVar

import msgspec

from dkfeat.errors import ShardError

Kind = TypeVar("Kind")

CONVERTING = RLock()
"""Held while msgspec converts, because two threads that convert to a new type at the same time crash the process."""

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""An integer of at least 0 that fits 64 signed bits."""
Positive = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
"""An integer of at least 1 that fits 64 signed bits."""
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A number from 0 to 1."""
Name = Annotated[str, msgspec.Meta(min_length=1)]
"""A non-empty text."""
Undecoded = msgspec.Raw
"""A value whose text is kept, for `parse_typed` to read later."""
Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
"""64 lowercase hexadecimal digits."""


def canonical_json(value: object) -> str:
    """Serialize plain JSON values to text; two texts are equal if and only if their values are.

    Keys are sorted, there are no blanks, integers stay integers and floats are written by ``float.hex``
    inside ``{"float": ...}``, so 1 and 1.0 differ and no digit is lost.

    Parameters
    ----------
    value : None, bool, int, finite float, str, or nested lists and string-keyed mappings of these

    Returns
    -------
    text : str
        ASCII text.

    Raises
    ------
    TypeError
        For any other type.
    ValueError
        For a float that is not finite, or a mapping of the form ``{"float": ...}``, which stands for a number.

    Examples
    --------
    >>> canonical_json({"b": 1, "a": [0.5, None]})
    '{"a":[{"float":"0x1.0000000000000p-1"},null],"b":1}'
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def fingerprint(value: object) -> str:
    """Return the SHA-256 of `canonical_json`, as 64 lowercase hexadecimal digits.

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
            raise ValueError(f"canonical JSON holds finite numbers only, got {value!r}")
        return {"float": value.hex()}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"canonical JSON needs string keys, got {list(value)!r}")
        if list(value) == ["float"]:
            raise ValueError(
                "canonical JSON reserves mappings with the single key 'float' for numbers; use another key"
            )
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    raise TypeError(f"canonical JSON cannot hold {type(value).__name__}")


MAX_BYTES = 512 << 20
_BATCH = 1000
LEAST_INTEGER, MOST_INTEGER = -(1 << 63), (1 << 64) - 1  # seeds need all 64 bits; `Count` has a lower limit


def dumps(value: object) -> bytes:
    r"""Return UTF-8 text of plain JSON values: one line, keys in their order, no NaN or Infinity.

    An object's values may be iterators, which are written as lists, with a thousand items in memory at a time. A
    dataclass is written as an object of its fields, without those that have their default value.

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


def without_defaults(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, in order, without those that have their default value."""
    defaults = _defaults(type(record))  # type: ignore[arg-type]  # classes can be hashed
    return {name: value for name, default in defaults if (value := getattr(record, name)) != default}


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=without_defaults)
_text = _ENCODER.encode


@cache
def _defaults(cls: Any) -> tuple[tuple[str, object], ...]:
    """Return the fields of a dataclass with their default values; cached, as a manifest may have a million records."""
    return tuple(
        (item.name, item.default if item.default_factory is MISSING else item.default_factory()) for item in fields(cls)
    )


def parse_object(data: bytes, what: str, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Read one JSON object.

    Parameters
    ----------
    data : bytes
        UTF-8 text.
    what : str
        Name of the file, for the message.
    max_bytes : int, default=512 MiB
        Longer text is rejected without parsing.

    Returns
    -------
    value : dict
        Numbers are finite; integers fit 64 bits, signed or unsigned.

    Raises
    ------
    ShardError
        For anything else: other text, duplicate keys, NaN, Infinity, a number out of range, nesting too deep; and if
        memory does not suffice.

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
        value = _DECODER.decode(data.decode("utf-8"))
    except RecursionError:
        raise ShardError(f"{what}: not the strict JSON that dkfeat writes: nested too deep") from None
    except MemoryError:
        raise _too_large(what, f"{len(data):,} bytes") from None
    except ValueError as fault:
        raise ShardError(f"{what}: not the strict JSON that dkfeat writes: {str(fault)[:200]}") from None
    if not isinstance(value, dict):
        raise ShardError(f"{what}: expected one JSON object, got {type(value).__name__}")
    return value


def typed(value: object, kind: type[Kind], what: str) -> Kind:
    """Convert plain JSON values to a record; unknown keys are ignored.

    Parameters
    ----------
    value : object
        Result of `parse_object`, or a part of it.
    kind : type
        Dataclass, or any other type that msgspec supports; only lists to tuples and objects to records are converted.
    what : str
        Name of the file or record, for the message.

    Raises
    ------
    ShardError
        If a key is missing, or a value has another type or is out of range; the message names `what` and the key.

    Examples
    --------
    >>> typed({"rows": -2}, dict[str, Count], "example")
    Traceback (most recent call last):
        ...
    dkfeat.errors.ShardError: example: Expected `int` >= 0 - at `$[...]`
    """
    try:
        with CONVERTING:
            return msgspec.convert(value, kind)
    except msgspec.ValidationError as fault:
        raise ShardError(f"{what}: {str(fault)[:200]}") from None
    except MemoryError:
        raise _too_large(what, "its records") from None


def parse_typed(data: bytes | Undecoded, kind: type[Kind], what: str, *, max_bytes: int = MAX_BYTES) -> Kind:
    """Read one JSON object to a record, without the values in between that `parse_object` makes.

    For large files whose bytes are known by their hash: unknown keys are ignored, and of equal keys the last counts.

    Raises
    ------
    ShardError
        If the text is no JSON, a key is missing, or a value has another type or is out of range.

    Examples
    --------
    >>> parse_typed(b'{"rows": 2}', dict[str, Count], "example")
    {'rows': 2}
    """
    n_bytes = memoryview(data).nbytes
    check_length(n_bytes, what, max_bytes)
    try:
        with CONVERTING:
            return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as fault:
        raise ShardError(f"{what}: {str(fault)[:200]}") from None
    except MemoryError:
        raise _too_large(what, f"{n_bytes:,} bytes") from None


def _too_large(what: str, size: str) -> ShardError:
    return ShardError(
        f"{what}: the memory that this process may use is too small for {size}; metadata need about six times the size "
        "of their file: raise the limit (`ulimit -v`, or that of the job or container), or use a larger machine"
    )


def check_length(size: int, what: str, max_bytes: int = MAX_BYTES) -> None:
    """Check the length of a text; call it before the text is in memory.

    Raises
    ------
    ShardError
        If the text is too long; the message names `what`.
    """
    if size > max_bytes:
        raise ShardError(f"{what}: {size:,} bytes, but at most {max_bytes:,} are read")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {twice[:60]!r} is given twice")
    return value


def _integer(digits: str) -> int:
    if len(digits) > 20 or not LEAST_INTEGER <= int(digits) <= MOST_INTEGER:
        raise ValueError(f"integer {digits[:60]} does not fit 64 bits")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"number {digits[:60]} is out of range")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)
