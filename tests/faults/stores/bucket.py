"""A bucket accessed without dkfeat: filled, listed, and checked object by object."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.invariants import listed

KEY = "AKIDPLANTED0KEY"
SECRET = "planted/secret+which=must/never/be/written"


class Bucket:
    def __init__(self, address: str, name: str) -> None:
        import boto3

        self.name = name
        self.client = boto3.client(
            "s3",
            endpoint_url=f"http://{address}",
            aws_access_key_id="oracle",
            aws_secret_access_key="oracle",
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket=name)

    def url(self, key: str = "out") -> str:
        return f"s3://{self.name}/{key}"

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def fill(self, folder: Path, prefix: str = "in/") -> None:
        for path in sorted(folder.iterdir()):
            self.put(prefix + path.name, path.read_bytes())

    def state(self, root: str = "out") -> tuple[dict[str, str], list[dict[str, Any]]]:
        """Return the state of a data set, like ``dataset_state`` for a folder."""
        shards = {
            key.rpartition("/")[2]: hashlib.sha256(self.get(key)).hexdigest() for key in self.keys(f"{root}/data/")
        }
        manifests = [json.loads(self.get(key)) for key in self.keys(f"{root}/_dkfeat/manifest-")]
        for manifest in manifests:
            del manifest["run"]
            if manifest["previous"]:
                del manifest["previous"]["sha256"]
        return shards, manifests

    def assert_whole(self, root: str = "out", *, committed: bool | None = None, finished: bool = True) -> None:
        """Check the invariant: only complete shards, a manifest that lists all of them, and no other objects."""
        keys = self.keys(f"{root}/")
        shards = [key for key in keys if key.startswith(f"{root}/data/")]
        for key in shards:
            pq.ParquetFile(io.BytesIO(self.get(key)), page_checksum_verification=True).read()
        manifests = [key for key in keys if "/_dkfeat/manifest-" in key]
        assert not self.client.list_multipart_uploads(Bucket=self.name).get("Uploads")
        if committed is not None:
            assert (f"{root}/_SUCCESS" in keys) == committed == bool(manifests)
        if manifests:
            newest = listed(self.get(manifests[-1]), lambda name: self.get(f"{root}/_dkfeat/{name}"))
            hashes = {f"{root}/data/{entry['name']}": entry["sha256"] for entry in newest["shards"]}
            assert hashes.items() <= {key: hashlib.sha256(self.get(key)).hexdigest() for key in shards}.items()
            if committed:
                assert set(hashes) == set(shards)
                mark = {"manifest": Path(manifests[-1]).name, "sha256": self.sha256(manifests[-1])}
                assert json.loads(self.get(f"{root}/_SUCCESS")) == mark
        if finished:
            left = [key for key in keys if "/probe-" in key or "/lock" in key or "/tmp/" in key]
            assert left == []

    def sha256(self, key: str) -> str:
        return hashlib.sha256(self.get(key)).hexdigest()
