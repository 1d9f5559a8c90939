"""Checkpoints of a training: one file that checks itself, with the one before it kept beside it."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dkfeat.canonical import dumps, parse_object
from dkfeat.errors import CommitError, ConfigError, ShardError, SpecConflictError
from dkfeat.io.storage.crash_points import passed
from dkfeat.io.storage.urls import is_url

CURRENT, FORMER = "checkpoint", "checkpoint.former"
FORMAT = 1
EVERY_SECONDS = 30.0
"""Time between two checkpoints."""
_DIGEST, _COUNT = 32, 8
_LONGEST_HEADER = 1 << 26


class Checkpoints:
    """The checkpoints of one training in a local folder.

    A file holds a line of JSON and arrays in NumPy's ``.npy`` format, without pickle, and ends with the SHA-256 of all
    that. It is written under a temporary name, flushed to disk and renamed, after the file before it was renamed to
    ``checkpoint.former``: whenever the process dies, one of the two is whole.

    Parameters
    ----------
    folder : str or path
        Made if missing.
    pins : mapping
        Plain JSON values that a training must share with a checkpoint to go on from it.

    Raises
    ------
    ConfigError
        The folder is a URL.
    CommitError
        The folder cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str], pins: Mapping[str, Any]) -> None:
        if is_url(os.fspath(folder)):
            raise ConfigError(f"checkpoint={os.fspath(folder)!r}: checkpoints are kept in a local folder")
        self._folder, self._pins = Path(folder), json.loads(json.dumps(pins))
        self._saved = time.monotonic()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommitError(
                f"checkpoint={os.fspath(folder)!r}: the folder cannot be made: {error}; choose another"
            ) from error

    @property
    def is_due(self) -> bool:
        """True if the last checkpoint was so long ago that another one is worth its time."""
        return time.monotonic() - self._saved >= EVERY_SECONDS

    def save(self, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write a checkpoint.

        Parameters
        ----------
        state : mapping
            Plain JSON values.
        arrays : mapping of str to ndarray
            float32, float64 or int64.
        """
        temporary = self._folder / f".{CURRENT}.tmp"
        header = dumps({"format": FORMAT, "pins": self._pins, "state": dict(state), "arrays": sorted(arrays)})
        try:
            with temporary.open("wb") as file:
                out = _Hashed(file)
                out.write(len(header).to_bytes(_COUNT, "little") + header)
                for name in sorted(arrays):
                    np.lib.format.write_array(out, np.ascontiguousarray(arrays[name]), allow_pickle=False)
                passed("mid_checkpoint")
                file.write(out.digest())
                file.flush()
                os.fsync(file.fileno())
            passed("before_checkpoint")
            if (self._folder / CURRENT).exists():
                (self._folder / CURRENT).replace(self._folder / FORMER)
            passed("between_checkpoints")
            temporary.replace(self._folder / CURRENT)
        finally:
            temporary.unlink(missing_ok=True)
        _flush_folder(self._folder)
        self._saved = time.monotonic()
        passed("after_checkpoint")

    def load(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
        """Read the newest checkpoint that is whole.

        Returns
        -------
        state, arrays : dict
            What was saved; None if nothing was.

        Raises
        ------
        SpecConflictError
            It belongs to other shards or settings, or to a newer dkfeat.
        ShardError
            There are checkpoints, but none is whole.
        """
        damaged = []
        for path in (self._folder / CURRENT, self._folder / FORMER):
            try:
                with path.open("rb") as file:
                    found = _read(file)
            except FileNotFoundError:
                continue
            if found is None:
                damaged.append(str(path))
                continue
            header, arrays = found
            self._check_pins(header["pins"])
            return header["state"], arrays
        if damaged:
            raise ShardError(f"{' and '.join(damaged)}: cut or damaged; remove the folder, or train with resume=False")
        return None

    def _check_pins(self, pins: Mapping[str, Any]) -> None:
        other = [key for key in sorted({*pins, *self._pins}) if pins.get(key) != self._pins.get(key)]
        if other:
            told = "; ".join(f"{key} {_short(pins.get(key))}, now {_short(self._pins.get(key))}" for key in other)
            raise SpecConflictError(
                f"{self._folder}: the checkpoint belongs to another training ({told}); "
                "choose another folder, or train with resume=False to begin anew"
            )


class _Hashed:
    """Binary file for `write_array` that hashes the bytes written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def digest(self) -> bytes:
        return self._hash.digest()


def _read(file: BinaryIO) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """Header and arrays; None if the file is not whole."""
    size = os.fstat(file.fileno()).st_size
    if size < _COUNT + _DIGEST or not _holds(file, size - _DIGEST):
        return None
    file.seek(0)
    length = int.from_bytes(file.read(_COUNT), "little")
    if length > min(size, _LONGEST_HEADER):
        return None
    header = parse_object(file.read(length), file.name)
    if header.get("format") != FORMAT:
        raise SpecConflictError(
            f"{file.name}: format {header.get('format')}, but this dkfeat reads {FORMAT}; use the one that wrote it"
        )
    arrays = {name: np.lib.format.read_array(file, allow_pickle=False) for name in header["arrays"]}
    return header, arrays


def _holds(file: BinaryIO, stop: int) -> bool:
    """Compare the SHA-256 of the first `stop` bytes with the one that follows them."""
    digest = hashlib.sha256()
    file.seek(0)
    while stop:
        part = file.read(min(stop, 1 << 20))
        if not part:
            return False
        digest.update(part)
        stop -= len(part)
    return digest.digest() == file.read()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
