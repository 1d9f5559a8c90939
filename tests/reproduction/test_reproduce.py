"""The frame of the papers' experiments, with a toy in it."""

import dataclasses
import json
import os
import re
import runpy
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import reproduction
from click.testing import CliRunner
from reproduction.experiment import Experiment, Picture, Results, Table, Verdict
from reproduction.pages.html_report import cell_text, minutes
from reproduction.parts import Parts, Workers

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "jobs"


@pytest.fixture
def toy(monkeypatch):
    """An experiment of two parts and a picture that stands in for all; it counts what it computes."""
    computed = []

    def part(number):
        computed.append(number)
        if number == toy.stops_at:
            raise KeyboardInterrupt
        return {"value": number, "of_numpy": np.float64(0.5)}

    def run(ctx):
        ctx.progress("working")
        values = [ctx.cached(f"part-{number}", lambda n=number: part(n), mode=ctx.mode)["value"] for number in (1, 2)]
        picture = Picture(
            "line", "A line", lambda figure, style: figure.subplots().plot(values, color=style.colors[0]),
            {"y": values}, "It goes up <twice>",
        )  # fmt: skip
        table = Table("Numbers & words", ["x", "y | z"], [["a", 1.0], ["<b>", None]], "A note", "0.1 <points> away.")
        refuted = Verdict("It does not.", False, reason="It is a toy.")
        verdicts = [Verdict("It holds", True, "1 < 2"), refuted, Verdict("Who knows", None)]
        return Results([table], [picture], verdicts)

    toy = types.ModuleType("reproduction.experiments.toy")
    toy.computed, toy.stops_at = computed, None
    toy.EXPERIMENT = Experiment(
        name="toy", title="Toy", source="Nobody", split_note="No rows.", differences=("It is a toy.",), run=run
    )
    monkeypatch.setitem(sys.modules, "reproduction.experiments.toy", toy)
    monkeypatch.setattr(reproduction, "NAMES", ("toy",))
    return toy


def reproduce(*arguments):
    return CliRunner().invoke(runpy.run_path(str(JOBS / "reproduce.py"))["main"], [str(each) for each in arguments])


@pytest.mark.usefixtures("toy")
def test_report__is_one_page_that_loads_nothing(tmp_path):
    outcome = reproduce("--out", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout.splitlines() == [
        "toy: yes: It holds",
        "toy: NO: It does not.",
        "toy: not measured: Who knows",
        str(tmp_path / "report.html"),
    ]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|srcset|href)=\"(?!data:image/png;base64,|#)", page)
    assert "<script" not in page
    assert page.count("data:image/png;base64,") == 2
    assert '<source media="(prefers-color-scheme: dark)"' in page
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    for text in (
        "Numbers &amp; words",
        "&lt;b&gt;",
        "It goes up &lt;twice&gt;",
        "0.1 &lt;points&gt; away.",
        "It is a toy.",
        "quick mode, seed 0",
    ):
        assert text in page
    assert "<b>" not in page
    numbers = json.loads((tmp_path / "toy" / "line.json").read_text())
    assert numbers == {"title": "A line", "mode": "quick", "seed": 0, "y": [1, 2]}


def test_run__goes_on_where_it_was_stopped(toy, tmp_path):
    toy.stops_at = 2
    stopped = reproduce("--out", tmp_path)
    assert stopped.exit_code == 130
    assert "run the same command again to continue" in stopped.stderr
    assert not (tmp_path / "toy" / "result.json").exists()
    toy.stops_at = None
    assert reproduce("--out", tmp_path).exit_code == 0
    assert reproduce("--out", tmp_path).exit_code == 0
    assert toy.computed == [1, 2, 2]
    assert reproduce("--out", tmp_path, "--seed", "1").exit_code == 0
    assert reproduce("--out", tmp_path, "--mode", "full").exit_code == 0
    assert toy.computed == [1, 2, 2, 1, 2, 1, 2]
    for part in (tmp_path / "parts" / "toy").iterdir():
        part.write_text("{")
    assert reproduce("--out", tmp_path).exit_code == 0
    assert toy.computed == [1, 2, 2, 1, 2, 1, 2, 1, 2]  # damaged parts are computed again


@pytest.mark.usefixtures("toy")
def test_run__parts_of_other_data_are_refused(tmp_path):
    file = tmp_path / "data" / "letter" / "train.svm.xz"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"one")
    arguments = ("--out", tmp_path / "out", "--data", tmp_path / "data")
    assert reproduce(*arguments).exit_code == 0
    (file.parent / "test.svm.xz").write_bytes(b"new")
    assert reproduce(*arguments).exit_code == 0
    file.write_bytes(b"two")
    refused = reproduce(*arguments)
    assert refused.exit_code == 2
    assert f"{file} is not the file from which parts" in refused.stderr


