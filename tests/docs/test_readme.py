"""The README's example runs as it is printed, and what it names exists."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.docs.pages import blocks, check_output, texts

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "explanation" / "figures.py"
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.quick
def test_readme__example_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    (example,) = (block for block in blocks("../README.md") if block.language == "python")
    monkeypatch.chdir(tmp_path)
    exec(texts("getting-started.md", "python")[0], {})
    capsys.readouterr()
    exec(compile(example.text, "README.md", "exec"), {})
    assert "accuracy" in example.shown
    check_output(example.shown, capsys.readouterr().out)


@pytest.mark.quick
def test_readme__says_what_the_picture_shows():
    front = module_of(ROOT / "docs" / "images" / "front.py")
    linear, gcws, most, exact = front.read_accuracies()
    caption = " ".join(README.partition("<!-- caption -->")[2].partition("<!-- /caption -->")[0].split())
    near = [name for name in gcws if exact[name] - gcws[name] <= 1.5 and linear[name] < gcws[name]]
    assert sorted(set(gcws) - set(near)) == ["Covertype", "Sector"]
    assert len(near) == 9
    assert "On nine of eleven sets the linear model on dkfeat's features is within 1.5 points" in caption
    assert f"up to {max(gcws[name] - linear[name] for name in near):.0f} points above" in caption
    gaps = [exact["Covertype"] - found["Covertype"] for found in (gcws, most)]
    assert f"On Covertype a gap of {gaps[0]:.0f} points remains ({gaps[1]:.1f} with 4,096 samples)" in caption
    assert linear["Sector"] > gcws["Sector"] > exact["Sector"]
    assert "On Sector the linear model on the raw columns is the most accurate" in caption


@pytest.mark.quick
def test_readme__shows_both_set_up_commands():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    shown = re.findall(r"^    make ([a-z-]+)", README, re.MULTILINE)
    assert shown[:2] == ["demo", "test"]
    assert set(shown) <= set(targets)


@pytest.mark.quick
def test_readme__names_commands_that_exist():
    from dkfeat.cli import cli

    named = set(re.findall(r"`dkfeat ([a-z-]+)", README))
    assert named == set(cli.commands)


def module_of(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figures__are_drawn_and_shown(monkeypatch, tmp_path, capsys):
    figures = module_of(FIGURES)
    for name, value in {"SEEDS": 1, "COMPONENTS": 64, "SIZES": figures.SIZES[:2], "IMAGES": tmp_path}.items():
        monkeypatch.setattr(figures, name, value)
    figures.main([])
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in (FIGURES.parent / "images").iterdir()}
    assert all((tmp_path / name).stat().st_size > 10_000 for name in drawn)
    shown = {
        name
        for page in FIGURES.parent.parent.glob("*/*.md")
        for name in re.findall(r"images/([\w-]+\.png)", page.read_text())
    }
    assert drawn <= shown
    assert len(capsys.readouterr().out.splitlines()) == len(drawn)
