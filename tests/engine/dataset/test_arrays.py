"""Dask arrays of sources."""

import gzip
import os

import dask
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from dkfeat import read_libsvm, read_parquet
from dkfeat.errors import ConfigError, ParseError, SourceNotFoundError, SpecConflictError
from dkfeat.maps import GCWSFeatures
from dkfeat.sources.libsvm.source import LibsvmSource


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((23, 7)) * (rng.random((23, 7)) < 0.6)


@pytest.fixture(scope="module")
def fitted():
    return GCWSFeatures(n_components=16, i_bits=4, random_state=3).fit_width(7)


def same(left, right):
    return left.shape == right.shape and (left != right).nnz == 0


GIVEN = {"n_features": 7, "zero_based": False, "label_dtype": "int64"}


@pytest.fixture
def file(rows, tmp_path):
    path = tmp_path / "rows.svm"
    dump_svmlight_file(rows, np.arange(len(rows)) % 3, str(path), zero_based=False)
    return path


def expected(path):
    return load_svmlight_file(str(path), n_features=7, zero_based=False, dtype=np.float64)


@pytest.mark.parametrize("options", [{}, GIVEN], ids=["scanned", "given"])
@pytest.mark.parametrize("blocksize", [300, "64MiB"])
def test_read_libsvm__equals_the_file(file, blocksize, options):
    X, y = read_libsvm(str(file), blocksize=blocksize, dtype="float64", **options)
    wanted, labels = expected(file)
    assert X.numblocks[0] == (-(-file.stat().st_size // 300) if blocksize == 300 else 1)
    assert isinstance(X._meta, sp.csr_matrix)
    assert (X.dtype, y.dtype, X.shape[1]) == (np.float64, np.int64, 7)
    assert X.shape[0] == len(labels) or options
    got, got_labels = dask.compute(X, y, scheduler="synchronous")
    assert isinstance(got, sp.csr_matrix)
    assert got.indices.dtype == np.int32
    assert same(got, wanted)
    assert np.array_equal(got_labels, labels)


def test_read_libsvm__reads_nothing_when_all_is_given(file, monkeypatch):
    def fail(*_):
        pytest.fail("the source was read")

    for name in ("read", "scan_split"):
        monkeypatch.setattr(LibsvmSource, name, fail)
    X, y = read_libsvm(str(file), blocksize=300, **GIVEN)
    assert np.isnan(X.chunks[0]).all()
    assert len(y.chunks[0]) == X.numblocks[0] > 1
    fitted = GCWSFeatures(n_components=4, random_state=0).fit(X)
    assert np.isnan(fitted.transform(X).chunks[0]).all()


@pytest.mark.cluster
def test_read_libsvm__feeds_maps_on_a_cluster(file, fitted, cluster_client):
    X, y = read_libsvm(str(file), blocksize=300, dtype="float64", **GIVEN)
    features, labels = cluster_client.gather(cluster_client.compute([fitted.transform(X), y]))
    assert same(features, fitted.transform(expected(file)[0]))
    assert np.array_equal(labels, expected(file)[1])


def test_read_libsvm__joins_the_pieces_of_a_compressed_file(file):
    packed = file.with_suffix(".svm.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    X, y = read_libsvm(str(packed), blocksize=300, dtype="float64")
    assert X.numblocks == (1, 1)
    assert same(X.compute(scheduler="synchronous"), expected(file)[0])
    assert len(y) == 23


def test_read_libsvm__label_type_is_that_of_the_whole_source(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n")
    (tmp_path / "b.svm").write_text("0.5 2:1\n3 3:1\n")
    # this blocksize is too small for groups of files
    X, y = read_libsvm([str(tmp_path / "a.svm"), str(tmp_path / "b.svm")], blocksize=16)
    assert X.chunks == ((1, 2), (3,))
    assert y.blocks[0].compute(scheduler="synchronous").dtype == y.dtype == np.float64
    assert y.compute(scheduler="synchronous").tolist() == [1.0, 0.5, 3.0]


def test_read_libsvm__multilabel_rows_have_tuples(tmp_path):
    (tmp_path / "a.svm").write_text("1,2 1:1\n 2:1\n3 3:1\n")
    X, y = read_libsvm(str(tmp_path / "a.svm"), multilabel=True)
    assert y.dtype == object
    assert y.compute(scheduler="synchronous").tolist() == [(1, 2), (), (3,)]
    assert X.shape == (3, 3)


def test_read_libsvm__query_ids_are_kept(tmp_path):
    (tmp_path / "a.svm").write_text("1 qid:7 1:1\n2 qid:8 2:1\n")
    _, _, qid = read_libsvm(str(tmp_path / "a.svm"), query_id=True)
    assert qid.dtype == np.int64
    assert qid.compute(scheduler="synchronous").tolist() == [7, 8]


def test_read_libsvm__a_source_without_rows_has_no_rows(tmp_path):
    (tmp_path / "a.svm").write_text("# nothing\n")
    X, y = read_libsvm(str(tmp_path / "a.svm"), n_features=5)
    assert X.shape == (0, 5)
    assert X.compute(scheduler="synchronous").shape == (0, 5)
    assert y.compute(scheduler="synchronous").shape == (0,)


def test_read_libsvm__errors_keep_their_place(tmp_path):
    path = tmp_path / "a.svm"
    with pytest.raises(SourceNotFoundError):
        read_libsvm(str(path), **GIVEN)
    path.write_text("1 1:1\n1 2:spam\n")
    with pytest.raises(ParseError, match=r"a\.svm:2:"):
        read_libsvm(str(path))
    X, _ = read_libsvm(str(path), **GIVEN)
    with pytest.raises(ParseError, match=r"a\.svm:2:"):
        X.compute(scheduler="synchronous")


def test_read_libsvm__a_file_changed_since_is_an_error(file):
    X, _ = read_libsvm(str(file))
    os.utime(file, ns=(1, 1))
    with pytest.raises(SpecConflictError, match=r"rows\.svm.*mtime_ns \d+ is now 1\b"):
        X.compute(scheduler="synchronous")


def test_read_libsvm__names_follow_source_and_options(file):
    assert read_libsvm(str(file), **GIVEN)[0].name == read_libsvm(str(file), **GIVEN)[0].name
    assert read_libsvm(str(file), **GIVEN)[0].name != read_libsvm(str(file), dtype="float64", **GIVEN)[0].name


@pytest.mark.parametrize("option", [{"on_bad_row": "quarantine"}, {"keep": "name"}])
def test_read__options_of_shards__are_refused(tmp_path, option):
    with pytest.raises(ConfigError, match=f"{next(iter(option))} is an option for runs that write shards"):
        read_parquet(str(tmp_path), **option)
