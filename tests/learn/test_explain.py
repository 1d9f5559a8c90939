"""Explanations: exact sums, columns of the codes, baselines, names, sources, and what has no explanation."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

import dkfeat
from dkfeat.errors import ConfigError, InputError
from dkfeat.learn.model import LinearModel
from tests.cli.test_commands import run
from tests.learn.fakes import write_rows

MAPS = [
    dkfeat.GCWSFeatures(40, i_bits=4, t_bits=2, p=0.5, center=0.4, random_state=0),
    dkfeat.GCWSFeatures(48, i_bits=3, normalize="l2", center=list(range(-3, 4)), random_state=1),
    dkfeat.GCWSFeatures(32, i_bits=2, random_state=2),
    dkfeat.DartFeatures(600, bits=8, p=2.0, center=-1.0, random_state=3),
    dkfeat.MinHashFeatures(64, bits=5, random_state=4),
]


def random_model(fitted, n_classes=2, *, seed=0, **facts):
    rng = np.random.default_rng(seed)
    n_scores = 1 if n_classes == 2 else n_classes
    coef, intercept = rng.normal(size=(n_scores, fitted.n_features_out)), rng.normal(size=n_scores)
    spec = fitted.to_spec()
    return LinearModel(map_spec=spec, classes=np.arange(n_classes), coef=coef, intercept=intercept, **facts)


def rows_for(fitted, n_rows=40):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n_rows, 7)).astype(np.float32) * (rng.random((n_rows, 7)) < 0.7)
    X[3] = 0
    return (X > 0).astype(np.float32) if fitted.takes_sets else X


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(2)
    n = 300
    words = np.array(["free", "money", "meeting", "lunch", "report"])
    return pd.DataFrame({
        "age": rng.normal(40, 10, n).round(),
        "visits": rng.poisson(0.5, n),
        "city": rng.choice(["Oslo", "Bergen", None], n),
        "joined": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 9000, n), "h"),
        "constant": 1,
        "body": [" ".join(rng.choice(words, 4)) for _ in range(n)],
    })  # fmt: skip


def encoded_model(encoder, table, n_classes=2):
    encoder = encoder.fit(table)
    darts = dkfeat.DartFeatures(256, random_state=0).fit_width(encoder.n_features_out)
    return random_model(darts, n_classes, encoder=encoder)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("unfitted", MAPS, ids=str)
def test_explain__contributions_are_the_weights_of_the_codes_of_each_column(unfitted, n_classes):
    X = rows_for(unfitted)
    fitted = unfitted.fit(X)
    model = random_model(fitted, n_classes)
    dense, sparse = dkfeat.explain(model, X), dkfeat.explain(model, sp.csr_matrix(X))
    scores = model.decision_function(X)
    assert dense.contributions.shape == ((40, 7) if n_classes == 2 else (40, 7, 3))
    sums = dense.intercept + dense.contributions.sum(axis=1)
    np.testing.assert_allclose(sums, scores, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(dense.scores, sums)
    matrices = [sparse.contributions] if n_classes == 2 else sparse.contributions
    together = np.stack([matrix.toarray() for matrix in matrices], axis=2)
    np.testing.assert_array_equal(together.reshape(dense.contributions.shape), dense.contributions)
    np.testing.assert_allclose(sparse.importances, dense.importances)
    for row in (0, 1, 3):
        expected = (fitted.columns_of_codes(X[[row]]).T @ model.coef.T.astype(float)).reshape(together[row].shape)
        np.testing.assert_allclose(together[row], expected, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_importances__are_mean_distances_to_the_baseline_of_the_background(n_classes):
    X = rows_for(MAPS[2])
    model = random_model(MAPS[2].fit(X), n_classes)
    found, whole = dkfeat.explain(model, X[:9], background=sp.csr_matrix(X)), dkfeat.explain(model, X)
    np.testing.assert_allclose(found.baseline, whole.contributions.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(whole.baseline, found.baseline, atol=1e-12)
    expected = np.abs(found.contributions - found.baseline).mean(axis=0)
    expected = expected if n_classes == 2 else expected.mean(axis=1)
    np.testing.assert_allclose(found.importances, expected)
    ranked = model.importances(X[:9], background=X)
    assert list(ranked) == np.argsort(-expected, kind="stable").tolist()
    np.testing.assert_allclose(list(ranked.values()), np.sort(expected)[::-1])


@pytest.mark.slow
def test_explain__a_column_without_effect_has_contributions_around_zero():
    """Signs of column 0 are the labels, column 1 is noise: by symmetry its mean contribution over seeds is 0.

    The mean of 24 seeds is within 4 standard errors, but for a false alarm in 1,800 (t with 23 degrees of freedom).
    """
    means, signed, importances = [], [], []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(600, 2))
        y = (X[:, 0] > 0).astype(int)
        gcws = dkfeat.GCWSFeatures(64, i_bits=4, random_state=seed).fit(X)
        line = LogisticRegression(C=0.1).fit(gcws.transform(X[:300]), y[:300])
        model = LinearModel(map_spec=gcws.to_spec(), classes=line.classes_, coef=line.coef_, intercept=line.intercept_)
        found = dkfeat.explain(model, X[300:])
        means.append(found.contributions[:, 1].mean())
        signed.append((found.contributions[:, 0] * (2 * y[300:] - 1)).mean())
        importances.append(found.importances)
    z_noise, z_label = (np.mean(each) / (np.std(each, ddof=1) / np.sqrt(len(each))) for each in (means, signed))
    assert abs(z_noise) < 4
    assert z_label > 20
    label, noise = np.mean(importances, axis=0)
    assert label > 3 * noise


def test_explain__tables_have_a_contribution_for_each_column(table):
    model = encoded_model(dkfeat.TableEncoder(missing="indicator", random_state=0), table, n_classes=3)
    found = dkfeat.explain(model, table)
    assert found.columns.tolist() == ["age", "visits", "city", "joined", "body"]
    np.testing.assert_allclose(found.scores, model.decision_function(table), rtol=1e-5, atol=1e-4)
    encoded = model.encoder.transform(table.iloc[[7]])
    counts = model.map.columns_of_codes(encoded).tocoo()
    numbers = [0, 1, 2, 3, 5]
    expected = np.zeros((6, 3))
    np.add.at(expected, counts.col >> 32, model.coef.T[counts.row].astype(float))
    np.testing.assert_allclose(found.contributions[7], expected[numbers], atol=1e-9)
    first = {each["column"]: each["value"] for each in found.row(7)}
    assert first["city"] == table["city"][7]
    assert dkfeat.explain(model, pl.from_pandas(table)).row(7) == found.row(7)  # of polars text is a view
    assert float(first["age"]) == table["age"][7]
    long = found.to_table().to_pandas()
    chosen = long[long["class"] == 2].pivot_table("contribution", "row", "column").fillna(0)
    np.testing.assert_allclose(chosen[found.columns], found.contributions[:, :, 2])
    assert pd.isna(long[long["row"] == int(table["city"].isna().argmax())].set_index("column")["value"]["city"]).all()


def test_explain__n_grams_are_columns_of_their_own(table):
    model = encoded_model(dkfeat.TableEncoder(text={"body": "word 1"}, random_state=0), table)
    rows = pa.Table.from_pandas(table.iloc[:20])
    found = dkfeat.explain(model, rows, background=table)
    assert sp.issparse(found.contributions)
    held = sorted(f"body={word}" for word in {*" ".join(table["body"][:20]).split()})
    assert sorted(found.columns) == sorted(["age", "visits", "city", "joined", *held])
    np.testing.assert_allclose(found.scores, model.decision_function(rows), rtol=1e-5, atol=1e-4)
    words = {each["value"] for each in found.row(4) if str(each["column"]).startswith("body=")}
    assert words <= {*table["body"][4].split()}
    whole = dkfeat.explain(model, table)
    both = dict(zip(whole.columns, whole.contributions.mean(axis=0).A1, strict=True))
    np.testing.assert_allclose(found.baseline, [both[name] for name in found.columns], atol=1e-12)
    encoded = dkfeat.explain(model, model.encoder.transform(rows))  # without the table there are no words
    np.testing.assert_array_equal(encoded.contributions.toarray(), found.contributions.toarray())
    assert all(re.search(r"^(\w+|body=n-gram \d+)$", name) for name in encoded.columns)


@pytest.mark.parametrize("kind", ["rank", "max"])
def test_explain__scaled_columns_and_names(kind):
    X = rows_for(MAPS[2])
    scale = dkfeat.ColumnScale(kind, random_state=0).fit(X)
    facts = {"encoder": scale, "input_spec": {"features_as": "columns", "features": list("abcdefg")}}
    model = random_model(MAPS[2].fit(X), **facts)
    found = dkfeat.explain(model, X)
    np.testing.assert_allclose(found.scores, model.decision_function(X), rtol=1e-5, atol=1e-4)
    held = {name: value for name, value in zip("abcdefg", X[0].tolist(), strict=True) if value}
    frame = pd.DataFrame(X, columns=list("abcdefg"))[list("gabcdef")].assign(more="text")
    for rows in (X, frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        found = dkfeat.explain(model, rows)
        np.testing.assert_array_equal(model.decision_function(rows), model.decision_function(X))
        assert found.columns.tolist() == list("abcdefg")
        assert {each["column"]: each["value"] for each in found.row(0)} == held


def test_explain__of_more_columns_those_that_rows_hold():
    numbers = np.array([5, 1 << 33, (1 << 39) + 1])
    rows = sp.csr_matrix((np.arange(1.0, 7), numbers[[0, 1, 2, 0, 2, 1]], [0, 3, 3, 5, 6]), shape=(4, 1 << 40))
    rows.sort_indices()
    model = random_model(dkfeat.GCWSFeatures(32, random_state=0).fit(rows))
    found = dkfeat.explain(model, rows)
    assert found.columns.tolist() == numbers.tolist()
    np.testing.assert_allclose(found.scores, model.decision_function(rows), rtol=1e-5, atol=1e-4)
    assert {each["column"]: each["value"] for each in found.row(3)} == {1 << 33: 6.0}


def test_explain__sources_are_explained_as_their_rows(tmp_path, table):
    X = sp.csr_matrix(rows_for(MAPS[2]))
    y = np.arange(X.shape[0]) % 2
    text, features = str(write_rows(tmp_path / "rows.svm", X, y)), str(tmp_path / "features")
    dkfeat.featurize(text, features, dkfeat.GCWSFeatures(32, random_state=0), progress=False)
    model = dkfeat.train(features, dkfeat.SGD(epochs=1), progress=False)
    found, expected = dkfeat.explain(model, dkfeat.LibsvmSource(text, blocksize=400)), dkfeat.explain(model, X)
    np.testing.assert_array_equal(found.contributions.toarray(), expected.contributions.toarray())
    np.testing.assert_allclose(dkfeat.explain(model, X[:3], background=[text]).baseline, expected.baseline)
    for rows in (features, dkfeat.open_shards(features), model.map.encode(X)):
        for given in ({"rows": rows}, {"rows": X, "background": rows}):
            with pytest.raises(InputError, match=r"codes.* do not tell the columns .*give the rows"):
                dkfeat.explain(model, **given)
    table.assign(label=np.arange(300) % 2).to_parquet(tmp_path / "table.parquet")
    encoder = dkfeat.TableEncoder(text={"body": "word 1-2"}, random_state=0)
    darts = dkfeat.DartFeatures(64, random_state=0)
    dkfeat.featurize(str(tmp_path / "table.parquet"), tmp_path / "encoded", darts, encoder=encoder, progress=False)
    model = dkfeat.train(tmp_path / "encoded", dkfeat.SGD(epochs=1), progress=False)
    less = tmp_path / "less.parquet"  # without the column that the encoder leaves out
    table.drop(columns="constant").assign(label=np.arange(300) % 2).to_parquet(less)
    found, expected = dkfeat.explain(model, less), dkfeat.explain(model, table)
    assert dkfeat.evaluate(model, less, progress=False).explanation.n_rows == 300
    assert found.columns.tolist() == expected.columns.tolist()
    np.testing.assert_array_equal(found.contributions.toarray(), expected.contributions.toarray())
    assert found.row(5) == expected.row(5)


@pytest.mark.parametrize(
    "unfitted",
    [dkfeat.FourierFeatures(8), dkfeat.LaplaceFeatures(8), dkfeat.MaclaurinFeatures(8), dkfeat.NystroemFeatures(8)],
    ids=str,
)
def test_explain__features_of_several_columns_have_no_explanation(unfitted, tmp_path):
    X = np.abs(rows_for(MAPS[0]))
    fitted = unfitted.fit(X)
    model = random_model(fitted, map_arrays=fitted._fitted_arrays())
    with pytest.raises(ConfigError, match=r"no sum over columns, .*train a model on codes"):
        model.importances(X)
    text = str(write_rows(tmp_path / "rows.svm", sp.csr_matrix(X), np.arange(len(X)) % 2))
    source = dkfeat.LibsvmSource(text, n_features=7, zero_based=False, label_dtype="int64")
    assert "no sum over columns" in dkfeat.evaluate(model, source, progress=False).explanation


def test_explain__wrong_rows_are_errors(table):
    model = random_model(MAPS[2].fit(rows_for(MAPS[2])))
    for rows, message in ((np.ones((2, 6)), "6 features, but .* 7"), (np.empty((0, 7)), "no rows to explain")):
        with pytest.raises(InputError, match=message):
            dkfeat.explain(model, rows)
    with pytest.raises(InputError, match=r"6 features, but .* 7"):
        dkfeat.explain(model, np.ones((2, 7)), background=np.ones((2, 6)))
    with pytest.raises(InputError, match="codes do not tell"):
        model.importances(np.ones((2, 7)), background=model.map.encode(np.ones((2, 7))))
    with pytest.raises(InputError, match="row 1, column 2"):
        dkfeat.explain(model, np.array([[1.0] * 7, [1, 1, np.nan, 1, 1, 1, 1]]))
    with pytest.raises(ConfigError, match=r"row=-1, but it must be an integer from 0 to 1;"):
        dkfeat.explain(model, np.ones((2, 7))).row(-1)
    with pytest.raises(InputError, match="Duplicate column names"):
        dkfeat.explain(encoded_model(dkfeat.TableEncoder(random_state=0), table), pd.concat([table] * 2, axis=1))
    with pytest.raises(InputError, match="no column 'city'"):
        dkfeat.explain(encoded_model(dkfeat.TableEncoder(random_state=0), table), table.drop(columns="city"))


def test_command__writes_contributions_and_prints_importances(tmp_path):
    X = sp.csr_matrix(rows_for(MAPS[2]))
    text, out = write_rows(tmp_path / "rows.svm", X, np.arange(X.shape[0]) % 2), tmp_path / "new" / "why.parquet"
    model = random_model(
        MAPS[2].fit(X), input_spec=dkfeat.LibsvmSource("x", n_features=7, zero_based=False).to_mapping()
    )
    model.save(tmp_path / "model")
    told = run("explain", tmp_path / "model", text, "--out", out, "--background", text).stdout
    found = dkfeat.explain(model, X)
    lines = [f"{name:<14}  {value:>10.4f}" for name, value in found.ranked().items()]
    assert told.splitlines() == ["column, from 0  importance", *lines]
    written = pq.read_table(out)
    assert written.column_names == ["row", "column", "contribution", "value"]
    entries = sp.coo_matrix(found.contributions)
    np.testing.assert_array_equal(written["row"], entries.row)
    assert written["column"].to_pylist() == entries.col.astype(str).tolist()
    np.testing.assert_array_equal(written["contribution"], entries.data)
    np.testing.assert_array_equal(written["value"], X[entries.row, entries.col].A1)
    run("explain", tmp_path / "model", text, "--out", out)  # an earlier result
    pq.write_table(written.replace_schema_metadata(None), out)
    assert "--overwrite" in run("explain", tmp_path / "model", text, "--out", out, status=2).stderr
    assert "name in .parquet" in run("explain", tmp_path / "model", text, "--out", "x.csv", status=2).stderr
    assert "is an input" in run("explain", tmp_path / "model", text, "--out", text, "--overwrite", status=2).stderr


def test_display__draws_importances_and_rows():
    X = rows_for(MAPS[2])
    found = dkfeat.explain(random_model(MAPS[2].fit(X)), X)
    axes = Figure().add_subplot()
    display = dkfeat.plot.ExplanationDisplay.from_explanation(found, n_columns=4, ax=axes)
    assert display.ax_ is axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [str(name) for name in list(found.ranked())[:4]]
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], list(found.ranked().values())[:4])
    row = dkfeat.plot.ExplanationDisplay.from_explanation(found, 5, ax=Figure().add_subplot(facecolor="none"))
    assert to_hex(row.ax_.patches[0].get_facecolor()) in dkfeat.plot.LIGHT_COLORS
    largest = found.row(5)[0]
    assert row.columns[0] == f"{largest['column']} = {largest['value']}"
    assert len(row.columns) == np.count_nonzero(X[5])
