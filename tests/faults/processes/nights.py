"""The nightly job with small settings in a folder of its own, and the lines that it writes."""

from __future__ import annotations

import gzip
import json
import os
import runpy
from pathlib import Path

import yaml
from click.testing import CliRunner

from tests.programs import ROOT, job

CONF = ROOT / "conf" / "nightly.yaml"
MAIN = runpy.run_path(str(ROOT / "jobs" / "nightly.py"))["main"]


class Nights:
    """A folder with the project's job file, with small settings, and days of data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = yaml.safe_load(CONF.read_text())
        part = self.settings["featurize"][0]
        part["map"]["n_components"] = 8
        part["source"] |= {"blocksize": "4KiB", "n_features": 64}
        self.settings["run"] = {"scheduler": "synchronous"}
        self.days, self.target = folder / "data" / "days", folder / part["out"]
        self.days.mkdir(parents=True)
        self.save()

    def save(self) -> None:
        (self.folder / "nightly.yaml").write_text(yaml.safe_dump(self.settings))

    def day(self, number: int, rows: int = 300, mtime: int = 10**9) -> Path:
        path = self.days / f"day-{number}.svm.gz"
        text = "".join(f"{1 + i % 2} {1 + i % 5}:1 {10 + i % 7}:{number}\n" for i in range(rows))
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
        os.utime(path, (mtime, mtime))
        return path

    def fire(self, *statuses: int) -> list[dict]:
        """Run the job in this process, which ends with one of the statuses, 0 by default; return its lines."""
        ended = CliRunner().invoke(MAIN, ["nightly.yaml"], prog_name="nightly")
        assert ended.exit_code in (statuses or (0,)), ended.output
        assert ended.stderr == ""
        return self.checked(ended.stdout, ended.exit_code)

    @staticmethod
    def checked(text: str, status: int) -> list[dict]:
        assert all(character.isprintable() or character == "\n" for character in text)
        lines = [json.loads(line) for line in text.splitlines()]
        for line in lines:
            assert list(line)[:4] == ["time", "level", "event", "run"]
            assert line["run"] == lines[0]["run"]
        assert lines[-1]["exit_code"] == status
        return lines

    def words(self) -> list[str]:
        return job("nightly", "nightly.yaml")


def event(lines, name):
    (found,) = [line for line in lines if line["event"] == name]
    return found
