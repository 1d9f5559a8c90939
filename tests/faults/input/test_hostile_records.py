"""Forged records: each field of each record that real runs write, with values that no run writes and right checksums.

``python -m tests.faults.input.test_hostile_records FOLDER MOST PATTERN…`` forges records in a folder that
`make_records` filled, each in at most MOST ways, and prints how each command that reads it ends, as a line of JSON.
Messages are not compared: those of settings that are checked by their owner, such as a map, or that differ from those
of a run name a parameter or a folder, not a file. With MOST of 1000, which takes an hour, all forgeries are tried.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dkfeat.canonical import fingerprint
from dkfeat.cli import cli
from dkfeat.learn.sgd import checkpoint
from dkfeat.store.manifest.model_folder import SEAL
from dkfeat.store.manifest.record_table import SCHEMA
from dkfeat.store.shards.codec import BLANK, KEY, seal
from tests import programs

BAD = "--on-bad-row quarantine --max-bad-rows 0.5"
RUNS = {
    "shards": f"featurize a.svm --out shards --n-components 16 --seed 0 --blocksize 1kB {BAD}",
    "ck": "train shards --out model --epochs 2 --patience 2 --validation-fraction 0.3 --checkpoint ck",
    "pred": f"predict model a.svm --out pred {BAD}",
    "graph": "neighbors shards --out graph --n-neighbors 2",
    "copies": "duplicates shards --out copies --threshold 0.9",
}
"""Commands by the folders that they write."""
ALL = (
    "inspect {0}",
    "status {0}",
    "verify {0}",
    "quarantine {0}",
    "report {0} --out page.html",
    "clean {0}",
    "abort {0}",
)
READERS = {
    "shards": (*ALL, f"{RUNS['ck']} --no-resume", RUNS["shards"], "evaluate model shards"),
    "pred": (*ALL, "evaluate model pred", RUNS["pred"]),
    "graph": (*ALL, RUNS["graph"]),
    "copies": ("drop-duplicates shards copies --out distinct", RUNS["copies"]),
    "model": ("inspect model", "verify model", f"predict model a.svm --out new {BAD}", "evaluate model shards"),
    "ck": (RUNS["ck"],),
}
"""Commands that read the records of a folder."""
MISSING, EXTRA = "missing", "extra"
VALUES = {
    "null": "null",
    "text": '"x"',
    "-1": "-1",
    "1e15": "1000000000000000",
    "huge": "9" * 30,
    "float": "1.5",
    "inf": "1e999",
    "NaN": "NaN",
    "true": "true",
    "list": "[]",
    "lists": "[[[-1]]]",
    "object": "{}",
    "control": r'"\u001b[31m\n"',
}
"""Values that replace others, as JSON."""


def make_records(folder: Path) -> None:
    """Run the commands of `RUNS` in a folder."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(60):
        columns = np.sort(rng.choice(20, 6, replace=False)) + 1
        values = [f"{column}:{rng.random() + 1:.3f}" for column in columns]
        rows.append(f"{number % 2 * 2 - 1:+d} {' '.join(values)}")
    folder.mkdir()
    (folder / "a.svm").write_text("\n".join([*rows, *rows[:4], "+1 1:x"]) + "\n")
    os.chdir(folder)
    for words in RUNS.values():
        ended = CliRunner().invoke(cli, [*words.split(), "--quiet"])
        assert ended.exit_code == 0, ended.output


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in nested objects and lists; of lists only those of the first item."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield from nodes(item, (*path, key))


def forgeries(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a name and a JSON text for each change of each value."""
    mark = '"@forged@"'
    for path in nodes(values):
        changed = copy.deepcopy(values)
        place = changed
        for key in path[:-1]:
            place = place[key]
        name = ".".join(map(str, path))
        old, place[path[-1]] = place[path[-1]], "@forged@"
        text = json.dumps(changed)
        for kind, value in VALUES.items():
            if json.dumps(old) != value:
                yield f"{name}={kind}", text.replace(mark, value)
        del place[path[-1]]
        yield f"{name}={MISSING}", json.dumps(changed)
    yield f"={EXTRA}", json.dumps({**values, "extra": 1})


def sealed_manifest(manifest: Path, text: str) -> None:
    """Write a manifest that _SUCCESS vouches for."""
    manifest.write_text(text)
    mark = {"manifest": manifest.name, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    (manifest.parent.parent / "_SUCCESS").write_text(json.dumps(mark))


def sealed_records(records: Path, table: pa.Table) -> None:
    """Write a file of records that its manifest vouches for."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4", use_dictionary=False, write_statistics=False)
    data = sink.getvalue().to_pybytes()
    digest = hashlib.sha256(data).hexdigest()
    records.unlink()
    records.with_name(f"{records.name[:15]}{digest}.parquet").write_bytes(data)
    (manifest,) = records.parent.glob("manifest-*.json")
    head = json.loads(manifest.read_bytes())
    head["records_file"] |= {"sha256": digest, "size": len(data)}
    sealed_manifest(manifest, json.dumps(head))


def sealed_spec(spec: Path, text: str) -> None:
    """Write a spec that plan, manifest and shards vouch for."""
    before = fingerprint(json.loads(spec.read_bytes())).encode()
    spec.write_text(text)
    try:
        after = fingerprint(json.loads(text)).encode()
    except (ValueError, TypeError, RecursionError):  # values that have no fingerprint
        return
    for path in spec.parent.glob("*.json"):
        path.write_bytes(path.read_bytes().replace(before, after))
    (records,) = spec.parent.glob("records-*.parquet")
    rows = pq.read_table(records).to_pylist()
    shards = {}
    for path in spec.parent.with_name("data").iterdir():
        data = bytearray(path.read_bytes().replace(before, after))
        start = data.rindex(KEY.encode() + b"\x18\x40") + len(KEY) + 2
        data[start : start + len(BLANK)] = BLANK.encode()
        seal(memoryview(data))
        path.write_bytes(data)
        shards[bytes.fromhex(path.name[-20:-8])] = hashlib.sha256(data).digest()
    for row in rows:
        for split in row["splits"]:
            for shard in split["shards"]:
                shard["sha256"] = shards[shard["name"]]
    sealed_records(records, pa.Table.from_pylist(rows, schema=SCHEMA))