@pytest.mark.usefixtures("toy")
def test_docs__keep_full_runs_only(tmp_path):
    page = tmp_path / "docs" / "results.md"
    refused = reproduce("--out", tmp_path, "--docs", page)
    assert refused.exit_code == 2
    assert "run with --mode full first" in refused.stderr
    assert not page.parent.exists()
    pictures = page.parent / "images" / "results"
    pictures.mkdir(parents=True)
    (pictures / "old.png").write_bytes(b"")
    assert reproduce("--out", tmp_path, "--mode", "full", "--docs", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert sorted(Path(each).name for each in shown) == sorted(file.name for file in pictures.iterdir())
    assert all((page.parent / each).is_file() for each in shown)
    assert "| x | y \\| z |\n| --- | ---: |\n| a | 1.000 |\n" in text
    assert "\n\n0.1 <points> away.\n\nA note\n" in text
    assert "- ✗ (not confirmed) It does not. Why: It is a toy.\n" in text
    assert str(tmp_path) not in text


def test_docs__keep_sections_of_experiments_without_a_result(toy, tmp_path, monkeypatch):
    page, other = tmp_path / "docs" / "results.md", types.ModuleType("reproduction.experiments.other")
    other.EXPERIMENT = dataclasses.replace(toy.EXPERIMENT, name="other", title="Other", source="Somebody")
    monkeypatch.setitem(sys.modules, "reproduction.experiments.other", other)
    assert reproduce("--out", tmp_path / "a", "--mode", "full", "--docs", page).exit_code == 0
    before = page.read_text(encoding="utf-8")
    monkeypatch.setattr(reproduction, "NAMES", ("toy", "other"))
    outcome = reproduce("--out", tmp_path / "b", "--mode", "full", "--docs", page, "--only", "other")
    assert outcome.exit_code == 0, outcome.stderr
    text = page.read_text(encoding="utf-8")
    section = before[before.index('<a id="toy">') : before.index('<a id="origin">')].rstrip()
    assert section in text
    assert "- [Toy](#toy) ✓✗–\n- [Other](#other) ✓✗–\n" in text  # noqa: RUF001 - the dash
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert sections == ["Not confirmed", "Toy", "Other", "How this page is made"]
    assert "- ✗ It does not. It is a toy. ([Other](#other))\n" in text
    pictures = {file.name for file in (page.parent / "images" / "results").iterdir()}
    assert pictures == {f"{name}-line-{style}.png" for name in ("toy", "other") for style in ("light", "dark")}


@pytest.mark.fault("S-19")
@pytest.mark.usefixtures("toy")
def test_outputs__of_others_are_kept(tmp_path):
    mine, out, data_set = tmp_path / "mine.md", tmp_path / "out", tmp_path / "shards"
    (data_set / "_dkfeat").mkdir(parents=True)
    (data_set / "_dkfeat" / "spec.json").write_text("{}")
    out.mkdir()
    for file in (mine, out / "report.html"):
        file.write_text("mine")
    for arguments in (("--out", tmp_path / "new", "--docs", mine), ("--out", out), ("--out", data_set / "data")):
        refused = reproduce(*arguments, "--mode", "full")
        assert refused.exit_code == 2
        assert re.search("an earlier result|may hold no other files", refused.stderr), refused.stderr
    assert {file.name for file in tmp_path.rglob("*")} == {
        "mine.md",
        "out",
        "report.html",
        "shards",
        "_dkfeat",
        "spec.json",
    }
    assert mine.read_text() == (out / "report.html").read_text() == "mine"


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "tooy"), "did you mean 'toy'?"),
        (("--data", "nowhere"), "there is no such folder"),
        (("--mode", "slow"), "'slow' is not one of"),
        (("--jobs", "0"), "0 is not in the range"),
    ],
    ids=["name", "data", "mode", "jobs"],
)
def test_command__mistakes_exit_2(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    outcome = reproduce(*arguments)
    assert outcome.exit_code == 2
    assert words in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert not list(tmp_path.iterdir())


def test_parts__processes_give_what_one_gives(tmp_path):
    tasks = {str(seconds): {"seconds": seconds} for seconds in (1, 500, 3)}
    told = []
    with Workers(2) as workers:
        found = Parts(tmp_path, workers).cached_all(minutes, tasks, (), told.append)
    assert found == {"1": "1 seconds", "500": "8 minutes", "3": "3 seconds"}
    assert list(found) == list(tasks)
    assert len(told) == 3
    again = Parts(tmp_path, Workers(1)).cached_all(None, tasks, (), told.append)
    assert again == found
    assert len(told) == 3
    other = Parts(tmp_path, Workers(1)).cached_all(minutes, {"1": {"seconds": 2}}, (), told.append)
    assert other == {"1": "2 seconds"}


def test_run__a_killed_process_exits_5(toy, tmp_path):
    def run(ctx):
        return ctx.cached_all(os._exit, {"dies": {"status": 3}})

    toy.EXPERIMENT = Experiment(name="toy", title="Toy", source="", split_note="", differences=(), run=run)
    outcome = reproduce("--out", tmp_path, "--jobs", "2")
    assert outcome.exit_code == 5
    assert "--jobs 1" in outcome.stderr


def test_cells__floats_get_four_digits():
    shown = [cell_text(value) for value in (97.2, 100.0, 0.000123456, 15_000, None, "b = 8", 0.0)]
    assert shown == ["97.20", "100.0", "0.0001235", "15,000", "–", "b = 8", "0"]  # noqa: RUF001 - the dash


def test_experiments__use_public_names_only():
    for file in sorted((JOBS / "reproduction").rglob("*.py")):
        found = re.search(
            r"^\s*(from|import) dkfeat(\.\w+)*(\._\w*| import .*\b_)", file.read_text("utf-8"), re.MULTILINE
        )
        assert found is None, f"{file.name}: {found.group()}"
