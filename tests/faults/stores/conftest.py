"""An object store on loopback, a proxy that makes it fail, and its buckets."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from dkfeat.filesystems import urls
from dkfeat.store.commit import publish
from dkfeat.store.storage import open_storage
from tests.faults.stores.bucket import KEY, SECRET, Bucket
from tests.faults.stores.fault_proxy import FaultProxy
from tests.faults.stores.store_server import store_server


@pytest.fixture(scope="session")
def store_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of a store."""
    pytest.importorskip("s3fs", reason="stores are asked through s3fs, an extra")
    pytest.importorskip("moto.server", reason="moto plays the store")
    with store_server(tmp_path_factory.mktemp("moto") / "log") as address:
        yield address


@pytest.fixture(scope="session")
def proxy_server(store_address: str) -> Iterator[FaultProxy]:
    with FaultProxy(store_address) as running:
        yield running


@pytest.fixture
def proxy(proxy_server: FaultProxy) -> Iterator[FaultProxy]:
    """The proxy, without faults at the start and the end of each test."""
    proxy_server.clear()
    yield proxy_server
    proxy_server.clear()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(publish, "LOOK_SECONDS", 0.3)


@pytest.fixture(autouse=True)
def _no_credentials_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")


@pytest.fixture
def bucket(store_address: str) -> Bucket:
    """An empty bucket, accessed without the proxy."""
    return Bucket(store_address, f"b{uuid.uuid4().hex}")


@pytest.fixture
def options(proxy: FaultProxy) -> dict[str, Any]:
    """Storage options that lead through the proxy."""
    return {
        "key": KEY,
        "secret": SECRET,
        "endpoint_url": proxy.url,
        "client_kwargs": {"region_name": "us-east-1"},
        "config_kwargs": {"read_timeout": 60, "connect_timeout": 60},
        "retry_seconds": 60,
    }


@pytest.fixture
def storage(bucket: Bucket, options: dict[str, Any]) -> Any:
    """The storage of the bucket's target."""
    return open_storage(bucket.url(), options)
