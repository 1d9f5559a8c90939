from __future__ import annotations

import io

import pytest

from dkfeat.engine import progress
from dkfeat.engine.progress import Progress, ProgressState, clock
from dkfeat.process_cache import METER


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


def test_progress__bar_moves_within_a_task():
    stream = Terminal()
    with Progress(True, stream).stage("featurize", total_tasks=1, total_bytes=100) as stage:
        METER.begin()
        METER.read(80)
        METER.processed(0.5)
        assert stage.now().source_bytes == 40
        METER.end()
        stage.advance(rows=1_000, source_bytes=100)
    assert "1,000 rows in 0:" in stream.getvalue()
    assert "left" not in stream.getvalue().splitlines()[-1]


def test_progress__functions_receive_each_state():
    states = []
    work(Progress(states.append))
    assert [(state.tasks, state.rows, state.source_bytes) for state in states] == [
        (n, 1000 * n, 100 * n) for n in (1, 2, 3)
    ]


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
