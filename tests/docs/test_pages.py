"""Each page of the documentation runs as it is printed, from its first block to its last."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from sklearn.datasets import dump_svmlight_file

import dkfeat
from dkfeat.doctor import checks
from tests.docs.pages import DOCS, NOT_RUN, Block, blocks, check_output, commands, run_command, run_page, texts
from tests.programs import ROOT


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with train.svm and test.svm: three classes that are easy to tell apart."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=160)
    X = rng.random((160, 3)) + np.eye(3)[y]
    dump_svmlight_file(X[:120], y[:120], str(tmp_path / "train.svm"), zero_based=False)
    dump_svmlight_file(X[120:], y[120:], str(tmp_path / "test.svm"), zero_based=False)
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pages__all_that_have_code_are_run():
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    made = {"_build", "generated"}
    pages = [path.relative_to(DOCS) for path in DOCS.rglob("*.md") if not made & set(path.parts)]
    ran = {page: [line for block in blocks(str(page)) for line, _ in commands(block)] for page in pages}
    coded = [
        page
        for page in pages
        if texts(str(page), "python") or any(not line.startswith(tuple(NOT_RUN)) for line in ran[page])
    ]
    assert len(coded) > 9
    lines = [line for page in pages for line in ran[page]]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in lines)] == []
    not_named = [page for page in coded if f'"{page}"' not in tests and f'"{page.name}"' not in tests]
    assert [page for page in not_named if str(page) not in RUN_IN_FOLDER] == []


def test_shown_output__is_compared():
    check_output("a 0.3 s in 12 MiB\n...\nend", "a  12 s in 1.5 GiB\nmore\nlines\nend\n")
    with pytest.raises(AssertionError, match="shown:\n2 rows"):
        check_output("2 rows", "3 rows", "")
    block = Block("console", "$ ls \\\n  -a\n.\n..\n$ pwd\n", None, "")
    assert commands(block) == [("ls    -a", ".\n..\n"), ("pwd", "")]


def test_getting_started_page__runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("matplotlib.pyplot.subplots", lambda **_: (None, Figure().add_subplot()))
    lines = [line for block in blocks("getting-started.md") for line in (block.text + block.shown).splitlines()]
    assert max(map(len, lines)) <= 90  # what the site shows without scrolling
    names = run_page("getting-started.md")
    assert (names["minutes"] > 15).tolist() == (names["late"] == "late").tolist()
    assert (tmp_path / "report" / "evaluation.html").exists()
    assert len({dkfeat.open_shards(f"features/{tool}").manifest.rows for tool in ("polars", "duckdb")}) == 1


GUIDES = "libsvm parquet in-memory read-shards neighbors clean train serve explain pictures defaults"
RUN_IN_FOLDER = [*(f"how-to/{name}.md" for name in GUIDES.split()), "explanation/determinism.md"]


@pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")  # of pandas, where Spark is installed
@pytest.mark.parametrize("page", RUN_IN_FOLDER)
@pytest.mark.usefixtures("folder")
def test_page__runs(page):
    try:
        run_page(page, lambda text: text.replace("--n-workers 4", "--n-workers 2"))
    finally:
        pyplot.close("all")


@pytest.mark.usefixtures("folder")
def test_shards_page__lists_all_files():
    page = (DOCS / "explanation" / "shards.md").read_text(encoding="utf-8")
    listed = {re.sub(r"\d{2,}|-[0-9a-f…]{9,}", "", name) for name in re.findall(r"^  (\w\S+)  ", page, re.MULTILINE)}
    Path("d.jsonl").write_text("".join(f'{{"body": "the same words {number % 9}"}}\n' for number in range(100)))
    for line in (
        "featurize train.svm --n-components 8 --out features --delta",
        "featurize d.jsonl --no-label --text 'body=word 1' --map minhash --n-components 8 --out sketches",
        "duplicates sketches --threshold 1 --out copies",
        "drop-duplicates d.jsonl copies --out clean",
    ):
        run_command(f"dkfeat {line}")
    made = {
        f"{path.relative_to(name)}{'/' * path.is_dir()}"
        for name in ("features", "clean")
        for path in Path(name).rglob("*")
    }
    kinds = {re.sub(r"\d{2,}|-[0-9a-f]{9,}", "", name) for name in made - {"data/", "_dkfeat/", "_delta_log/"}}
    assert kinds | {"_dkfeat/lock.json"} == listed


def test_doctor_page__runs(cluster_client):
    if checks.config.DISABLE_JIT:
        pytest.skip("without the JIT there are other lines")
    run_page("how-to/doctor.md", lambda text: text.replace("tcp://10.0.0.1:8786", cluster_client.scheduler.address))
