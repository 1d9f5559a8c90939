"""Damaged and malicious Parquet files: an error or the rows, never a crash, in bounded memory, and no code is run."""

import pickle
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dkfeat.errors import ParquetError
from dkfeat.sources.parquet import files as parquet_files
from dkfeat.sources.parquet.source import ParquetSource
from tests.sources.parquet.rows import pieces, rows, write

# Reads each file named on the command line and prints the result; a crash ends the program.
READ = """
import sys
import resource
from dkfeat.errors import DkfeatError
from dkfeat.sources.parquet.source import ParquetSource
from tests.sources.parquet.rows import resolved

def count(path):
    source = resolved(ParquetSource(path, blocksize="4MiB"))
    return sum(piece.block.n_rows for split in source.splits() for piece in source.read(split))

limit = int(sys.argv[1])
count(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[3:]:
    try:
        found = count(path)
    except DkfeatError as error:
        print(type(error).__name__, error.exit_code, str(error).replace("\\n", " "))
    else:
        print("rows", found)
"""


def read_in_child(paths, good, limit=0):
    """Read each path in another process; return one line for each."""
    names = [str(path) for path in paths]
    child = subprocess.run(
        [sys.executable, "-c", READ, str(limit), str(good), *names], capture_output=True, text=True, timeout=280
    )
    assert child.returncode == 0, child.stderr[-2000:]
    lines = child.stdout.splitlines()
    assert len(lines) == len(names)
    return lines


# Reads the file named on the command line with every fifth byte of its footer changed.
FORGE = """
import sys
from pathlib import Path
from dkfeat.errors import DkfeatError
from dkfeat.sources.parquet.source import ParquetSource
from tests.sources.parquet.rows import resolved

path = Path(sys.argv[1])
data = path.read_bytes()
start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
read = {True: 0, False: 0}
for place in range(start, len(data) - 8, 5):
    path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
    try:
        source = resolved(ParquetSource(str(path), features="x", filters=[("label", ">=", 0)]))
        sum(piece.block.n_rows for split in source.splits() for piece in source.read(split))
        read[True] += 1
    except DkfeatError:
        read[False] += 1
print(*read.values())
"""


@pytest.fixture
def good(tmp_path):
    """A file of 60 rows in three row groups."""
    rng = np.random.default_rng(1)
    columns = {"x": rng.random(60), "y": rng.random(60).astype(np.float32), "label": np.arange(60) % 2}
    return Path(write(tmp_path / "good.parquet", columns, row_group_size=20, write_page_checksum=True))


def footer_start(data):
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


@pytest.mark.fault("I-33")
def test_damaged__is_an_error_of_the_file(tmp_path, good):
    data = good.read_bytes()
    start = footer_start(data)
    contents = {
        "empty": b"",
        "magic": b"PAR1",
        "twice": b"PAR1PAR1",
        "text": b"1 1:0.5\n" * 40,
        "cut": data[:-1],
        "half": data[: len(data) // 2],
        "no-footer": data[:start],
        "footer-cut": data[:start] + data[start + 40 :],
        "long-footer": data[:-8] + b"\xff\xff\xff\x7fPAR1",
    }
    paths = []
    for name, content in contents.items():
        paths.append(tmp_path / f"{name}.parquet")
        paths[-1].write_bytes(content)
    for path, line in zip(paths, read_in_child(paths, good), strict=True):
        assert line.startswith(f"ParquetError 2 {path}: damaged, or not a Parquet file: "), line


@pytest.mark.fault("I-33")
@pytest.mark.parametrize("plain_footer", [False, True])
def test_encrypted__is_said(tmp_path, plain_footer):
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Client(encryption.KmsClient):
        def __init__(self, _):
            encryption.KmsClient.__init__(self)

        def wrap_key(self, key, _):
            return key.hex()

    settings = encryption.EncryptionConfiguration("footer", column_keys={"key": ["x"]}, plaintext_footer=plain_footer)
    factory = encryption.CryptoFactory(Client)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), settings)
    table = pa.table({"x": [1.0], "label": [1]})
    path = str(tmp_path / "a.parquet")
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    with pytest.raises(ParquetError, match=f"^{path}: .*encrypted, but only plain files and columns are read"):
        pieces(ParquetSource(path))


