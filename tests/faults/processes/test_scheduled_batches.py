"""One data set that grows by batches of processes that are started, killed and started again at bad moments."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from dkfeat.cli import cli
from tests.invariants import assert_dataset_whole, dataset_state, listed_in
from tests.programs import command, run, start_until

pytestmark = pytest.mark.slow

OPTIONS = ("--n-components", 8, "--i-bits", 4, "--n-features", 64, "--zero-based", "false", "--label-dtype", "int64")
RUN = ("--blocksize", "4KiB", "--scheduler", "synchronous")


def write_day(folder: Path, name: str, rows: int = 600) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(
        "".join(f"{1 + i % 2} {1 + i % 5}:1 {10 + i % 7}:{1 + i % 3} {30 + i % 11}:0.5\n" for i in range(rows))
    )
    os.utime(path, ns=(10**18, 10**18))
    return path


class Feed:
    """Files of days, and the command that adds them to a data set."""

    def __init__(self, folder: Path) -> None:
        self.days, self.target = folder / "days", folder / "features"

    @property
    def arguments(self) -> tuple[object, ...]:
        return ("featurize", self.days / "*.svm", *OPTIONS, *RUN, "--out", self.target)

    def run(self, status: int = 0) -> str:
        return self.invoke(*self.arguments, status=status)

    def invoke(self, *arguments: object, status: int = 0) -> str:
        """Run the command in this process, and return its standard error."""
        ended = CliRunner().invoke(cli, list(map(str, arguments)), prog_name="dkfeat")
        assert ended.exit_code == status, ended.output
        if status:
            assert re.match(r"dkfeat: error: \S+: \S", ended.stderr.splitlines()[-1]), ended.stderr
            assert "Traceback" not in ended.stderr
        assert_dataset_whole(self.target)
        return ended.stderr

    def kill(self, at: str) -> None:
        ended = run(command(*self.arguments), DKFEAT_KILL_AT=at)
        assert ended.status == -signal.SIGKILL, ended.err
        assert_dataset_whole(self.target, finished=False)

    def sources(self) -> list[str]:
        newest = max((self.target / "_dkfeat").glob("manifest-*.json"))
        return [source["name"] for source in listed_in(self.target, int(newest.stem[-6:]))["sources"]]

    def stamps(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in self.target.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Two days of data, and a run on them that was killed when it had shards of the first day."""
    feed = Feed(tmp_path_factory.mktemp("killed"))
    for name in ("1.svm", "2.svm"):
        write_day(feed.days, name)
    feed.kill("after_publish:8")
    assert len(list((feed.target / "data").iterdir())) == 3
    return feed


@pytest.fixture
def feed(killed, tmp_path):
    copy = Feed(tmp_path)
    shutil.copytree(killed.days, copy.days)
    shutil.copytree(killed.target, copy.target)
    return copy


@pytest.fixture(scope="module")
def golden(killed, tmp_path_factory):
    """State after an undisturbed run on both days."""
    feed = Feed(tmp_path_factory.mktemp("golden"))
    shutil.copytree(killed.days, feed.days)
    feed.run()
    return dataset_state(feed.target)


def test_batches__killed_then_run_again(feed, golden):
    ended = run(command(*feed.arguments))
    assert ended.status == 0, ended.err
    assert "taking over from run" in ended.err
    assert dataset_state(feed.target) == golden


@pytest.mark.fault("C-09")
def test_batches__run_three_times_write_once(feed):
    feed.run()
    before = feed.stamps()
    for _ in range(2):
        assert "nothing to do" in feed.run()  # no splits are read
        assert feed.stamps() == before


@pytest.mark.fault("V-03")
def test_batches__a_file_edited_after_the_plan(feed, golden):
    path = feed.days / "2.svm"
    text = path.read_text()
    path.write_text(text + "1 1:1\n")
    shards = set((feed.target / "data").iterdir())
    assert "2.svm" in feed.run(status=4)
    assert set((feed.target / "data").iterdir()) == shards
    path.write_text(text)
    os.utime(path, ns=(10**18, 10**18))
    feed.run()
    assert dataset_state(feed.target) == golden


@pytest.mark.fault("V-03")
def test_batches__a_file_edited_after_the_plan_is_given_up_and_planned_again(feed):
    write_day(feed.days, "2.svm", rows=700)
    assert f"dkfeat abort {feed.target}" in feed.run(status=4)
    feed.invoke("abort", feed.target)
    assert_dataset_whole(feed.target, committed=False)
    feed.run()
    assert_dataset_whole(feed.target, committed=True)
    assert dataset_state(feed.target)[1][0]["rows"] == 1300


@pytest.mark.fault("V-04")
@pytest.mark.parametrize("what", ["removed", "renamed"])
def test_batches__a_planned_file_is_gone(feed, golden, what):
    path = feed.days / "2.svm"
    away = path.rename(feed.days / ("2.away" if what == "removed" else "3.svm"))
    assert "'2.svm' was removed or renamed" in feed.run(status=4)
    away.rename(path)
    feed.run()
    assert dataset_state(feed.target) == golden


@pytest.mark.fault("V-04")
def test_batches__a_new_file_waits_for_the_next_batch(feed, golden):
    write_day(feed.days, "0.svm", rows=50)
    feed.run()
    assert feed.sources() == ["1.svm", "2.svm"]
    assert dataset_state(feed.target) == golden
    feed.run()
    assert feed.sources() == ["1.svm", "2.svm", "0.svm"]
    assert_dataset_whole(feed.target, committed=True)


@pytest.mark.fault("V-05")
@pytest.mark.parametrize("what", ["deleted", "edited", "touched"])
def test_batches__a_committed_file_changed(feed, golden, what):
    feed.run()
    write_day(feed.days, "3.svm")
    path = feed.days / "1.svm"
    if what == "deleted":
        path.unlink()
    elif what == "edited":
        path.write_text("1 1:1\n")
    else:
        os.utime(path)
    assert "'1.svm'" in feed.run(status=4)
    assert dataset_state(feed.target) == golden
    assert_dataset_whole(feed.target, committed=True)


def test_batches__spec_of_the_first_holds(feed):
    feed.run()
    write_day(feed.days, "3.svm")
    other = feed.invoke(
        "featurize", feed.days / "*.svm", "--n-components", 8, "--i-bits", 2, "--out", feed.target, status=4
    )
    assert "i_bits: 4 there, 2 asked" in other
    (feed.days / "4.svm").write_text("1 65:1\n")  # a column beyond those of the first batch
    assert "4.svm:1:3: " in feed.run(status=2)
    assert_dataset_whole(feed.target)


@pytest.mark.fault("C-01", "C-08")
def test_batches__fired_while_the_one_before_runs(feed):
    feed.run()
    write_day(feed.days, "3.svm")
    first = start_until("after_plan:1", command(*feed.arguments))
    try:
        write_day(feed.days, "4.svm")
        refused = run(command(*feed.arguments))
        status = json.loads(run(command("status", feed.target, "--json")).out)
    finally:
        first.send_signal(signal.SIGCONT)
        out, err = first.communicate(timeout=240)
    assert first.returncode == 0, (out, err)
    assert refused.status == 4
    assert f"pid {first.pid}" in refused.err
    assert "scan" not in refused.err
    assert status["state"] == "running"
    assert status["holder"]["pid"] == first.pid
    assert status["unfinished"]["splits_left"] > 0
    assert feed.sources() == ["1.svm", "2.svm", "3.svm"]
    feed.run()
    assert feed.sources() == ["1.svm", "2.svm", "3.svm", "4.svm"]
    assert_dataset_whole(feed.target, committed=True)
