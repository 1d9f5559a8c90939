"""Fetching, against a server on loopback that breaks off, changes its files and answers with errors."""

import bz2
import errno
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from dkfeat.datasets import COLLECTION, DATASETS, cache_folder, fetch
from dkfeat.errors import ConfigError, SourceError
from tests.datasets.toy import PATH, PLACE, TEST, TRAIN, toy
from tests.sources.web_server import Kept, WebServer

FORMER = "Mon, 01 Jan 2018 00:00:00 GMT"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _toy(monkeypatch, tmp_path):
    monkeypatch.setitem(DATASETS, "toy", toy())
    monkeypatch.setenv("DKFEAT_CACHE", str(tmp_path / "cache"))
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)


@pytest.fixture
def server():
    with WebServer() as server:
        server.files = {PLACE: Kept(TRAIN), f"{PLACE}.t.bz2": Kept(bz2.compress(TEST))}
        yield server


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "datasets" / "toy"


def train_of(server, **options):
    return fetch("toy", part="train", mirror=server.address, **options).train


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_fetch__brings_both_files_and_records_them(server, folder):
    found = fetch("toy", mirror=server.address)
    assert found.files == [folder / "toy.scale", folder / "toy.scale.t.bz2"]
    assert found.train.read_bytes() == TRAIN
    record = json.loads((folder / "toy.scale.json").read_text())
    assert record["sha256"] == hashlib.sha256(TRAIN).hexdigest()
    assert (record["size"], record["rows"]) == (len(TRAIN), 60_000)
    assert record["url"] == f"{server.address}/{PATH}"
    assert fetch("toy", mirror="http://127.0.0.1:9").files == found.files  # nothing is asked for again
    names = ["toy.scale", "toy.scale.t.bz2"]
    assert left_in(folder) == sorted([".lock", *names, *(f"{name}.json" for name in names)])


def test_broken_connection__is_gone_on_with(server):
    server.files[PLACE] = Kept(TRAIN, cuts=[300_000, 300_001, 700_000])
    told = []
    assert train_of(server, progress=lambda *state: told.append(state)).read_bytes() == TRAIN
    assert server.ranges == [None, "bytes=300000-", "bytes=300001-", "bytes=700000-"]
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1] == ("toy.scale", len(TRAIN), len(TRAIN))


