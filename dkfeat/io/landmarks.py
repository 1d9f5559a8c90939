"""The file of a map's landmarks, beside the spec that names it by its SHA-256."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from dkfeat.errors import ShardError
from dkfeat.io.attached import read_attached
from dkfeat.io.storage import META, Storage

__all__ = ["LANDMARKS_NAME", "landmarks_file", "landmarks_of", "read_landmarks"]

LANDMARKS_NAME = re.compile(r"landmarks-[0-9a-f]{64}\.npz")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def landmarks_file(sha256: object, where: str = "the spec") -> str:
    """Name of the file, without its folder.

    Raises
    ------
    ShardError
        Where `sha256`, which `where` states, is none.

    Examples
    --------
    >>> landmarks_file("0" * 64)[:15]
    'landmarks-00000'
    """
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        message = f"{where}: landmarks are named by {sha256!r:.80}, which is no SHA-256"
        raise ShardError(message)
    return f"landmarks-{sha256}.npz"


def landmarks_of(spec: Mapping[str, Any]) -> object:
    """SHA-256 that a data set's spec names its landmarks by; None for a map that has none."""
    described = spec.get("map")
    return described.get("landmarks") if isinstance(described, Mapping) else None


def read_landmarks(storage: Storage, sha256: object, folder: str = META) -> dict[str, NDArray[Any]]:
    """Read the arrays of a data set's landmarks, after their SHA-256 was compared.

    Parameters
    ----------
    storage : Storage
        Of the data set, or of a model's folder.
    sha256 : str
        As the spec names them.
    folder : str
        Where the file lies; "" for the root.

    Raises
    ------
    ShardError
        It is missing or damaged; names the file.
    """
    base = landmarks_file(sha256, storage.url)
    lost = (
        "it holds the landmarks of the map, which only their source can give again; restore it from a copy, or "
        "featurize into another folder"
    )
    return read_attached(storage, f"{folder}/{base}" if folder else base, str(sha256), lost)
