"""Lines of JSON: each an object on its own, safe on any terminal, without secrets."""

import io
import json
import logging
import threading
import warnings

import pytest

from dkfeat.cli.output import LogLines
from dkfeat.engine.progress import ProgressState


@pytest.fixture
def stream():
    return io.StringIO()


def objects(stream):
    text = stream.getvalue()
    assert text.isascii()
    assert all(character.isprintable() or character == "\n" for character in text)
    return [json.loads(line) for line in text.splitlines()]


def state(tasks, seconds=1.0):
    return ProgressState(
        stage="featurize", tasks=tasks, total_tasks=9, rows=tasks, source_bytes=tasks, total_bytes=9, seconds=seconds
    )


def test_log_lines__have_time_level_event_and_run(stream):
    log = LogLines(stream, job="nightly")
    log("start", target="features")
    log("failed", level="error", exit_code=2, reason=None)
    first, second = objects(stream)
    assert list(first) == ["time", "level", "event", "run", "job", "target"]
    assert first["time"].endswith("+00:00")
    assert (first["level"], second["level"], second["event"], second["exit_code"]) == ("info", "error", "failed", 2)
    assert first["run"] == second["run"] == log.run
    assert LogLines(stream).run != log.run
    assert "reason" not in second


@pytest.mark.fault("X-10")
def test_log_lines__escape_what_could_steer_a_terminal(stream):
    nasty = "\x1b[2J\x00\r\u202e\udcff über\nline"
    LogLines(stream)("error", message=nasty, **{"key\x1b": [nasty, {"inner": nasty}]})
    (line,) = objects(stream)
    assert line["message"].endswith("über\nline")
    for text in (line["message"], line["key\\x1b"][0], line["key\\x1b"][1]["inner"]):
        assert all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.fault("X-09")
def test_log_lines__leave_secrets_in_urls_out(stream):
    log = LogLines(stream)
    log("start", source=["s3://key:planted@bucket/a", "https://host/a?signature=planted"])
    with log.collecting():
        logging.getLogger("dkfeat.store").warning("cannot open %s", "s3://key:planted@bucket/a")
    assert "planted" not in stream.getvalue()


def test_log_lines__take_in_the_log_and_warnings(stream):
    log = LogLines(stream)
    logger = logging.getLogger("dkfeat.store.commit.begin")
    with log.collecting(), warnings.catch_warnings():
        warnings.simplefilter("always")
        logger.info("resuming batch %d", 2)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    logger.info("not any more")
    first, second = objects(stream)
    assert (first["event"], first["level"], first["message"]) == ("log", "info", "resuming batch 2")
    assert first["logger"] == "dkfeat.store.commit.begin"
    assert (second["level"], second["logger"]) == ("warning", "py.warnings")
    assert "DeprecationWarning: old" in second["message"]


def test_log_lines__progress_now_and_then_and_at_the_end(stream, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    log = LogLines(stream)
    for tasks in range(1, 10):
        log.progress(state(tasks))
        clock[0] += 2.0
    assert [line["tasks"] for line in objects(stream)] == [1, 4, 7, 9]
    assert objects(stream)[-1]["total_tasks"] == 9


def test_log_lines__values_that_json_does_not_know(stream):
    LogLines(stream)("x", nan=float("nan"), path=ValueError("odd"), yes=True, items=(1, 2.5))
    (line,) = objects(stream)
    assert line["nan"] is None
    assert (line["path"], line["yes"], line["items"]) == ("odd", True, [1, 2.5])


def test_log_lines__threads_do_not_mix(stream):
    log = LogLines(stream)
    threads = [
        threading.Thread(target=lambda n=n: [log("x", n=n, text="y" * 200) for _ in range(100)]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(objects(stream)) == 400
