"""A checksum that a Parquet file carries of itself, so that it can be trusted without any other file.

The footer holds the key ``dkfeat.seal``. Its value is the SHA-256 of the whole file with that value replaced by 64
zeros. Page checksums alone leave page headers and the footer open: with the seal, any changed bit is found.
"""

from __future__ import annotations

import hashlib

__all__ = ["BLANK", "KEY", "check_seal", "seal"]

KEY = "dkfeat.seal"
BLANK = "0" * 64

_MAGIC = b"PAR1"
# In Thrift's compact protocol a key-value pair is a length-prefixed key, then 0x18 (a string field), then the value.
_PATTERN = bytes([len(KEY)]) + KEY.encode() + b"\x18" + bytes([len(BLANK)])


def seal(data: memoryview) -> str:
    """Put the seal into a Parquet file whose footer holds `KEY` with the value `BLANK`.

    Parameters
    ----------
    data : memoryview
        The whole file, writable, of one-byte items.

    Returns
    -------
    sha256 : str
        SHA-256 of the sealed file.
    """
    place = _find(data)
    if place is None or bytes(data[place : place + 64]) != BLANK.encode():
        message = f"the Parquet footer holds no blank {KEY}"
        raise ValueError(message)
    prefix = hashlib.sha256(data[:place])
    digest = _digest(prefix, data, place)
    data[place : place + 64] = digest.encode()
    prefix.update(data[place:])
    return prefix.hexdigest()


def check_seal(data: memoryview) -> str | None:
    """Return the SHA-256 of a sealed file, or None if its seal is missing or broken."""
    place = _find(data)
    if place is None:
        return None
    prefix = hashlib.sha256(data[:place])
    if _digest(prefix, data, place).encode() != bytes(data[place : place + 64]):
        return None
    prefix.update(data[place:])
    return prefix.hexdigest()


def _digest(prefix: hashlib._Hash, data: memoryview, place: int) -> str:
    state = prefix.copy()
    state.update(BLANK.encode())
    state.update(data[place + 64 :])
    return state.hexdigest()


def _find(data: memoryview) -> int | None:
    if len(data) < 12 or bytes(data[-4:]) != _MAGIC:
        return None
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    if start < 4:
        return None
    at = bytes(data[start:-8]).rfind(_PATTERN)
    place = start + at + len(_PATTERN)
    return place if at >= 0 and place + 64 <= len(data) - 8 else None
