"""Figures of evaluations against scikit-learn on all rows at once, whatever the rows came from."""

import math
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.learn.evaluate.accumulators import ScoreBins, accumulator_for
from tests.cli.test_commands import run
from tests.learn.fakes import write_rows
from tests.learn.test_predict import BLOCK, predicted, trained

__all__ = ["trained"]


def evaluated(model, source, blocksize=None, **options):
    source = source if blocksize is None else dkfeat.LibsvmSource(source, blocksize=blocksize)
    return dkfeat.evaluate(model, source, **ExecutionConfig.gather({"progress": False, **options}))


def test_evaluate__figures_are_those_of_scikit_learn(trained):
    folder, pattern, X, y = trained
    model = dkfeat.load_model(folder / "model")
    found = evaluated(model, pattern, blocksize=BLOCK)
    labels, scores, chances = model.predict(X), model.decision_function(X), model.predict_proba(X)
    assert 0.7 < found.summary["accuracy"] < 1
    expected = {
        "accuracy": metrics.accuracy_score(y, labels),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, labels),
        "macro_f1": metrics.f1_score(y, labels, average="macro"),
        "macro_precision": metrics.precision_score(y, labels, average="macro"),
        "weighted_f1": metrics.f1_score(y, labels, average="weighted"),
        "macro_auc": np.mean([metrics.roc_auc_score(y == c, s) for c, s in zip(model.classes, scores.T, strict=True)]),
        "macro_average_precision": np.mean(
            [metrics.average_precision_score(y == c, s) for c, s in zip(model.classes, scores.T, strict=True)]
        ),
        "log_loss": metrics.log_loss(y, chances),
    }
    for name, value in expected.items():
        assert found.summary[name] == pytest.approx(value, rel=1e-5), name
    assert "auc_error" not in found.summary  # all scores were kept
    matrix = np.zeros((3, 3), int)
    for own, predicted_label, rows in found.confusion:
        matrix[own, predicted_label] = rows
    np.testing.assert_array_equal(matrix, metrics.confusion_matrix(y, labels))
    right, told = labels == y, chances.max(axis=1)
    bins = np.minimum((10 * told).astype(int), 9)
    assert [rows for _, _, rows in found.calibration] == [count for count in np.bincount(bins) if count]
    by_hand = [(told[bins == b].mean(), right[bins == b].mean()) for b in np.unique(bins)]
    np.testing.assert_allclose([entry[:2] for entry in found.calibration], by_hand, rtol=1e-5)


def test_evaluate__classes_that_do_not_occur_are_not_averaged(trained, tmp_path):
    folder, _, X, y = trained
    model = dkfeat.load_model(folder / "model")
    predicted_labels = model.predict(X)
    rows = np.flatnonzero((predicted_labels != model.classes[2]) & (y != model.classes[2]))
    assert len(rows)
    found = evaluated(model, write_rows(tmp_path / "some.svm", X[rows], y[rows]))
    labels = predicted_labels[rows]
    assert found.summary["macro_f1"] == pytest.approx(metrics.f1_score(y[rows], labels, average="macro"))
    precision = metrics.precision_score(y[rows], labels, average="macro")
    assert found.summary["macro_precision"] == pytest.approx(precision)
    assert found.summary["macro_recall"] == pytest.approx(found.summary["balanced_accuracy"])
    assert [entry["label"] for entry in found.per_class] == model.classes.tolist()


def test_evaluate__two_classes(trained):
    folder, _, X, y = trained
    model, own = dkfeat.load_model(folder / "binary"), np.where(y == 3, 3, 4)
    found = evaluated(folder / "binary", folder / "two.svm")
    scores = model.decision_function(X)
    assert found.summary["auc"] == pytest.approx(metrics.roc_auc_score(own == 4, scores))
    assert found.summary["average_precision"] == pytest.approx(metrics.average_precision_score(own == 4, scores))
    assert found.summary["brier"] == pytest.approx(metrics.brier_score_loss(own == 4, model.predict_proba(X)[:, 1]))
    assert found.per_class[0].keys() == {"label", "precision", "recall", "f1", "support"}
    recall, precision = map(np.array, found.curves["precision_recall"])
    for wanted, shown in zip(recall[1:], precision[1:], strict=True):  # 0 is the point that no rows make
        least = np.sort(scores[own == 4])[::-1][math.ceil(wanted * (own == 4).sum() - 1e-9) - 1]
        assert shown == pytest.approx((own[scores >= least] == 4).mean())
    false, true, _ = metrics.roc_curve(own == 4, scores)
    rates = found.curves["roc"]
    np.testing.assert_allclose(rates[1], np.interp(rates[0], false, true), rtol=1e-12)
    assert metrics.auc(*rates) == pytest.approx(found.summary["auc"], abs=0.01)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", pytest.param("cluster", marks=pytest.mark.cluster)])
