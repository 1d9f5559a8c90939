"""Model folders: what is written, in which order, and what is checked when they are read."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from dkfeat.archives import pack_arrays
from dkfeat.errors import ShardError, SourceNotFoundError, SpecConflictError
from dkfeat.io.landmarks import landmarks_file, landmarks_of, read_landmarks
from dkfeat.io.model_places import ARRAY_NAME, MODEL_FILE, LocalPlace, StorePlace, model_place, read_facts
from dkfeat.io.strict_json import dumps, parse_object

__all__ = ["check_target", "read_model", "write_model"]

FORMAT = 1
ARRAYS = ("coef", "intercept")
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


def check_target(folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> None:
    """Find out whether a model can be saved in a folder or at a URL: ask before training, not after. Nothing is left.

    Raises
    ------
    ConfigError
        If the folder holds something that is not a model.
    CommitError
        If files cannot be made there.
    """
    model_place(folder, storage_options).check()


def write_model(
    folder: str | os.PathLike[str],
    facts: Mapping[str, Any],
    arrays: Mapping[str, Any],
    map_arrays: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a model folder; `LinearModel.save` says what a crash leaves.

    Parameters
    ----------
    folder : str or path
        Made if missing, its parents too; or a URL.
    facts : mapping
        Plain JSON values, keys as in `FACTS`.
    arrays : mapping of str to ndarray
        Keys as in `ARRAYS`.
    map_arrays : mapping of str to ndarray, optional
        Landmarks that the map's spec names.
    storage_options : mapping, optional
        For a URL.
    """
    place = model_place(folder, storage_options)
    place.check()
    former = _files_of(place)
    listed = {}
    for name in ARRAYS:
        buffer = io.BytesIO()
        np.save(buffer, arrays[name], allow_pickle=False)
        data = buffer.getvalue()
        digest = hashlib.sha256(data).hexdigest()
        listed[name] = {"file": f"{name}-{digest[:12]}.npy", "sha256": digest, "shape": list(arrays[name].shape)}
        place.replace(str(listed[name]["file"]), data)
    kept = {entry["file"] for entry in listed.values()}
    if map_arrays:
        name = landmarks_file(facts["map"].get("landmarks"))
        place.replace(name, pack_arrays(map_arrays))
        kept.add(name)
    place.replace(MODEL_FILE, dumps({"format": FORMAT, **facts, "arrays": listed}))
    for name in sorted(former - kept):  # and no others: another training may be saving here
        place.remove(name)


def read_model(
    folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Read and check a model folder: the facts and the arrays that `write_model` was given, the map's last."""
    place = model_place(folder, storage_options)
    text = _facts_text(place)
    while True:
        try:
            return _read(place, text)
        except (ShardError, FileNotFoundError):
            now = _facts_text(place)
            if now == text:
                raise
            text = now  # another model was saved meanwhile, and the files of the former are gone


def _facts_text(place: LocalPlace | StorePlace) -> bytes:
    text = read_facts(place)
    if text is None:
        message = (
            f"{place.where} holds no model ({MODEL_FILE} is missing); "
            f"make one by `dkfeat train SHARDS --out {place.where}`"
        )
        raise SourceNotFoundError(message)
    return text


def _read(place: LocalPlace | StorePlace, text: bytes) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    where = f"{place.where}/{MODEL_FILE}"
    facts = {"task": "", **parse_object(text, where)}  # models from before there were tasks: classes
    if isinstance(facts.get("format"), int) and facts["format"] > FORMAT:
        message = f"{where}: format {facts['format']} was written by a newer dkfeat; this one reads {FORMAT}"
        raise SpecConflictError(message)
    listed = facts.get("arrays")
    wrong = [key for key, kind in FACTS.items() if key not in facts or not isinstance(facts[key], kind)]
    if facts.get("format") != FORMAT or wrong or not isinstance(listed, dict):
        message = f"{where}: not a model of format {FORMAT}; missing or of another type: {wrong or 'arrays'}"
        raise ShardError(message)
    arrays = {name: _read_array(place, name, listed.get(name)) for name in ARRAYS}
    sha256 = facts["map"].get("landmarks")
    map_arrays = {} if sha256 is None else read_landmarks(place.storage, sha256, folder="")
    return {key: facts[key] for key in FACTS}, arrays, map_arrays


def _files_of(place: LocalPlace | StorePlace) -> set[str]:
    """Names of the arrays that ``model.json`` lists; none where it is missing or damaged."""
    with suppress(ShardError):
        facts = parse_object(read_facts(place) or b"{}", MODEL_FILE)
        listed, sha256 = facts.get("arrays"), landmarks_of(facts)
        entries = listed.values() if isinstance(listed, dict) else ()
        files = [entry.get("file") for entry in entries if isinstance(entry, dict)]
        names = {name for name in files if isinstance(name, str) and ARRAY_NAME.fullmatch(name)}
        return names if sha256 is None else {*names, landmarks_file(sha256)}
    return set()


def _read_array(place: LocalPlace | StorePlace, name: str, entry: Any) -> Any:
    file = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(file, str) or not ARRAY_NAME.fullmatch(file) or not file.startswith(f"{name}-"):
        message = f"{place.where}/{MODEL_FILE}: {name} is not listed under a name that dkfeat gives"
        raise ShardError(message)
    path, size = f"{place.where}/{file}", place.size(file)
    if size is None:
        message = f"{path} is listed in {MODEL_FILE}, but missing; train again or restore the file"
        raise ShardError(message)
    if size > MAX_ARRAY_BYTES:
        message = f"{path}: {size:,} bytes are more than a model may have"
        raise ShardError(message)
    data = place.read(file)
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
