"""The pages on scripts and on defaults do what they say."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import dask
import pytest
import yaml

from dkfeat.config import DefaultsConfig
from dkfeat.engine.runners.defaults import read_defaults
from tests.cli.test_output import OBJECTS
from tests.docs.pages import DOCS, texts
from tests.programs import ROOT

SHELL = (DOCS / "how-to" / "shell.md").read_text(encoding="utf-8")
DEFAULTS = (DOCS / "how-to" / "defaults.md").read_text(encoding="utf-8")


def test_shell_page__tells_the_keys_that_are_promised():
    rows = re.findall(r"^\| `([a-z-]+)` \| (`.*`) \|$", SHELL, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", keys)) for name, keys in rows} == OBJECTS


def test_shell_page__its_script_runs(tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    for name in ("train", "test"):
        (tmp_path / f"{name}.svm").write_text(
            "".join(f"{1 + i % 2} {1 + i % 2}:1 {3 + i % 5}:0.5\n" for i in range(40))
        )
    install, script = texts("how-to/shell.md", "bash")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "-c", install + script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1.0\n", "", 0)
    assert "_DKFEAT_COMPLETE" in (tmp_path / ".bashrc").read_text()


def test_defaults_page__lists_every_key():
    assert re.findall(r"^\| `([a-z-]+)` \|", DEFAULTS, re.MULTILINE) == [
        item.name.replace("_", "-") for item in fields(DefaultsConfig)
    ]
    (example,) = texts("how-to/defaults.md", "yaml")
    with dask.config.set(yaml.safe_load(example)):
        assert read_defaults().n_workers == 4
