"""Files of a model folder: what model.json lists, and checks before a model is saved."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np

from dkfeat.archives import unpack_array
from dkfeat.canonical import parse_object, typed
from dkfeat.errors import ConfigError, ShardError, SourceNotFoundError
from dkfeat.filesystems.urls import local_path
from dkfeat.store.manifest.metadata import landmarks_of, sidecar_name
from dkfeat.store.manifest.model_folder import (
    ARRAY_NAME,
    MODEL_FILE,
    check_model_folder,
    open_model_folder,
    read_model_file,
)
from dkfeat.store.outputs import check_outside
from dkfeat.store.storage.base import Storage, read_required

FORMAT = 1
ARRAYS = ("coef", "intercept")


def model_text(target: Storage) -> bytes:
    """Return the bytes of ``model.json``, or raise `SourceNotFoundError` if there is none."""
    text = read_model_file(target)
    if text is None:
        raise SourceNotFoundError(
            f"{target.url} holds no model ({MODEL_FILE} is missing); "
            f"make one by `dkfeat train SHARDS --out {target.url}`"
        )
    return text


class ListedArray(TypedDict):
    """File of an array, as ``model.json`` lists it."""

    file: str
    sha256: str
    shape: list[int]


class _Listed(TypedDict):
    arrays: dict[str, ListedArray]


class Facts(_Listed):
    """Content of ``model.json`` beside the format."""

    map: dict[str, Any]
    input: dict[str, Any]
    classes: list[Any]
    task: str
    training: dict[str, Any]
    history: list[dict[str, Any]]
    manifest_sha256: str | None


def files_of(target: Storage) -> set[str]:
    """Return the names of the files that ``model.json`` lists; none if it is missing or damaged."""
    try:
        values = parse_object(read_model_file(target) or b"{}", MODEL_FILE)
        names = {entry["file"] for entry in typed(values, _Listed, MODEL_FILE)["arrays"].values()}
        landmarks = landmarks_of(values)
        kept = set() if landmarks is None else {sidecar_name("landmarks", landmarks)}
    except ShardError:
        return set()
    return kept | {name for name in names if ARRAY_NAME.fullmatch(name)}


def read_array(target: Storage, name: str, entry: ListedArray | None) -> Any:
    """Read and check the file of an array; raise `ShardError` if it is not as listed."""
    if entry is None or not ARRAY_NAME.fullmatch(entry["file"]) or not entry["file"].startswith(f"{name}-"):
        raise ShardError(f"{target.url}/{MODEL_FILE}: {name} is not listed under a file name that dkfeat writes")
    path = f"{target.url}/{entry['file']}"
    data = read_required(target, entry["file"], f"{MODEL_FILE} lists it; train again or restore it from a copy")
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise ShardError(f"{path}: its SHA-256 is not the one that {MODEL_FILE} lists; the file was changed or damaged")
    try:
        array = unpack_array(data, path)
    except Exception as fault:  # numpy raises many kinds of exceptions for crafted headers
        raise ShardError(f"{path}: not an array that dkfeat writes: {str(fault)[:200]}") from None
    if list(array.shape) != entry["shape"] or array.dtype != np.float32:
        raise ShardError(
            f"{path}: holds {array.dtype} of shape {array.shape}, {MODEL_FILE} says float32 of {entry['shape']}"
        )
    return array


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
    check_outside(folder, storage_options, allowed="a model")
    state, root = (None if each is None else local_path(os.fspath(each)) for each in (checkpoint, folder))
    if state is not None and root in (state, *state.parents):
        raise ConfigError(f"the checkpoint {checkpoint} is in the folder of the model, {folder}; choose another folder")
    check_model_folder(target)
