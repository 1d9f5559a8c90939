"""What a report says is what is in the shards, the manifest and the source."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from scipy import sparse

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.errors import ShardError
from tests.cli.test_commands import run
from tests.conftest import first_quick, libsvm_text

MAP = dkfeat.GCWSFeatures(n_components=512, random_state=0)


@pytest.fixture(scope="module")
def rows():
    X = sparse.random(600, 30, density=0.4, random_state=1, format="csr", dtype=np.float32)
    return X, np.random.default_rng(1).integers(0, 3, size=600)


def featurize(source, folder, features=MAP, **options):
    given = {"progress": False, "client": ExecutionConfig(scheduler="synchronous"), **options}
    return dkfeat.featurize(source, folder, features, **given)


@pytest.fixture
def text(tmp_path, rows):
    path = tmp_path / "rows.svm"
    path.write_text(libsvm_text(*rows))
    return path


def test_labels__are_counted(tmp_path, text, rows):
    featurize(dkfeat.LibsvmSource(text, blocksize="8KiB"), tmp_path / "out")
    (tmp_path / "out" / "_dkfeat" / "log-000001-0001.json").unlink()
    report = dkfeat.run_report(tmp_path / "out")
    assert report.labels.counts == {label: int((rows[1] == label).sum()) for label in range(3)}
    assert "No run has left a log here" in report.to_html()


def test_labels__of_lists_are_counted_each(tmp_path):
    (tmp_path / "rows.svm").write_text("1,2 1:1\n 1:2\n2 2:1\n")
    featurize(dkfeat.LibsvmSource(tmp_path / "rows.svm", multilabel=True), tmp_path / "out")
    report = dkfeat.run_report(tmp_path / "out")
    assert report.labels.counts == {1: 1, 2: 2}
    assert "a row may have several" in report.to_html()


def test_labels__are_read_of_some_shards(tmp_path, text, monkeypatch):
    manifest = featurize(dkfeat.LibsvmSource(text, blocksize="4KiB"), tmp_path / "out")
    size = max(entry.size for entry in manifest.shards)
    monkeypatch.setattr("dkfeat.report.run_report.LABEL_BYTES", 3 * size)
    report = dkfeat.run_report(tmp_path / "out")
    assert 2 <= report.labels.n_shards < len(manifest.shards)
    assert f"of {report.labels.n_shards} shards spread over the data set" in report.to_html()


@pytest.mark.parametrize("text_of_rows", ["", "1\n", "1\n2\n"], ids=["no rows", "one row", "empty rows"])
def test_report__of_next_to_nothing(tmp_path, text_of_rows):
    (tmp_path / "rows.svm").write_text(text_of_rows)
    featurize(dkfeat.LibsvmSource(tmp_path / "rows.svm", n_features=3), tmp_path / "out")
    report = dkfeat.run_report(tmp_path / "out")
    assert report.to_mapping()["rows"] == text_of_rows.count("\n")
    assert "complete" in report.to_html()


def test_report__without_matplotlib_has_tables_instead_of_charts(tmp_path, text, monkeypatch):
    featurize(text, tmp_path / "out")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = dkfeat.run_report(tmp_path / "out").to_html()
    assert "pip install 'dkfeat[plot]'" in page
    assert "<svg" not in page
    assert "<th>label</th><th>rows</th>" in page


def test_report__of_a_batch_left_half_way(tmp_path, text):
    def stop(state):
        if state.stage == "featurize" and state.tasks == 2:
            raise KeyboardInterrupt

    source = dkfeat.LibsvmSource(text, blocksize="4KiB")
    with pytest.raises(KeyboardInterrupt):
        featurize(source, tmp_path / "out", progress=stop)
    report = dkfeat.run_report(tmp_path / "out")
    page = report.to_html()
    assert report.status.state == "unfinished"
    assert "2 of " in page
    assert "interrupted" in page
    json.dumps(report.to_mapping(), allow_nan=False)


@pytest.mark.parametrize("of_shards", first_quick([True, False], 2))
def test_report__of_predictions(tmp_path, text, rows, of_shards):
    featurize(text, tmp_path / "out")
    model = dkfeat.train(dkfeat.open_shards(tmp_path / "out"), dkfeat.SGD(epochs=1), progress=False)
    dkfeat.predict(model, tmp_path / "out" if of_shards else text, tmp_path / "labels", progress=False)
    report = dkfeat.run_report(tmp_path / "labels")
    assert dict(report.labels.counts) == dict(enumerate(np.bincount(rows[1]).tolist()))
    assert (report.to_mapping()["features"], "features" in report.figures) == (None, False)
    page = report.to_html()
    for words in ("label, prediction, scores", "Rows by label", "batch 1"):
        assert words in page.replace("source_file, source_split, source_row, ", "")
    json.dumps(report.to_mapping(), allow_nan=False)
    run("report", tmp_path / "labels", "--out", tmp_path / "page.html")


def test_report__shows_itself_shortly(tmp_path, text):
    featurize(text, tmp_path / "out")
    report = dkfeat.run_report(tmp_path / "out")
    assert repr(report) == f"RunReport('{tmp_path / 'out'}', complete, 600 rows, 131,072 features, 1 shard)"


def test_report__of_no_data_set_is_refused(tmp_path):
    with pytest.raises(ShardError, match="not a data set"):
        dkfeat.run_report(tmp_path)


def test_command__writes_the_page_and_its_figures(tmp_path, text):
    featurize(text, tmp_path / "out")
    page = tmp_path / "pages" / "run.html"
    done = run("report", tmp_path / "out", "--out", page, "--json")
    known = json.loads(done.stdout)
    assert (known["rows"], known["report"], known["runs"][0]["outcome"]) == (600, str(page), "committed")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_command__says_what_is_wrong(tmp_path, text):
    featurize(text, tmp_path / "out")
    dkfeat.train(dkfeat.open_shards(tmp_path / "out"), dkfeat.SGD(epochs=1), progress=False).save(tmp_path / "model")

    assert "is a model" in run("report", tmp_path / "model", "--out", tmp_path / "page.html", status=2).stderr
    assert not (tmp_path / "page.html").exists()
