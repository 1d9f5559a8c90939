"""Files whose last line has no line end: records in manifests, warnings, and what inspect and the report show."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma

import pytest

import dkfeat
from dkfeat.learn.predict import predict_file
from dkfeat.report.run_report import run_report
from tests.cli.test_commands import run
from tests.engine.helpers import featurized
from tests.invariants import listed_in

ROWS = "1 1:1\n-1 2:1 # end\n1 3:2\n-1 1:1 2:1 3:1"
GIVEN = {"n_features": 3, "zero_based": False, "label_dtype": "int64"}
WARNING = "the last line has no line end; it is read as a row, but the file may be cut off"


def written(path, text):
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(text.encode()) if text else b"")


@pytest.fixture
def folder(tmp_path):
    """Files of every compression, with and without a last line end, empty, and ending in a comment or a blank."""
    folder = tmp_path / "source"
    folder.mkdir()
    for ending in (".svm", ".svm.gz", ".svm.bz2", ".svm.xz"):
        written(folder / f"cut{ending}", ROWS)
        written(folder / f"whole{ending}", ROWS + "\n")
        written(folder / f"zero{ending}", "")
    written(folder / "comment.svm", "1 1:1\n# cut here")
    written(folder / "crlf.svm", "1 1:1\r\n")
    return folder


def source_of(folder, blocksize, **options):
    return dkfeat.LibsvmSource(str(folder / "*"), blocksize=blocksize, **{**GIVEN, **options})


@pytest.mark.fault("I-42")
@pytest.mark.parametrize("blocksize", [1, 7, 20, 44, 45, 60, 2_000, "1MiB"])
@pytest.mark.parametrize("on_bad_row", ["raise", "quarantine"])
def test_final_newline__of_every_file_with_any_splits(folder, tmp_path, blocksize, on_bad_row):
    manifest = featurized(source_of(folder, blocksize), tmp_path / "out", on_bad_row=on_bad_row)
    found = {source.name: source.final_newline for source in manifest.sources}
    assert found == {path.name: not path.name.startswith(("cut", "comment")) for path in folder.iterdir()}


@pytest.mark.fault("I-42")
def test_final_newline__one_warning_a_file_with_its_line(folder, tmp_path, caplog):
    featurized(source_of(folder, 7), tmp_path / "out")
    places = [f"{folder}/{name}" for name in ("comment.svm:2", "cut.svm:4", "cut.svm.bz2:4")]
    assert caplog.messages == [
        *(f"{place}: {WARNING}" for place in places),
        "the last line has no line end in 2 more files",
    ]
    caplog.clear()
    featurized(source_of(folder, 7), tmp_path / "out")  # complete already
    assert not caplog.messages


@pytest.mark.fault("I-42")
def test_final_newline__of_a_resumed_run(folder, tmp_path):
    whole = featurized(source_of(folder, 7), tmp_path / "whole")

    def interrupt(state):
        if (state.stage, state.tasks) == ("featurize", state.total_tasks // 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        featurized(source_of(folder, 7), tmp_path / "out", scheduler="synchronous", progress=interrupt)
    resumed = featurized(source_of(folder, 7), tmp_path / "out")
    assert (resumed.sources, resumed.shards) == (whole.sources, whole.shards)
    assert listed_in(tmp_path / "out")["sources"][0]["final_newline"] is False


@pytest.mark.fault("I-42")
def test_final_newline__of_a_batch_is_kept_by_the_next(folder, tmp_path):
    featurized(source_of(folder, 20), tmp_path / "out")
    written(folder / "next.svm", "1 1:1")
    manifest = featurized(source_of(folder, 20), tmp_path / "out")
    assert [name.split(".")[0] for name in manifest.unterminated] == ["comment", "cut", "cut", "cut", "cut", "next"]


@pytest.mark.fault("I-42")
def test_final_newline__is_unknown_for_parquet_and_in_earlier_manifests(tmp_path):
    from pyarrow import parquet, table

    parquet.write_table(table({"a": [1.0], "label": [1]}), tmp_path / "rows.parquet")
    manifest = featurized(tmp_path / "rows.parquet", tmp_path / "out", encoder=None)
    assert manifest.sources[0].final_newline is None
    assert "final_newline" not in listed_in(tmp_path / "out")["sources"][0]
    assert dkfeat.open_shards(tmp_path / "out").manifest.sources == manifest.sources


@pytest.mark.fault("I-42")
def test_final_newline__is_shown(folder, tmp_path):
    target = tmp_path / "out"
    manifest = featurized(source_of(folder, "1MiB"), target)
    names = ["comment.svm", "cut.svm", "cut.svm.bz2", "cut.svm.gz", "cut.svm.xz"]
    assert manifest.unterminated == names
    shown = " ".join(run("inspect", target).output.replace("_", " ").split())
    assert "no final newline 5 (comment.svm, cut.svm" in shown
    assert json.loads(run("inspect", target, "--json").output)["no_final_newline"] == names
    report = run_report(target)
    assert report.to_mapping()["no_final_newline"] == names
    assert "5 without a final line end" in report.to_html()


@pytest.mark.fault("I-42")
def test_final_newline__predictions_warn_too(tmp_path, caplog):
    written(tmp_path / "rows.svm", ROWS + "\n")
    featurized(dkfeat.LibsvmSource(str(tmp_path / "rows.svm"), **GIVEN), tmp_path / "out")
    model = dkfeat.train(tmp_path / "out", progress=False)
    written(tmp_path / "new.svm", ROWS)
    caplog.clear()
    manifest = dkfeat.predict(model, tmp_path / "new.svm", tmp_path / "predictions", progress=False)
    assert manifest.unterminated == ["new.svm"]
    predict_file(model, str(tmp_path / "new.svm"))
    assert caplog.messages == [f"{tmp_path}/new.svm:4: {WARNING}"] * 2
