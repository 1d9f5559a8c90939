"""The examples that ``dkfeat COMMAND --help`` shows run as printed, on small files of the names in them."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from dkfeat.cli import cli
from tests.docs.pages import run_command
from tests.programs import ROOT

RECIPES = {
    "features/train": "featurize train.svm --n-components 16",
    "features/test": "featurize test.svm --like features/train",
    "features/days": "featurize 'day-*.svm.gz' --n-components 16",
    "bucket/features": "featurize bucket/rows.svm --n-components 16",
    "model": "train features/train --epochs 1",
    "predictions": "predict model test.svm",
}
"""Commands that make what examples read."""
FEATURES = {
    "drop-duplicates": "featurize 'docs/*.parquet' --no-label --text body='word 1' --map minhash",
    "duplicates": "featurize 'day-*.svm' --n-components 16",
    "neighbors": "featurize old.svm --n-components 16",
}
"""The same, of the folder features in the examples of a command."""
SMALLER = {r"--n-workers \d": "--n-workers 1", "^dkfeat compare": "dkfeat compare --minutes 0.01", "s3://": ""}
"""What is replaced in the examples."""
NOT_RUN = {
    "dkfeat demo": "tests/cli/test_commands.py runs it",
    "dkfeat break-lock": "tests/docs/test_slurm_page.py has such a lock",
}

_GROUPS = {"dkfeat": cli, **cli.commands}
EXAMPLES = {name: re.findall("^ +(dkfeat .*)", command.help, re.MULTILINE) for name, command in _GROUPS.items()}
"""Commands in the help of each command, by its name."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    text = "".join(f"{number % 2} 1:{1 + number % 2} 2:{number % 7}.5 3:1\n" for number in range(40)).encode()
    for name in ("data/letter", "data/days", "docs", "bucket"):
        Path(name).mkdir(parents=True)
    Path("conf").symlink_to(ROOT / "conf")
    for name in ("train", "test", "new", "old", "day-1", "bucket/rows"):
        Path(f"{name}.svm").write_bytes(text)
    for name in ("train", "test", "data/letter/train", "data/letter/test"):
        Path(f"{name}.svm.xz").write_bytes(lzma.compress(text))
    for name in ("day-1", "new-1", "data/days/day-1"):
        Path(f"{name}.svm.gz").write_bytes(gzip.compress(text))
    numbers = range(40)
    table = pd.DataFrame({"y": [n % 2 for n in numbers], "name": [f"n{n}" for n in numbers]})
    table.assign(x=range(40)).to_parquet("rows.parquet")
    for name in ("new-1", "day-1"):
        table[["name"]].assign(a=1.5, b=range(40), c=1).to_parquet(f"{name}.parquet")
    texts = table[["y"]].assign(body=[f"word{n % 9} and more words" for n in numbers])
    texts.to_parquet("docs/1.parquet")
    texts.to_json("d.jsonl", orient="records", lines=True)


def run_example(line, recipes):
    """Run a command after those that make what it reads; an output of an earlier example gives way."""
    reads, _, out = line.partition("--out ")
    for target in recipes:
        if re.search(rf"\s{target}(\s|$)", reads) and not Path(target).exists():
            run_example(f"dkfeat {recipes[target]} --out {target}", recipes)
    for path in (out, f"{out}-queries") if out and f"--like {out} " not in reads else ():
        shutil.rmtree(path, ignore_errors=True)
    run_command(line)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.usefixtures("folder")
def test_help__examples_run(name, request):
    recipes = RECIPES | ({"features": FEATURES[name]} if name in FEATURES else {})
    for line in EXAMPLES[name]:
        if line.startswith(tuple(NOT_RUN)):
            continue
        for pattern, small in SMALLER.items():
            line = re.sub(pattern, small, line)
        if "tcp://" in line:
            address = request.getfixturevalue("cluster_client").scheduler.address
            line = re.sub(r"tcp://\S+", address, line)
        run_example(line, recipes)


def test_help__shows_what_is_not_run():
    assert [start for start in NOT_RUN if start not in str(EXAMPLES)] == []