def test_evaluate__text_shards_and_predictions_agree(trained, tmp_path, scheduler, request):
    folder, pattern, _, _ = trained
    predicted(folder / "model", pattern, tmp_path / "out", blocksize=BLOCK)
    of_session = scheduler == "cluster"
    given = {"client": request.getfixturevalue("cluster_client")} if of_session else {"scheduler": scheduler}
    direct = evaluated(folder / "model", pattern, blocksize=BLOCK, **given)
    assert evaluated(folder / "model", folder / "shards", **given) == direct
    assert evaluated(folder / "model", tmp_path / "out", **given) == direct


def test_evaluate__predictions_without_scores_have_no_curves(trained, tmp_path):
    folder, pattern, _, _ = trained
    predicted(folder / "model", pattern, tmp_path / "out", scores=False)
    found, whole = evaluated(folder / "model", tmp_path / "out"), evaluated(folder / "model", pattern)
    assert found.summary["accuracy"] == whole.summary["accuracy"]
    assert found.per_class[0]["f1"] == whole.per_class[0]["f1"]
    assert not found.curves
    assert not found.calibration


def test_evaluate__regression(trained):
    folder, pattern, X, y = trained
    base = dkfeat.load_model(folder / "model")
    coef, intercept = base.coef[:1], base.intercept[:1] + 4
    model = replace(base, classes=np.empty(0), coef=coef, intercept=intercept, task="regression")
    found = evaluated(model, pattern, blocksize=BLOCK)
    numbers = model.predict(X)
    assert found.summary["rmse"] == pytest.approx(metrics.root_mean_squared_error(y, numbers), rel=1e-5)
    assert found.summary["mae"] == pytest.approx(metrics.mean_absolute_error(y, numbers), rel=1e-5)
    assert found.summary["r2"] == pytest.approx(metrics.r2_score(y, numbers), rel=1e-5)
    assert sorted(found.sample[:, 0]) == sorted(y)


def test_evaluate__lists_of_labels(trained, tmp_path):
    folder, _, X, y = trained
    base = dkfeat.load_model(folder / "model")
    of_lists = {**base.input_spec, "multilabel": True}
    model = replace(base, input_spec=of_lists, intercept=base.intercept + 1, task="multilabel")
    own = np.column_stack([y == 3, y <= 4, y == 5])
    lists = [",".join(str(c) for c in base.classes[row]) for row in own]
    path = write_rows(tmp_path / "lists.svm", X, lists)
    found = evaluated(model, str(path))
    labels = model.predict(X).toarray()
    for name, average in (("micro_f1", "micro"), ("macro_f1", "macro"), ("weighted_f1", "weighted")):
        assert found.summary[name] == pytest.approx(metrics.f1_score(own, labels, average=average)), name
    assert found.summary["accuracy"] == pytest.approx(metrics.accuracy_score(own, labels))
    assert found.summary["macro_auc"] == pytest.approx(metrics.roc_auc_score(own, model.decision_function(X)))
    predicted(model, str(path), tmp_path / "out")
    assert evaluated(model, tmp_path / "out") == found
    with pytest.raises(ConfigError, match="one label each, but the model is multilabel"):
        evaluated(model, folder / "shards")


def test_evaluate__rows_of_unknown_label_are_left_out(trained, tmp_path):
    folder, _, X, y = trained
    path = write_rows(tmp_path / "rows.svm", X, np.where(y == 5, 9, y))
    found = evaluated(folder / "model", path)
    assert found.n_unknown == (y == 5).sum()
    assert found.n_rows == (y != 5).sum()
    with pytest.raises(InputError, match="the label of none of the 240 rows"):
        evaluated(folder / "model", write_rows(tmp_path / "rows.svm", X, y + 10))


