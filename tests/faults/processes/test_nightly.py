"""The nightly job, started at bad moments: each start reports its work, and none loses or repeats anything."""

from __future__ import annotations

import gzip
import json
import re
import signal

import pytest

import dkfeat
from dkfeat.config import load_config
from tests.faults.processes.nights import CONF, Nights, event
from tests.invariants import assert_dataset_whole
from tests.programs import Ended, start_until


@pytest.fixture
def nights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Nights(tmp_path)


def test_conf__reads_strictly():
    (part,) = load_config(CONF).featurize
    assert part.source.urlpath.startswith("data/")
    assert part.out == "features/days"


def test_nightly__night_after_night(nights):
    assert event(nights.fire(), "waiting")["message"] == "the source has no files yet"
    assert not nights.target.exists()
    nights.day(1)
    first = event(nights.fire(), "committed")
    assert (first["rows"], first["new_rows"], first["new_shards"], first["manifest"]) == (300, 300, first["shards"], 1)
    manifest = json.loads((nights.target / "_dkfeat" / "manifest-000001.json").read_bytes())
    assert first["commit"] == manifest["run"]["id"]
    assert first["seconds"] > 0
    assert event(nights.fire(), "unchanged")["new_rows"] == 0
    nights.day(2)
    second = event(nights.fire(), "committed")
    assert (second["rows"], second["new_rows"], second["manifest"]) == (600, 300, 2)
    assert_dataset_whole(nights.target, committed=True)


def test_nightly__tells_progress_unless_told_not_to(nights):
    nights.day(1)
    assert event(nights.fire(), "progress")["stage"] == "featurize"
    nights.settings["run"]["progress"] = False
    nights.save()
    nights.day(2)
    assert [line["event"] for line in nights.fire()] == ["start", "committed", "end"]


@pytest.mark.fault("V-05")
def test_nightly__a_changed_source_is_left_to_people(nights):
    nights.day(1)
    nights.fire()
    nights.day(1, rows=301, mtime=10**9 + 1)
    failed = event(nights.fire(4), "failed")
    assert (failed["level"], failed["error"], failed["exit_code"]) == ("error", "SpecConflictError", 4)
    assert "'day-1.svm.gz' changed" in failed["message"]
    assert_dataset_whole(nights.target, committed=True)


@pytest.mark.fault("V-05")
def test_nightly__all_files_gone_is_no_waiting(nights):
    path = nights.day(1)
    nights.fire()
    path.unlink()
    assert "is a disk not mounted?" in event(nights.fire(4), "failed")["message"]
    assert_dataset_whole(nights.target, committed=True)


def test_nightly__a_folder_or_file_that_is_missing_is_a_mistake(nights):
    nights.days.rmdir()
    assert "no file matches" in event(nights.fire(2), "failed")["message"]
    nights.settings["featurize"][0]["source"]["urlpath"] = "data/day.svm"
    nights.save()
    assert "data/day.svm" in event(nights.fire(2), "failed")["message"]
    assert not nights.target.exists()


def test_nightly__one_of_two_patterns_is_no_waiting(nights):
    nights.settings["featurize"][0]["source"]["urlpath"] = ["data/days/*.gz", "data/days/*.svm"]
    nights.save()
    assert event(nights.fire(), "waiting")
    nights.day(1)
    assert "*.svm" in event(nights.fire(2), "failed")["message"]


def test_nightly__bad_row_then_mended(nights):
    nights.day(1)
    nights.fire()
    path = nights.day(2)
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text + b"1 9:1 8:1\n"))
    failed = event(nights.fire(2), "failed")
    assert re.search(r"day-2\.svm\.gz:301:7: ", failed["message"])
    assert "--on-bad-row quarantine" in failed["message"]
    assert dkfeat.status(nights.target).state == "complete"  # nothing was written for the second day
    nights.day(2)
    assert event(nights.fire(), "committed")["rows"] == 600
    assert_dataset_whole(nights.target, committed=True)


@pytest.mark.fault("I-40")
def test_nightly__quarantine_counts_bad_rows(nights):
    nights.settings["featurize"][0] |= {"on_bad_row": "quarantine", "max_bad_rows": 5}
    nights.save()
    path = nights.day(1)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"1 9:1 8:1\n"))
    committed = event(nights.fire(), "committed")
    assert (committed["rows"], committed["bad_rows"]) == (300, 1)
    assert event(nights.fire(), "unchanged")["bad_rows"] == 1


