"""The page about nightly runs does what it says: its commands are run as they are printed."""

from __future__ import annotations

import configparser
import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dkfeat.cli import cli
from tests.docs.pages import DOCS, texts
from tests.programs import ROOT

PAGE = (DOCS / "how-to" / "nightly.md").read_text(encoding="utf-8")
HOME = "/srv/dkfeat"


def blocks(language):
    return texts("how-to/nightly.md", language)


@pytest.fixture
def home(tmp_path):
    """A folder as the page wants it, with one day of data."""
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    (tmp_path / "data" / "days").mkdir(parents=True)
    (tmp_path / "data" / "days" / "day-1.svm.gz").write_bytes(gzip.compress(b"1 1:1\n2 2:1\n"))
    (tmp_path / "rows.svm.gz").write_bytes(gzip.compress(b"1 3:1\n"))
    return tmp_path


def shell(text, home):
    done = subprocess.run(
        ["sh", "-e", "-c", text.replace(HOME, str(home))],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nightly_page__commands_run(home):
    by_hand, arrive, learn, log, give_up = blocks("sh")
    assert '"committed"' in shell(by_hand, home)
    shell(arrive, home)
    assert "model" in shell(f".venv/bin/dkfeat train features/days --out model\n{learn}", home)
    (cron,) = blocks("cron")
    assert shell(re.fullmatch(r"(?:\S+ ){5} (.*)\n", cron)[1], home) == ""
    lines = [json.loads(line) for line in (home / "nightly.log").read_text().splitlines()]
    assert [line["new_rows"] for line in lines if line["event"] == "committed"] == [1]
    if shutil.which("jq"):
        assert shell(log, home).endswith("features/days 1\n")
    assert "nothing to abort" in shell(give_up, home)


def test_nightly_page__units_and_tasks_start_the_same():
    service, timer = (configparser.ConfigParser() for _ in range(2))
    for parser, text in zip((service, timer), blocks("ini"), strict=True):
        parser.optionxform = str
        parser.read_string(text)
    assert timer["Timer"]["OnCalendar"]
    words = shlex.split(service["Service"]["ExecStart"])
    by_hand = shlex.split(blocks("sh")[0])
    assert words == [f"{HOME}/{by_hand[0]}", *by_hand[1:]]
    assert service["Service"]["WorkingDirectory"] == HOME
    (task,) = blocks("python")
    assert f'"cd {HOME} && {blocks("sh")[0].strip()}"' in task


def test_nightly_page__names_commands_and_events_that_exist():
    assert set(re.findall(r"dkfeat ([a-z]+) features", PAGE)) <= set(cli.commands)
    told = set(re.findall(r"^\| `([a-z]+)` \|", PAGE, re.MULTILINE))
    written = "".join(path.read_text() for path in (ROOT / "dkfeat" / "cli").rglob("*.py"))
    assert told == {event for event in told if f'"{event}"' in written}
    assert {"committed", "skipped", "failed", "waiting", "unchanged", "end", "error"} <= told
