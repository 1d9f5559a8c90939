"""Bad rows set aside: exactly once, with position, reason and text, and without any effect on the good rows."""

from __future__ import annotations

import gzip
import os
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dkfeat
from dkfeat.errors import ConfigError, InputError, ParquetError, ParseError, ShardError
from dkfeat.sources import lines
from dkfeat.sources import pieces as quarantine
from dkfeat.sources.libsvm import parser as libsvm_parser
from tests import programs
from tests.engine.helpers import featurized
from tests.faults.input.quarantine import features_of, run, set_aside
from tests.invariants import listed_in

GIVEN = {"n_features": 40, "zero_based": False, "label_dtype": "int64"}
BAD = [
    ("x 1:1", 1, "bad label"),
    ("1.5 1:1", 1, "label not allowed"),
    ("1 qid:3 1:1", 3, "bad query id"),
    ("1 spam", 3, "bad feature"),
    ("1 1:1 41:1", 7, "index out of range"),
    ("1 3:1 1:1", 7, "indices not ascending"),
    ("1 2:nan", 3, "bad value"),
    ("1 2:1e39", 3, "bad value"),
    ("1 2:1\r 3:1", 6, "not text"),
    (" 2:1", 2, "bad label"),
]


def good(number: int) -> str:
    return f"{number % 2} {number % 20 + 1}:{number}.5 {number % 20 + 21}:-2"


def written(path, rows: list[str], end: str = "\n"):
    text = ("\n".join(rows) + end).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    os.utime(path, ns=(10**18, 10**18))
    return path


def mixed(n_good: int, bad: dict[int, str]) -> list[str]:
    """Make good rows, comments and blank lines; each line of `bad` precedes the good row of its number."""
    rows = []
    for number in range(n_good):
        if number % 7 == 3:
            rows += ["# comment", ""]
        rows += [bad[number]] if number in bad else []
        rows.append(good(number))
    return rows


def records(target):
    return [(row.place, row.reason, row.message, row.text) for row in set_aside(target)]


@pytest.mark.fault("I-40")
@pytest.mark.parametrize(("line", "column", "reason"), BAD)
def test_quarantine__one_bad_row_of_a_hundred(tmp_path, line, column, reason):
    rows = mixed(99, {50: line})
    source = dkfeat.LibsvmSource(str(written(tmp_path / "bad.svm", rows)), **GIVEN)
    manifest = featurized(source, tmp_path / "features", on_bad_row="quarantine")
    assert (manifest.rows, manifest.n_bad_rows, manifest.bad_rows) == (99, 1, {reason: 1})
    assert manifest.sources[0].bad_rows == {reason: 1}
    (found,) = set_aside(tmp_path / "features")
    assert found.place == f"bad.svm:{rows.index(line) + 1}:{column}"
    assert found.reason == reason
    assert found.offset == len("\n".join(rows[: rows.index(line)])) + 1
    assert found.text == line.replace("\r", "\\r")
    with pytest.raises(ParseError) as caught:
        featurized(source, tmp_path / "raising")
    assert (caught.value.line, caught.value.column) == (found.line, found.column)
    assert caught.value.reason.startswith(found.message)
    written(tmp_path / "good.svm", [row for row in rows if row != line])
    featurized(source.replaced(urlpath=(str(tmp_path / "good.svm"),)), tmp_path / "clean")
    assert features_of(tmp_path / "features") == features_of(tmp_path / "clean")


@pytest.mark.fault("I-40")
def test_quarantine__nothing_but_bad_rows(tmp_path):
    path = written(tmp_path / "bad.svm", ["1 0:1"] * 100)
    source = dkfeat.LibsvmSource(str(path), **GIVEN)
    with pytest.raises(ParseError, match=r"bad\.svm:1:3: bad rows: 100 of 100, .*: '0:1' has index 0"):
        featurized(source, tmp_path / "features", on_bad_row="quarantine")
    with pytest.raises(ShardError):
        dkfeat.open_shards(tmp_path / "features")
    manifest = run(source, tmp_path / "features")
    assert (manifest.rows, manifest.n_bad_rows, len(manifest.shards)) == (0, 100, 1)
    assert manifest.sources[0].bad_rows == {"index out of range": 100}
    assert [row.line for row in set_aside(tmp_path / "features")] == list(range(1, 101))
    assert dkfeat.open_shards(tmp_path / "features").shape[0] == 0