def test_nightly__parts_do_not_hinder_one_another(nights):
    part = nights.settings["featurize"][0]
    bad = {**part, "out": "features/bad", "source": {**part["source"], "urlpath": "data/bad.svm"}}
    waits = {**part, "out": "features/late", "source": {**part["source"], "urlpath": "data/late-*.svm"}}
    like = {"source": dict(part["source"]), "like": "features/late", "out": "features/like"}
    nights.settings["featurize"] = [bad, waits, like, part]
    nights.save()
    (nights.folder / "data" / "bad.svm").write_text("spam\n")
    nights.day(1)
    lines = nights.fire(2)
    ends = [(line["target"], line["event"]) for line in lines if line["event"] in ("failed", "waiting", "committed")]
    assert ends == [
        ("features/bad", "failed"),
        ("features/late", "waiting"),
        ("features/like", "waiting"),
        ("features/days", "committed"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("featurise: []", "did you mean 'featurize'?"),
        ("run: {}", "lists nothing under `featurize`"),
        ("featurize: [{source: {urlpath: 'data/*'}, map: {name: gcws, ibits: 4}, out: b}]", "'i_bits'?"),
    ],
)
def test_nightly__mistakes_are_lines_too(nights, text, words):
    nights.day(1)
    (nights.folder / "data" / "rows.svm").write_text("1 1:1\n")
    (nights.folder / "nightly.yaml").write_text(text)
    lines = nights.fire(2)
    assert any(words in line.get("message", "") for line in lines)


def test_nightly__internal_faults_are_lines_too(nights, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    nights.day(1)
    monkeypatch.setattr("dkfeat.engine.featurize.featurize", fail)
    (line,) = [line for line in nights.fire(1) if line["event"] == "error"]
    assert "Traceback" in line["traceback"]


@pytest.mark.slow
@pytest.mark.fault("C-08")
def test_nightly__overlapping_firings(nights):
    nights.day(1, rows=1_000)
    first = start_until("after_publish:5", nights.words())
    try:
        nights.day(2)
        second = nights.fire(4)
    finally:
        first.send_signal(signal.SIGCONT)
        out, err = first.communicate(timeout=240)
    assert (first.returncode, err) == (0, "")
    skipped = event(second, "skipped")
    assert (skipped["level"], skipped["reason"]) == ("warning", "busy")
    assert f"pid {first.pid}" in skipped["message"]
    assert event(Ended(0, out, err).lines, "committed")["rows"] == 1_000
    assert event(nights.fire(), "committed")["new_rows"] == 300
    assert_dataset_whole(nights.target, committed=True)


@pytest.mark.slow
@pytest.mark.fault("P-05")
def test_nightly__stopped_by_its_scheduler(nights):
    nights.day(1, rows=1_000)
    first = start_until("after_publish:5", nights.words())
    first.send_signal(signal.SIGTERM)
    first.send_signal(signal.SIGCONT)
    out, err = first.communicate(timeout=240)
    assert (first.returncode, err) == (143, "")
    last = Nights.checked(out, 143)[-1]
    assert "terminated; run the same command again to continue" in last["message"]
    assert_dataset_whole(nights.target, committed=False)
    assert event(nights.fire(), "committed")["rows"] == 1_000


@pytest.mark.fault("V-05")
def test_nightly__committed_files_may_be_moved_away_where_the_job_says_so(nights):
    nights.settings["featurize"][0]["on_changed_source"] = "keep"
    nights.save()
    path = nights.day(1)
    nights.fire()
    path.unlink()
    assert [line["event"] for line in nights.fire()] == ["start", "waiting", "end"]
    nights.day(2)
    lines = nights.fire()
    assert event(lines, "committed")["rows"] == 600
    assert "1 of 1 committed sources changed or are gone" in event(lines, "log")["message"]
    assert_dataset_whole(nights.target, committed=True)


def test_nightly__patterns_of_two_folders_name_files_by_the_folder_above(nights):
    nights.settings["featurize"][0]["on_changed_source"] = "keep"
    nights.settings["featurize"][0]["source"]["urlpath"] = ["data/days/*.gz", "data/more/*.svm"]
    nights.save()
    nights.day(1)
    plain = nights.folder / "data" / "more" / "day-1.svm"
    plain.parent.mkdir()
    plain.write_text("1 1:1 10:2\n" * 300)
    nights.fire()
    plain.unlink()
    assert "more/*.svm" in event(nights.fire(4), "failed")["message"]
    nights.settings["featurize"][0]["source"]["urlpath"] = "data/*/*.[gs]*"
    nights.save()
    nights.day(2)
    assert event(nights.fire(), "committed")["rows"] == 900
