"""Delta Lake log of a data set, which lists its committed shards for readers of Delta tables.

The log follows the manifests and decides nothing: each version adds the shards of the commits since the version before.
Shards never change and are never removed, so no version removes files. Only the holder of the target's lock writes.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from dkfeat.canonical import dumps
from dkfeat.errors import CommitError
from dkfeat.store.manifest.manifest import Manifest
from dkfeat.store.storage.base import DATA, DELTA, Storage, faults_as

_NAME = re.compile(r"[0-9]{20}[.]json")
_TYPES = {"int32": "integer", "int64": "long", "float32": "float", "float64": "double", "bool": "boolean"}
_TYPES |= {"string": "string", "date32[day]": "date"}
_TYPES |= {"timestamp[us]": "timestamp_ntz", "timestamp[us, tz=UTC]": "timestamp"}
_FIRST_LINE = '{"commitInfo":{"timestamp":%d,"operation":"WRITE","engineInfo":"dkfeat","operationParameters":'
_FIRST_LINE += '{"manifest":%d,"shards":%d,"bytes":%d,"sha256":"%s"}}}\n'
"""First line of a version: the manifest up to which the log lists shards, their number, the bytes of all other lines
and versions, which tell whether the log is complete, and the SHA-256 of these numbers and of the version's other lines.
"""
_READ = re.compile(_FIRST_LINE.replace("{", r"\{").replace("%d", r"(\d+)").replace("%s", r"(\w+)").encode())


class _Last(NamedTuple):
    """The last version of a complete log."""

    version: int
    manifest: int
    shards: int
    size: int
    """Bytes of all versions."""


def begin_log(storage: Storage, spec_fp: str, schema: Mapping[str, str]) -> None:
    """Create version 0, a table without rows, unless there is a log; from then on each commit adds a version."""
    storage.prepare(DELTA)
    with suppress(FileExistsError):
        _create(storage, _Last(-1, 0, 0, 0), (0, 0), _table(spec_fp, schema))


def extend_log(storage: Storage, manifest: Manifest) -> None:
    """Add the shards that the log does not list yet, as its next version; do nothing if there is no log.

    Before the call the log may lack any number of commits, because a run was killed between a commit and this call.

    Raises
    ------
    CommitError
        If the log is not complete, another program wrote to it, or it cannot be written; the commit itself is done.
    """
    with faults_as(CommitError, f"{storage.url}: {manifest.name} is committed, but {DELTA} cannot be written"):
        last = check_log(storage)
        if last is not None and last.manifest < manifest.number:
            table = [] if last.manifest else _table(manifest.spec_fp, manifest.schema)
            done = manifest.number, len(manifest.shards)
            _create(storage, last, done, [*table, *_added(manifest, last.shards)])


def check_log(storage: Storage, *, in_full: bool = False) -> _Last | None:
    """Return the last version of the log, None if there is no log; `CommitError` if it is not as it was written.

    Sizes are compared, and `in_full` all bytes.
    """
    sizes: dict[str, int] = {}
    with suppress(FileNotFoundError):
        sizes = {name: size for name, size in storage.list(DELTA).items() if _NAME.fullmatch(name)}
    if not sizes:
        return None
    name, size = max(sizes), sum(sizes.values())
    first = _READ.match(storage.read(f"{DELTA}/{name}", 1 << 10))

    def is_whole(version: str) -> bool:
        data = storage.read(f"{DELTA}/{version}")
        found = _READ.match(data)
        return found is not None and _sha256(map(int, found.groups()[:4]), data[found.end() :]) == found[5].decode()

    if first is None or size - first.end() != int(first[4]) or not all(storage.map(is_whole, sizes if in_full else ())):
        raise CommitError(
            f"{storage.url}/{DELTA} is damaged, or another program wrote to it, which must only read this Delta table; "
            f"its readers may miss rows, which the data set has. Remove the folder {DELTA}, and repeat the run with "
            "delta=True (--delta) to begin it anew"
        )
    return _Last(int(name[:20]), int(first[2]), int(first[3]), size)


def _create(storage: Storage, last: _Last, done: tuple[int, int], actions: Iterable[dict[str, Any]]) -> None:
    rest = b"".join(map(dumps, actions))
    numbers = _now(), *done, last.size + len(rest)
    first = (_FIRST_LINE % (*numbers, _sha256(numbers, rest))).encode()
    storage.create(f"{DELTA}/{last.version + 1:020d}.json", first + rest)


def _sha256(numbers: Iterable[int], rest: bytes) -> str:
    return hashlib.sha256(b"%d %d %d %d " % (*numbers,) + rest).hexdigest()


def _table(spec_fp: str, schema: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the actions that describe the table; the first commit repeats them, as until then the spec may change.

    Writers need the feature "dkfeat", so that no other program writes to the table.
    """
    types = {name: _type(kind) for name, kind in schema.items()}
    columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    table = {
        "id": str(uuid.UUID(spec_fp[:32])),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": dumps({"type": "struct", "fields": columns}).decode(),
        "partitionColumns": [],
        "configuration": {},
    }
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["dkfeat"]}
    if "timestamp_ntz" in types.values():
        features = ["timestampNtz"]
        protocol |= {"minReaderVersion": 3, "readerFeatures": features, "writerFeatures": ["dkfeat", *features]}
    return [{"protocol": protocol}, {"metaData": table}]


def _type(kind: str) -> Any:
    """Return the Delta type of a Parquet column; codes are binary."""
    if kind.startswith("list<"):
        return {"type": "array", "elementType": _type(kind[5:-1]), "containsNull": False}
    return _TYPES.get(kind, "binary")


def _added(manifest: Manifest, listed: int) -> Iterable[dict[str, Any]]:
    """Yield the actions that add all shards but the first `listed`."""
    rows, now = manifest.records.shards["rows"].tolist(), _now()
    firsts, sizes = np.cumsum([0, *rows]).tolist(), manifest.records.shards["size"].tolist()
    columns = zip(manifest.shards.names, manifest.shards.sha256, sizes, rows, firsts, strict=False)
    for name, sha256, size, n_rows, first in [*columns][listed:]:
        file = {"path": f"{DATA}/{name}", "partitionValues": {}, "size": size, "modificationTime": now}
        tags = {"sha256": sha256, "first_row": str(first)}
        yield {"add": {**file, "dataChange": True, "stats": f'{{"numRecords":{n_rows}}}', "tags": tags}}


def _now() -> int:
    return round(time.time() * 1000)
