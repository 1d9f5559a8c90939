"""The README's example runs as it is printed, and what it names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme__example_runs(tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    assert 0.9 < float(capsys.readouterr().out.split()[-1]) <= 1
    assert list((tmp_path / "features" / "train" / "data").glob("*.parquet"))


def test_readme__shows_both_set_up_commands():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    shown = re.findall(r"^    make ([a-z-]+)", README, re.MULTILINE)
    assert shown[:2] == ["demo", "test"]
    assert set(shown) <= set(targets)


def test_readme__names_commands_that_exist():
    from dkfeat.cli import cli

    named = set(re.findall(r"`dkfeat ([a-z]+)", README))
    assert named == set(cli.commands)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.name
)
def test_page__links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
