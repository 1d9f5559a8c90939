"""Sidecar files: arrays beside a spec that names them by their SHA-256, because they are too large for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from dkfeat.archives import MAX_BYTES, unpack_arrays
from dkfeat.canonical import check_length
from dkfeat.errors import ShardError
from dkfeat.io.storage.base import META, Storage, faults_as

SIDECAR_NAME = re.compile(r"[a-z]+-[0-9a-f]{64}\.npz")
LANDMARKS_NAME = re.compile(r"landmarks-[0-9a-f]{64}\.npz")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOST = {
    "landmarks": "it holds the landmarks of the map, which only their source can give again; restore it from a copy, "
    "or featurize into another folder",
    "model": "it holds the weights that made these predictions; restore it from a copy, or predict into another folder",
}


def sidecar_name(kind: str, sha256: object, where: str = "the spec") -> str:
    """Name of a sidecar file, without its folder.

    Parameters
    ----------
    kind : {"landmarks", "model"}
        Landmarks of a map, or the weights that made predictions.
    sha256 : str
        SHA-256 of the file, as `where` states it.
    where : str
        For messages.

    Raises
    ------
    ShardError
        `sha256` is none.

    Examples
    --------
    >>> sidecar_name("landmarks", "0" * 64)[:15]
    'landmarks-00000'
    """
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ShardError(f"{where}: its {kind} file is named by {sha256!r:.80}, which is no SHA-256")
    return f"{kind}-{sha256}.npz"


def read_sidecar(storage: Storage, kind: str, sha256: object, folder: str = META) -> dict[str, NDArray[Any]]:
    """Read the arrays of a sidecar file, after its SHA-256 was compared.

    Parameters
    ----------
    storage : Storage
        Of the data set, or of a model's folder.
    kind, sha256 : str
        As in `sidecar_name`.
    folder : str
        Folder of the file; "" for the root.

    Raises
    ------
    ShardError
        It is missing or damaged; names the file.
    """
    base = sidecar_name(kind, sha256, storage.url)
    name = f"{folder}/{base}" if folder else base
    where = f"{storage.url}/{name}"
    with faults_as(ShardError, f"{where} cannot be read"):
        size = storage.size(name)
        if size is None:
            raise ShardError(f"{where} is missing: {_LOST[kind]}")
        check_length(size, where, MAX_BYTES)
        data = storage.read(name)
    return unpack_arrays(data, str(sha256), where)


def landmarks_of(spec: Mapping[str, Any]) -> object:
    """SHA-256 that a data set's spec names its landmarks by; None for a map that has none."""
    described = spec.get("map")
    return described.get("landmarks") if isinstance(described, Mapping) else None
