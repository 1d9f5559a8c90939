from __future__ import annotations

import bz2
import lzma
from pathlib import Path

import pytest

from dkfeat import datasets
from dkfeat.datasets import DATASETS, cache_folder, fetch
from dkfeat.errors import ConfigError, SourceError
from tests.datasets.conftest import PLACE, TEST, TRAIN
from tests.sources.web_server import Kept


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "datasets" / "toy"


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_fetch__brings_both_files_once(server, folder):
    found = fetch("toy")
    assert found.files == [folder / "toy.scale", folder / "toy.scale.t.bz2"]
    assert found.train.read_bytes() == TRAIN
    assert bz2.decompress(found.test.read_bytes()) == TEST
    assert left_in(folder) == ["toy.scale", "toy.scale.t.bz2"]
    assert fetch("toy", part="test").paths == {"test": found.test}
    assert len(server.requests) == 2


def test_fetch__tries_again_after_broken_connections_and_server_errors(server, monkeypatch):
    monkeypatch.setattr(datasets, "RETRY_SECONDS", 20)
    server.files[PLACE] = Kept(TRAIN, cuts=[300_000, 0])
    server.faults = [503]
    assert fetch("toy", part="train").train.read_bytes() == TRAIN
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"content": TRAIN[:-16]}, "it has 59,999 rows, but the collection states 60,000 rows"),
        ({"cuts": [300_000]}, "the connection ended"),
        ({"status": 404}, r"404: .*see http://\S+/multiclass.html, and put it there"),
        ({"redirect": "ftp://127.0.0.1/x"}, r"redirects to ftp://127.0.0.1/x, which is not an http:// or https:// URL"),
    ],
)
def test_fetch__leaves_nothing_if_the_file_is_not_all_there(server, folder, change, match):
    server.files[PLACE] = Kept(**{"content": TRAIN, **change})
    with pytest.raises(SourceError, match=match):
        fetch("toy", part="train")
    assert left_in(folder) == []


@pytest.mark.parametrize("content", [bz2.compress(TEST)[:-10], b"<html>Please log in</html>"])
def test_fetch__file_that_cannot_be_decompressed(server, content):
    server.files[f"{PLACE}.t.bz2"] = Kept(content)
    with pytest.raises(SourceError, match=r"toy.scale.t.bz2 cannot be fetched to .*(end-of-stream|Invalid data)"):
        fetch("toy", part="test")


def test_fetch__offline_names_the_place_of_a_file_that_is_put_there(folder, monkeypatch):
    monkeypatch.setattr(datasets, "COLLECTION", "http://127.0.0.1:9")
    with pytest.raises(SourceError, match=rf"cannot be fetched to {folder}/toy.scale: .*refused.*; check the network"):
        fetch("toy", part="train")
    (folder / "toy.scale").write_bytes(TRAIN)
    assert fetch("toy", part="train").train.read_bytes() == TRAIN


def test_fetch__folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DKFEAT_CACHE", str(tmp_path / "file"))
    with pytest.raises(SourceError, match=r"cannot be fetched to .*file/datasets/toy/toy.scale: Not a directory"):
        fetch("toy")


@pytest.mark.parametrize(
    ("name", "part", "match"), [("webspan", None, "did you mean 'webspam'"), ("webspam", "test", "no file of held-out")]
)
def test_name__that_is_unknown_is_a_setting_error(name, part, match):
    with pytest.raises(ConfigError, match=match):
        fetch(name, part=part)


# ---- the registry


@pytest.mark.parametrize("info", DATASETS.values(), ids=list(DATASETS))
def test_dataset__has_files_of_its_own(info):
    paths = [file.path for file in info.files.values()]
    assert len({file.name for file in info.files.values()}) == len(paths)  # they share a folder
    assert all(path.startswith(("binary/", "multiclass/")) and not path.endswith("/") for path in paths)
    assert info.page.endswith(("/binary.html", "/multiclass.html"))
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
