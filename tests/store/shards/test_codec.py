from __future__ import annotations

import hashlib
import io
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix, random_array

from dkfeat.blocks import PackedCodes, RowBlock, SourceFile, Split
from dkfeat.errors import InputError, ShardError
from dkfeat.store.manifest.records import SHARD_NAME
from dkfeat.store.shards import codec as decoding
from dkfeat.store.shards import codec as seal
from dkfeat.store.shards import codec as shards
from dkfeat.store.shards.columns import LAYOUTS, schema_of

NAME = "part-000003-0001-3f9c2a71b0de.parquet"


def footer(rows, n_empty=0, **changes):
    values = {
        "spec_fp": "5" * 64,
        "split": 3,
        "piece": 1,
        "last": True,
        "source": "über 数据.svm",
        "range": (10, 5000),
        "source_sha256": "a" * 64,
        "rows": rows,
        "nnz": 77,
        "n_empty": n_empty,
        "versions": shards.versions(),
    }
    return shards.ShardFooter(**{**values, **changes})


def codes(rows, width=16, every=5):
    rng = np.random.default_rng(rows)
    packed = rng.integers(0, 256, (rows, width), dtype=np.uint8)
    empty = np.arange(rows) % every == 1
    packed[empty] = 0
    return PackedCodes(packed, empty)


def sparse(rows, width=50):
    matrix = csr_matrix(
        random_array((rows, width), density=0.2, format="csr", random_state=np.random.default_rng(rows))
    )
    matrix.sort_indices()
    return matrix.astype(np.float32)


def dense(rows, width=7):
    return np.random.default_rng(rows).standard_normal((rows, width), dtype=np.float32)


MAKE = {"codes": codes, "sparse": sparse, "dense": dense}
WIDTH = {"codes": 16, "sparse": 50, "dense": 7}


def parts(layout, rows, *, multilabel=False, qid=False, dtype="int64"):
    labels = (np.arange(2 * rows if multilabel else rows) % 3 - 1).astype(dtype)
    encoded = MAKE[layout](rows)
    offsets = np.minimum(np.arange(rows + 1, dtype=np.int64) ** 2, 2 * rows) if multilabel else None
    return {
        "layout": layout,
        "encoded": encoded,
        "labels": labels if offsets is None else labels[: offsets[-1]],
        "label_offsets": offsets,
        "qid": np.arange(rows, dtype=np.int64) // 4 if qid else None,
        "footer": footer(rows, int(encoded.empty.sum()) if layout == "codes" else 0),
    }


def encode(layout, encoded, labels, footer, *, label_offsets=None, qid=None, weight=None, kept=None, values=True):
    block = RowBlock(X=encoded, y=labels, label_offsets=label_offsets, qid=qid, weight=weight, kept=kept or {})
    return shards.encode_shard(layout, block, footer, values=values)


def same(layout, left, right):
    if layout == "codes":
        return np.array_equal(left.codes, right.codes) and np.array_equal(left.empty, right.empty)
    if layout == "dense":
        return np.array_equal(left, right)
    return all(np.array_equal(getattr(left, part), getattr(right, part)) for part in ("indptr", "indices", "data"))


def read_back(layout, shard, **options):
    schema = options.pop("schema", None) or schema_of(layout, WIDTH[layout], "int64")
    options = {"spec_fp": "5" * 64, "schema": schema, "n_columns": WIDTH[layout], **options}
    return decoding.decode(shard.data, shard.entry(NAME), **options)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [0, 1, 3, 100, 5000])
@pytest.mark.parametrize(
    "kinds",
    [{}, {"multilabel": True}, {"qid": True, "dtype": "float64"}, {"multilabel": True, "qid": True}],
    ids=["plain", "multilabel", "float-qid", "multilabel-qid"],
)
def test_encode__read_back_is_identity(layout, rows, kinds):
    given = parts(layout, rows, **kinds)
    shard = encode(**given)
    schema = schema_of(
        layout, WIDTH[layout], kinds.get("dtype", "int64"), multilabel="multilabel" in kinds, query_id="qid" in kinds
    )
    got = read_back(layout, shard, schema=schema)
    assert same(layout, got.X, given["encoded"])
    assert got.y.dtype == given["labels"].dtype
    assert np.array_equal(got.y, given["labels"])
    for got_part, part in ((got.label_offsets, "label_offsets"), (got.qid, "qid")):
        assert (got_part is None) == (given[part] is None)
        assert given[part] is None or np.array_equal(got_part, given[part])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_encode__equal_rows__equal_bytes(layout):
    first = encode(**parts(layout, 300))
    given = parts(layout, 300)
    if layout != "sparse":
        values = given["encoded"].codes if layout == "codes" else given["encoded"]
        other = np.asfortranarray(values)
        other.flags.writeable = False
        given["encoded"] = PackedCodes(other, given["encoded"].empty) if layout == "codes" else other
    second = encode(**given)
    assert bytes(first.data) == bytes(second.data)
    assert first.sha256 == second.sha256 == hashlib.sha256(first.data).hexdigest()


def test_encode__golden_footer_and_columns():
    shard = encode(**parts("codes", 300))
    file = pq.ParquetFile(io.BytesIO(shard.data))
    assert " ".join(sorted(key.decode().removeprefix("dkfeat.") for key in file.metadata.metadata)) == (
        "format last n_empty nnz piece range rows seal source source_sha256 spec_fp split versions"
    )
    assert file.metadata.num_row_groups == 1
    label, column = (file.metadata.row_group(0).column(place) for place in (0, 1))
    assert (label.compression, set(label.encodings)) == ("ZSTD", {"RLE", "DELTA_BINARY_PACKED"})
    assert column.compression == "UNCOMPRESSED"
    assert not label.has_dictionary_page
    assert not column.has_dictionary_page
    assert not label.is_stats_set
    assert file.schema_arrow.field("codes").nullable
    assert not file.schema_arrow.field("label").nullable