@pytest.mark.fault("I-40", "I-30", "I-28")
def test_quarantine__never_of_a_broken_stream_or_a_line_beyond_the_bound(tmp_path):
    path = written(tmp_path / "cut.svm.gz", mixed(200, {3: "spam"}))
    whole = path.read_bytes()
    for cut in (-1, -8, 40):
        path.write_bytes(whole[:cut])
        with pytest.raises(ParseError, match="truncated or corrupt"):
            run(dkfeat.LibsvmSource(str(path), **GIVEN), tmp_path / "cut")
        assert not (tmp_path / "cut/_dkfeat/manifest-000001.json").exists()
    path = written(tmp_path / "long.svm", ["1 1:1", "x" * 300])
    with pytest.raises(ParseError, match=r"long\.svm:2:1: the line has more than 200 bytes"):
        run(dkfeat.LibsvmSource(str(path), max_line_bytes=200, **GIVEN), tmp_path / "long")


@pytest.mark.slow
@pytest.mark.fault("I-40", "D-04")
@given(
    bad=st.dictionaries(st.integers(0, 29), st.sampled_from([line for line, *_ in BAD]), max_size=12),
    blocksize=st.sampled_from([1, 17, 60, 250, 1 << 20]),
    window=st.sampled_from([1, 40, 1 << 20]),
    most=st.sampled_from([1, 3, 4096]),
    step=st.sampled_from([1, 30, 4096]),
    rows=st.sampled_from([None, 1, 5]),
    end=st.sampled_from(["", "\n", "\r\n"]),
    ending=st.sampled_from([".svm", ".svm.gz"]),
)
def test_quarantine__same_rows_and_records_for_any_cut(tmp_path, bad, blocksize, window, most, step, rows, end, ending):
    rows_text = mixed(30, bad)
    path = written(tmp_path / f"rows{ending}", rows_text, end)
    source = dkfeat.LibsvmSource(str(path), blocksize=blocksize, on_bad_row="quarantine", **GIVEN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "WINDOW_BYTES", window)
        patch.setattr(libsvm_parser, "MOST_BAD_ROWS", most)
        patch.setattr(libsvm_parser, "_STEP_BYTES", step)
        pieces = []
        found, labels, seen = [], [], 0
        for split in source.splits():
            own = list(source.read(split, rows))
            found += [(seen + row.line, row.column, row.reason, row.text) for piece in own for row in piece.bad_rows]
            seen += sum(piece.lines for piece in own)
            pieces += own
        scanned = [source.scan_split(split) for split in source.splits()]
    assert all(len(piece.bad_rows) <= most for piece in pieces)
    wrong = {line: (column, reason) for line, column, reason in BAD}
    expected = [
        (number + 1, *wrong[line], line.replace("\r", "\\r")) for number, line in enumerate(rows_text) if line in wrong
    ]
    assert found == expected
    assert sum(part.n_bad_rows for part in scanned) == len(expected)
    values = np.concatenate([piece.block.X.max(axis=1).toarray().ravel() for piece in pieces if piece.block.n_rows])
    assert values.tolist() == [number + 0.5 for number in range(30)]
    labels = np.concatenate([piece.block.y for piece in pieces])
    assert labels.tolist() == [number % 2 for number in range(30)]


def test_quarantine__bad_rows_settle_nothing(tmp_path):
    path = written(tmp_path / "rows.svm", ["1 1:1 7:2", "1 0:1 900:1 spam", "0.5x 1:1", "-1 2:1"])
    found = dkfeat.scan(dkfeat.LibsvmSource(str(path), on_bad_row="quarantine"))
    assert (found.n_features, found.zero_based, found.labels, found.n_rows) == (7, False, (-1, 1), 2)
    assert (found.n_bad_rows, found.n_empty_rows, found.nnz) == (2, 0, 3)


