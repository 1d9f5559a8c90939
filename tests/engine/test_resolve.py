from __future__ import annotations

import json

import numpy as np
import pytest

import dkfeat
from dkfeat.engine.open import like_spec
from dkfeat.errors import ConfigError, ShardError, SpecConflictError
from dkfeat.sources.formats import as_source
from tests.engine.helpers import featurized, gcws, resolved
from tests.maps.small import FEATURE_MAPS, has, small_map, text_for
from tests.maps.test_known_answers import kept as kept_answers
from tests.sources.parquet.rows import write


@pytest.fixture
def source(tiny_folder):
    return dkfeat.LibsvmSource(str(tiny_folder / "*.svm"))


def no_scan(_):
    pytest.fail("scanned")


def test_resolve__spec_says_all_that_affects_values(source):
    found = resolved(source, gcws(), scan=dkfeat.scan)
    assert found.spec == {
        "format": 1,
        "map": json.loads(json.dumps(found.map.to_spec())),
        "input": {
            "kind": "libsvm",
            "n_features": 300,
            "zero_based": False,
            "dtype": "float32",
            "multilabel": False,
            "query_id": False,
            "label_dtype": "int64",
            "labels": None,
            "blocksize": 64 << 20,
        },
        "split": {"blocksize": 64 << 20, "max_piece_rows": (64 << 20) // 24},
        "output": {"schema": 1, "layout": "codes", "n_features_out": 24 * 256, "row_bytes": 24},
    }
    assert dkfeat.scan(found.source).n_rows == 400


def test_resolve__given_options_need_no_scan(tiny_folder):
    source = dkfeat.LibsvmSource(str(tiny_folder / "a.svm"), n_features=300, zero_based=False, label_dtype="int64")
    assert resolved(source, gcws(), scan=no_scan).source == source


@pytest.mark.parametrize(("labels", "kind"), [((-1, 1), "int64"), ((-1.0, 0.5, 1), "float64")])
def test_resolve__labels_that_are_given_need_no_scan(tiny_folder, tmp_path, labels, kind):
    text = dkfeat.LibsvmSource(str(tiny_folder / "a.svm"), n_features=300, zero_based=False, labels=labels)
    found = resolved(text, gcws(), scan=no_scan)
    assert found.spec["input"]["label_dtype"] == kind
    assert found.spec == resolved(text, gcws(), scan=no_scan, target=("there", found.spec)).spec
    path = write(tmp_path / "rows.parquet", {"label": [-1.0, 1.0], "x": [1.0, 2.0]})
    rows = dkfeat.ParquetSource(path, features_as="columns", labels=labels)
    assert resolved(rows, gcws(), scan=no_scan).source.label_dtype == kind


def test_resolve__same_spec_whatever_resolved_it(source):
    scanned = resolved(source, gcws(), scan=dkfeat.scan).spec
    again = resolved(source, None, target=("there", scanned), scan=no_scan).spec
    like = resolved(source, gcws(random_state=None), like=("there", scanned), scan=no_scan).spec
    assert scanned == again == like


@pytest.mark.slow
def test_resolve__settings_too_long_to_be_kept__are_refused(tiny_folder, tmp_path):
    columns = 1_000_000
    source = dkfeat.LibsvmSource(str(tiny_folder / "a.svm"), n_features=columns, zero_based=False, label_dtype="int64")
    long = gcws().set_params(center=[1 / 3] * columns)
    with pytest.raises(ConfigError, match=r"take 19,000,\d{3} bytes as text, but at most 16,777,216"):
        dkfeat.featurize(source, tmp_path / "out", long, progress=False)
    assert not (tmp_path / "out").exists()


def test_resolve__wide_row_still_has_a_piece(source):
    found = resolved(source, gcws(2**24, i_bits=16, t_bits=2), scan=dkfeat.scan, layout="sparse")
    assert found.spec["split"]["max_piece_rows"] == 1


def test_resolve__target_and_like_that_differ_are_a_conflict(source):
    one, other = (resolved(source, gcws(random_state=seed), scan=dkfeat.scan).spec for seed in (1, 2))
    with pytest.raises(SpecConflictError, match=r"map\.seed: 2 there, 1 asked"):
        resolved(source, None, target=("out", one), like=("train", other), scan=no_scan)


def test_resolve__other_layout_than_the_target_is_a_conflict(source):
    spec = resolved(source, gcws(), scan=dkfeat.scan).spec
    with pytest.raises(SpecConflictError, match=r"output\.layout"):
        resolved(source, None, target=("out", spec), layout="sparse", scan=no_scan)
    assert (
        resolved(source, None, like=("out", spec), layout="sparse", scan=no_scan).spec["output"]["layout"] == "sparse"
    )


def test_resolve__option_of_a_newer_version_is_a_conflict(source):
    spec = resolved(source, gcws(), scan=dkfeat.scan).spec
    newer = {**spec, "input": {**spec["input"], "missing": "keep"}}
    with pytest.raises(SpecConflictError, match="missing"):
        resolved(source, None, like=("out", newer), scan=no_scan)


def test_inherit__a_conflict_with_like_is_not_one_of_the_target(source):
    like = ("train", resolved(source, gcws(), scan=dkfeat.scan).spec)
    for other, map in ((source.replaced(n_features=9), None), (source, gcws(n_components=2))):
        with pytest.raises(SpecConflictError, match=r"leave (it|them) out,? or give another `like`$"):
            resolved(other, map, like=like, scan=no_scan)


def test_like_spec__of_a_model(source, tmp_path):
    spec = resolved(source, gcws(), scan=dkfeat.scan).spec
    (tmp_path / "model.json").write_text(json.dumps({"format": 1, "map": spec["map"], "input": spec["input"]}))
    taken = like_spec(tmp_path)
    manifest = featurized(source, tmp_path / "features", map=None, like=tmp_path)
    assert taken == {"map": spec["map"], "input": spec["input"]}
    assert dkfeat.open_shards(tmp_path / "features").spec["map"] == spec["map"]
    assert manifest.rows == 400


def test_like_spec__of_a_model_that_says_too_little(tmp_path):
    (tmp_path / "model.json").write_text('{"format":1}')
    with pytest.raises(ShardError, match="train it again"):
        like_spec(tmp_path)


@pytest.mark.parametrize("value", [None, 7, [], ["a", 3], {"a": 1}])
def test_as_source__refuses(value):
    with pytest.raises(ConfigError, match="source="):
        as_source(value)


def test_as_source__options_twice(source):
    with pytest.raises(ConfigError, match="given twice"):
        as_source(source, {"anon": True})
    assert as_source(source) is source
    assert as_source(["a.svm", "b.svm"]).urlpath == ("a.svm", "b.svm")
    assert as_source(["a.jsonl*", "b.JSON.gz"]).kind == "jsonl"
    with pytest.raises(ConfigError, match=r"several formats, jsonl \(such as a.jsonl\), parquet \(such as b.pq\)"):
        as_source(["a.jsonl", "b.pq"])


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (dkfeat.GCWSFeatures(0), "n_components=0"),
        (dkfeat.GCWSFeatures(8, i_bits=17), "i_bits=17"),
        (dkfeat.GCWSFeatures(8, center=[0.0] * 300, p=-1), "p=-1"),
        (dkfeat.FourierFeatures(8, kernel="rfb"), "did you mean 'rbf'"),
        (dkfeat.FourierFeatures(8, random_state=-1), "random_state=-1"),
        (dkfeat.LaplaceFeatures(8, projection="circulan"), "did you mean 'circulant'"),
        (dkfeat.MaclaurinFeatures(8, degree=0), "degree=0"),
        (dkfeat.NystroemFeatures(8, kernel="gm"), "did you mean 'gmm'"),
    ],
)
def test_resolve__parameters_are_refused_before_the_scan(source, features, message):
    with pytest.raises(ConfigError, match=message):
        resolved(source, features, scan=no_scan)