@pytest.mark.parametrize("labels", ["two", "twenty-six"])
def test_encode__size_is_that_of_the_codes(labels):
    rows, width = 20_000, 64
    encoded = codes(rows, width, every=rows + 1)
    encoded.empty[:] = False
    y = np.random.default_rng(0).choice([-1, 1] if labels == "two" else np.arange(26), rows)
    shard = encode(layout="codes", encoded=encoded, labels=y, footer=footer(rows))
    assert len(shard.data) <= rows * (1.02 * width + 1)


def test_encode__sparse_ones__need_no_values():
    given = parts("sparse", 40)
    with pytest.raises(InputError, match="ones only"):
        encode(**given, values=False)
    given["encoded"].data[:] = 1
    shard = encode(**given, values=False)
    schema = schema_of("sparse", WIDTH["sparse"], "int64", values=False)
    assert list(schema) == ["label", "indices"]
    assert same("sparse", read_back("sparse", shard, schema=schema).X, given["encoded"])


def test_encode__sparse_indices__are_int64_beyond_int32():
    wide = csr_matrix((np.ones(2, np.float32), np.array([5, 2**40]), np.array([0, 1, 2])), shape=(2, 2**40 + 1))
    shard = encode(layout="sparse", encoded=wide, labels=np.zeros(2, np.int64), footer=footer(2))
    schema = schema_of("sparse", 2**40 + 1, "int64")
    assert schema["indices"] == "list<int64>"
    got = read_back("sparse", shard, schema=schema, n_columns=2**40 + 1).X
    assert got.indices.tolist() == [5, 2**40]


@pytest.mark.parametrize(
    ("layout", "change", "message"),
    [
        ("codes", {"footer": footer(9, 2)}, "states 9 rows, its columns have 10"),
        ("codes", {"label_offsets": np.full(11, 3)}, "cover values 3 to 3"),
        (
            "sparse",
            {"encoded": csr_matrix((np.ones(2, np.float32), [3, 1], [0, 2, *[2] * 9]), shape=(10, 5))},
            "sorted indices",
        ),
    ],
)
def test_encode__parts_that_disagree__are_refused(layout, change, message):
    with pytest.raises(InputError, match=message):
        encode(**{**parts(layout, 10), **change})


def test_footer__unknown_keys_are_ignored_and_missing_ones_refused():
    keys = {key.encode(): value.encode() for key, value in footer(3).to_metadata().items()}
    assert shards.ShardFooter.from_metadata({**keys, b"dkfeat.new": b"1", b"other": b"x"}, "x") == footer(3)
    with pytest.raises(ShardError, match="nnz"):
        shards.ShardFooter.from_metadata({key: value for key, value in keys.items() if key != b"dkfeat.nnz"}, "x")
    for bad in ({b"dkfeat.format": b"2"}, {b"dkfeat.rows": b"-1"}, {b"dkfeat.last": b"1"}, {b"dkfeat.rows": b"NaN"}):
        with pytest.raises(ShardError):
            shards.ShardFooter.from_metadata({**keys, **bad}, "x")


def test_seal__blank_or_missing__is_told():
    plain = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(encode(**parts("codes", 3)).data)), plain)
    assert seal.check_seal(memoryview(plain.getvalue())) is None
    for junk in (b"", b"PAR1", b"PAR1" * 3, b"\xff" * 20 + b"PAR1"):
        assert seal.check_seal(memoryview(junk)) is None


@pytest.mark.fault("S-05")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_seal__no_bit_flip_passes(layout):
    whole = bytes(encode(**parts(layout, 20)).data)
    for bit in range(len(whole) * 8):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        assert seal.check_seal(memoryview(data)) is None


@pytest.mark.fault("D-11")
def test_name__golden():
    file = SourceFile(name="day1.svm", url="anywhere", size=120, mtime_ns=1)
    split = Split(number=3, file=file, start=0, stop=120)
    assert shards.shard_name("0" * 64, split, 1) == "part-000003-0001-d111afcece5c.parquet"


def test_name__depends_on_what_the_shard_is_made_from_alone():
    file = SourceFile(name="day1.svm", url="anywhere", size=120, mtime_ns=1)
    split = Split(number=3, file=file, start=0, stop=120)
    name = shards.shard_name("0" * 64, split, 1)
    assert SHARD_NAME.fullmatch(name)
    assert (
        shards.shard_name("0" * 64, replace(split, file=replace(file, url="elsewhere", compression="gzip")), 1) == name
    )
    others = [
        shards.shard_name("1" * 64, split, 1),
        shards.shard_name("0" * 64, split, 2),
        shards.shard_name("0" * 64, replace(split, start=1), 1),
        shards.shard_name("0" * 64, replace(split, stop=119), 1),
        *(
            shards.shard_name("0" * 64, replace(split, file=replace(file, **change)), 1)
            for change in ({"name": "x"}, {"size": 121}, {"mtime_ns": 2}, {"etag": "e"})
        ),
    ]
    hashes = {other.split("-")[3] for other in others}
    assert len(hashes) == len(others)
    assert name.split("-")[3] not in hashes
