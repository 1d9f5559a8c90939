"""Standard error in a terminal: signs of life, and lines of its width."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import threading
from fcntl import ioctl
from io import StringIO
from termios import TIOCSWINSZ

import pytest

import dkfeat
from dkfeat.cli import cli
from dkfeat.cli.terminal import sign_of_life, wrapped


class Terminal(StringIO):
    def isatty(self):
        return True


class Slow(Terminal):
    """Terminal that tells when something is written to it."""

    def __init__(self):
        super().__init__()
        self.written = threading.Event()

    def flush(self):
        self.written.set()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_sign_of_life__ends_with_the_first_output(monkeypatch, stream):
    terminal = Slow() if stream == "stderr" else StringIO()  # a pipe, which a pager may show
    monkeypatch.setattr(sys, "stdout", terminal if stream == "stdout" else StringIO())
    monkeypatch.setattr(sys, "stderr", shown := terminal if stream == "stderr" else Slow())
    with sign_of_life("train"):
        assert shown.written.wait(30)
        print("result", file=getattr(sys, stream))
        before = shown.getvalue()
    assert "train: working" in before
    assert shown.getvalue() == before  # nothing after the output
    assert terminal.getvalue().endswith("\x1b[2Kresult\n" if stream == "stderr" else "result\n")


def test_wrapped__breaks_between_words_of_terminals_only():
    text = "word " * 30 + "/a/long/path/" * 10
    lines = wrapped(text, Terminal()).split("\n")
    assert all(len(line) <= 80 for line in lines[:-1])
    assert " ".join(line.strip() for line in lines) == text
    assert wrapped(text, StringIO()) == text
    for begin in ("  ", "{"):
        assert wrapped(begin + text, Terminal()) == begin + text


def test_files__stay_whole_in_a_terminal(tiny_folder, tmp_path, monkeypatch):
    target = tmp_path / " ".join(["name"] * 30)
    dkfeat.featurize(tiny_folder / "*.svm", target, dkfeat.DartFeatures(8, random_state=0), progress=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    cli(["files", str(target)], standalone_mode=False)
    assert sys.stdout.getvalue().splitlines() == dkfeat.open_shards(target).paths


def test_errors__fit_the_terminal():
    driver, terminal = pty.openpty()
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    command = [sys.executable, "-m", "dkfeat", "featurize", "rows.svm", "--map", "a-map-that-is-unknown", "--out", "x"]
    status = subprocess.run(command, stderr=terminal, check=False, timeout=120).returncode
    text = re.sub(r"\x1b\[\d+m", "", os.read(driver, 1 << 16).decode())
    os.close(terminal)
    os.close(driver)
    assert status == 2
    assert max(map(len, text.splitlines())) <= 60
    assert "there is no 'a-map-that-is-unknown'; the choices are gcws" in " ".join(text.split())
