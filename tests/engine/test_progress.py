from __future__ import annotations

import io
import re
from contextlib import suppress
from types import SimpleNamespace

import pytest

from dkfeat.engine import progress
from dkfeat.engine.progress import Progress, ProgressState, clock
from dkfeat.store.commit.run_log import MOST_POINTS


class Terminal(io.StringIO):
    def isatty(self):
        return True


def work(reporter, tasks=3):
    with reporter.stage("featurize", total_tasks=tasks, total_bytes=100 * tasks) as stage:
        for _ in range(tasks):
            stage.advance(rows=1_000, source_bytes=100)


def test_progress__lines_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    stream = io.StringIO()
    work(Progress(True, stream))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("featurize: 1 of 3 splits, 1,000 rows, ")
    assert lines[-1].startswith("featurize: done, 3,000 rows in 0:00, ")


def test_progress__lines_are_seconds_apart():
    stream = io.StringIO()
    work(Progress(True, stream), tasks=1000)
    assert len(stream.getvalue().splitlines()) == 1


def test_progress__bar_on_a_terminal():
    stream = Terminal()
    work(Progress(True, stream))
    assert "100%" in stream.getvalue()
    assert "rows/s" in stream.getvalue()


class Kernel:
    """Substitute for the display of a notebook, which records what is shown and its updates."""

    def __init__(self, monkeypatch):
        ipython = pytest.importorskip("IPython")
        monkeypatch.setattr(ipython, "get_ipython", lambda: self)
        monkeypatch.setattr(ipython.display, "display", self.display)
        monkeypatch.setattr(progress, "UPDATE_SECONDS", 0.0)
        self.kernel, self.displays = self, []

    def display(self, bundle, *, raw, display_id):
        assert raw
        assert display_id
        shown = [bundle]
        self.displays.append(shown)
        return SimpleNamespace(update=lambda bundle, **_: shown.append(bundle))


def test_progress__one_line_in_place_in_a_notebook(monkeypatch, capsys):
    kernel = Kernel(monkeypatch)
    reporter = Progress(True)
    work(reporter)
    reporter.note("<hello>")
    line, note = kernel.displays
    texts = [bundle["text/plain"] for bundle in line]
    assert all(text.startswith(f"featurize: {n} of 3 splits") for n, text in enumerate(texts[:-1]))
    assert texts[-1].startswith("featurize: done, 3,000 rows")
    shares = [re.search(r"width:([0-9.]+)%", bundle["text/html"])[1] for bundle in line]
    assert shares == ["0.0", "33.3", "66.7", "100.0", "100.0"]
    assert note == [{"text/plain": "<hello>", "text/html": note[0]["text/html"]}]
    assert "&lt;hello&gt;" in note[0]["text/html"]
    assert capsys.readouterr() == ("", "")


def test_progress__notebook_line_keeps_its_pace_and_shows_the_end(monkeypatch):
    kernel = Kernel(monkeypatch)
    monkeypatch.setattr(progress, "UPDATE_SECONDS", 3600.0)
    work(Progress(True), tasks=100)
    ((first, last),) = kernel.displays
    assert first["text/plain"].startswith("featurize: 0 of 100 splits")
    assert last["text/plain"].startswith("featurize: done, 100,000 rows")


def test_progress__notebook_line_says_where_it_stopped(monkeypatch):
    kernel = Kernel(monkeypatch)
    with suppress(KeyboardInterrupt), Progress(True).stage("scan", total_tasks=4, total_bytes=40) as stage:
        stage.advance(rows=7, source_bytes=10)
        raise KeyboardInterrupt
    assert kernel.displays[0][-1]["text/plain"] == "scan: stopped after 1 of 4 splits, 7 rows"


def test_progress__notebook_leaves_streams_and_functions_alone(monkeypatch):
    kernel = Kernel(monkeypatch)
    stream, states = io.StringIO(), []
    for reporter in (Progress(True, stream), Progress(states.append), Progress(False)):
        work(reporter)
    assert (len(stream.getvalue().splitlines()), kernel.displays) == (1, [])
    assert [(state.tasks, state.rows, state.source_bytes) for state in states] == [
        (n, 1000 * n, 100 * n) for n in (1, 2, 3)
    ]


def test_progress__ipython_on_a_terminal_is_no_notebook(monkeypatch):
    kernel = Kernel(monkeypatch)
    del kernel.kernel
    assert progress.NotebookLine.here() is None


def test_progress__failed_stage_does_not_say_done():
    stream = io.StringIO()
    reason = "stop"
    with pytest.raises(ValueError, match="stop"), Progress(True, stream).stage("scan", total_tasks=1, total_bytes=1):
        raise ValueError(reason)
    assert stream.getvalue() == ""


def test_progress_state__no_estimate_before_the_first_task():
    state = ProgressState(stage="scan", tasks=0, total_tasks=1, rows=0, source_bytes=0, total_bytes=9, seconds=0.0)
    assert state.seconds_left is None
    assert state.rows_per_second == state.bytes_per_second == 0.0
    assert "left" not in state.describe()


def test_progress_state__time_left_is_in_proportion():
    state = ProgressState(stage="scan", tasks=1, total_tasks=4, rows=9, source_bytes=25, total_bytes=100, seconds=10.0)
    assert state.seconds_left == 30.0


def test_clock__pads():
    assert [clock(value) for value in (0, 59.6, 3599.6)] == ["0:00", "1:00", "1:00:00"]


def test_progress__logs_of_long_stages_keep_some_steps_and_the_last():
    reporter = Progress(False)
    with reporter.stage("scan", total_tasks=9_999, total_bytes=9_999) as stage:
        for _ in range(9_999):
            stage.advance(rows=2, source_bytes=1)
    (log,) = reporter.logs()
    assert (log.tasks, log.rows, log.source_bytes) == (9_999, 19_998, 9_999)
    assert MOST_POINTS // 2 <= len(log.points) <= MOST_POINTS
    assert log.points[-1] == (log.seconds, 19_998, 9_999)
    assert [rows for _, rows, _ in log.points] == sorted(rows for _, rows, _ in log.points)
