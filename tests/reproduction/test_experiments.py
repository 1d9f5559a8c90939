"""Each of the papers' experiments on a few made-up rows, at small settings."""

import importlib
import io
import json
import lzma

import numpy as np
import pytest
import reproduction
from reproduction.experiment import Context
from reproduction.experiments import (
    accuracy_curves,
    curves,
    darts,
    four_methods,
    gmm_convergence,
    laplace_gram,
    laplace_measures,
    maclaurin,
    svm_table,
)
from reproduction.experiments.curves import Line, Sizes, needed_k
from reproduction.experiments.reported import REPORTED, Reported
from reproduction.pages.figures import DARK, draw
from reproduction.parts import Parts, Workers
from reproduction.rows import load_rows
from reproduction.sampling import mean_squares, on_theory
from sklearn.datasets import dump_svmlight_file

SMALL = {
    "variance_theory": {"sizes": [16, 256], "repeats": 20},
    "gmm_convergence": {"sizes": [1, 10, 100], "repeats": 5},
    "laplace_gram": {"rows": 40, "repeats": 3, "pairs_repeats": 5, "words": 128, "times": [64, 128]},
    "maclaurin": {
        "dimensions": [5, 10],
        "sizes": [10, 50, 200],
        "repeats": 2,
        "rows": 60,
        "components": [10, 30],
        "machines": 2,
        "grids": {"polynomial": [0.01], "exponential": [1.0]},
        "more": {"rows": 60, "components": [10, 30], "pairs": 5},
    },
}
MACHINES = ("svm_table", "accuracy_curves", "four_methods", "darts")
NEED_DATA = (*MACHINES, "laplace_gram", "maclaurin")


@pytest.fixture
def small(monkeypatch):
    """Few settings, repetitions and rows."""
    for name, settings in SMALL.items():
        module = importlib.import_module(f"reproduction.experiments.{name}")
        monkeypatch.setitem(module.SETTINGS, "quick", settings)
    for module in (laplace_gram, laplace_measures):
        monkeypatch.setattr(module, "WIDTHS", (64, 128))
        monkeypatch.setattr(module, "SHOWN", ("mnist10k", "news20", "synthetic-64"))
    monkeypatch.setattr(svm_table, "QUICK_GAMMAS", (1.0, 4.0))
    monkeypatch.setitem(REPORTED, "webspam500", Reported("sizes", 50.0, 90.0, 90.0, "Webspam"))
    monkeypatch.setattr(curves, "GAMMAS", (0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0))
    for module in (accuracy_curves, four_methods):
        monkeypatch.setattr(module, "QUICK", Sizes({16: 2, 32: 1}, (1.0,), (1.0, 10.0)))
    monkeypatch.setattr(darts, "QUICK", Sizes({16: 2, 32: 2}, (1.0,), ()))
    monkeypatch.setattr(darts, "ESTIMATED_ROWS", 30)