@pytest.mark.slow
@pytest.mark.fault("I-33", "I-39")
def test_flipped_bits__never_crash_and_never_change_rows_of_checked_pages(tmp_path, good):
    """One bit in 150 places of the footer and the pages: 60 rows of the same values, or an error."""
    data = good.read_bytes()
    rng = np.random.default_rng(5)
    start = footer_start(data)
    places = [*rng.integers(start, len(data), 110), *rng.integers(4, start, 40)]
    paths = []
    for number, place in enumerate(places):
        flipped = bytearray(data)
        flipped[place] ^= 1 << rng.integers(8)
        paths.append(tmp_path / f"{number}.parquet")
        paths[-1].write_bytes(flipped)
    lines = read_in_child(paths, good)
    assert {line.split()[0] for line in lines} <= {"rows", "ParquetError", "ConfigError", "SourceError"}
    assert sum(line.startswith("ParquetError 2") for line in lines) > 60


@pytest.mark.slow
@pytest.mark.fault("I-33", "X-16")
def test_forged_footer__never_aborts(tmp_path):
    """Statistics of sizes or values that do not fit the schema, for instance, abort pyarrow's accessors."""
    path = tmp_path / "forged.parquet"
    pq.write_table(pa.table({"x": [[1.0, 2.0]] * 20, "label": [0, 1] * 10}), path, row_group_size=10)
    child = subprocess.run([sys.executable, "-c", FORGE, str(path)], capture_output=True, text=True, timeout=280)
    assert child.returncode == 0, child.stderr[-2000:]
    assert min(map(int, child.stdout.split())) > 20


@pytest.mark.slow
@pytest.mark.fault("X-05")
def test_inflating_files__are_read_in_bounded_memory_or_refused(tmp_path, good):
    """With at most 150 MB of additional memory: 10^7 equal rows, of 280 MB, and one row of 3 * 10^7 values."""
    many, one = pa.array(np.ones(10_000_000, np.float32)), pa.array(np.zeros(30_000_000, np.float32))
    rows = {"x": many, "label": pa.array(np.ones(len(many), np.int8))}
    row = {"features": pa.ListArray.from_arrays([0, len(one)], one), "label": [1]}
    paths = [
        Path(write(tmp_path / "rows.parquet", rows, row_group_size=len(many), compression="zstd")),
        Path(write(tmp_path / "row.parquet", row, compression="zstd")),
    ]
    assert max(path.stat().st_size for path in paths) < 2_000_000
    read, refused = read_in_child(paths, good, limit=_address_space(good) + (150 << 20))
    assert read == "rows 10000000"
    assert refused.startswith("ParquetError 2")
    assert "need more memory than there is" in refused


def _address_space(good):
    """Bytes of address space of a process that has read a file."""
    code = READ.replace("for path in", "print(open('/proc/self/statm').read().split()[0])\nfor path in")
    child = subprocess.run([sys.executable, "-c", code, "0", str(good)], capture_output=True, text=True, check=True)
    return int(child.stdout) * resource.getpagesize()


@pytest.mark.fault("X-05")
def test_declared_rows__are_not_trusted(monkeypatch, good):
    monkeypatch.setattr(parquet_files, "MOST_GROUP_ROWS", 19)
    with pytest.raises(ParquetError, match="row group 0: the row group declares 20 rows, but at most 19 are read"):
        rows(ParquetSource(str(good)))


@pytest.mark.fault("X-06")
def test_extension__with_a_pickle_is_read_as_what_it_stores(tmp_path):
    """The metadata of the type are a pickle, which is never loaded."""
    marker = tmp_path / "marker"

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (marker,))

    payload = pickle.dumps(Bomb())
    metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": payload}
    schema = pa.schema([pa.field("x", pa.float32(), metadata=metadata), pa.field("label", pa.int64())])
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([pa.array([1.0, 2.0], pa.float32()), pa.array([0, 1])], schema=schema), path)
    assert b"py_extension_type" in path.read_bytes() or pq.read_schema(path).field("x").type == pa.float32()
    X, _ = rows(ParquetSource(str(path)))
    assert X.toarray().ravel().tolist() == [1, 2]
    assert not marker.exists()
