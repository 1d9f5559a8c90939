"""What a report of duplicates says is what is in its tables and in the source."""

from __future__ import annotations

import json
import re
import shutil
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.errors import ConfigError, SourceNotFoundError
from tests.cli.test_commands import run

SOME_THREADS = ExecutionConfig(scheduler="synchronous")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table of 300 rows, of which the last 60 are copies with up to 3 changed values, its shards and duplicates."""
    folder = tmp_path_factory.mktemp("duplicates")
    rng = np.random.default_rng(0)
    X = rng.integers(1, 9, size=(240, 24)) * (rng.random((240, 24)) < 0.7)
    copies = X[np.arange(60) // 2]
    for changes in range(4):
        copies[changes::4, :changes] += 2
    X = np.concatenate([X, copies])
    columns = {f"x{column}": values for column, values in enumerate(X.T)}
    names = [f"<{number}>" for number in range(300)]
    table = pa.table({"y": np.zeros(300, np.int64), "name": names, **columns})
    pq.write_table(table, folder / "rows.parquet", row_group_size=70)
    source = dkfeat.ParquetSource(
        folder / "rows.parquet", label="y", keep="name", features_as="columns", blocksize="1KiB"
    )
    gcws = dkfeat.GCWSFeatures(n_components=512, random_state=0)
    manifest = dkfeat.featurize(source, folder / "shards", gcws, progress=False, client=SOME_THREADS)
    assert len(manifest.shards) > 3
    dkfeat.neighbors.duplicates(folder / "shards", 0.8, target=folder / "found", progress=False)
    return folder, X


def test_report__is_that_of_the_tables_and_the_source(made):
    folder, X = made
    report = dkfeat.duplicates_report(folder / "found")
    pairs, groups = (pd.read_parquet(folder / "found" / name / "data") for name in ("pairs", "groups"))
    sizes = groups["group"].value_counts()
    assert dict(report.sizes) == sizes[sizes > 1].value_counts().to_dict()
    assert {(size, row.number) for size, row in report.largest} <= {(size, row) for row, size in sizes.items()}
    assert report.largest[0][0] == report.found.largest_group == sizes.max()
    assert report.histogram == tuple(np.histogram(pairs["similarity"], report.edges)[0])
    assert sum(report.histogram) == len(pairs) >= 60
    shown = [sample.similarity for sample in report.samples]
    assert shown == sorted(shown)
    assert (shown[0], shown[-1]) == pytest.approx((pairs["similarity"].min(), 1), abs=0.01)
    known = {(row.row, row.other): row.similarity for row in pairs.itertuples()}
    for sample in report.samples:
        row, other = (held.number for held in sample.rows)
        assert known[row, other] == sample.similarity
        assert [held.kept["name"] for held in sample.rows] == [f"<{row}>", f"<{other}>"]
        assert [held.file_row for held in sample.rows] == [row, other]
        expected = {f"x{at}": (X[row, at], X[other, at]) for at in np.flatnonzero(X[row] != X[other])}
        assert sample.differences == expected
        assert [a != b for _, (a, b) in sample.values[: len(expected)]] == [True] * len(expected)
    assert json.loads(json.dumps(report.to_mapping(), allow_nan=False))["n_pairs"] == len(pairs)


def test_page__needs_no_network_and_escapes(made):
    page = dkfeat.duplicates_report(made[0] / "found").to_html()
    assert page.count("<svg") == 2
    assert "threshold 0.8</text>" in page
    assert re.findall(r"(?:src|href)=\"(?!#)|https?://(?!www\.w3\.org)|<script", page) == []
    assert "&lt;3&gt;" in page
    assert "<3>" not in page


def test_page__without_matplotlib_has_a_table(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = dkfeat.duplicates_report(made[0] / "found").to_html()
    assert "<svg" not in page
    assert "<th>rows</th><th>groups</th>" in page


def test_source__that_no_log_names_is_given(made, tmp_path):
    folder = shutil.copytree(made[0], tmp_path / "copy")
    record = folder / "found" / "duplicates.json"
    record.write_text(record.read_text().replace(str(made[0]), str(folder)))
    (log,) = (folder / "shards" / "_dkfeat").glob("log-*")
    log.unlink()
    report = dkfeat.duplicates_report(folder / "found")
    assert (report.samples[0].columns, report.samples[0].values) == ((None, None), [])
    assert "give it to the report too" in report.source_note
    assert report.source_note in report.to_html()
    assert dkfeat.duplicates_report(folder / "found", folder / "rows.parquet").samples[0].differences
    with pytest.raises(SourceNotFoundError):
        dkfeat.duplicates_report(folder / "found", folder / "none.parquet")


def test_shards__of_another_search_are_not_read(made, tmp_path):
    other = tmp_path / "rows.svm"
    other.write_text("1 1:4\n" * 300)
    dkfeat.featurize(other, tmp_path / "shards", dkfeat.GCWSFeatures(16), progress=False)
    folder = shutil.copytree(made[0] / "found", tmp_path / "found")
    record = folder / "duplicates.json"
    record.write_text(record.read_text().replace(str(made[0]), str(tmp_path)))
    report = dkfeat.duplicates_report(folder)
    assert "has changed since the search" in report.source_note
    assert report.samples[0].columns == (None, None)


def test_report__of_rows_without_duplicates(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:4\n1 2:3\n")
    dkfeat.featurize(tmp_path / "rows.svm", tmp_path / "shards", dkfeat.DartFeatures(512), progress=False)
    dkfeat.neighbors.duplicates(tmp_path / "shards", target=tmp_path / "found", progress=False)
    report = dkfeat.duplicates_report(tmp_path / "found")
    assert (report.samples, report.sizes, sum(report.histogram)) == ((), (), 0)
    assert "No two rows are as similar as the threshold" in report.to_html()


def test_command__writes_the_page_and_its_figures(made, tmp_path):
    page = tmp_path / "page.html"
    known = json.loads(run("report", made[0] / "found", "--out", page, "--json").stdout)
    assert (known["report"], known["n_rows"], len(known["samples"])) == (str(page), 300, 6)
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    words = ["report", made[0] / "found", made[0] / "rows.parquet", "--out", page]
    assert "largest group" in run(*words).stdout
    assert "--seed is for kernel estimates" in run(*words, "--seed", 1, status=2).stderr


def test_report__of_shards_is_refused(made):
    with pytest.raises(ConfigError, match="dkfeat duplicates"):
        dkfeat.duplicates_report(made[0] / "shards")
