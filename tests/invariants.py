"""Checks that hold of every data set after every run, whatever happened to it; shared by many tests.

They go by Parquet, JSON and SHA-256 alone, not by the reader under test, and then ask that reader too.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset
import pyarrow.parquet as pq

from dkfeat.store.shards import reader
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import Storage


def assert_dataset_whole(target: str | Path, *, finished: bool = True, committed: bool | None = None) -> None:
    """Assert that a target holds whole data or none.

    Parameters
    ----------
    target : str or Path
        The data set.
    finished : bool, default=True
        Whether the last run ended by itself, so that no lock and no temporary file may be left.
    committed : bool, optional
        Whether there must be a manifest with ``_SUCCESS``; by default either will do.
    """
    root = Path(target)
    meta = root / "_dkfeat"
    shards = sorted((root / "data").iterdir()) if (root / "data").exists() else []
    for shard in shards:
        assert shard.suffix == ".parquet", f"{shard} has no place under data/"
        pq.ParquetFile(shard, page_checksum_verification=True).read()
    manifests = sorted(meta.glob("manifest-*.json"))
    if committed is not None:
        assert (root / "_SUCCESS").exists() == committed
        assert bool(manifests) or not committed
    if manifests:
        newest = listed(manifests[-1].read_bytes(), lambda name: (meta / name).read_bytes())
        _assert_listed(root, newest)
        report = verified(root)
        assert report.problems == []
        if (root / "_SUCCESS").exists():
            mark = json.loads((root / "_SUCCESS").read_bytes())
            assert mark == {"manifest": manifests[-1].name, "sha256": _sha256(manifests[-1])}
            assert report.unlisted == []
            rows = pyarrow.dataset.dataset(root / "data", format="parquet").count_rows() if shards else 0
            assert rows == newest["rows"]
    if finished and meta.exists():
        assert not (meta / "lock.json").exists()
        assert list((meta / "tmp").iterdir()) == []


def verified(target: str | Path | Storage) -> reader.Report:
    """Check all shards of a data set, one after another."""
    shards = reader.open_reader(open_storage(target))
    found = {entry.name: reader.check_shard(shards, entry) for entry in shards.manifest.shards}
    labels = {label for _, each in found.values() for label in each}
    return reader.report_of(shards, {name: problem for name, (problem, _) in found.items()}, labels)


def dataset_state(target: str | Path) -> tuple[dict[str, str], list[dict]]:
    """Shards with their SHA-256, and manifests without their run blocks: equal for equal runs."""
    root = Path(target)
    shards = {shard.name: _sha256(shard) for shard in sorted((root / "data").iterdir())}
    manifests = [json.loads(path.read_bytes()) for path in sorted((root / "_dkfeat").glob("manifest-*.json"))]
    for manifest in manifests:
        del manifest["run"]
        if manifest["previous"]:
            del manifest["previous"]["sha256"]  # it covers the former run block
    return shards, manifests


def listed(manifest: bytes, read: Callable[[str], bytes]) -> dict:
    """Values of a manifest with its shards and sources as lists of records, from the file that `read` reads."""
    values = json.loads(manifest)
    values |= {"shards": [], "sources": []}
    entry = values["records_file"]
    data = read(f"records-{values['number']:06d}-{entry['sha256']}.parquet")
    assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["size"], entry["sha256"])
    split = 0
    for source in pq.read_table(io.BytesIO(data)).to_pylist():
        for made_of in source.pop("splits"):
            pieces = made_of["shards"]
            for piece, shard in enumerate(pieces):
                values["shards"].append(_shard(shard, split, piece, piece == len(pieces) - 1, source["name"]))
            split += 1
        bad_rows = {each["reason"]: each["count"] for each in source.pop("bad_rows")}
        found = {key: value for key, value in source.items() if value is not None}
        values["sources"].append(found | ({"bad_rows": bad_rows} if bad_rows else {}))
    found = {"sources": len(values["sources"]), "splits": split, "shards": len(values["shards"])}
    assert {key: entry[key] for key in found} == found
    assert values["rows"] == sum(each["rows"] for each in values["shards"])
    return values


def _shard(record: dict, split: int, piece: int, last: bool, source: str) -> dict:
    name = f"part-{split:06d}-{piece:04d}-{record['name'].hex()}.parquet"
    hashes = {key: record[key].hex() for key in ("sha256", "source_sha256")}
    counts = {key: record[key] for key in ("size", "rows", "nnz", "n_empty")}
    few = {key: record[key] for key in ("rows_by_file", "lines") if record[key]}
    if record["bad_rows"]:
        few["bad_rows"] = [[each["file"], each["reason"], each["count"]] for each in record["bad_rows"]]
    place = {"split": split, "piece": piece, "last": last, "name": name, "source": source}
    return place | hashes | counts | few | {"range": [record["start"], record["stop"]]}


def listed_in(target: str | Path, number: int = 1) -> dict:
    """Values of a manifest on a local disk, as from `listed`."""
    meta = Path(target) / "_dkfeat"
    return listed((meta / f"manifest-{number:06d}.json").read_bytes(), lambda name: (meta / name).read_bytes())


def _assert_listed(root: Path, manifest: dict) -> None:
    listed = [(entry["split"], entry["piece"]) for entry in manifest["shards"]]
    assert listed == sorted(set(listed))
    splits = {split for split, _ in listed}
    assert splits == set(range(len(splits)))
    for split in splits:
        pieces = [entry for entry in manifest["shards"] if entry["split"] == split]
        assert [entry["piece"] for entry in pieces] == list(range(len(pieces)))
        assert [entry["last"] for entry in pieces] == [False] * (len(pieces) - 1) + [True]
    for entry in manifest["shards"]:
        path = root / "data" / entry["name"]
        assert path.stat().st_size == entry["size"]
        assert _sha256(path) == entry["sha256"]
        assert pq.ParquetFile(path).metadata.num_rows == entry["rows"]
    assert sum(entry["rows"] for entry in manifest["shards"]) == manifest["rows"]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
