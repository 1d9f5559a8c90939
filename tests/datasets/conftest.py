"""A data set that the collection does not have, and a server that has it in place of the collection's."""

from __future__ import annotations

import bz2

import pytest

from dkfeat import datasets
from dkfeat.datasets import DATASETS, DataFile, DatasetInfo
from tests.sources.web_server import Kept, WebServer

TRAIN = "".join(f"{row % 3} 1:{row} 7:0.5\n" for row in range(60_000)).encode()
TEST = TRAIN[: TRAIN.index(b"\n", 20_000) + 1]
PLACE = "/multiclass/toy.scale"


@pytest.fixture(autouse=True)
def server(monkeypatch, tmp_path):
    train = DataFile(path=PLACE[1:], rows=60_000)
    test = DataFile(path=f"{PLACE[1:]}.t.bz2", rows=TEST.count(b"\n"))
    toy = DatasetInfo(name="toy", title="a toy", n_features=7, n_classes=3, train=train, test=test)
    monkeypatch.setitem(DATASETS, "toy", toy)
    monkeypatch.setenv("DKFEAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(datasets, "RETRY_SECONDS", 0)
    with WebServer({PLACE: Kept(TRAIN), f"{PLACE}.t.bz2": Kept(bz2.compress(TEST))}) as server:
        monkeypatch.setattr(datasets, "COLLECTION", server.address)
        yield server
