"""Operations of a storage on an object store that works, fails for a while, or always fails."""

from __future__ import annotations

import gc
import logging
import re
import time

import pytest

from dkfeat.errors import CommitError, ConfigError
from dkfeat.filesystems import urls
from dkfeat.filesystems.urls import thread_retries
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import DATA, META
from tests.conftest import first_quick
from tests.faults.stores.bucket import KEY, SECRET

NAME = "data/part-000000-0000-3f9c2a71b0de.parquet"
HOLDER = {"run_id": "a" * 32, "host": "here", "pid": 1, "since": "then"}


def test_create__existing_that_vanishes_while_it_is_compared__was_anothers(storage, bucket, monkeypatch):
    storage.create(NAME, b"first")
    size_of = type(storage).size

    def size_then_gone(self, name):
        size = size_of(self, name)
        bucket.delete(f"out/{name}")
        return size

    monkeypatch.setattr(type(storage), "size", size_then_gone)
    with pytest.raises(FileExistsError):
        storage.create(NAME, b"other")


def test_create__large__is_one_request(storage, bucket, proxy):
    storage.create(NAME, bytes(120 << 20))
    assert [(method, status) for method, path, status in proxy.requests if NAME in path] == [("PUT", 200)]
    assert storage.size(NAME) == 120 << 20
    bucket.assert_whole("none")


@pytest.mark.fault("S-14")
def test_list_and_size__after_another_client_wrote__are_not_stale(storage, bucket):
    assert storage.list(DATA) == {}
    assert storage.size(NAME) is None
    bucket.put(f"out/{NAME}", b"whole")
    assert list(storage.list(DATA).values()) == [5]
    assert storage.size(NAME) == 5
    bucket.delete(f"out/{NAME}")
    assert storage.list(DATA) == {}
    assert storage.size(NAME) is None


def test_list__many_objects__keeps_the_records_of_one_page(storage, bucket, proxy, monkeypatch):
    names, records = [f"part-{number:06d}.parquet" for number in range(7)], []
    for size, name in enumerate(names):
        bucket.put(f"out/data/{name}", bytes(size))
    whole = storage._system.call_s3

    def page(*given, **settings):
        records.append(sum(type(each) is dict and "ETag" in each for each in gc.get_objects()))
        return whole(*given, MaxKeys=2, **settings)

    monkeypatch.setattr(storage._system, "call_s3", page)
    fault = proxy.add("503", method="GET", key="continuation-token", times=1)
    assert storage.list(DATA) == {name: size for size, name in enumerate(names)}
    assert max(records) - records[0] <= 2
    assert (fault.seen, proxy.count("GET", "list-type=2")) == (1, 4 + 1)  # not all pages again
    assert list(storage.list(DATA, after="part-000004")) == names[4:]


def test_probe__works_once_and_leaves_nothing(storage, bucket, proxy):
    storage.probe()
    assert bucket.keys() == []
    sent = len(proxy.requests)
    storage.check_writable()
    assert len(proxy.requests) == sent


@pytest.mark.fault("S-18")
def test_probe__store_that_overwrites__is_refused_unless_told(bucket, options, proxy, caplog):
    proxy.add("overwrite", method="PUT")
    with pytest.raises(CommitError, match=r"created twice.*exclusive_create=False") as fault:
        open_storage(bucket.url(), options).probe()
    assert fault.value.exit_code == 3
    allowed = open_storage(bucket.url(), {**options, "exclusive_create": False})
    allowed.probe()
    allowed.acquire(HOLDER).release()
    assert "a second writer cannot be excluded" in caplog.text
    allowed.create(NAME, b"first")
    with pytest.raises(FileExistsError):
        allowed.create(NAME, b"second")
    assert allowed.read(NAME) == b"first"


CALLS = {
    "create": ("PUT", lambda storage: storage.create(NAME, b"new")),
    "read": ("GET", lambda storage: storage.read("data/old")),
    "list": ("GET", lambda storage: storage.list(DATA)),
    "size": ("HEAD", lambda storage: storage.size("data/old")),
    "remove": ("DELETE", lambda storage: storage.remove("data/old")),
    "set_aside": ("PUT", lambda storage: storage.set_aside("data/old")),
}