@pytest.fixture
def source(tmp_path):
    """Two files and a compressed one, a tenth of the rows bad."""
    folder = tmp_path / "source"
    folder.mkdir()
    for name, first in (("a.svm", 0), ("b.svm.gz", 5), ("c.svm", 9)):
        bad = {number: BAD[(number + first) % 10][0] for number in range(first, 200, 10)}
        written(folder / name, mixed(200, bad))
    return dkfeat.LibsvmSource(str(folder / "*"), blocksize=700, **GIVEN)


def committed(target):
    """Hashes of the shards, and the manifest without its facts about the run."""
    manifest = listed_in(target)
    del manifest["run"]
    return manifest


def stopped_by_a_bad_row(source, target):
    with pytest.raises(ParseError):
        featurized(source, target, scheduler="synchronous")


KILLED = """
import sys
import dkfeat
from tests.faults.input.quarantine import run

source = dkfeat.LibsvmSource(sys.argv[1], blocksize=700, n_features=40, zero_based=False, label_dtype="int64")
run(source, sys.argv[2])
"""


def killed(source, target):
    programs.run_killed("after_publish:7", [sys.executable, "-c", KILLED, source.urlpath[0], str(target)])


@pytest.mark.fault("I-40", "P-01", "D-01")
@pytest.mark.parametrize("stopped", [stopped_by_a_bad_row, pytest.param(killed, marks=pytest.mark.slow)])
def test_quarantine__identical_when_a_run_is_resumed_elsewhere_or_lost_a_shard(source, tmp_path, stopped):
    one, two = tmp_path / "one", tmp_path / "two"
    run(source, one, scheduler="synchronous")
    counts = Counter(row.reason for row in set_aside(one))
    manifest = dkfeat.open_shards(one).manifest
    assert (counts, counts.total(), manifest.rows) == (manifest.bad_rows, 60, 600)
    stopped(source, two)
    made = {path.name: path.stat().st_ino for path in (two / "data").iterdir()}
    assert made or stopped is stopped_by_a_bad_row
    run(source, two, scheduler="threads", n_workers=2)
    assert (committed(one), records(one)) == (committed(two), records(two))
    assert made.items() <= {path.name: path.stat().st_ino for path in (two / "data").iterdir()}.items()
    lost = next(entry.name for entry in manifest.shards if entry.bad_rows)
    (two / "data" / lost).unlink()
    run(source, two, max_bad_rows=0)  # these rows were accepted when they were committed
    assert (committed(one), records(one)) == (committed(two), records(two))
    assert dkfeat.verify_inputs(two, source).problems == ()


def test_quarantine__counts_of_later_batches_add_up(tmp_path):
    written(tmp_path / "a.svm", mixed(100, {5: "spam"}))
    source = dkfeat.LibsvmSource(str(tmp_path / "*.svm"), **GIVEN)
    featurized(source, tmp_path / "features", on_bad_row="quarantine")
    written(tmp_path / "b.svm", mixed(100, {7: "x", 9: "y"}))
    with pytest.raises(ParseError, match=r"b\.svm:10:1: bad rows: 2 of 102, more than max_bad_rows=0.01 of the rows"):
        featurized(source, tmp_path / "features", on_bad_row="quarantine")
    assert dkfeat.open_shards(tmp_path / "features").manifest.number == 1
    manifest = featurized(source, tmp_path / "features", on_bad_row="quarantine", max_bad_rows=2)
    assert [source.n_bad_rows for source in manifest.sources] == [1, 2]
    assert [row.place for row in set_aside(tmp_path / "features")] == [
        "a.svm:8:1", "b.svm:10:1", "b.svm:13:1",
    ]  # fmt: skip


