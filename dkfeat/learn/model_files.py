"""Model folders: files, write order, and checks when they are read."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np

from dkfeat.archives import pack_arrays, unpack_array
from dkfeat.canonical import parse_object
from dkfeat.errors import ConfigError, ShardError, SourceNotFoundError, SpecConflictError
from dkfeat.filesystems.urls import local_path
from dkfeat.store.manifest.metadata import landmarks_of, read_sidecar, sidecar_name
from dkfeat.store.manifest.model_folder import (
    ARRAY_NAME,
    MODEL_FILE,
    LocalFolder,
    ModelFolder,
    check_model_folder,
    model_files,
    open_model_folder,
    parse_model_file,
    read_model_file,
    seal_model_file,
)
from dkfeat.store.outputs import check_place

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


def check_target(
    folder: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> None:
    """Check, before training, that a model can be saved in a folder or at a URL. The check leaves no files behind.

    Raises
    ------
    ConfigError
        If the folder holds something that is not a model, is in a data set or another model, or contains the folder
        `checkpoint`.
    CommitError
        If files cannot be created there.
    """
    target = open_model_folder(folder, storage_options)
    check_place(os.fspath(folder), "a model", storage_options)
    state, root = (None if each is None else local_path(os.fspath(each)) for each in (checkpoint, folder))
    if state is not None and root in (state, *state.parents):
        raise ConfigError(f"the checkpoint {checkpoint} is in the folder of the model, {folder}; choose another folder")
    check_model_folder(target)


def write_model(
    folder: str | os.PathLike[str],
    facts: Mapping[str, Any],
    arrays: Mapping[str, Any],
    map_arrays: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a model folder; `LinearModel.save` describes the state after a crash.

    Parameters
    ----------
    folder : str or path
        Folder or URL of the model. The folder and its parents are created if missing.
    facts : mapping
        Plain JSON values with the keys of `FACTS`.
    arrays : mapping of str to ndarray
        Arrays with the keys of `ARRAYS`.
    map_arrays : mapping of str to ndarray, optional
        Landmarks whose hash is in the map's spec.
    storage_options : mapping, optional
        Options of fsspec for a URL.
    """
    check_target(folder, storage_options)
    target = open_model_folder(folder, storage_options)
    with target.saving() if isinstance(target, LocalFolder) else nullcontext(lambda: False) as is_alone:
        former = _files_of(target)
        listed = {}
        for name in ARRAYS:
            buffer = io.BytesIO()
            np.save(buffer, arrays[name], allow_pickle=False)
            data = buffer.getvalue()
            digest = hashlib.sha256(data).hexdigest()
            listed[name] = {"file": f"{name}-{digest[:12]}.npy", "sha256": digest, "shape": list(arrays[name].shape)}
            target.replace(str(listed[name]["file"]), data)
        kept = {str(entry["file"]) for entry in listed.values()}
        if map_arrays:
            name = sidecar_name("landmarks", facts["map"].get("landmarks"))
            target.replace(name, pack_arrays(map_arrays))
            kept.add(name)
        target.replace(MODEL_FILE, seal_model_file({"format": FORMAT, **facts, "arrays": listed}))
        # if another training may be saving here, only the former model's files; else also those of killed ones
        for name in sorted((model_files(target.list("")) if is_alone() else former) - kept):
            target.remove(name)


def read_model(
    folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Read and check a model folder; return the facts, the arrays and the map's arrays, as given to `write_model`."""
    target = open_model_folder(folder, storage_options)
    text = _facts_text(target)
    while True:
        try:
            return _read(target, text)
        except (ShardError, FileNotFoundError):
            now = _facts_text(target)
            if now == text:
                raise
            text = now  # another model was saved meanwhile, and the former model's files are gone


def _facts_text(target: ModelFolder) -> bytes:
    text = read_model_file(target)
    if text is None:
        raise SourceNotFoundError(
            f"{target.url} holds no model ({MODEL_FILE} is missing); "
            f"make one by `dkfeat train SHARDS --out {target.url}`"
        )
    return text


def _read(target: ModelFolder, text: bytes) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    where = f"{target.url}/{MODEL_FILE}"
    facts = {"task": "", **parse_model_file(text, where)}  # models written before `task` existed are classifiers
    if isinstance(facts.get("format"), int) and facts["format"] > FORMAT:
        raise SpecConflictError(
            f"{where}: format {facts['format']} was written by a newer dkfeat; this one reads {FORMAT}"
        )
    listed = facts.get("arrays")
    wrong = [key for key, kind in FACTS.items() if key not in facts or not isinstance(facts[key], kind)]
    if facts.get("format") != FORMAT or wrong or not isinstance(listed, dict):
        raise ShardError(f"{where}: not a model of format {FORMAT}; missing or of another type: {wrong or 'arrays'}")
    arrays = {name: _read_array(target, name, listed.get(name)) for name in ARRAYS}
    sha256 = facts["map"].get("landmarks")
    map_arrays = {} if sha256 is None else read_sidecar(target, "landmarks", sha256, folder="")
    return {key: facts[key] for key in FACTS}, arrays, map_arrays


def _files_of(target: ModelFolder) -> set[str]:
    """Return the names of the files that ``model.json`` lists; none if it is missing or damaged."""
    with suppress(ShardError):
        facts = parse_object(read_model_file(target) or b"{}", MODEL_FILE)
        listed, sha256 = facts.get("arrays"), landmarks_of(facts)
        entries = listed.values() if isinstance(listed, dict) else ()
        files = {str(entry.get("file")) for entry in entries if isinstance(entry, dict)}
        names = {name for name in files if ARRAY_NAME.fullmatch(name)}
        return names if sha256 is None else {*names, sidecar_name("landmarks", sha256)}
    return set()


def _read_array(target: ModelFolder, name: str, entry: Any) -> Any:
    file = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(file, str) or not ARRAY_NAME.fullmatch(file) or not file.startswith(f"{name}-"):
        raise ShardError(f"{target.url}/{MODEL_FILE}: {name} is not listed under a file name that dkfeat writes")
    path, size = f"{target.url}/{file}", target.size(file)
    if size is None:
        raise ShardError(f"{path} is listed in {MODEL_FILE}, but missing; train again or restore the file")
    if size > MAX_ARRAY_BYTES:
        raise ShardError(f"{path}: {size:,} bytes are more than a model may have")
    data = target.read(file)
    if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
        raise ShardError(f"{path}: its SHA-256 is not the one that {MODEL_FILE} lists; the file was changed or damaged")
    try:
        array = unpack_array(data, path)
    except Exception as fault:  # numpy raises many kinds of exceptions for crafted headers
        raise ShardError(f"{path}: not an array that dkfeat writes: {str(fault)[:200]}") from None
    if list(array.shape) != entry.get("shape") or array.dtype != np.float32:
        raise ShardError(
            f"{path}: holds {array.dtype} of shape {array.shape}, {MODEL_FILE} says float32 of {entry.get('shape')}"
        )
    return array