@pytest.mark.fault("S-08")
@pytest.mark.parametrize("action", first_quick(["503", "cut body", "500", "429", "drop before", "drop after"], 2))
def test_calls__fail_twice__are_made_again(storage, bucket, proxy, action, caplog):
    caplog.set_level(logging.WARNING, "dkfeat")
    for name, (method, call) in CALLS.items():
        if action == "cut body" and method != "GET":
            continue
        bucket.put("out/data/old", b"old")
        bucket.delete(f"out/{NAME}")
        proxy.clear()
        fault = proxy.add(action, method=method, times=2)
        call(storage)
        assert fault.seen == 2, name
        again = 1 if action.startswith("drop") else 2  # the library below repeats some calls itself
        assert int(re.search(r"after (\d) retries", caplog.text.splitlines()[-1])[1]) >= again
        assert "failed after" not in caplog.text  # also of an object that a former attempt has made
        if name == "create":
            assert bucket.get(f"out/{NAME}") == b"new"


@pytest.mark.fault("S-08")
def test_call__answered_after_the_read_timeout__is_made_again(bucket, options, proxy):
    storage = open_storage(bucket.url(), {**options, "config_kwargs": {"read_timeout": 1}})
    proxy.add("delay", method="PUT", times=1, seconds=2.0)
    before = thread_retries()
    storage.create(NAME, b"new")
    assert bucket.get(f"out/{NAME}") == b"new"
    assert thread_retries() > before
    deadline = time.monotonic() + 30
    while sum(method == "PUT" for method, *_ in proxy.requests) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)  # otherwise the late request is counted in the next test


@pytest.mark.fault("S-21")
@pytest.mark.parametrize(
    ("action", "message"), [("endless", "more than the 3 bytes that were expected"), ("slow", "sent .* bytes in 1 s")]
)
def test_read__answer_that_does_not_end__is_given_up(bucket, options, proxy, monkeypatch, action, message):
    storage = open_storage(bucket.url(), {**options, "retry_seconds": 0})
    bucket.put("out/data/old", bytes(3 if action == "endless" else 1 << 20))
    monkeypatch.setattr(urls, "LAST_SECONDS", 1.0)  # also for the headers, which a busy machine sends late
    if action == "slow":
        monkeypatch.setattr(urls.interrupted, "is_set", lambda: True)
    proxy.add(action, method="GET")
    with pytest.raises(OSError, match=message):
        storage.read("data/old")
    proxy.clear()
    monkeypatch.setattr(urls.interrupted, "is_set", lambda: False)
    assert len(storage.read("data/old")) == storage.size("data/old")


@pytest.mark.fault("S-11")
def test_create__applied_but_answer_lost__is_ours(storage, bucket, proxy):
    proxy.add("drop after", method="PUT", times=1)
    storage.create(NAME, b"mine")
    assert bucket.keys() == [f"out/{NAME}"]
    first, *others = (status for method, _, status in proxy.requests if method == "PUT")
    assert first == 200
    assert set(others) == {412}  # the library may repeat the request itself
    proxy.add("drop after", method="PUT", times=1)
    with pytest.raises(FileExistsError):
        storage.create(NAME, b"other")
    assert storage.read(NAME) == b"mine"


@pytest.mark.fault("S-09")
def test_create__503_for_ever__ends_within_the_set_time(bucket, options, proxy):
    storage = open_storage(bucket.url(), {**options, "retry_seconds": 1})
    proxy.add(503, method="PUT")
    with pytest.raises(OSError, match=r"503 SlowDown: .*; \d+ attempts, retry limit 1 s"):
        storage.create(NAME, b"new")
    assert bucket.keys() == []


def test_sweep__takes_probes_and_claims_of_dead_runs_only(storage, bucket):
    for name in (f"probe-{'0' * 32}", "lock-after-cc.json", "probe.txt", "spec.json"):
        bucket.put(f"out/{META}/{name}", b"{}")
    storage.sweep()
    assert sorted(storage.list(META)) == ["probe.txt", "spec.json"]


@pytest.mark.fault("X-09")
@pytest.mark.parametrize("url", [f"s3://{KEY}:{SECRET}@bucket/out", f"gs://{KEY}@bucket/out"])
def test_url__with_credentials__is_refused_without_showing_them(url):
    with pytest.raises(ConfigError, match="contains credentials") as fault:
        open_storage(url)
    assert "planted" not in str(fault.value)
    assert KEY not in str(fault.value)


@pytest.mark.parametrize("url", ["s3://", "s3:///", "s3://b/a/../c", "s3://b//c"])
def test_url__of_no_place__is_refused(url):
    with pytest.raises(ConfigError, match="is not the URL of a folder"):
        open_storage(url)


@pytest.mark.parametrize("bad", [{"retry_seconds": "long"}, {"retry_seconds": -1}, {"exclusive_create": "no"}])
def test_options__of_another_type__are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        open_storage("s3://bucket/out", bad)