@pytest.mark.parametrize(("most", "allowed"), [(3, True), ("2", False), ("3%", True), (0.029, False)])
@pytest.mark.parametrize("scans", [True, False])
def test_limit__absolute_and_as_a_share(tmp_path, most, allowed, scans):
    written(tmp_path / "a.svm", mixed(97, {5: "spam", 7: "x", 50: "1 1:x"}))
    source = dkfeat.LibsvmSource(str(tmp_path / "a.svm"), blocksize=300, **({} if scans else GIVEN))
    if allowed:
        assert run(source, tmp_path / "features", max_bad_rows=most).n_bad_rows == 3
        return
    with pytest.raises(ParseError, match=r"a\.svm:[0-9]+:[0-9]+: bad rows: [123].*, more than max_bad_rows=") as caught:
        run(source, tmp_path / "features", max_bad_rows=most)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "features/_dkfeat/manifest-000001.json").exists()
    assert (tmp_path / "features").exists() != scans  # a scan finds the bad rows before anything is written


@pytest.mark.parametrize("most", [-1, 1.5, float("nan"), True, "many"])
def test_limit__is_checked(tmp_path, most):
    with pytest.raises(ConfigError, match="must be a number of rows such as 100 or a share"):
        run(str(written(tmp_path / "a.svm", ["1 1:1"])), tmp_path / "features", max_bad_rows=most)


@pytest.mark.parametrize("bad", ["7 1:1", "1 1:x"])
def test_quarantine__work_grows_with_the_text_alone(tmp_path, monkeypatch, bad):
    path = written(tmp_path / "a.svm", [bad, *[good(1)] * 5] * 3000)
    source = dkfeat.LibsvmSource(str(path), labels=(0, 1), on_bad_row="quarantine", **GIVEN)
    parse, n_bytes = libsvm_parser.SplitParser._parse_until, []

    def counting(self, end, *arguments):
        n_bytes.append(end - int(self.cursor[libsvm_parser.loop.POSITION]))
        return parse(self, end, *arguments)

    monkeypatch.setattr(libsvm_parser.SplitParser, "_parse_until", counting)
    (piece,) = source.read(source.splits()[0])
    assert (piece.block.n_rows, len(piece.bad_rows)) == (15_000, 3000)
    assert sum(n_bytes) < 4096 * 1.1 * 3000 + path.stat().st_size


NEGATIVE = ["1 1:2", "0 1:1 3:-2 # 5:5", "1 2:1", "", "# c", "0 2:-0.5", "1 1:1"]


@pytest.mark.fault("I-20", "I-40")
@pytest.mark.parametrize("blocksize", [1, 20, 1000])
def test_refused__rows_are_an_error_or_set_aside(tmp_path, blocksize):
    for number, name in enumerate(("a.svm", "b.svm", "c.svm.gz")):
        written(tmp_path / name, [*NEGATIVE, f"{number} spam"])
    source = dkfeat.LibsvmSource(str(tmp_path / "*.*"), blocksize=blocksize, **GIVEN)
    laplace = dkfeat.LaplaceFeatures(8, random_state=0)
    one = source.replaced(urlpath=(str(written(tmp_path / "one", NEGATIVE[2:])),))
    refused = r"one:4:3: the map refuses '2:-0\.5': Negative values in data: X holds -0\.5,"
    with pytest.raises(ParseError, match=refused):
        featurized(one, tmp_path / "raising", map=laplace)
    manifest = run(source, tmp_path / "features", map=laplace)
    assert (manifest.rows, manifest.labels) == (9, (1,))
    assert manifest.bad_rows == {"bad feature": 3, "refused by the map": 6}
    places = [(row.place, row.reason) for row in set_aside(tmp_path / "features")]
    refused, malformed = "refused by the map", "bad feature"
    assert places == [
        (f"{name}:{place}", reason)
        for name in ("a.svm", "b.svm", "c.svm.gz")
        for place, reason in (("2:7", refused), ("6:3", refused), ("8:3", malformed))
    ]
    clean = dkfeat.LibsvmSource(str(written(tmp_path / "clean", ["1 1:2", "1 2:1", "1 1:1"] * 3)), **GIVEN)
    featurized(clean, tmp_path / "expected", map=laplace)
    assert features_of(tmp_path / "features") == features_of(tmp_path / "expected")
    lost = manifest.shards[0].name
    (tmp_path / "features/data" / lost).unlink()
    assert run(source, tmp_path / "features", map=laplace) == manifest


