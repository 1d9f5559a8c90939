"""Files beside a spec that names them by their SHA-256: what is too large for it."""

from __future__ import annotations

import re
from typing import Any

from numpy.typing import NDArray

from dkfeat.archives import MAX_BYTES, unpack_arrays
from dkfeat.errors import ShardError
from dkfeat.io.storage import META, Storage

__all__ = ["ATTACHED_NAME", "read_attached", "read_weights", "weights_file"]

ATTACHED_NAME = re.compile(r"[a-z]+-[0-9a-f]{64}\.npz")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def read_attached(storage: Storage, name: str, sha256: str, lost: str) -> dict[str, NDArray[Any]]:
    """Read arrays that `dkfeat.archives.pack_arrays` packed, after their SHA-256 was compared.

    Parameters
    ----------
    storage : Storage
        Of the data set, or of a model's folder.
    name : str
        Of the file there.
    sha256 : str
        As the spec has it.
    lost : str
        What it means that the file is missing, and what to do, for people.

    Raises
    ------
    ShardError
        It is missing or damaged; names the file.
    """
    where = f"{storage.url}/{name}"
    try:
        size = storage.size(name)
        if size is None:
            message = f"{where} is missing: {lost}"
            raise ShardError(message)
        if size > MAX_BYTES:
            message = f"{where}: {size:,} bytes, but at most {MAX_BYTES:,} are read"
            raise ShardError(message)
        data = storage.read(name)
    except ShardError:
        raise
    except OSError as fault:
        message = f"{where} cannot be read: {fault.strerror or fault}"
        raise ShardError(message) from fault
    return unpack_arrays(data, sha256, where)


def weights_file(sha256: object) -> str:
    """Name, in a data set of predictions, of the file with the weights that made them.

    Raises
    ------
    ShardError
        `sha256` is none.
    """
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        message = f"a model is named by {sha256!r:.80}, which is no SHA-256"
        raise ShardError(message)
    return f"{META}/model-{sha256}.npz"


def read_weights(storage: Storage, sha256: object) -> dict[str, NDArray[Any]]:
    """Read the weights and classes beside predictions; raises as `read_attached`."""
    lost = "it holds the weights that made these predictions; restore it from a copy, or predict into another folder"
    return read_attached(storage, weights_file(sha256), str(sha256), lost)
