"""The page on public data does what it says, without a network: files are put where it says that they may be put."""

import random

import pytest

from dkfeat.datasets import DATASETS
from tests.docs.pages import run_page


@pytest.fixture
def letters(monkeypatch, tmp_path):
    """A folder to work in, and files of as many rows as the collection's, in the cache and in data/."""
    draw = random.Random(0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DKFEAT_CACHE", str(tmp_path / "cache"))
    for file in DATASETS["letter"].files.values():
        labels = [draw.randrange(1, 27) for _ in range(file.rows)]
        text = "".join(f"{label} {1 + label % 16}:0.5\n" for label in labels)
        for folder in ("data", "cache/datasets"):
            (tmp_path / folder / "letter").mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / "letter" / file.name).write_text(text)


@pytest.mark.usefixtures("letters")
def test_datasets_page__runs(capsys):
    def fewer(text):
        return text.replace("512", "16").replace("--out model", "--out model --epochs 1")

    names = run_page("how-to/datasets.md", fewer)
    assert names["letter"].train.parts[-3:] == ("datasets", "letter", "letter.scale")
    assert "26 classes; https://www.csie.ntu.edu.tw/" in capsys.readouterr().out