def test_refused__resume_has_the_labels_of_the_first_run(tmp_path, monkeypatch):
    source = dkfeat.LibsvmSource(str(written(tmp_path / "a.svm", NEGATIVE * 3)), blocksize=60, **GIVEN)
    laplace = dkfeat.LaplaceFeatures(8, random_state=0)
    monkeypatch.setattr(dkfeat.store.commit.batch.Batch, "commit", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(source, tmp_path / "features", map=laplace)
    monkeypatch.undo()
    with pytest.raises(ParseError, match=r"a\.svm:[0-9]+:[0-9]+: the map refuses"):
        featurized(source, tmp_path / "features", map=laplace)
    assert run(source, tmp_path / "features", map=laplace).labels == (1,)


LONG = ["1 1:0.5", "1 1:0.25 2:3", "-1 3:1", "1 2:4"]


def test_refused__whole_row_is_blamed_at_its_place(tmp_path):
    """The error of a row that is too long names the row in the source: not a value, nor a number in a block."""
    maclaurin = dkfeat.MaclaurinFeatures(8, kernel="exponential", radius=2.0, random_state=0)
    source = dkfeat.LibsvmSource(str(written(tmp_path / "a.svm", LONG)), **GIVEN)
    with pytest.raises(ParseError, match=r"a\.svm:2:1: the map refuses this row: the row has the l2 norm 3\.01"):
        featurized(source, tmp_path / "text", map=maclaurin)
    table = pa.table({"label": [1, 1, -1, 1], "x": [[0.5, 0, 0], [0.25, 3, 0], [0, 0, 1], [0, 4.0, 0]]})
    pq.write_table(table, tmp_path / "a.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "a.parquet"), features="x")
    with pytest.raises(ParquetError, match=r"a\.parquet: row group 0, row 1: the row has the l2 norm 3\.01"):
        featurized(source, tmp_path / "parquet", map=maclaurin)
    source = dkfeat.LibsvmSource(str(written(tmp_path / "b.svm", LONG)), **GIVEN)
    assert run(source, tmp_path / "aside", map=maclaurin).rows == 2
    found = set_aside(tmp_path / "aside")
    assert [row.place.rpartition("/")[2] for row in found] == ["b.svm:2:1", "b.svm:4:1"]
    assert all(row.message.startswith("the map refuses this row: the row has the l2 norm") for row in found)


def test_refused__too_many_are_a_wrong_map(tmp_path, monkeypatch):
    monkeypatch.setattr("dkfeat.engine.tasks.job.MOST_REJECTED", 5)
    source = dkfeat.LibsvmSource(str(written(tmp_path / "a.svm", ["1 1:-1"] * 9)), **GIVEN)
    with pytest.raises(InputError, match=r"the map refuses more than 5 rows of one piece.*choose another map"):
        run(source, tmp_path / "features", map=dkfeat.LaplaceFeatures(8, random_state=0))


def test_records__are_escaped_and_cut(tmp_path):
    run(str(written(tmp_path / "a.svm", ["1 1:1", "spam \x1b[31m é " + "y" * 500])), tmp_path / "features")
    (row,) = set_aside(tmp_path / "features")
    assert row.text.startswith(r"spam \x1b[31m \xe9 yyy")
    assert row.text.endswith("...")
    assert len(row.text) == 160
    assert row.to_mapping()["source"] == "a.svm"


def test_records__of_hostile_text_keep_a_footer_readable(tmp_path):
    bad = ("\x01" * 50 + "\\é" * 100).encode()
    (tmp_path / "a.svm").write_bytes(b"\n".join([bad] * (quarantine.MOST_BAD_ROWS + 10)))
    manifest = run(dkfeat.LibsvmSource(str(tmp_path / "a.svm"), **GIVEN), tmp_path / "features")
    assert [entry.n_bad_rows for entry in manifest.shards] == [quarantine.MOST_BAD_ROWS, 10]
    assert len(set_aside(tmp_path / "features")) == quarantine.MOST_BAD_ROWS + 10
