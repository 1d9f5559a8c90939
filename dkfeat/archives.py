"""Deterministic ``.npz`` archives of arrays, verified when they are read, and a check of Parquet footers.

`numpy.savez` stores the time in the archive, and `numpy.load` accepts any archive. Here equal arrays give equal bytes,
so that their SHA-256 can identify them. Only such bytes are read: no pickle, no compression, no other members.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.errors import ShardError

MAX_BYTES = (1 << 32) - (1 << 20)
"""Maximum size of an archive in bytes, just below the limit of the ZIP format without its 64-bit extension."""
_MEMBERS = 64
_DTYPES = ("<f8", "<f4", "<i8", "<i4")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX, _PLAIN_FILE = 3, 0o100644 << 16


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Pack arrays into the bytes of an ``.npz`` file, in order of their names.

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
        For other names or dtypes, or if the archive would exceed `MAX_BYTES`.

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
                raise ValueError(
                    f"array {name!a} of dtype {array.dtype} cannot be kept; dtypes are {', '.join(_DTYPES)}"
                )
            if buffer.tell() + array.nbytes > MAX_BYTES:
                raise ValueError(f"the arrays take more than {MAX_BYTES:,} bytes")
            member = io.BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            info.create_system, info.external_attr = _UNIX, _PLAIN_FILE
            archive.writestr(info, member.getbuffer())
    return buffer.getvalue()


def archive_sha256(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of the bytes that `pack_arrays` returns, as 64 hexadecimal digits."""
    return hashlib.sha256(pack_arrays(arrays)).hexdigest()


def unpack_arrays(data: bytes | memoryview, sha256: str, where: str) -> dict[str, NDArray[Any]]:
    """Read and verify arrays packed by `pack_arrays`.

    Parameters
    ----------
    data : bytes or memoryview
        Bytes of the archive.
    sha256 : str
        Expected SHA-256 of `data`, as 64 hexadecimal digits.
    where : str
        File name for error messages.

    Returns
    -------
    arrays : dict of str to ndarray
        Arrays by name. Their values are not checked.

    Raises
    ------
    ShardError
        If `data` is not what `pack_arrays` writes. Memory use is limited to a few times the length of `data`, whatever
        sizes its headers state.
    """
    if len(data) > MAX_BYTES:
        raise ShardError(f"{where}: {len(data):,} bytes, but at most {MAX_BYTES:,} are read")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ShardError(f"{where}: damaged: its SHA-256 is not the one that names it; restore the file from a copy")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > _MEMBERS:
                raise ValueError(f"{len(members):,} members")
            arrays = {info.filename.removesuffix(".npy"): _array(archive, info) for info in members}
        same = pack_arrays(arrays) == data
    except Exception as fault:  # zipfile and numpy raise many kinds of exceptions for crafted bytes
        raise ShardError(f"{where}: not an archive of arrays that dkfeat writes: {str(fault)[:200]}") from None
    if not same:
        raise ShardError(f"{where}: not an archive of arrays that dkfeat writes: it holds more than the arrays")
    return arrays


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise ValueError(f"member {info.filename[:60]!a} is compressed")
    return unpack_array(archive.read(info), f"member {info.filename[:60]!a}")  # also checks the CRC


def unpack_array(data: bytes, where: str) -> NDArray[Any]:
    """Return the array in the bytes of an ``.npy`` file, which shares their memory.

    Raises
    ------
    ValueError
        If `data` is not an array of the dtypes that dkfeat writes, in format 1.0 of NumPy. No memory is allocated for
        the sizes in its header.
    """
    member = io.BytesIO(data)
    if np.lib.format.read_magic(member) != (1, 0):
        raise ValueError(f"{where} is of another version of the format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if dtype.str not in _DTYPES or min(shape, default=0) < 0 or size != len(data) - member.tell():
        raise ValueError(f"{where} is not the array that its header states")
    return np.frombuffer(data, dtype, offset=member.tell()).reshape(shape, order="F" if fortran else "C")


_BUFFER = (
    4096  # bytes of a column that are read at a time; without one, the first column is read before others are begun
)


class _Unread(io.BytesIO):
    """File of a certain size whose bytes nobody may read."""

    is_reached, size = False, 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self.size if whence == io.SEEK_END else offset

    def tell(self) -> int:
        return self.size

    def read(self, _: int | None = -1) -> bytes:
        self.is_reached = True
        raise EOFError


def check_footer(metadata: Any, size: int, leaves: Sequence[int]) -> None:
    """Check what a Parquet footer states of leaf columns: if it is forged, pyarrow's accessors abort the process.

    It is checked by the start of a reading, which ends before bytes of the columns are read.

    Parameters
    ----------
    metadata : pyarrow.parquet.FileMetaData
        The footer.
    size : int
        Size of the file in bytes.
    leaves : sequence of int
        Numbers of the leaf columns.

    Raises
    ------
    OSError, pyarrow.ArrowException
        If the statements contradict each other, the schema or the size.
    """
    import pyarrow as pa  # late: most users of this module need no Parquet
    import pyarrow.parquet as pq

    groups, source = range(metadata.num_row_groups), _Unread()
    source.size = size
    # in this thread: one of pyarrow's that still has the error when Python ends aborts the process
    file = pq.ParquetFile(pa.PythonFile(source, mode="r"), metadata=metadata, pre_buffer=False, buffer_size=_BUFFER)
    for group in groups:
        source.is_reached = False
        try:
            file.reader.read_row_groups([group], column_indices=[*leaves], use_threads=False)
        except Exception as error:
            if not source.is_reached:
                raise
            error.__traceback__ = None  # pyarrow keeps the error with the file, which its frames would keep alive
    for leaf in leaves:
        kinds = {metadata.row_group(group).column(leaf).physical_type for group in groups}
        if kinds - {metadata.schema.column(leaf).physical_type}:
            raise pa.ArrowInvalid(f"column {leaf} has values of other types than the schema states: {sorted(kinds)}")
