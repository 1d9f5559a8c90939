"""Model folders: what is written, in which order, and what is checked when they are read."""

from __future__ import annotations

import hashlib
import io
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dkfeat.archives import pack_arrays
from dkfeat.errors import CommitError, ConfigError, ShardError, SourceNotFoundError, SpecConflictError
from dkfeat.io.landmarks import LANDMARKS_NAME, landmarks_file, read_landmarks
from dkfeat.io.storage import open_storage
from dkfeat.io.strict_json import check_length, dumps, parse_object

__all__ = ["MODEL_FILE", "check_target", "read_model", "write_model"]

MODEL_FILE = "model.json"
FORMAT = 1
ARRAYS = ("coef", "intercept")
ARRAY_NAME = re.compile(r"(coef|intercept)-[0-9a-f]{12}\.npy")
FACTS: dict[str, type | tuple[type, ...]] = {
    "map": dict,
    "input": dict,
    "classes": list,
    "task": str,
    "training": dict,
    "history": list,
    "manifest_sha256": (str, type(None)),
}
MAX_ARRAY_BYTES = 1 << 40


def check_target(folder: str | os.PathLike[str]) -> None:
    """Find out, without writing, whether a model can be saved in a folder: ask before training, not after.

    Raises
    ------
    ConfigError
        If the folder holds something that is not a model.
    CommitError
        If files cannot be made there.
    """
    root = Path(folder)
    if root.exists() and not (root / MODEL_FILE).is_file() and (not root.is_dir() or any(root.iterdir())):
        message = f"{root} holds something that is not a dkfeat model; choose another folder for it"
        raise ConfigError(message)
    existing = next(path for path in (root, *root.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        message = f"{root} cannot be written: {existing} is not a folder in which files can be made; choose another"
        raise CommitError(message)


def write_model(
    folder: str | os.PathLike[str],
    facts: Mapping[str, Any],
    arrays: Mapping[str, Any],
    map_arrays: Mapping[str, Any] | None = None,
) -> None:
    """Write a model folder; `LinearModel.save` says what a crash leaves.

    Parameters
    ----------
    folder : str or path
        Made if missing, its parents too.
    facts : mapping
        Plain JSON values, keys as in `FACTS`.
    arrays : mapping of str to ndarray
        Keys as in `ARRAYS`.
    map_arrays : mapping of str to ndarray, optional
        Landmarks that the map's spec names.
    """
    root = Path(folder)
    check_target(root)
    root.mkdir(parents=True, exist_ok=True)
    listed = {}
    for name in ARRAYS:
        buffer = io.BytesIO()
        np.save(buffer, arrays[name], allow_pickle=False)
        data = buffer.getvalue()
        digest = hashlib.sha256(data).hexdigest()
        listed[name] = {"file": f"{name}-{digest[:12]}.npy", "sha256": digest, "shape": list(arrays[name].shape)}
        _replace(root / str(listed[name]["file"]), data)
    kept = {entry["file"] for entry in listed.values()}
    if map_arrays:
        name = landmarks_file(facts["map"].get("landmarks"))
        _replace(root / name, pack_arrays(map_arrays))
        kept.add(name)
    _replace(root / MODEL_FILE, dumps({"format": FORMAT, **facts, "arrays": listed}))
    for path in root.iterdir():
        if (ARRAY_NAME.fullmatch(path.name) or LANDMARKS_NAME.fullmatch(path.name)) and path.name not in kept:
            path.unlink()


def read_model(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Read and check a model folder: the facts and the arrays that `write_model` was given, the map's last."""
    root = Path(folder)
    try:
        check_length((root / MODEL_FILE).stat().st_size, str(root / MODEL_FILE))
        text = (root / MODEL_FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        message = f"{root} holds no model ({MODEL_FILE} is missing); make one by `dkfeat train SHARDS --out {root}`"
        raise SourceNotFoundError(message) from None
    facts = {"task": "", **parse_object(text, str(root / MODEL_FILE))}  # models from before there were tasks: classes
    if isinstance(facts.get("format"), int) and facts["format"] > FORMAT:
        message = (
            f"{root / MODEL_FILE}: format {facts['format']} was written by a newer dkfeat; this one reads {FORMAT}"
        )
        raise SpecConflictError(message)
    listed = facts.get("arrays")
    wrong = [key for key, kind in FACTS.items() if key not in facts or not isinstance(facts[key], kind)]
    if facts.get("format") != FORMAT or wrong or not isinstance(listed, dict):
        message = (
            f"{root / MODEL_FILE}: not a model of format {FORMAT}; missing or of another type: {wrong or 'arrays'}"
        )
        raise ShardError(message)
    arrays = {name: _read_array(root, name, listed.get(name)) for name in ARRAYS}
    sha256 = facts["map"].get("landmarks")
    map_arrays = {} if sha256 is None else read_landmarks(open_storage(root), sha256, folder="")
    return {key: facts[key] for key in FACTS}, arrays, map_arrays


def _read_array(root: Path, name: str, entry: Any) -> Any:
    file = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(file, str) or not ARRAY_NAME.fullmatch(file) or not file.startswith(f"{name}-"):
        message = f"{root / MODEL_FILE}: {name} is not listed under a name that dkfeat gives"
        raise ShardError(message)
    path = root / file
    try:
        if path.stat().st_size > MAX_ARRAY_BYTES:
            message = f"{path}: {path.stat().st_size:,} bytes are more than a model may have"
            raise ShardError(message)
        data = path.read_bytes()
    except FileNotFoundError:
        message = f"{path} is listed in {MODEL_FILE}, but missing; train again or restore the file"
        raise ShardError(message) from None
    if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
        message = f"{path}: its SHA-256 is not the one that {MODEL_FILE} lists; the file was changed or damaged"
        raise ShardError(message)
    array = np.load(io.BytesIO(data), allow_pickle=False)
    if list(array.shape) != entry.get("shape") or array.dtype != np.float32:
        message = (
            f"{path}: holds {array.dtype} of shape {array.shape}, {MODEL_FILE} says float32 of {entry.get('shape')}"
        )
        raise ShardError(message)
    return array


def _replace(path: Path, data: bytes) -> None:
    """Give a file these bytes in one step: temporary beside it, flushed to disk, renamed."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