def test_evaluate__what_cannot_be_compared(trained, tmp_path):
    folder, pattern, _, _ = trained
    predicted(folder / "model", pattern, tmp_path / "out")
    with pytest.raises(SpecConflictError, match="predicted by another model"):
        evaluated(folder / "binary", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "data").select(["source_row"])
    pq.write_table(table.rename_columns(["x"]), tmp_path / "rows.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "rows.parquet"), features="x", label=None)
    with pytest.raises(ConfigError, match="no labels to compare with"):
        evaluated(folder / "model", source.replaced(n_features=12))


@given(
    st.lists(st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), st.booleans()), max_size=60),
    st.integers(2, 12),
    st.integers(1, 5),
)
def test_score_bins__do_not_depend_on_batches_and_bound_their_error(rows, most, batch):
    scores = np.array([score for score, _ in rows], np.float32)
    positive = np.array([is_positive for _, is_positive in rows], np.bool_)
    whole, parts, exact = ScoreBins(most), ScoreBins(most), ScoreBins(1000)
    whole.add(scores, positive)
    exact.add(scores, positive)
    for start in reversed(range(0, len(rows), batch)):
        part = ScoreBins(most)
        part.add(scores[start : start + batch], positive[start : start + batch])
        parts.merge(part)
    for name in ("scores", "positive", "negative"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    np.testing.assert_array_equal(exact.scores, np.unique(scores + np.float32(0)))
    assert len(whole.scores) <= most
    assert (whole.positive.sum(), whole.negative.sum()) == (positive.sum(), (~positive).sum())
    if 0 < positive.sum() < len(rows):
        areas = [
            metrics.roc_auc_score(
                np.repeat([1, 0], len(bins.positive)),
                np.tile(np.arange(len(bins.positive)), 2),
                sample_weight=np.concatenate([bins.positive, bins.negative]),
            )
            for bins in (whole, exact)
        ]
        assert abs(areas[0] - areas[1]) <= whole.auc_error + 1e-12


def test_evaluate__writes_pictures_and_one_page(trained, tmp_path):
    folder, pattern, _, _ = trained
    outcome = run("evaluate", folder / "model", pattern, "--out", tmp_path / "a", "--no-progress")
    assert re.search(r"^accuracy +0\.[0-9]{4}$", outcome.stdout, re.MULTILINE)
    run("evaluate", folder / "model", folder / "shards", "--out", tmp_path / "b", "--no-progress")
    names = {"calibration.png", "confusion.png", "precision_recall.png", "roc.png"}
    made = {"evaluation.html", "evaluation.json", "explanation.png", *names}
    assert {path.name for path in (tmp_path / "a").iterdir()} == made
    for name in names:
        data = (tmp_path / "a" / name).read_bytes()
        assert data.startswith(b"\x89PNG")
        assert data == (tmp_path / "b" / name).read_bytes()
    text = (tmp_path / "a" / "evaluation.html").read_text()
    pictures = re.findall('srcset="(data:image/png;base64,[^"]+)">\n<img alt="[^"]+" src="([^"]+)"', text)
    assert len({png for both in pictures for png in both}) == 2 * len(names) + 2  # for dark and for light pages
    assert text.count("<h3>Row ") == 5
    assert "Shards keep codes or predictions and no rows" in (tmp_path / "b" / "evaluation.html").read_text()
    assert not re.search(r"<(script|link|iframe)|https?://|unknown label", text)


def test_evaluate__without_matplotlib(trained, tmp_path, monkeypatch):
    folder, pattern, _, _ = trained
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = run("evaluate", folder / "model", pattern, "--out", tmp_path / "out", status=2)
    assert "pip install matplotlib" in outcome.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("n_classes", [2, 300])
def test_evaluation__repr_is_short(n_classes):
    classes = np.arange(n_classes)
    model = SimpleNamespace(task="multiclass", classes=classes, names=classes, coef=np.empty((n_classes, 1)))
    counts = accumulator_for(model)
    counts.add(np.repeat(classes, 50), np.tile(classes, 50), np.eye(n_classes)[np.tile(classes, 50)])
    found = counts.evaluation()
    assert bool(found.curves) == (n_classes == 2)  # there are none beyond 256 classes
    text = repr(found)
    assert str(found.summary["accuracy"]) in text
    assert len(text) < 1000


def test_predict__command_line_writes_folders_and_files(trained, tmp_path):
    folder, pattern, X, _ = trained
    outcome = run("predict", folder / "model", pattern, "--out", tmp_path / "out", "--no-progress")
    assert re.search(r"^rows +240$", outcome.stdout, re.MULTILINE)
    labels = dkfeat.load_model(folder / "model").predict(X).tolist()
    assert pq.read_table(tmp_path / "out" / "data")["prediction"].to_pylist() == labels
    assert run("predict", folder / "model", folder / "shards").stdout.split() == [str(label) for label in labels]
    run("predict", folder / "binary", pattern, "--out", tmp_path / "out", "--no-progress", status=4)
    for command in ("predict", "evaluate"):
        wrong = run(command, folder / "model", folder / "shards", "--blocksize", "1MiB", "--no-label", status=2)
        assert "holds shards, which are read as they were made; leave out --blocksize, --no-label" in wrong.stderr
    assert "not features" in run("predict", folder / "model", tmp_path / "out", status=2).stderr
    assert run("verify", tmp_path / "out").stdout
    assert "predictions" in run("inspect", tmp_path / "out").stdout