def sealed_model(model: Path, text: str) -> None:
    """Write a model.json with its seal."""
    try:
        facts = json.loads(text)
        facts.pop(SEAL, None)
        facts[SEAL] = fingerprint(facts)
        text = json.dumps(facts)
    except (ValueError, TypeError):
        pass
    model.write_text(text)


def checkpoint_parts(path: Path) -> tuple[bytes, bytes]:
    """Return the header and the arrays of a checkpoint."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return data[8 : 8 + length], data[8 + length : -32]


def sealed_checkpoint(path: Path, text: str) -> None:
    """Write a checkpoint with its SHA-256."""
    arrays = checkpoint_parts(path)[1]
    data = len(text).to_bytes(8, "little") + text.encode() + arrays
    path.write_bytes(data + hashlib.sha256(data).digest())


def plain(path: Path, text: str) -> None:
    """Write a record that has no checksum."""
    path.write_text(text)


KINDS: dict[str, Callable[[Path, str], None]] = {
    r"spec\.json": sealed_spec,
    r"manifest-000001\.json": sealed_manifest,
    r"(plan-000001|log-000001-0001|lock|duplicates)\.json|_SUCCESS": plain,
    r"model\.json": sealed_model,
    r"checkpoint": sealed_checkpoint,
}
"""Names of records, and functions that write them."""


def forged_records(path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the forgeries of a file, each with a function that writes it."""
    writers = [write for name, write in KINDS.items() if re.fullmatch(name, path.name)]
    if writers:
        data = checkpoint_parts(path)[0] if path.name == checkpoint.CURRENT else path.read_bytes()
        for name, text in forgeries(json.loads(data)):
            yield name, lambda text=text: writers[0](path, text)
    elif path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
        for place in nodes(rows):
            for value in (None, -1, 10**15, (1 << 63) - 1, "", "x", "\x1b[31m", b"\0" * 6, b"\0" * 32, [], True, 1.5):
                changed = copy.deepcopy(rows)
                at = changed
                for key in place[:-1]:
                    at = at[key]
                at[place[-1]] = value
                try:
                    table = pa.Table.from_pylist(changed, schema=SCHEMA)
                    pq.write_table(table, pa.BufferOutputStream())
                except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError):
                    continue
                name = ".".join(map(str, place))
                yield f"{name}={value!r:.20}", lambda table=table: sealed_records(path, table)


def main(folder: Path, most: int, *patterns: str) -> None:
    """Forge the records of patterns, and print how the commands that read them end."""
    now = folder / "now"
    shutil.copytree(folder / "good", now)
    os.chdir(now)
    for top, words in READERS.items():  # compiles and loads what is needed
        for command in words:
            CliRunner().invoke(cli, [*command.format(top).split(), "--quiet"])
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for pattern in patterns:
        restore(folder)
        (place,) = now.glob(pattern)
        found, top = [*forged_records(place)], pattern.partition("/")[0]
        for name, forge in found[:: len(found) // most + 1 | 1]:
            for words in READERS[top]:
                restore(folder)
                forge()
                ended = CliRunner().invoke(cli, [*words.format(top).split(), "--quiet"])
                line = json.dumps([pattern, name, words.format(top), ended.exit_code, ended.stderr[:3000]])
                print(line, flush=True)  # noqa: T201 - for the test


def restore(folder: Path) -> None:
    """Undo what a forgery and a command changed, and go to the folder."""
    shutil.rmtree(folder / "now")
    shutil.copytree(folder / "good", folder / "now")
    os.chdir(folder / "now")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place, before = tmp_path_factory.mktemp("records"), Path.cwd()
    make_records(place / "good")
    os.chdir(before)
    return place


@pytest.mark.slow
def test_records__are_all_forged_or_arrays(folder):
    """A record of a new kind needs an entry in `KINDS`."""
    files = [path for path in (folder / "good").rglob("*") if path.is_file() and path.parent.name != "data"]
    arrays = r"(coef|intercept)-.*\.npy|model-.*\.npz|records-.*\.parquet|a\.svm"
    assert [path.name for path in files if not re.fullmatch("|".join([*KINDS, arrays]), path.name)] == []


PATTERNS = (
    "shards/_dkfeat/spec.json",
    "shards/_dkfeat/manifest-*",
    "shards/_dkfeat/records-*",
    "shards/_dkfeat/plan-*",
    "shards/_dkfeat/log-*",
    "shards/_SUCCESS",
    "graph/_dkfeat/spec.json",
    "pred/_dkfeat/spec.json",
    "copies/groups/_dkfeat/spec.json",
    "copies/duplicates.json",
    "model/model.json",
    "ck/checkpoint",
)


@pytest.mark.slow
@pytest.mark.fault("X-16")
def test_forged__is_an_error_or_has_the_same_meaning(folder):
    ended = programs.run(programs.module(__name__, folder, 3, *PATTERNS), DASK_SCHEDULER="synchronous")
    assert ended.status == 0, ended.err[-2000:]
    assert {pattern for pattern, *_ in ended.lines} == {*PATTERNS}
    assert [line for line in ended.lines if line[3] not in (0, 2, 3, 4) or "Traceback" in line[4]] == []


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
