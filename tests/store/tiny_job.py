"""The smallest job that writes a data set: a double for engine and map, run in process or as a program.

A source line becomes one row: its label is the line's length, its code bytes come from the line's SHA-256, and an
empty line is a row without features. A split yields two pieces. Every transform leaves a line in a log.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dkfeat.blocks import PackedCodes, RowBlock, SourceFile, Split
from dkfeat.errors import DkfeatError
from dkfeat.store.commit import begin as commit
from dkfeat.store.commit.publish import existing_entry, publish
from dkfeat.store.manifest.manifest import Manifest
from dkfeat.store.manifest.records import ShardEntry
from dkfeat.store.shards import codec as shards
from dkfeat.store.shards.columns import schema_of
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import Storage

ROW_BYTES = 32


def identity(run: commit.Batch, split: int, piece: int = 0) -> dict[str, object]:
    """Values that the footer of a shard must have whatever it holds."""
    return {"spec_fp": run.spec_fp, "split": split, "piece": piece}


@dataclass
class TinyJob:
    sources: Path
    target: Path
    seed: int = 0
    pause: float = 0.0
    until: Path | None = None
    """What each transform waits for."""
    transforms: list[tuple[int, int]] = field(default_factory=list)
    storage: Storage | None = None

    @property
    def spec(self) -> dict:
        output = {"schema": 1, "layout": "codes", "n_features_out": ROW_BYTES * 8, "row_bytes": ROW_BYTES}
        return {"format": 1, "map": {"map": "tiny", "seed": self.seed}, "input": {"kind": "lines"}, "output": output}

    def files(self) -> list[SourceFile]:
        found = []
        for path in sorted(self.sources.iterdir()):
            stat = path.stat()
            found.append(SourceFile(name=path.name, url=str(path), size=stat.st_size, mtime_ns=stat.st_mtime_ns))
        return found

    def splits(self) -> list[Split]:
        cuts = [(file, cut) for file in self.files() for cut in range(0, file.size, 100)]
        return [
            Split(number=number, file=file, start=cut, stop=min(cut + 100, file.size))
            for number, (file, cut) in enumerate(cuts)
        ]

    def begin(self, **options: object) -> commit.Batch:
        storage = self.storage or open_storage(self.target)
        return commit.begin(storage, self.spec, self.files(), self.splits(), **options)

    def work(self, run: commit.Batch, most: int | None = None) -> list[ShardEntry]:
        """Publish the shards of the splits of a batch, or of the first ones."""
        return [entry for split in run.splits[:most] for entry in self.run_split(run.storage, run, split)]

    def stage(self, most: int) -> None:
        """Leave a batch half-way: planned, and the shards of some splits published."""
        with self.begin() as run:
            self.work(run, most)

    def commit(self, run: commit.Batch, entries: list[ShardEntry]) -> Manifest:
        schema = schema_of("codes", ROW_BYTES, "int64")
        return run.commit(entries, schema=schema, n_features=10, versions=shards.versions(), numeric_env="plain")

    def run(self, **options: object) -> Manifest:
        with self.begin(**options) as run:
            return run.manifest if run.is_done else self.commit(run, self.work(run))

    def run_split(self, storage: Storage, run: commit.Batch, split: Split) -> Iterator[ShardEntry]:
        for piece, (start, stop, text) in enumerate(pieces(split)):
            name = shards.shard_name(run.spec_fp, split, piece)
            digest = hashlib.sha256(text).hexdigest()
            known = {"range": (start, stop), "source_sha256": digest, "last": piece == 1}
            expected = {**identity(run, split.number, piece), **known}
            entry = existing_entry(storage, name, expected, run_id=run.id)
            if entry is None:
                shard = self.encode(run.spec_fp, split, piece, (start, stop), text)
                entry = publish(storage, name, shard, run_id=run.id)
            yield entry

    def encode(self, spec_fp: str, split: Split, piece: int, span: tuple[int, int], text: bytes) -> shards.EncodedShard:
        self.transforms.append((split.number, piece))
        time.sleep(self.pause)
        if self.until:
            wait_for(self.until)
        lines = text.splitlines()
        encoded, labels = features(lines, self.seed)
        footer = shards.ShardFooter(
            spec_fp=spec_fp,
            split=split.number,
            piece=piece,
            last=piece == 1,
            source=split.file.name,
            range=span,
            source_sha256=hashlib.sha256(text).hexdigest(),
            rows=len(lines),
            nnz=sum(map(len, lines)),
            n_empty=int(encoded.empty.sum()),
            versions=shards.versions(),
        )
        return shards.encode_shard("codes", RowBlock(X=encoded, y=labels), footer)


def features(lines: list[bytes], seed: int) -> tuple[PackedCodes, np.ndarray]:
    codes = np.zeros((len(lines), ROW_BYTES), np.uint8)
    for row, line in enumerate(lines):
        if line:
            codes[row] = np.frombuffer(hashlib.sha256(b"%d:%s" % (seed, line)).digest(), np.uint8)
    empty = np.array([not line for line in lines], np.bool_)
    return PackedCodes(codes, empty), np.array([len(line) for line in lines], np.int64)


def pieces(split: Split) -> list[tuple[int, int, bytes]]:
    """Two halves of the lines that begin in the split."""
    text = Path(split.file.url).read_bytes()
    starts = [0, *(place + 1 for place, byte in enumerate(text[:-1]) if byte == ord("\n"))] if text else []
    starts = [start for start in starts if split.start <= start < split.stop]
    ends = [text.index(b"\n", start) + 1 for start in starts]
    middle = (len(starts) + 1) // 2
    cut = ends[middle - 1] if starts else split.start
    first, last = (starts[0], ends[-1]) if starts else (split.start, split.start)
    return [(first, cut if starts else first, text[first:cut]), (cut, last, text[cut:last])]


def write_sources(folder: Path, files: int = 2, lines: int = 24, first: int = 0) -> Path:
    """Small text files with fixed contents and times; every seventh line is empty."""
    folder.mkdir(exist_ok=True)
    for number in range(first, first + files):
        path = folder / f"day{number}.txt"
        texts = ["" if line % 7 == 3 else f"{number}-{line} {'x' * (line % 5)}" for line in range(lines)]
        path.write_text("\n".join(texts) + "\n")
        os.utime(path, ns=(10**18 + number, 10**18 + number))
    return folder


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    while not path.exists():
        time.sleep(0.001)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--barrier", type=Path, help="begin when this file is there")
    parser.add_argument("--until", type=Path, help="hold the target until this file is there")
    arguments = parser.parse_args()
    job = TinyJob(arguments.sources, arguments.target, arguments.seed, arguments.pause, arguments.until)
    if arguments.barrier:
        print("ready", flush=True)  # noqa: T201 -- told to the test that waits for it
        wait_for(arguments.barrier)
    try:
        job.run()
    except DkfeatError as fault:
        print(f"dkfeat: error: {fault}", file=sys.stderr)  # noqa: T201 -- as the command line does
        return fault.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
