"""Bad and unusual input in whole runs: options that depend on all splits, and rows that must not be committed."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
import zstandard

import dkfeat
from dkfeat.config import JobConfig
from dkfeat.errors import ConfigError, ParseError, SourceNotFoundError
from tests.engine.helpers import featurized
from tests.faults.input.quarantine import features_of
from tests.invariants import listed_in
from tests.maps.small import FEATURE_MAPS, small_map, text_for

GIVEN = {"n_features": 40, "zero_based": False, "label_dtype": "int64"}
PACK = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}
ROWS = "".join(f"{n % 2} {n % 39 + 1}:{n}.25 40:-3\n" for n in range(300))


@pytest.mark.fault("I-04", "I-05")
@pytest.mark.parametrize("blocksize", [16, 100, 1 << 20])
@pytest.mark.parametrize("layout", ["codes", "sparse"])
def test_base_and_width__are_those_of_the_whole_source(tmp_path, blocksize, layout):
    (tmp_path / "a.svm").write_text("1 0:1 5:2\n" + "0 2:3\n" * 9)
    (tmp_path / "b.svm").write_text("1 7:1\n" * 3 + "0 900:1\n1 12:1\n")
    source = dkfeat.LibsvmSource(str(tmp_path / "*.svm"), blocksize=blocksize)
    manifest = featurized(source, tmp_path / "features", layout=layout)
    data = dkfeat.open_shards(tmp_path / "features")
    assert (manifest.n_features, data.map.n_features_in_, data.spec["input"]["zero_based"]) == (901, 901, True)
    expected = dkfeat.LibsvmSource(str(tmp_path / "*.svm"), n_features=901, zero_based=True, label_dtype="int64")
    featurized(expected, tmp_path / "expected", layout=layout)
    assert features_of(tmp_path / "features") == features_of(tmp_path / "expected")


@pytest.mark.slow
@pytest.mark.fault("I-11")
@pytest.mark.cluster
def test_subnormal_values__are_equal_in_worker_processes(tmp_path, cluster_client):
    rows = "1 1:5e-324 2:1e-40 3:-0.0 4:1e-45\n0 1:1e-38 2:-1e-39 5:0\n1 2:2e-45 3:1\n"
    (tmp_path / "a.svm").write_text(rows * 3)
    source = dkfeat.LibsvmSource(str(tmp_path / "a.svm"), **GIVEN)
    one = featurized(source, tmp_path / "one", scheduler="synchronous")
    two = featurized(source, tmp_path / "two", client=cluster_client)
    assert [entry.sha256 for entry in one.shards] == [entry.sha256 for entry in two.shards]
    assert one.nnz == 3 * 6  # the first row keeps 1e-40 and 1e-45, which float32 can represent
    assert one.nnz == two.nnz


@pytest.mark.fault("I-17")
def test_labels__of_another_file_are_refused_unless_declared(tmp_path):
    (tmp_path / "a.svm").write_text("-1 1:1\n1 1:2\n")
    (tmp_path / "b.svm").write_text("# c\n1 1:1\n0 1:2\n")
    source = dkfeat.LibsvmSource(str(tmp_path / "*.svm"), labels=(-1, 1))
    with pytest.raises(ParseError, match=r"b\.svm:3:1: the label '0' is not one of \{-1, 1\}; labels found here: \{"):
        featurized(source, tmp_path / "features")
    manifest = featurized(source.replaced(labels=(-1, 0, 1)), tmp_path / "features")
    assert (manifest.labels, manifest.rows) == ((-1, 0, 1), 4)


@pytest.mark.fault("I-19")
@pytest.mark.parametrize("name", sorted(FEATURE_MAPS))
def test_row_without_features__goes_through_every_map(tmp_path, name):
    text = "1 1:1 2:3\n0\n1 4:2 # c\n0 3:0\n" + "1 1:1 7:0.5\n" * 20
    (tmp_path / "a.svm").write_text(text_for(FEATURE_MAPS[name], text))
    feature_map = small_map(name, n_components=16)
    manifest = featurized(dkfeat.LibsvmSource(str(tmp_path / "a.svm"), **GIVEN), tmp_path / "features", map=feature_map)
    features, y = features_of(tmp_path / "features")
    assert (len(features), y[:4]) == (24, [1, 0, 1, 0])
    assert np.isfinite(features).all()
    assert features[1] == features[3]
    assert manifest.n_empty_rows == int(np.sum(~np.any(features, axis=1)))


@pytest.mark.fault("I-27")
def test_files_without_rows__stay_listed_and_training_passes_over_them(tmp_path):
    empty = {f"no-bytes{ending}": b"" for ending in ("", *PACK)}
    for kind, text in (("blank", b"\n \n"), ("comment", b"# only\n")):
        empty[f"{kind}.svm"] = text
        empty |= {f"{kind}.svm{ending}": pack(text) for ending, pack in PACK.items()}
    (tmp_path / "source").mkdir()
    for name, data in {**empty, "rows.svm": ROWS.encode()}.items():
        (tmp_path / "source" / name).write_bytes(data)
    source = dkfeat.LibsvmSource(str(tmp_path / "source/*"), blocksize=1000, **GIVEN)
    manifest = featurized(source, tmp_path / "features")
    rows = {entry.name: entry.rows for entry in manifest.sources}
    assert rows == {**dict.fromkeys(empty, 0), "rows.svm": 300}
    assert any(entry.rows == 0 for entry in manifest.shards)
    model = dkfeat.train(tmp_path / "features", dkfeat.SGD(epochs=1), progress=False)
    assert np.isfinite(model.coef).all()


@pytest.mark.fault("I-36")
@pytest.mark.parametrize("pattern", ["none-*.svm", "folder", "dangling.svm"])
def test_missing_source__is_told_before_workers_start(tmp_path, pattern, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling.svm").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr("dkfeat.engine.runners.open.local_cluster", lambda *_: pytest.fail("a cluster was started"))
    with pytest.raises(SourceNotFoundError, match=pattern.replace("*", r"\*")) as caught:
        featurized(str(tmp_path / pattern), tmp_path / "features", n_workers=2)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "features").exists()


NAMES = ["über 数据.svm", "a b.svm", "#.svm", "%20.svm", "+.svm", "?.svm", "-leading.svm", "x" * 251 + ".svm"]


@pytest.mark.fault("I-37")
def test_file_names__of_any_kind_give_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        Path(name).write_text(ROWS)
    manifest = featurized(dkfeat.LibsvmSource("*.svm", **GIVEN), tmp_path / "features")
    assert [source.name for source in manifest.sources] == sorted(NAMES)
    assert [source["name"] for source in listed_in(tmp_path / "features")["sources"]] == sorted(NAMES)
    features, y = features_of(tmp_path / "features")
    assert (features[:300] * len(NAMES), y[:300] * len(NAMES)) == (features, y)
    for name in NAMES:
        assert [file.name for file in dkfeat.LibsvmSource(name, **GIVEN).files()] == [name]


@pytest.mark.fault("I-38")
@pytest.mark.parametrize("seed", [2**64, -1, "7", 0.5, True])
@pytest.mark.parametrize("key", ["seed", "random_state"])
def test_seed__out_of_range_or_of_another_type(seed, key):
    part = {"source": {"urlpath": "a.svm"}, "out": "features", "map": {"name": "gcws", key: seed}}
    with pytest.raises(ConfigError, match=rf"featurize\[0\]\.map\.{key}: expected a whole number from 0 to 2\^64 - 1"):
        JobConfig.from_mapping({"featurize": [part]})
