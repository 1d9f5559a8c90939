"""Feature maps side by side."""

import inspect
import json
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import dump_svmlight_file, load_digits
from sklearn.preprocessing import normalize

from dkfeat import GCWSFeatures, ParquetSource, featurize
from dkfeat.cli import cli
from dkfeat.cli.options import make_solver
from dkfeat.config.train import SGD, Liblinear
from dkfeat.errors import ConfigError, InputError
from dkfeat.learn.compare.compare import compare
from dkfeat.learn.compare.comparison import Comparison, Result
from dkfeat.learn.compare.fits import MAPS, Fits, FitSettings, held_out_parts
from dkfeat.learn.liblinear import split_held_out
from dkfeat.plot import accuracy_against_k
from tests import programs
from tests.cli.test_commands import run

OF_NUMBERS = [name for name in MAPS if name != "minhash"]  # which takes zeros and ones alone
FEW = {
    "maps": ["gcws", "nrff"],
    "n_components": [16, 64],
    "gamma": [1.0, 10.0],
    "progress": False,
    "solver": Liblinear(C=[0.1, 10.0]),
    "minutes": float("inf"),
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Training and test digits, as text."""
    folder = tmp_path_factory.mktemp("digits")
    X, y = load_digits(return_X_y=True)
    for name, rows in (("train", slice(0, 500)), ("test", slice(500, 800))):
        dump_svmlight_file(X[rows], y[rows], str(folder / f"{name}.svm"), zero_based=False)
    return str(folder / "train.svm"), str(folder / "test.svm")


def test_compare__every_map_learns_and_the_cheapest_good_one_is_recommended(paths):
    train, test = paths
    seen = []
    comparison = compare(train, test=test, **{**FEW, "maps": OF_NUMBERS, "progress": seen.append})
    assert {(each.name, each.k) for each in seen} == {(each.name, each.k) for each in comparison.results}
    assert [each.name for each in comparison.results if each.k is None] == [
        "linear", "exact gmm", "exact gmm-rank", "exact rbf_cosine"
    ]  # fmt: skip
    by = {(each.name, each.k): each for each in comparison.results}
    assert [(name, k) for name, k in by if k is not None] == [(name, k) for name in OF_NUMBERS for k in (16, 64)]
    for name in OF_NUMBERS:
        assert by[name, 16].accuracy < by[name, 64].accuracy
        assert (by[name, 64].gamma in (1.0, 10.0)) == (MAPS[name][0] == "rbf_cosine")
        assert by[name, 64].row_microseconds > 0
    assert by["gcws", 64].row_bytes == 64
    assert by["nrff", 64].row_bytes == 256
    assert by["exact gmm", None].accuracy > 0.9
    for each in comparison.results:  # one measure in the column: all on the same held-out rows
        assert each.validation_accuracy == pytest.approx(1 - len(each.wrong) / comparison.n_validation)
    mapped = [each.validation_accuracy for each in comparison.results if each.k]
    assert comparison.best.validation_accuracy == max(mapped)
    loss, error = comparison.difference(comparison.best, comparison.recommended)
    assert loss <= error
    assert comparison.n_train == comparison.n_validation == 500  # few rows: all are held out in turn
    assert comparison.left_out == ()
    for each in comparison.results:
        if each.k is not None:
            assert each.validation_accuracy == pytest.approx(1 - len(each.wrong) / 500)


def test_compare__accuracy_is_that_of_scikit_learn_on_the_features(paths):
    from sklearn.datasets import load_svmlight_file
    from sklearn.svm import LinearSVC

    train, test = paths
    options = {"maps": ["gcws"], "n_components": 32, "solver": Liblinear(C=1.0), "progress": False}
    linear, result = compare(train, test=test, baselines="linear", **options).results
    X, y = load_svmlight_file(train, n_features=64)
    X_test, y_test = load_svmlight_file(test, n_features=64)
    gcws = GCWSFeatures(n_components=32, random_state=0).fit(X)
    features, tested = (gcws.transform(rows).astype(np.float64) / 32**0.5 for rows in (X, X_test))
    peer = LinearSVC(random_state=0).fit(features, y)
    assert result.accuracy == pytest.approx(peer.score(tested, y_test), abs=0.004)
    unit = LinearSVC(random_state=0).fit(normalize(X), y).score(normalize(X_test), y_test)
    assert linear.accuracy == pytest.approx(unit, abs=0.004)
    parts = held_out_parts(y, FIT)
    assert (parts[0] == split_held_out(y, 0.1, 0)).all()
    right = 0.0
    for held in parts:
        other = LinearSVC(random_state=0).fit(features[~held], y[~held])
        right += other.score(features[held], y[held]) * held.sum()
    assert result.validation_accuracy == pytest.approx(right / 500, abs=0.004)  # two rows
    assert result.validation_accuracy != result.accuracy


def test_held_out_parts__are_disjoint_and_no_more_than_needed():
    for n_rows, n_held in ((500, 500), (30_000, None)):
        y = np.arange(n_rows) % 3
        parts = held_out_parts(y, FIT)
        assert (parts[0] == split_held_out(y, 0.1, 0)).all()
        total = np.sum(parts, axis=0)
        assert total.max() == 1
        assert total.sum() == (n_held or parts[0].sum())
    assert len(parts) == 1
    assert 2000 <= np.sum(held_out_parts(np.arange(4435) % 6, FIT)) < 2500
    tiny = held_out_parts(np.arange(4435) % 6, replace(FIT, validation_fraction=0.01))
    assert len(tiny) == 12  # a further fit each
    y = np.array([0] * 30 + [1])
    assert not any(part[-1] for part in held_out_parts(y, FIT))  # the only row of its class


def test_compare__times_maps_when_they_are_warm(paths, monkeypatch):
    original, calls, late = GCWSFeatures.transform, [], [0.0]
    clock = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + late[0])

    def transform(self, X):
        calls.append(X.shape[0])
        if len(calls) == 1:
            late[0] = 100.0  # seconds, as compiling would take
        return original(self, X)

    monkeypatch.setattr(GCWSFeatures, "transform", transform)
    options = {"maps": ["gcws"], "n_components": [16], "baselines": [], "progress": False}
    options["solver"] = Liblinear(C=1.0)
    (result,) = compare(paths[0], test=paths[1], **options).results
    assert calls[0] == 500
    assert set(calls[1:]) == {300}
    assert 0 < result.row_microseconds * 300 < 100e6


def test_compare__finds_that_a_column_of_another_unit_hides_the_others(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.lognormal(size=(800, 3)) * [1, 1, 1e6]
    y = (X[:, 0] > X[:, 1]).astype(int)
    dump_svmlight_file(X, y, str(tmp_path / "rows.svm"), zero_based=False)
    options = {"maps": ["gcws", "gcws-rank"], "n_components": 128, "baselines": "exact", "progress": False}
    comparison = compare(tmp_path / "rows.svm", solver=Liblinear(C=[1.0, 10.0]), **options)
    accuracy = {each.name: each.accuracy for each in comparison.results}
    assert accuracy["gcws-rank"] > accuracy["gcws"] + 0.2
    assert accuracy["exact gmm-rank"] > accuracy["exact gmm"] + 0.2
    assert comparison.recommended.name == "gcws-rank"


@pytest.mark.parametrize("labels", [(0.5, 1.5), (0.5, 1.5, 2.5)])
@pytest.mark.parametrize("loss", ["squared_hinge", "log_loss"])
def test_compare__classes_may_be_fractions(tmp_path, labels, loss):
    rows, few = tmp_path / "rows.svm", {"maps": "gcws", "n_components": 16, "solver": Liblinear(loss=loss, C=1.0)}
    rows.write_text("".join(f"{label} {column}:1\n" for column, label in enumerate(labels, 1)) * 30)
    found = compare(str(rows), progress=False, gamma=1.0, **few)
    assert [each.accuracy for each in found.results] == [1.0] * 3


def test_compare__a_part_by_seed_is_the_test_where_none_is_given(paths):
    first, again, other = (
        compare(paths[0], **{**FEW, "maps": "gcws", "n_components": 16, "baselines": "linear"}, random_state=seed)
        for seed in (1, 1, 2)
    )
    assert first.n_train + first.n_test == 500
    assert 90 < first.n_test < 160  # 125 expected, 3.5 standard deviations
    assert [each.accuracy for each in first.results] == [each.accuracy for each in again.results]
    assert first.n_test != other.n_test


def test_compare__leaves_out_landmarks_beyond_the_rows(paths):
    options = {**FEW, "maps": ["nystroem-gmm"], "n_components": [16, 4096], "baselines": []}
    assert [each.k for each in compare(paths[0], **options).results] == [16]
    with pytest.raises(ConfigError, match=r"n_components=4,096 landmarks or more cannot be taken from 3\d\d training"):
        compare(paths[0], **{**options, "n_components": 4096})


def test_compare__needs_two_classes(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:1\n" * 40)
    with pytest.raises(InputError, match="two classes or more"):
        compare(tmp_path / "rows.svm", **FEW)
    (tmp_path / "rows.svm").write_text("".join(f"{row / 7:.3f} 1:1\n" for row in range(40)))
    with pytest.raises(InputError, match=r"the labels of \d+ rows take \d+ values; .* not quantities"):
        compare(tmp_path / "rows.svm", **FEW)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"label": None}, "have no labels"),
        ({"weight": "w"}, "leave out the column of weights"),
        ({"on_bad_row": "quarantine"}, "on_bad_row must be 'raise'"),
        (None, "shards holds shards; .* give the rows they were made from"),
    ],
)
def test_compare__refuses_rows_that_it_would_not_compare_as_asked(tmp_path, options, text):
    pq.write_table(pa.table({"x": [1.0, 2.0], "w": [1.0, 2.0], "label": [0, 1]}), tmp_path / "rows.parquet")
    if options is None:
        source = tmp_path / "shards"
        featurize(tmp_path / "rows.parquet", source, GCWSFeatures(n_components=16, random_state=0), progress=False)
    else:
        source = ParquetSource(str(tmp_path / "rows.parquet"), features="x", **options)
    with pytest.raises(ConfigError, match=text):
        compare(source, **FEW)


FIT = FitSettings(C=(1.0,), gamma=(1.0,), gamma_components=16)


def made(*rows):
    """Comparison of rows of name, k, test accuracy, bytes, microseconds and held-out accuracy.

    The wrong rows of a better map are also wrong for a worse one.
    """
    results = [
        Result(
            name=name,
            k=k,
            accuracy=accuracy,
            C=1.0,
            row_bytes=size,
            row_microseconds=spent,
            validation_accuracy=own,
            wrong=tuple(range(round(400 * (1 - own)))),
        )
        for name, k, accuracy, size, spent, own in rows
    ]
    return Comparison(results=tuple(results), n_train=100, n_validation=400, n_test=50)


def test_recommended__is_the_cheapest_by_held_out_rows_whatever_the_test_rows_say():
    rows = (
        ("linear", None, 0.99, 4, None, 0.99),
        ("a", 8, 0.7, 80, 1, 0.9),
        ("b", 8, 0.71, 20, 9, 0.8975),
        ("c", 8, 0.6, 20, 8, 0.8975),
        ("d", 8, 0.99, 1, 1, 0.8),
    )
    found = made(*rows)
    assert (found.best.name, found.recommended.name) == ("a", "c")
    assert found.to_mapping()["recommended"]["name"] == "c"
    assert found.to_text().endswith(
        "recommended: c, 8 components, 20 bytes a row, with 60.00% of the 50 test rows right\n"
        "chosen on 400 held-out training rows: 89.75% right, "
        "0.25 points (standard error 0.25) below a of 8 components at 80 bytes a row\n"
        "no map that was tried is as good as the linear model of the rows themselves, with 99.00% of the held-out rows "
        "right: use that, or compare more components\n"
    )
    assert "linear model" not in made(("linear", None, 0.99, 4, None, 0.9), *rows[1:]).to_text()


def test_recommended__pairs_the_held_out_rows():
    best = Result(name="a", k=8, accuracy=0.9, C=1.0, row_bytes=80, validation_accuracy=0.9, wrong=tuple(range(40)))
    same = Result(name="b", k=8, accuracy=0.9, C=1.0, row_bytes=20, validation_accuracy=0.88, wrong=tuple(range(48)))
    other = replace(same, wrong=tuple(range(100, 148)))  # the same accuracy, but other rows are wrong
    for cheap, recommended, error in ((same, "a", 0.0070), (other, "b", 0.0235)):
        found = Comparison(results=(best, cheap), n_train=500, n_validation=400, n_test=50)
        assert found.recommended.name == recommended
        # variance of one row: 8 rows, or 88 rows, of 400 differ
        assert found.difference(best, cheap) == (pytest.approx(0.02), pytest.approx(error, abs=1e-4))


def test_plot__shows_test_accuracy_over_the_logarithm_of_k():
    comparison = made(
        ("linear", None, 0.7, 4, None, 0.1),
        ("a", 8, 0.8, 80, 1, 0.2),
        ("a", 16, 0.9, 80, 1, 0.3),
        ("b", 16, 0.85, 9, 1, 0.4),
    )
    axes = Figure().add_subplot()
    accuracy_against_k(comparison, ax=axes)
    drawn = {line.get_label().partition("\n")[0]: line.get_xydata().tolist() for line in axes.get_lines()}
    assert drawn == {
        "a": [[8, 80], [16, 90]],
        "b": [[16, 85]],
        "linear": [[0, 70], [1, 70]],  # from edge to edge
        "recommended": [[16, 85]],
    }
    assert axes.get_xscale() == "log"
    assert axes.xaxis.get_transform().base == 2
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["8", "16"]
    assert "components" in axes.get_xlabel()
    assert "test accuracy (%)" in axes.get_ylabel()
    styles = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.get_lines()}
    assert len(styles) == 4


def test_save__does_without_the_plot_where_matplotlib_is_missing(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    comparison = made(("a", 8, 0.8, 80, 1, 0.8))
    assert [path.name for path in comparison.save(tmp_path)] == [f"comparison.{end}" for end in ("txt", "json")]
    assert "no accuracy.png, which needs matplotlib" in caplog.text


def test_command__writes_tables_and_plot(paths, tmp_path):
    train, test = paths
    command = ["compare", train, "--test", test, "--maps", "gcws", "--k", "16,32", "--C", "1", "--no-exact"]
    done = run(*command, "--out", tmp_path / "out")
    assert "recommended: gcws" in done.stdout
    assert "; 3 of 3 after 0:" in done.stderr.split("compare: gcws, 32 components: test accuracy")[1]
    assert (tmp_path / "out" / "accuracy.png").stat().st_size > 5000
    assert (tmp_path / "out" / "comparison.txt").read_text() == done.stdout
    as_json = run(*command, "--out", tmp_path / "out", "--json")
    assert json.loads(as_json.stdout) == json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert "wrong" not in as_json.stdout
    assert "not a list of numbers such as 32,64" in run("compare", train, "--k", "a,b", status=2).stderr


@pytest.mark.slow
@pytest.mark.fault("P-01")
def test_command__killed_between_two_files__runs_again(paths, tmp_path):
    words = ["compare", paths[0], "--maps", "gcws", "--k", "16", "--C", "1", "--no-exact", "--out", tmp_path / "out"]
    programs.run_killed("after_tmp:2", programs.command(*words))
    assert len(list((tmp_path / "out").glob("[!.]*"))) == 1
    run(*words)
    assert len(list((tmp_path / "out").glob("[!.]*"))) == 3


def test_command__has_the_defaults_of_the_function():
    function = {name: item.default for name, item in inspect.signature(compare).parameters.items()}
    command = cli.commands["compare"].make_context("compare", ["a.svm"]).params
    assert tuple(command["maps"].split(",")) == function["maps"]
    assert command["seed"] == function["random_state"]
    assert make_solver(function["solver"], command) == Liblinear()
    assert command["k"] == function["n_components"]
    assert command["test_fraction"] == function["test"]
    for name in ("gamma", "minutes", "progress"):
        assert command[name] == function[name], name


@pytest.fixture
def fits(monkeypatch):
    """Maps and sizes that are fitted; each fit takes 1 second for 8 components, on a clock that only fits advance."""
    now, order = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def fit(_, name, k, *__):
        order.append((name, k))
        now[0] += k / 8
        return Result(name=name, k=k, accuracy=0.5, C=1.0, fit_seconds=k / 8)

    monkeypatch.setattr(Fits, "mapped", fit)
    return now, order


def test_compare__begins_nothing_that_would_end_too_late(paths, fits):
    options = {**FEW, "maps": ["gcws", "dart"], "n_components": [8, 16, 32, 64], "baselines": []}
    found = compare(paths[0], **{**options, "minutes": 12.5 / 60})  # 6 seconds for the first four fits, then 4 each
    assert fits[1] == [(name, k) for k in (8, 16, 32) for name in ("gcws", "dart")][:5]
    assert [each.describe() for each in found.left_out] == [
        "dart, 32 and 64 components: no time left",
        "gcws, 64 components: no time left",
    ]


@pytest.mark.parametrize("n_rows", [3000, 3001])
@pytest.mark.usefixtures("fits")
def test_compare__exact_machines_are_for_3000_rows_or_fewer(monkeypatch, tmp_path, n_rows):
    (tmp_path / "rows.svm").write_text("1 1:1\n2 2:1\n" * 1500 + "1 1:1\n" * (n_rows - 3000))
    exact = Result(name="exact gmm", accuracy=0.5, C=1.0)
    monkeypatch.setattr(Fits, "exact", lambda *_: exact)
    options = {"maps": "gcws", "n_components": 8, "baselines": "exact-if-small", "progress": False}
    found = compare(tmp_path / "rows.svm", test=tmp_path / "rows.svm", **options)
    assert (exact in found.results) == (n_rows == 3000)


def test_compare__no_map_begins_whose_gamma_takes_all_the_time(paths, fits, monkeypatch):
    def best_gamma(*_):
        fits[0][0] = 60.0
        return 1.0, True

    monkeypatch.setattr(Fits, "best_gamma", best_gamma)
    found = compare(paths[0], **{**FEW, "baselines": [], "minutes": 1.0})
    assert fits[1] == [("gcws", 16), ("gcws", 64)]  # 64 is below 8 times 16, at which the search for gamma begins
    assert [(each.name, each.k) for each in found.left_out] == [("nrff", (16, 64))]


def test_compare__searches_stop_at_the_end_of_the_time(paths):
    options = {**FEW, "maps": ["nrff"], "minutes": 1e-9}
    grid = {"gamma": [0.01, 0.1, 1.0, 10.0], "solver": Liblinear(C=[0.1, 1.0, 10.0])}
    short = compare(paths[0], test=paths[1], **{**options, **grid})
    linear, first = short.results
    assert (linear.name, linear.C, linear.is_cut_short) == ("linear", 0.1, True)
    assert (first.name, first.k, first.gamma, first.C, first.is_cut_short) == ("nrff", 16, 1.0, 0.1, True)
    assert [(each.name, each.k) for each in short.left_out] == [("nrff", (64,))]
    assert "more components of nrff may be better" in short.to_text()
    assert short.to_text().count("cut short: ") == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"maps": ["gmm"]}, "maps='gmm'"),
        ({"n_components": []}, "one number of components"),
        ({"n_components": [0]}, "n_components=0"),
        ({"n_components": 2.5}, "n_components=2.5"),
        ({"baselines": "raw"}, "baselines='raw'"),
        ({"test": 1.0}, "test=1, but it must be below 1"),
        ({"minutes": 0}, "minutes=0"),
        ({"solver": SGD()}, r"solver=SGD.*must be dkfeat\.Liblinear"),
    ],
)
def test_compare__refuses_settings(paths, options, text):
    with pytest.raises(ConfigError, match=text):
        compare(paths[0], **{**FEW, **options})
