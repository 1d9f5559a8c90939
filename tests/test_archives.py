"""Arrays as bytes: equal for equal arrays, and nothing else is read."""

import gc
import hashlib
import io
import struct
import threading
import time
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dkfeat import archives
from dkfeat.archives import archive_sha256, check_footer, pack_arrays, unpack_arrays
from dkfeat.errors import ShardError

ARRAYS = {"b": np.arange(6, dtype=np.int64).reshape(2, 3), "a": np.array([0.5, -1.0]), "none": np.empty((0, 4))}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def test_bytes__do_not_depend_on_time_or_order(monkeypatch):
    data = pack_arrays(ARRAYS)
    monkeypatch.setattr(time, "time", lambda: 2e9)
    assert pack_arrays(dict(reversed(ARRAYS.items()))) == data
    assert pack_arrays({**ARRAYS, "b": np.asfortranarray(ARRAYS["b"])}) == data
    # the format: other bytes under the same name would part a spec from its landmarks
    assert sha256(data) == archive_sha256(ARRAYS) == "6b4c55e65d9ffb27830bef462fca4c512aedd80eb87c092e2d267a82548d3763"


def test_bytes__numpy_reads_them():
    with np.load(io.BytesIO(pack_arrays(ARRAYS))) as read:
        assert {name: read[name].tolist() for name in read} == {name: a.tolist() for name, a in ARRAYS.items()}


def test_read__is_what_was_written():
    data = pack_arrays(ARRAYS)
    read = unpack_arrays(data, sha256(data), "here")
    assert {name: (a.dtype, a.shape, a.tolist()) for name, a in read.items()} == {
        name: (a.dtype, a.shape, a.tolist()) for name, a in ARRAYS.items()
    }


@pytest.mark.parametrize("array", [np.array([None]), np.array(["a"]), np.zeros(2, ">f8"), np.zeros(2, complex)])
def test_write__takes_plain_numbers_only(array):
    with pytest.raises(ValueError, match="cannot be kept"):
        pack_arrays({"a": array})


def savez(compressed=False, **arrays):
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def npy(header):
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


HOSTILE = {
    "pickle": savez(a=np.array([{}], dtype=object)),
    "compressed": savez(compressed=True, a=np.zeros(1000)),
    "dated": savez(a=np.zeros(3)),
    "text": b"no archive",
    "empty": b"",
    "huge shape": zipped(a=npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904,), }")),
    "negative shape": zipped(a=npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1), }") + bytes(8)),
    "other dtype": zipped(a=npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }") + bytes(8)),
    "code in header": zipped(a=npy("__import__('os').abort()")),
    "many members": zipped(**{f"a{i}": b"" for i in range(100)}),
    "path": zipped(**{"../a": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }") + bytes(8)}),
    "trailing": pack_arrays(ARRAYS) + b"more",
    "leading": b"more" + pack_arrays(ARRAYS),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_read__refuses_what_was_not_written_here(data):
    with pytest.raises(ShardError, match="here: not an archive of arrays"):
        unpack_arrays(data, sha256(data), "here")


def test_read__refuses_each_changed_byte():
    data = pack_arrays({"a": np.arange(3.0)})
    for place in range(len(data)):
        other = bytearray(data)
        other[place] ^= 0x20
        with pytest.raises(ShardError, match="damaged"):
            unpack_arrays(bytes(other), sha256(data), "here")
        try:
            changed = unpack_arrays(bytes(other), sha256(other), "here")
        except ShardError:
            continue
        assert pack_arrays(changed) == other  # another array, stated whole, is another archive


def test_check_footer__leaves_no_file_open():
    """pyarrow keeps the error that ends the reading; with frames it kept the file, for each split of a run."""
    written = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2]}), written)
    metadata = pq.ParquetFile(written).metadata
    before = open_files()
    check_footer(metadata, written.tell(), [0])
    assert open_files() == before


def test_check_footer__reads_in_this_thread(monkeypatch):
    """A thread of pyarrow that still has the error when Python ends aborts the process, once in dozens of times."""
    written, threads = io.BytesIO(), []

    def read(*_):
        threads.append(threading.get_ident())
        raise EOFError

    monkeypatch.setattr(archives._Unread, "read", read)
    pq.write_table(pa.table({"a": range(9), "b": range(9)}), written, row_group_size=3)
    with pytest.raises(EOFError):
        check_footer(pq.ParquetFile(written).metadata, written.tell(), [0, 1])
    assert threads == [threading.get_ident()]


def open_files():
    gc.collect()
    return sum(isinstance(each, pq.ParquetFile) for each in gc.get_objects())
