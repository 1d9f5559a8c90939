"""The README's example runs as it is printed, and what it names exists."""

import importlib.util
import re
from pathlib import Path

import pytest
from sklearn.datasets import dump_svmlight_file, load_digits

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "explanation" / "figures.py"
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.quick
def test_readme__example_runs(tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    X, y = load_digits(return_X_y=True)
    dump_svmlight_file(X[:1347], y[:1347], "train.svm", zero_based=False)
    dump_svmlight_file(X[1347:], y[1347:], "test.svm", zero_based=False)
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    assert 0.9 < float(capsys.readouterr().out.split()[-1]) <= 1
    assert list((tmp_path / "features" / "train" / "data").glob("*.parquet"))


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


@pytest.fixture
def figures():
    spec = importlib.util.spec_from_file_location("figures", FIGURES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figures__are_drawn_and_shown(figures, monkeypatch, tmp_path, capsys):
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