@pytest.mark.parametrize("name", [name for name, cls in FEATURE_MAPS.items() if has(cls, "random_state")])
def test_resolve__checking_parameters_draws_nothing_from_a_generator(name):
    rng = np.random.default_rng(3)
    features = small_map(name, random_state=rng)
    features._check_params()
    assert rng.integers(1 << 30) == np.random.default_rng(3).integers(1 << 30)
    assert not hasattr(features, "n_features_in_")


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_resolve__a_map_inherits_the_parameters_at_their_defaults(name, tmp_path):
    text = "1 1:0.5 3:0.25\n0 2:1 3:0.125\n" * 6
    (tmp_path / "rows.svm").write_text(text_for(FEATURE_MAPS[name], text))
    first = small_map(name, n_components=9, random_state=4, **kept_answers(name)[-1]["params"])
    featurized(tmp_path / "rows.svm", tmp_path / "first", map=first)
    featurized(tmp_path / "rows.svm", tmp_path / "like", map=FEATURE_MAPS[name](), like=tmp_path / "first")
    featurized(tmp_path / "rows.svm", tmp_path / "first", map=FEATURE_MAPS[name]())
    fingerprints = {dkfeat.open_shards(tmp_path / folder).map.fingerprint() for folder in ("first", "like")}
    assert len(fingerprints) == 1
    if has(FEATURE_MAPS[name], "n_components"):
        with pytest.raises(SpecConflictError, match=r"settings, map.params.n_components: 9 there, 10 asked;"):
            featurized(tmp_path / "rows.svm", tmp_path / "first", map=FEATURE_MAPS[name](n_components=10))


def test_resolve__a_map_of_another_kernel_does_not_inherit_that_kernels_parameters(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:0.5 3:0.25\n0 2:1 3:0.125\n" * 6)
    first = dkfeat.NystroemFeatures(4, kernel="rbf", kernel_params={"gamma": 2.0}, random_state=0)
    featurized(tmp_path / "rows.svm", tmp_path / "first", map=first)
    with pytest.raises(SpecConflictError, match=r'map.params.kernel: "rbf" there, "polynomial" asked'):
        featurized(tmp_path / "rows.svm", tmp_path / "first", map=dkfeat.NystroemFeatures(kernel="polynomial"))