def test_killed_fetch__is_gone_on_with(server, tmp_path):
    server.files[PLACE].stalled = threading.Event()
    words = f"import tests.datasets.toy as toy; toy.fetch_train({server.address!r}, {str(tmp_path / 'here')!r})"
    part = tmp_path / "here" / "toy" / "toy.scale.part"
    with subprocess.Popen([sys.executable, "-c", words], cwd=ROOT) as child:
        while not (server.files[PLACE].stalled.is_set() and part.exists() and part.stat().st_size > len(TRAIN) // 3):
            time.sleep(0.02)
        child.kill()
    there = part.stat().st_size
    assert train_of(server, folder=tmp_path / "here").read_bytes() == TRAIN
    assert server.ranges == [None, f"bytes={there}-"]


@pytest.mark.parametrize("change", ["other bytes", "shorter", "no ranges"])
def test_partial_file__of_another_version_is_begun_anew(server, folder, change):
    server.files[PLACE] = Kept(b"1 1:7\n" * 200_000, modified=FORMER)
    server.files[PLACE].cuts = [900_000, 0, 0, 0, 0, 0, 0]
    with pytest.raises(SourceError, match=r"bytes have been received, and the same call continues after them"):
        train_of(server, retry_seconds=0)
    assert left_in(folder) == [".lock", "toy.scale.part"]
    server.requests.clear()
    server.files[PLACE] = Kept(TRAIN, modified=FORMER, ranges=False) if change == "no ranges" else Kept(TRAIN)
    if change == "shorter":
        server.files[PLACE] = Kept(TRAIN[:500_000], modified=FORMER)
        with pytest.raises(SourceError, match="expected 60,000 rows"):
            train_of(server)
        server.files[PLACE] = Kept(TRAIN)
    assert train_of(server).read_bytes() == TRAIN
    assert server.ranges[0] == f"bytes={900_000}-"


def test_server__that_names_no_size_is_believed_for_the_right_rows_only(server, folder):
    server.files[PLACE] = Kept(TRAIN, cuts=[500_000])
    server.headers["Content-Length"] = None
    with pytest.raises(SourceError, match=r"got .* rows, expected 60,000 rows; it came from"):
        train_of(server)
    assert left_in(folder) == [".lock"]
    assert train_of(server).read_bytes() == TRAIN


def test_redirect__is_followed_and_keeps_the_range(server):
    server.files["/moved"] = Kept(TRAIN, cuts=[500_000])
    server.files[PLACE] = Kept(b"", redirect=f"{server.address}/moved")
    assert train_of(server).read_bytes() == TRAIN
    assert server.requests[-1] == ("/moved", "bytes=500000-")


def test_redirect__to_another_protocol_is_refused(server):
    server.files[PLACE] = Kept(b"", redirect="ftp://127.0.0.1/x")
    with pytest.raises(
        SourceError, match=r"302: redirects to ftp://127.0.0.1/x, which is not an http:// or https:// URL"
    ):
        train_of(server)


def test_not_found__names_the_page_to_look_at(server, folder):
    del server.files[PLACE]
    with pytest.raises(SourceError, match=r"404: Not Found; .* address at https://www\S+/multiclass.html, or"):
        train_of(server)
    assert len(server.requests) == 1
    assert left_in(folder) == [".lock"]


def test_server__in_trouble_is_asked_again(server):
    server.files[PLACE].status = 503
    timer = threading.Timer(0.3, lambda: setattr(server.files[PLACE], "status", None))
    timer.start()
    assert train_of(server).read_bytes() == TRAIN
    timer.join()


def test_offline__says_so_and_takes_a_file_put_there(folder):
    with pytest.raises(SourceError, match=r"refused; .*; check the network of this machine") as error:
        fetch("toy", part="train", mirror="http://127.0.0.1:9", retry_seconds=0)
    place = re.search(r"put it at (\S+)$", str(error.value))[1]
    assert place == str(folder / "toy.scale")
    (folder / "toy.scale").write_bytes(TRAIN)
    assert fetch("toy", part="train", mirror="http://127.0.0.1:9").train.read_bytes() == TRAIN
    assert json.loads((folder / "toy.scale.json").read_text())["url"] is None


@pytest.mark.parametrize("change", ["a byte", "cut", "longer"])
def test_kept_file__that_changed_is_refused(server, change):
    path = train_of(server)
    path.write_bytes({"a byte": b"2" + TRAIN[1:], "cut": TRAIN[:-1], "longer": TRAIN + b"1 1:1\n"}[change])
    with pytest.raises(SourceError, match=r"got .*, expected .*; as on 20.*; remove it, and it is fetched again"):
        train_of(server)
    path.unlink()
    assert train_of(server).read_bytes() == TRAIN


def test_collection__that_changed_its_file_is_noticed(server, folder):
    train_of(server).unlink()
    server.files[PLACE] = Kept(TRAIN[:-2] + b"6\n", etag='"v2"')
    with pytest.raises(SourceError, match=r"if the collection has a new version, remove \S+toy.scale.json"):
        train_of(server)
    (folder / "toy.scale.json").unlink()
    assert train_of(server).read_bytes().endswith(b"6\n")


@pytest.mark.parametrize("content", [bz2.compress(TEST)[:-10], b"<html>Please log in</html>"])
def test_packed_file__that_cannot_be_unpacked_is_refused(server, content):
    server.files[f"{PLACE}.t.bz2"] = Kept(content)
    with pytest.raises(SourceError, match=r"toy.scale.t.bz2 cannot be decompressed: .*; it came from http"):
        fetch("toy", part="test", mirror=server.address)


def test_record__that_is_damaged_names_itself(server, folder):
    train_of(server)
    (folder / "toy.scale.json").write_text("{")
    with pytest.raises(SourceError, match=r"toy.scale.json: .* is damaged; remove it"):
        train_of(server)


def test_two_threads__fetch_once(server, caplog):
    server.files[PLACE].gate = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(train_of, server) for _ in "12"]
        while "another process is fetching into this folder" not in caplog.text:
            time.sleep(0.02)
        server.files[PLACE].gate.set()
        assert {done.result().read_bytes() for done in both} == {TRAIN}
    assert len(server.requests) == 1


def test_cache__that_cannot_be_written_says_what_to_do(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DKFEAT_CACHE", str(tmp_path / "file"))
    with pytest.raises(SourceError, match=r"cannot be used for fetched data sets: Not a directory; .* DKFEAT_CACHE"):
        train_of(server)


def test_disk__without_room_is_told_before_anything_is_written(server, monkeypatch, folder):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(SourceError, match=r"needs [0-9,]+ more bytes, but 1,000 are free"):
        train_of(server)
    assert not (folder / "toy.scale.part").exists()


@pytest.mark.parametrize(
    ("name", "part", "match"), [("webspan", None, "did you mean 'webspam'"), ("webspam", "test", "no file of held-out")]
)
def test_name__that_is_unknown_is_a_setting_error(name, part, match):
    with pytest.raises(ConfigError, match=match):
        fetch(name, part=part)


@pytest.mark.parametrize("mirror", ["mirror.example.org", "file:///data", "https://", "https://me:hidden@mirror/data"])
def test_mirror__that_is_no_address_is_a_setting_error(mirror):
    with pytest.raises(ConfigError, match="is not an address to fetch from; give one") as error:
        fetch("toy", mirror=mirror)
    assert "hidden" not in str(error.value)


def test_cache__that_others_keep_is_read_only(server, folder, monkeypatch):
    """Root may write everywhere, so the file system's refusal is played."""
    train_of(server)
    (folder / "toy.scale.json").unlink()

    def refused(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refused)
    opened = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda path, mode="r", **options: (opened if set(mode) <= set("rb") else refused)(path, mode, **options),
    )
    assert train_of(server).read_bytes() == TRAIN
    (folder / "toy.scale").unlink()
    with pytest.raises(SourceError, match=r"toy.scale.part cannot be written: Permission denied; .*DKFEAT_CACHE"):
        train_of(server)


# ---- the registry


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
