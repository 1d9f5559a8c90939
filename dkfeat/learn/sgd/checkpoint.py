"""Checkpoints of a training in a local folder."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import numpy as np
from numpy.typing import NDArray

from dkfeat.canonical import Kind, dumps, parse_object, typed
from dkfeat.errors import CommitError, ConfigError, ShardError, SpecConflictError
from dkfeat.filesystems.urls import is_url
from dkfeat.store.commit.begin import hold
from dkfeat.store.manifest.metadata import CHECKPOINT_FILES, CHECKPOINT_START
from dkfeat.store.manifest.model_folder import LocalFolder
from dkfeat.store.outputs import check_outside
from dkfeat.store.storage.base import passed
from dkfeat.store.storage.local import LocalStorage

CURRENT, FORMER = CHECKPOINT_FILES
FROM_START = "start again with checkpoint=dkfeat.Target(folder, resume=False) (--no-resume)"
FORMAT = 1
EVERY_SECONDS = 30.0
"""Minimum time between two checkpoints."""
ALGORITHM = "algorithm"
"""Key of the pins with the version of the training algorithm."""
_DIGEST, _COUNT = 32, 8


class Checkpoints:
    """Checkpoints of one training in a local folder.

    A file holds a line of JSON and arrays in NumPy's ``.npy`` format, without pickle, followed by their SHA-256. It is
    written under a temporary name, flushed to disk and renamed, after the previous file has been renamed to
    ``checkpoint.former``, so that one of the two files is intact whenever the process is killed.

    Parameters
    ----------
    folder : str or path
        Folder of the checkpoints; created if missing.
    pins : mapping
        Plain JSON values that a checkpoint and the training that continues from it must share.

    Raises
    ------
    ConfigError
        If the folder is a URL, is or lies in a data set or a model, or has a file ``checkpoint`` of another program, or
        if its path is empty.
    CommitError
        If the folder cannot be created.
    """

    def __init__(self, folder: str | os.PathLike[str], pins: Mapping[str, Any]) -> None:
        if not os.fspath(folder):
            raise ConfigError("checkpoint='' is not the path of a folder; give one such as checkpoints")
        if is_url(os.fspath(folder)):
            raise ConfigError(f"checkpoint={os.fspath(folder)!r}: checkpoints are kept in a local folder")
        self._folder, self._pins = Path(folder), json.loads(json.dumps(pins))
        self._saved = time.monotonic()
        check_outside(folder, kind="a checkpoint")
        heads = []
        for name in (CURRENT, FORMER):
            with suppress(FileNotFoundError, NotADirectoryError), (self._folder / name).open("rb") as file:
                heads.append(file.read(_COUNT + len(CHECKPOINT_START))[_COUNT:])
        if any(heads) and not any(head and CHECKPOINT_START.startswith(head) for head in heads):
            raise ConfigError(f"{self._folder / CURRENT} is not a checkpoint of dkfeat; choose another folder")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommitError(
                f"checkpoint={os.fspath(folder)!r}: the folder cannot be made: {error}; choose another"
            ) from error

    @contextmanager
    def locked(self) -> Iterator[Checkpoints]:
        """Hold the folder's lock in the ``with`` block, or raise `TargetBusyError` if another training holds it.

        Temporary files of trainings that were killed are removed.
        """
        with hold(LocalStorage(str(self._folder))):
            for left in self._folder.glob(f".{CURRENT}.*tmp"):
                left.unlink(missing_ok=True)
            yield self

    @property
    def is_due(self) -> bool:
        """True if the last checkpoint was saved `EVERY_SECONDS` ago or earlier."""
        return time.monotonic() - self._saved >= EVERY_SECONDS

    def save(self, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write a checkpoint.

        Parameters
        ----------
        state : mapping
            Plain JSON values.
        arrays : mapping of str to ndarray
            Arrays of float32, float64 or int64.
        """
        header = dumps({"format": FORMAT, "pins": self._pins, "state": dict(state), "arrays": sorted(arrays)})
        with LocalFolder(str(self._folder)).writing(CURRENT) as file:
            file.write(len(header).to_bytes(_COUNT, "little") + header)
            for name in sorted(arrays):
                np.lib.format.write_array(file, np.ascontiguousarray(arrays[name]), allow_pickle=False)
            passed("mid_checkpoint")
            file.seek(0)
            file.write(hashlib.file_digest(file, "sha256").digest())
            passed("before_checkpoint")
            if (self._folder / CURRENT).exists():
                (self._folder / CURRENT).replace(self._folder / FORMER)
            passed("between_checkpoints")
        self._saved = time.monotonic()
        passed("after_checkpoint")

    def load(self, kind: type[Kind]) -> tuple[Kind, dict[str, NDArray[Any]], str] | None:
        """Read the newest intact checkpoint.

        Parameters
        ----------
        kind : type
            Type of the state, as for `dkfeat.canonical.typed`.

        Returns
        -------
        state : object
            Values of the first argument of `save`.
        arrays : dict
            Second argument of `save`.
        path : str
            File of the checkpoint, for messages.

        None if there is no checkpoint.

        Raises
        ------
        SpecConflictError
            If the checkpoint belongs to other shards or settings, or a newer dkfeat wrote it.
        ShardError
            If all checkpoints are damaged, or the one that is read holds other values than `save` writes.
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
            return typed(header["state"], kind, f"{path}: state"), arrays, str(path)
        if damaged:
            raise ShardError(f"{' and '.join(damaged)}: truncated or damaged; remove the folder, or {FROM_START}")
        return None

    def _check_pins(self, pins: Mapping[str, Any]) -> None:
        theirs, ours = (each.get(ALGORITHM, 1) for each in (pins, self._pins))  # the first checkpoints have none
        if theirs != ours:
            raise SpecConflictError(
                f"{self._folder}: the checkpoint is of version {_short(theirs)} of the training algorithm, this dkfeat "
                f"has version {ours}; continue with the dkfeat that wrote it, or {FROM_START}"
            )
        other = [key for key in sorted({*pins, *self._pins} - {ALGORITHM}) if pins.get(key) != self._pins.get(key)]
        if other:
            changes = "; ".join(f"{key} {_short(pins.get(key))}, now {_short(self._pins.get(key))}" for key in other)
            raise SpecConflictError(
                f"{self._folder}: the checkpoint belongs to another training ({changes}); "
                f"choose another folder, or {FROM_START}"
            )


class _Header(TypedDict):
    pins: dict[str, Any]
    state: dict[str, Any]
    arrays: list[str]


def _read(file: BinaryIO) -> tuple[_Header, dict[str, NDArray[Any]]] | None:
    """Read header and arrays; None if the file is damaged: if its last bytes are not the SHA-256 of all others."""
    size, digest = os.fstat(file.fileno()).st_size, hashlib.sha256()
    for start in range(0, size - _DIGEST, 1 << 20):
        digest.update(file.read(min(size - _DIGEST - start, 1 << 20)))
    if digest.digest() != file.read():
        return None
    file.seek(0)
    values = parse_object(file.read(int.from_bytes(file.read(_COUNT), "little")), file.name)
    if values.get("format") != FORMAT:
        raise SpecConflictError(
            f"{file.name}: format {_short(values.get('format'))}, but this dkfeat reads {FORMAT}; use the one that "
            "wrote it"
        )
    header = typed(values, _Header, file.name)
    try:
        arrays = {name: np.lib.format.read_array(file, allow_pickle=False) for name in header["arrays"]}
    except Exception as fault:  # numpy raises many kinds of exceptions for crafted headers
        raise ShardError(f"{file.name}: an array is not as dkfeat writes it: {str(fault)[:200]!a}") from None
    return header, arrays


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
