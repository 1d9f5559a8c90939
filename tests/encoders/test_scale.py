"""The scale of columns of numbers: its laws, its state, and its place in runs, models and comparisons."""

from __future__ import annotations

import pickle
import re

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy.sparse import csr_matrix, random_array
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import dkfeat
from dkfeat import ColumnScale
from dkfeat.cli import cli
from dkfeat.encoders import scale
from dkfeat.engine.scan import column_shares
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.store.commit.run_log import read_logs
from tests.conftest import libsvm_text
from tests.engine.helpers import featurized

MAP = dkfeat.GCWSFeatures(32, random_state=5)
SCALES = ("rank", "max")


def some_rows(n_rows=600, n_columns=40, seed=0):
    """Sparse rows with values of both signs, whose columns have units of 1 to 1e9."""
    rng = np.random.default_rng(seed)
    X = csr_matrix(random_array((n_rows, n_columns), density=0.3, rng=rng, data_sampler=rng.standard_normal))
    X.data = (X.data * 10.0 ** (X.indices % 10)).astype(np.float32)
    return X


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folder with rows as text, their shards of ranks and a model; the label depends on a column of small unit."""
    folder = tmp_path_factory.mktemp("scale")
    X = some_rows()
    y = np.where(X[:, [0]].toarray()[:, 0] > 0, 1, -1)
    (folder / "rows.svm").write_text(libsvm_text(X, y))
    featurized(str(folder / "rows.svm"), folder / "features", map=MAP, encoder=ColumnScale("rank"))
    dkfeat.train(folder / "features", "liblinear", progress=False).save(folder / "model")
    return folder


def codes(folder):
    return dkfeat.open_shards(folder).codes().codes


def expected(X, column_scale="rank"):
    encoder = ColumnScale(column_scale, random_state=5).fit(X)
    return clone(MAP).fit(X).encode(encoder.transform(X)).codes


@parametrize_with_checks([ColumnScale(name) for name in SCALES])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_rank__counts_the_nonzeros_of_a_sign_that_are_at_most_as_large():
    X = np.array([[1.0], [0.0], [-4.0], [7.0], [1.0], [-8.0], [2.0]])
    fitted = ColumnScale().fit(X)
    assert fitted.transform(X).toarray()[:, 0].tolist() == [0.5, 0, -0.5, 1, 0.5, -1, 0.75]
    beyond = np.array([[0.1], [1.5], [99.0], [-0.1], [-99.0]])
    assert fitted.transform(beyond).toarray()[:, 0].tolist() == [0.25, 0.5, 1, -0.5, -1]


@pytest.mark.parametrize("name", SCALES)
def test_scale_of_float32__gives_equal_values_of_float64_equal_results(name):
    X = np.random.default_rng(0).normal(size=(99, 2))
    fitted = ColumnScale(name).fit(X.astype(np.float32))  # as sources read them
    assert np.array_equal(fitted.transform(X).toarray(), fitted.transform(X.astype(np.float32)).toarray())
    assert fitted.transform(X * 1e99).toarray()[X > 0].tolist() == [1] * (X > 0).sum()
    assert fitted.transform(X * 1e-99).nnz == 0


@pytest.mark.parametrize("name", SCALES)
def test_columns_without_drawn_values__have_only_signs(name):
    fitted = ColumnScale(name).fit(np.array([[0.0, 3.0]]))
    found = fitted.transform(np.array([[-7.0, 9.0], [1e-30, 0.0]])).toarray()
    assert found.tolist() == [[-1, 1], [1, 0]]


def test_max__divides_by_the_largest_magnitude_of_either_sign():
    X = np.array([[1.0, 2.0], [-4.0, 0.0]])
    fitted = ColumnScale("max").fit(X)
    assert fitted.transform(X).toarray().tolist() == [[0.25, 1], [-1, 0]]
    tiny = fitted.transform(csr_matrix(np.array([[1e-45, 0.0]], np.float32)))
    assert tiny.nnz == 1
    assert tiny.data[0] > 0


@pytest.mark.slow
def test_rank__is_that_of_a_column_of_zeros_in_a_table():
    values = np.random.default_rng(0).standard_normal(2700) * (np.arange(2700) % 3 == 0)
    encoder = dkfeat.TableEncoder(random_state=0).fit(table := pa.table({"rare": values}))
    signed = encoder.transform(table)
    of_table = np.where(signed.indices & 1, -signed.data, signed.data)
    assert np.array_equal(ColumnScale().fit_transform(values[:, None].astype(np.float32)).data, of_table)


def test_rank__is_invariant_to_increasing_functions_and_max_to_factors():
    X = some_rows()
    cubed = X.astype(np.float64)
    cubed.data = np.sign(cubed.data) * np.abs(cubed.data) ** (1 + cubed.indices % 3)
    ranks = [ColumnScale(random_state=0).fit_transform(rows.astype(np.float64)) for rows in (X, cubed)]
    assert np.array_equal(ranks[0].data, ranks[1].data)
    factors = csr_matrix(np.diag(2.0 ** np.arange(-20, 20)))
    shares = [ColumnScale("max").fit_transform(rows) for rows in (X.astype(np.float64), X @ factors)]
    assert np.array_equal(shares[0].data, shares[1].data)


@pytest.mark.parametrize("name", SCALES)
def test_state__reads_back_and_depends_on_the_drawn_rows_alone(name, monkeypatch):
    monkeypatch.setattr(scale, "N_DRAWN", 200)
    X = some_rows()
    fitted = ColumnScale(name, random_state=3).fit(X)
    wanted = fitted.transform(X)
    blocks = da.from_array(X.toarray(), chunks=(70, 40))
    dense = ColumnScale(name, random_state=3).fit(blocks)
    assert dense.to_spec() == fitted.to_spec() != ColumnScale(name, random_state=4).fit(X).to_spec()
    again = ColumnScale.from_spec(fitted.to_spec(), fitted._fitted_arrays())
    for other in (pickle.loads(pickle.dumps(fitted)), again):
        assert np.array_equal(other.transform(X.toarray()).data, wanted.data)
    parts = [block.compute() for block in dense.transform(blocks).blocks]
    assert np.array_equal(np.concatenate([part.data for part in parts]), wanted.data)


def test_knots__are_bounded_for_wide_rows(monkeypatch):
    monkeypatch.setattr(scale, "MOST_VALUES", 2000)
    X = some_rows()
    fitted = ColumnScale(random_state=0).fit(X)
    assert len(fitted._fitted_arrays()["knots"]) <= 2100
    full = ColumnScale(random_state=0).fit(X[:, :2])
    assert np.abs(fitted.transform(X)[:, :2] - full.transform(X[:, :2])).max() < 0.5


def test_featurize__scales_rows_of_every_format_alike(made, tmp_path, cluster_client):
    X = some_rows()
    wanted = expected(X)
    assert np.array_equal(codes(made / "features"), wanted)
    lists = [(row.indices, row.data) for row in X]
    pq.write_table(
        pa.table(
            {"indices": [at for at, _ in lists], "values": [values for _, values in lists], "label": [0, 1] * 300}
        ),
        tmp_path / "sparse.parquet",
        row_group_size=90,
    )
    columns = {f"c{number}": column for number, column in enumerate(X.toarray().T)}
    pq.write_table(pa.table(columns | {"label": [0, 1] * 300}), tmp_path / "columns.parquet", row_group_size=70)
    sources = [
        dkfeat.LibsvmSource(str(made / "rows.svm"), blocksize=9000),
        dkfeat.ParquetSource(str(tmp_path / "sparse.parquet"), n_features=40, blocksize=20_000),
        dkfeat.ParquetSource(str(tmp_path / "columns.parquet")),
    ]
    for number, source in enumerate(sources):
        target = tmp_path / f"features-{number}"
        featurized(source, target, map=MAP, encoder=ColumnScale(), client=cluster_client)
        assert np.array_equal(codes(target), wanted)
        assert dkfeat.open_shards(target).verify().problems == []
    assert len(dkfeat.open_shards(tmp_path / "features-0").manifest.shards) > 5


def test_like_and_models__scale_as_the_first_run(made, tmp_path):
    X = some_rows(seed=1)
    (tmp_path / "test.svm").write_text(libsvm_text(X, np.ones(600, int)))
    encoder = ColumnScale(random_state=5).fit(some_rows())
    featurized(str(tmp_path / "test.svm"), tmp_path / "test", map=None, like=made / "model")
    assert np.array_equal(codes(tmp_path / "test"), clone(MAP).fit(X).encode(encoder.transform(X)).codes)
    model = dkfeat.load_model(made / "model")
    predicted = model.predict(X)
    assert np.mean(predicted == np.where(X[:, [0]].toarray()[:, 0] > 0, 1, -1)) > 0.8
    assert dkfeat.evaluate(model, str(tmp_path / "test.svm")).summary["accuracy"] == np.mean(predicted == 1)
    kernel = dkfeat.kernels.gmm(encoder.transform(X), encoder.transform(some_rows()))
    for queries, source in ((X, some_rows()), (str(tmp_path / "test.svm"), str(made / "rows.svm"))):
        found = dkfeat.neighbors.search(made / "features", queries, 1, rerank=600, source=source, progress=False)
        np.testing.assert_allclose(found.similarities[:, 0], kernel.max(axis=1), rtol=1e-5)


def test_featurize__refuses_another_scale_and_tables(made, tmp_path):
    source = str(made / "rows.svm")
    assert featurized(source, made / "features", map=MAP, encoder=ColumnScale()).number == 1
    for encoder in (None, ColumnScale("max"), dkfeat.TableEncoder()):
        with pytest.raises(SpecConflictError, match="encoder"):
            featurized(source, made / "features", map=MAP, encoder=encoder)
    pq.write_table(pa.table({"a": [1, 2], "label": [0, 1]}), tmp_path / "a.parquet")
    table = dkfeat.ParquetSource(str(tmp_path / "a.parquet"), features_as="table")
    with pytest.raises(ConfigError, match=r"ColumnScale\(.*\) is for rows of numbers.*table"):
        featurized(table, tmp_path / "none", map=MAP, encoder=ColumnScale())
    with pytest.raises(ConfigError, match=r"column_scale='middle'"):
        featurized(source, tmp_path / "none", map=MAP, encoder=ColumnScale("middle"))


def test_commands__take_the_scale_by_name(made, tmp_path):
    path = str(made / "rows.svm")
    words = ["featurize", path, "--n-components", "32", "--seed", "5", "--column-scale", "max", "--out"]
    assert CliRunner().invoke(cli, [*words, str(tmp_path / "max")]).exit_code == 0
    assert np.array_equal(codes(tmp_path / "max"), expected(some_rows(), "max"))
    shown = CliRunner().invoke(cli, ["inspect", str(tmp_path / "max")]).output
    assert "scale version 1: 40 columns, seed=5, column_scale=max" in shown
    job = f"featurize: [{{source: {{urlpath: '{path}'}}, out: job, map: {{name: gcws}}, encoder: {{PARAMS}}}}]"
    for params, text in (("column_scale: max", ""), ("column_scale: max, missing: ignore", "different encoders")):
        (tmp_path / "job.yaml").write_text(job.replace("PARAMS", params))
        result = CliRunner().invoke(cli, ["run", str(tmp_path / "job.yaml"), "--dry-run"])
        assert (result.exit_code == 0) is (not text)
        assert text in result.output


def test_column_shares__are_those_of_the_first_rows():
    X = csr_matrix(np.array([[1, 0, -3], [0, 0, 5], [0, 0.4, 0]], np.float32) * np.float32(6e37))
    assert column_shares(X) == {0: 106_383, 2: 851_064}
    assert column_shares(X[:0]) == column_shares(csr_matrix((4, 3))) == {}
    assert column_shares(X[:, 2:]) == {}  # it is alone
    many = csr_matrix(np.vstack([np.full((5000, 2), [1, 3]), np.full((5000, 2), [9, 1])]))
    assert column_shares(many) == {0: 250_000, 1: 750_000}


def warnings_of(caplog):
    found = [record.getMessage() for record in caplog.records if "mean row sum" in record.getMessage()]
    caplog.clear()
    return found


def test_warning__names_the_column_that_outweighs_the_others(tmp_path, caplog, cluster_client):
    column = r"column 10 holds 9\d% of the mean row sum.*--column-scale rank"
    X = some_rows()
    X.data[X.indices == 9] *= 100
    (tmp_path / "rows.svm").write_text(libsvm_text(X, np.arange(600) % 2))
    source = dkfeat.LibsvmSource(str(tmp_path / "rows.svm"), blocksize=9000)
    recorded = []
    for client in (None, cluster_client):
        target = tmp_path / f"features-{len(recorded)}"
        featurized(source, target, map=MAP, client=client)
        recorded.append(read_logs(dkfeat.open_shards(target).shards.storage)[-1].column_shares)
        (warning,) = warnings_of(caplog)
        assert re.search(column, warning)
    assert recorded[0] == recorded[1]
    assert recorded[0][0][0] == 9
    dkfeat.train(target, "liblinear", progress=False)
    assert re.search("column 10 holds", *warnings_of(caplog))
    report = dkfeat.run_report(target)
    assert re.search("column 10 holds", report.warnings[0])
    assert "Warning</strong>: column 10 holds" in report.to_html()
    plan = dkfeat.plan(source, map=MAP, scan=True)
    assert "warning    column 10 holds" in plan.describe()
    dkfeat.compare(source, maps="gcws", n_components=8, baselines=(), progress=False)
    assert re.search("column 10 holds", *warnings_of(caplog))
    for options in ({"map": MAP, "encoder": ColumnScale()}, {"map": dkfeat.FourierFeatures(8, random_state=0)}):
        featurized(source, tmp_path / f"silent-{options['map'].name}", **options)
        assert "row sum" not in dkfeat.run_report(tmp_path / f"silent-{options['map'].name}").to_html()
        assert warnings_of(caplog) == []
    assert "warning" not in dkfeat.plan(source, map=MAP, encoder=ColumnScale(), scan=True).describe()