@pytest.fixture(scope="module")
def few_rows(tmp_path_factory):
    """Sets in which the sign of a product tells the class, which no line does, and sets of counts."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    for name in ("letter", "webspam500", "nursery", "covtype20k", "news20"):
        (folder / name).mkdir()
        for part, rows in (("train", 80), ("test", 60)):
            if name in ("letter", "webspam500"):
                X = random.normal(size=(rows, 6))
                y = 1 + (X[:, 0] * X[:, 1] > 0)
            else:
                X = random.poisson(0.7, size=(rows, 20)).astype(float)
                y = 1 + (X[:, 0] + X[:, 1] > 1)
            text = io.BytesIO()
            dump_svmlight_file(X, y, text, zero_based=False)
            (folder / name / f"{part}.svm.xz").write_bytes(lzma.compress(text.getvalue()))
    return folder


def run_small(name, data, folder):
    context = Context(data=data, mode="quick", seed=0, parts=Parts(folder, Workers(1)), tell=[].append)
    return reproduction.experiment(name).run(context)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", reproduction.NAMES)
def test_experiment__measures_and_draws(name, few_rows, tmp_path):
    results = run_small(name, few_rows, tmp_path / "a")
    for table in results.tables[:1] if name in MACHINES else results.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert {type(verdict.holds) for verdict in results.verdicts} <= {bool, type(None)}
    assert any(verdict.holds is not None for verdict in results.verdicts)
    assert len({picture.name for picture in results.pictures}) == len(results.pictures) >= 1
    for picture in results.pictures:
        json.dumps(picture.data, allow_nan=False)
        assert len(draw(picture, DARK)) > 5_000
    if name in NEED_DATA:
        tables = results.tables[:1] if name in MACHINES else results.tables
        rows = [row for table in tables for row in table.rows]
        assert any("no data" in row for row in rows)
        assert any("no data" not in row and (name in MACHINES or row[0] in ("nursery", "news20")) for row in rows)
    if name == "four_methods":
        again = run_small(name, few_rows, tmp_path / "b")
        assert (again.tables, again.verdicts) == (results.tables, results.verdicts)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", NEED_DATA)
def test_experiment__without_data_says_so(name, tmp_path):
    results = run_small(name, tmp_path, tmp_path / "parts")
    if name in MACHINES:
        assert all("no data" in row for row in results.tables[0].rows)
        assert not results.pictures
        assert [verdict.holds for verdict in results.verdicts] == [None] * len(results.verdicts)
    else:
        missing = [row for table in results.tables for row in table.rows if "no data" in row]
        assert len(missing) == (2 if name == "laplace_gram" else 2 * len(maclaurin.SETS) + 2)


@pytest.mark.parametrize("level_bits", [0, 1])
def test_point__inner_products_give_the_accuracies_of_the_features(few_rows, monkeypatch, level_bits):
    arguments = {"name": "letter", "rows": (None, None), "method": "gcws", "k": 64, "bits": 4, "gamma": None}
    found = []
    for work in (0.0, float("inf")):  # with and without
        monkeypatch.setattr(curves, "GRAM_WORK", work)
        found.append(curves.point(str(few_rows), **arguments, level_bits=level_bits, grid=[0.1, 1.0], seed=0, repeat=0))
    assert found[0] == found[1]


def test_rows__are_read_and_drawn_by_seed(few_rows):
    rows = load_rows(str(few_rows), "letter")
    assert (rows.X.shape, rows.X_test.shape) == ((80, 6), (60, 6))
    some = rows.sample(20, 10, seed=3)
    assert len(some.y) == 20
    assert (some.X != rows.sample(20, 10, seed=3).X).nnz == 0
    assert (some.X != rows.sample(20, 10, seed=4).X).nnz > 0
    assert len(rows.sample(None, 1000).y_test) == 60


@pytest.mark.parametrize(
    ("level", "k"), [(80.0, 16.0), (70.0, 16.0), (85.0, 32.0), (95.0, 256.0), (96.0, None)], ids=str
)
def test_needed_k__goes_straight_over_log_k(level, k):
    line = Line("a", (16, 64, 256), (80.0, 90.0, 95.0), (0, 0, 0), (1, 1, 1), ())
    assert needed_k(line, level) == (None if k is None else pytest.approx(k))


def test_pairs__are_of_the_t_distribution():
    x, y = gmm_convergence.draw_pair(np.random.default_rng(0), 6.0, 0.5, 200_000)
    # of 200,000 draws of 6 degrees of freedom: variance 1.5, standard error below 0.02, fixed seed
    assert np.var(x) == pytest.approx(1.5, abs=0.08)
    assert np.var(y) == pytest.approx(1.5, abs=0.08)
    assert np.corrcoef(x, y)[0, 1] == pytest.approx(0.5, abs=0.03)


def test_parameter__makes_the_median_one_over_e():
    X = np.random.default_rng(0).dirichlet(np.full(32, 0.3), size=30)
    for kernel, (exact, _, name) in laplace_measures.KERNELS.items():
        gram = exact(X, **{name: laplace_measures.fitting_parameter(X, kernel)})
        assert np.median(gram[np.triu_indices(30, 1)]) == pytest.approx(np.exp(-1), rel=0.01)


def test_theory__a_wrong_one_is_told():
    errors = np.random.default_rng(0).normal(size=(20_000, 3))  # standard error of the mean square 1 %
    cell = mean_squares(errors)
    right, detail = on_theory([{**cell, "theory": [1.0] * 3}])
    assert right
    assert "in 3 cells" in detail
    for wrong in (0.9, 1.1):
        assert not on_theory([{**cell, "theory": [1.0, 1.0, wrong]}])[0]
    assert on_theory([{**cell, "theory": [1.0, 1.0, 0.9]}], lambda _: 0.15)[0]
