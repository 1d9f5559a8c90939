"""Arrays as the bytes of an ``.npz`` file that depend on the arrays alone, read back with suspicion.

`numpy.savez` stamps files with the time and reads whatever an archive holds. Here equal arrays give equal bytes, so
that their SHA-256 names them, and only such bytes are read: no pickle, no compression, nothing beside the arrays.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.errors import ShardError

__all__ = ["MAX_BYTES", "archive_sha256", "pack_arrays", "unpack_arrays"]

MAX_BYTES = (1 << 32) - (1 << 20)
"""Longest archive: what fits the ZIP format without its 64-bit extension."""
_MEMBERS = 64
_DTYPES = ("<f8", "<f4", "<i8", "<i4")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX, _PLAIN_FILE = 3, 0o100644 << 16


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Bytes of an ``.npz`` file that holds these arrays, in order of their names.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Names are identifiers; dtypes float64, float32, int64 or int32.

    Returns
    -------
    data : bytes
        Equal for equal names, dtypes, shapes and values; `numpy.load` reads them too.

    Raises
    ------
    ValueError
        For other names or dtypes, and for more than 4 GiB.

    Examples
    --------
    >>> data = pack_arrays({"rows": np.arange(3)})
    >>> data == pack_arrays({"rows": np.arange(3)}), np.load(io.BytesIO(data))["rows"].tolist()
    (True, [0, 1, 2])
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name]).reshape(np.shape(arrays[name]))
            if not name.isidentifier() or array.dtype.str not in _DTYPES:
                message = f"array {name!a} of dtype {array.dtype} cannot be kept; dtypes are {', '.join(_DTYPES)}"
                raise ValueError(message)
            if buffer.tell() + array.nbytes > MAX_BYTES:
                message = f"the arrays take more than {MAX_BYTES:,} bytes"
                raise ValueError(message)
            member = io.BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            info.create_system, info.external_attr = _UNIX, _PLAIN_FILE
            archive.writestr(info, member.getbuffer())
    return buffer.getvalue()


def archive_sha256(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of `pack_arrays`, 64 hexadecimal digits."""
    return hashlib.sha256(pack_arrays(arrays)).hexdigest()


def unpack_arrays(data: bytes | memoryview, sha256: str, where: str) -> dict[str, NDArray[Any]]:
    """Inverse of `pack_arrays`.

    Parameters
    ----------
    data : bytes or memoryview
    sha256 : str
        What their SHA-256 must be.
    where : str
        Name of the file, for messages.

    Returns
    -------
    arrays : dict of str to ndarray
        Finite or not, in any range: the caller knows what they should be.

    Raises
    ------
    ShardError
        For any other bytes. What is allocated is a few times their own length, whatever they state.
    """
    if len(data) > MAX_BYTES:
        message = f"{where}: {len(data):,} bytes, but at most {MAX_BYTES:,} are read"
        raise ShardError(message)
    if hashlib.sha256(data).hexdigest() != sha256:
        message = f"{where}: damaged: its SHA-256 is not the one that names it; restore the file from a copy"
        raise ShardError(message)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > _MEMBERS:
                message = f"{len(members):,} members"
                raise ValueError(message)
            arrays = {info.filename.removesuffix(".npy"): _array(archive, info) for info in members}
        same = pack_arrays(arrays) == data
    except Exception as fault:  # zipfile and numpy raise almost anything for bytes that were made to mislead them
        message = f"{where}: not an archive of arrays that dkfeat writes: {str(fault)[:200]}"
        raise ShardError(message) from None
    if not same:
        message = f"{where}: not an archive of arrays that dkfeat writes: it holds more than the arrays"
        raise ShardError(message)
    return arrays


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        message = f"member {info.filename[:60]!a} is compressed"
        raise ValueError(message)
    member = io.BytesIO(archive.read(info))  # compares the CRC too
    if np.lib.format.read_magic(member) != (1, 0):
        message = f"member {info.filename[:60]!a} is of another version of the format"
        raise ValueError(message)
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if fortran or dtype.str not in _DTYPES or min(shape, default=0) < 0 or size != info.file_size - member.tell():
        message = f"member {info.filename[:60]!a} is not the array that its header states"
        raise ValueError(message)
    return np.frombuffer(member.getbuffer(), dtype, offset=member.tell()).reshape(shape)
