import io

import pytest

from dkfeat.engine.progress import NotebookLine
from dkfeat.learn.sgd import epochs as epoch_lines


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(epoch_lines.time, "monotonic", lambda: seconds[0])
    return seconds


def tell(stream, clock, epochs, seconds_each):
    lines = epoch_lines.EpochLines(epochs, stream)
    for epoch in range(1, epochs + 1):
        clock[0] += seconds_each
        lines({"epoch": epoch, "rows": 100, "test_accuracy": 0.5})
    return stream.getvalue()


def test_epoch_lines__a_pipe_gets_the_first_the_last_and_one_every_few_seconds(clock):
    text = tell(io.StringIO(), clock, 9, 2.0)
    assert [line.split()[2] for line in text.splitlines()] == ["1", "4", "7", "9"]
    assert text.splitlines()[0] == "train: epoch 1 of 9, test accuracy 50.00%, 50 rows/s"


def test_epoch_lines__a_terminal_gets_one_line_that_changes(clock):
    text = tell(Terminal(), clock, 3, 0.5)
    assert text.count("\r") == 3
    assert text.endswith("\n")
    assert text.count("\n") == 1


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.usefixtures("clock")
def test_epoch_lines__what_follows_begins_on_a_line_of_its_own(epochs):
    stream = Terminal()
    with epoch_lines.EpochLines(epochs, stream) as lines:
        lines({"epoch": 1, "rows": 100})  # and no other epoch: an error ends training
    assert stream.getvalue().endswith("rows/s\033[K\n")


def test_epoch_lines__a_notebook_gets_one_line_that_ends_with_the_last_epoch(monkeypatch, capsys):
    shown = []

    class Line(NotebookLine):
        def end(self):
            if self._pending is not None:
                shown.append(self._pending["text/plain"])
            self._pending, self._next = None, float("inf")

    monkeypatch.setattr(epoch_lines.NotebookLine, "here", Line)
    with epoch_lines.EpochLines(9) as lines:  # training that stops early
        for epoch in (1, 2, 3):
            lines({"epoch": epoch, "rows": 100})
    assert [text.split(",")[0] for text in shown] == ["train: epoch 1 of 9", "train: epoch 3 of 9"]
    assert capsys.readouterr() == ("", "")
