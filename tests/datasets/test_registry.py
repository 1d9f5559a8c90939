"""What the registry says of the public sets, and where they are kept."""

import lzma
from pathlib import Path

import pytest

from dkfeat.datasets import COLLECTION, DATASETS, cache_folder


def test_names__are_sorted_and_the_papers_sets_are_among_them():
    assert list(DATASETS) == sorted(DATASETS)
    papers = {"letter", "satimage", "splice", "vowel", "covtype", "ijcnn1", "rcv1", "webspam", "cod-rna", "protein"}
    assert papers <= set(DATASETS)


@pytest.mark.parametrize("info", DATASETS.values(), ids=list(DATASETS))
def test_dataset__has_files_of_its_own(info):
    paths = [file.path for file in info.files.values()]
    assert len({file.name for file in info.files.values()}) == len(paths)  # they share a folder
    assert all(path.startswith(("binary/", "multiclass/")) and not path.endswith("/") for path in paths)
    assert info.page in (f"{COLLECTION}/binary.html", f"{COLLECTION}/multiclass.html")
    assert min(info.n_features, info.train.rows) > 0
    assert info.n_classes == 2 or info.page.endswith("multiclass.html")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"DKFEAT_CACHE": "/a/cache", "XDG_CACHE_HOME": "/b"}, "/a/cache"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/dkfeat"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/of/mine/.cache/dkfeat"),
        ({}, "/home/of/mine/.cache/dkfeat"),
    ],
)
def test_cache_folder__follows_the_environment(monkeypatch, variables, expected):
    for name in ("DKFEAT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/of/mine", **variables}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


@pytest.mark.data
def test_rows__are_those_of_the_copies_at_hand(data_folder):
    """The copies of the papers' sets have all rows of the collection's files, where they are whole."""
    for name, copy in [("letter", "letter"), ("satimage", "satimage"), ("splice", "splice"), ("a9a", "adult_a9a")]:
        for part, file in DATASETS[name].files.items():
            with lzma.open(data_folder / copy / f"{part}.svm.xz") as lines:
                assert sum(1 for _ in lines) == file.rows
