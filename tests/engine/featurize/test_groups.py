"""Tiny files read in groups: few shards, every file's name and place kept."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import dkfeat
from dkfeat.blocks import SourceFile, Split
from dkfeat.engine.tasks import job
from dkfeat.errors import ParseError, SpecConflictError
from dkfeat.sources.libsvm import source as grouping
from dkfeat.store.manifest import metadata
from dkfeat.store.storage import open_storage
from tests.engine.helpers import featurized
from tests.invariants import dataset_state

GIVEN = {"n_features": 60, "zero_based": False, "label_dtype": "int64"}


def row(number: int) -> str:
    return f"{number % 2} {number % 50 + 1}:{number + 0.5} 60:1"


def written(path, *rows: str, end: str = "\n"):
    text = ("\n".join(rows) + end * bool(rows)).encode()
    packed = {".gz": lambda text: gzip.compress(text, mtime=0), ".bz2": bz2.compress}.get(path.suffix, bytes)
    path.write_bytes(packed(text) if text else b"")
    os.utime(path, ns=(10**18, 10**18))


@pytest.fixture
def folder(tmp_path):
    """Forty tiny files: plain, compressed, empty, without a last line end; one larger file among them."""
    folder = tmp_path / "source"
    folder.mkdir()
    number = 0
    for place in range(40):
        ending = (".svm", ".svm", ".svm.gz", ".svm.bz2")[place % 4]
        n_rows = 200 if place == 21 else place % 3
        rows = [row(number + n) for n in range(n_rows)]
        number += n_rows
        written(folder / f"f{place:02d}{ending}", *rows, end=("\n", "", "\r\n")[place % 3] if rows else "")
    return folder


def source_of(folder, **options):
    return dkfeat.LibsvmSource(str(folder / "*"), **{"blocksize": 32_000, **GIVEN, **options})


def features_of(target):
    encoded, y = dkfeat.open_shards(target).to_scipy()
    return encoded.toarray().tolist(), y.tolist()


def files_of(*sizes: int, ending: str = ".svm") -> list[Split]:
    files = [SourceFile(name=f"{n}{ending}", url="", size=size, mtime_ns=1) for n, size in enumerate(sizes)]
    if ending == ".gz":
        files = [SourceFile(name=file.name, url="", size=file.size, compression="gzip") for file in files]
    return [Split(number=n, file=file, start=0, stop=file.size) for n, file in enumerate(files)]


@pytest.mark.parametrize(
    ("sizes", "ending", "groups"),
    [
        ((10, 20, 30), ".svm", [3]),
        ((100, 101, 100), ".svm", [1, 1, 1]),  # a sixteenth of the blocksize is tiny, more is not
        ((0, 0, 0, 500, 0), ".svm", [3, 1, 1]),
        ((100,) * 40, ".svm", [16, 16, 8]),
        ((6,) * 40, ".gz", [16, 16, 8]),  # the estimate is 96 bytes of text each
        ((7, 7), ".gz", [1, 1]),
        ((0,) * 2500, ".svm", [1000, 1000, 500]),
    ],
)
def test_grouped__by_sizes_alone(sizes, ending, groups):
    splits = grouping.grouped(files_of(*sizes, ending=ending), 1600)
    assert [len(split.files) for split in splits] == groups
    assert [split.number for split in splits] == list(range(len(groups)))
    assert [file.name for split in splits for file in split.files] == [f"{n}{ending}" for n in range(len(sizes))]
    assert [split.stop - split.start for split in splits] == [sum(f.size for f in split.files) for split in splits]


@pytest.mark.fault("I-29")
def test_group__rows_are_those_of_the_files_one_by_one(folder, tmp_path):
    manifest = featurized(source_of(folder), tmp_path / "grouped")
    assert 1 < len(manifest.shards) < 12
    assert any(entry.rows_by_file for entry in manifest.shards)
    alone = featurized(source_of(folder, blocksize="10"), tmp_path / "alone")
    assert not any(len(entry.rows_by_file) > 1 and entry.rows for entry in alone.shards)
    assert features_of(tmp_path / "grouped") == features_of(tmp_path / "alone")
    assert manifest.sources == alone.sources
    assert [source.rows for source in manifest.sources] == [200 if n == 21 else n % 3 for n in range(40)]
    assert [source.name[:3] for source in manifest.sources] == [f"f{n:02d}" for n in range(40)]


@pytest.mark.parametrize(("max_rows", "blocksize"), [(None, 32_000), (2, 32_000), (None, 90)])
def test_group__pieces_cross_files(folder, max_rows, blocksize):
    whole = source_of(folder)
    (split, *_) = whole.splits()
    assert len(split.files) == 21
    pieces = list(source_of(folder, blocksize=blocksize).read(split, max_rows))
    assert len(pieces) == ({32_000: 1, 90: 4}[blocksize] if max_rows is None else 11)
    assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
    assert np.sum([piece.rows_by_file for piece in pieces], axis=0).tolist() == [n % 3 for n in range(21)]
    assert [sum(piece.rows_by_file) for piece in pieces] == [piece.block.n_rows for piece in pieces]
    values = np.concatenate([piece.block.X[:, :59].max(axis=1).toarray().ravel() for piece in pieces])
    assert values.tolist() == [n + 0.5 for n in range(21)]
    texts = [(folder / file.name).read_bytes() for file in split.files]
    packed = {".gz": gzip.decompress, ".bz2": bz2.decompress}
    n_bytes = sum(len(packed.get("." + file.name.split(".")[-1], bytes)(text)) if text else 0
                  for file, text in zip(split.files, texts, strict=True))  # fmt: skip
    assert pieces[-1].stop == n_bytes


def test_group__marks_and_ends_of_each_file_count(tmp_path):
    for name, text in (("a", b"\xef\xbb\xbf1 1:1"), ("b", b"\xef\xbb\xbf0 2:1\r\n"), ("c", b""), ("d", b"1 3:1")):
        (tmp_path / f"{name}.svm").write_bytes(text)
    source = source_of(tmp_path)
    ((piece,),) = [list(source.read(split)) for split in source.splits()]
    assert piece.block.y.tolist() == [1, 0, 1]
    assert piece.block.X.indices.tolist() == [0, 1, 2]
    found = dkfeat.scan(dkfeat.LibsvmSource(str(tmp_path / "*")))
    assert (found.n_rows, found.n_features, found.rows_per_split) == (3, 3, (3,))


@pytest.mark.parametrize(
    ("broken", "text", "place"),
    [
        ("f20.svm", "1 1:1\n# c\n1 2:1 x", "f20.svm:3:7: "),
        ("f02.svm.gz", "1 1:1\n\n1 2:1 x\n", "f02.svm.gz:3:7: "),
        ("f04.svm", "1 1:1\n1 2:1\r", "f04.svm:2:6: "),
    ],
)
def test_group__errors_have_the_place_in_their_file(folder, tmp_path, broken, text, place):
    written(folder / broken, text, end="")
    for asked in (source_of(folder), source_of(folder, n_features=None)):
        with pytest.raises(ParseError) as caught:
            featurized(asked, tmp_path / "features")
        assert str(caught.value).startswith(str(folder / place))
    manifest = featurized(source_of(folder), tmp_path / "features", on_bad_row="quarantine", max_bad_rows=1)
    (found,) = dkfeat.open_shards(tmp_path / "features").quarantine()
    assert place.startswith(found.place)
    assert [source.name for source in manifest.sources if source.bad_rows] == [broken]


@pytest.mark.fault("I-30")
def test_group__cut_member_is_named(folder, tmp_path):
    path = folder / "f06.svm.gz"
    written(path, *map(row, range(3)))
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ParseError, match=r"f06\.svm\.gz: truncated or corrupt at decompressed byte"):
        featurized(source_of(folder), tmp_path / "features", on_bad_row="quarantine", max_bad_rows=1.0)


def test_group__plan_lists_every_file(folder, tmp_path):
    featurized(source_of(folder), tmp_path / "features")
    plan = metadata.read_plan(open_storage(str(tmp_path / "features")), 1)
    names = [file.name for file in plan.files]
    assert (
        [file.name for split in plan.splits for file in split.files]
        == names
        == sorted(path.name for path in folder.iterdir())
    )
    text = json.loads((tmp_path / "features/_dkfeat/plan-000001.json").read_text())
    assert text["requires"] == ["groups"]
    assert text["splits"][0]["n_files"] == 21


@pytest.mark.fault("D-05")
def test_group__more_files_leave_the_features_of_the_others(folder, tmp_path):
    featurized(source_of(folder), tmp_path / "one")
    written(folder / "f10a.svm", "1 5:5")
    featurized(source_of(folder), tmp_path / "two")
    (one, y), (two, z) = features_of(tmp_path / "one"), features_of(tmp_path / "two")
    at = sum(n % 3 for n in range(11))
    assert (one, y) == (two[:at] + two[at + 1 :], z[:at] + z[at + 1 :])


def test_group__later_batches_hold_new_files_alone(folder, tmp_path):
    first = featurized(source_of(folder), tmp_path / "features")
    for name in ("f03a.svm", "f08a.svm.gz", "f30a.svm", "z.svm"):
        written(folder / name, "1 5:5", "0 6:5")
    second = featurized(source_of(folder), tmp_path / "features")
    assert second.shards[: len(first.shards)] == first.shards
    # new files that are not neighbours in the source's order form one group
    (new,) = second.shards[len(first.shards) :]
    assert (new.rows, new.rows_by_file) == (8, (2, 2, 2, 2))
    assert [source.name for source in second.sources[40:]] == ["f03a.svm", "f08a.svm.gz", "f30a.svm", "z.svm"]
    assert dkfeat.open_shards(tmp_path / "features").shape[0] == first.rows + 8


@pytest.mark.parametrize("fails_at", [0, 2])
def test_group__resume_is_identical(folder, tmp_path, fails_at, monkeypatch):
    source = source_of(folder, blocksize=2000)
    featurized(source, tmp_path / "one", scheduler="synchronous")
    publish, calls = job.publish, iter(range(100))

    def failing(*arguments, **options):
        if next(calls) == fails_at:
            raise OSError(5, "the disk went away")
        return publish(*arguments, **options)

    monkeypatch.setattr(job, "publish", failing)
    with pytest.raises(OSError, match="the disk went away"):
        featurized(source, tmp_path / "two", scheduler="synchronous")
    written(folder / "f01a.svm", "1 1:1")  # a file for the next batch
    featurized(source, tmp_path / "two", scheduler="synchronous")
    assert dataset_state(tmp_path / "two") == dataset_state(tmp_path / "one")


@pytest.mark.fault("V-03", "V-04")
@pytest.mark.parametrize("change", ["edited", "gone"])
@pytest.mark.parametrize("committed", [True, False])
def test_group__changed_member_is_a_conflict(folder, tmp_path, change, committed, monkeypatch):
    with monkeypatch.context() as patch:
        if not committed:
            patch.setattr(dkfeat.store.commit.batch.Batch, "commit", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                featurized(source_of(folder), tmp_path / "features")
        else:
            featurized(source_of(folder), tmp_path / "features")
    member = folder / "f04.svm"
    member.write_text("1 1:1\n1 2:1\n") if change == "edited" else member.unlink()
    with pytest.raises(SpecConflictError, match=r"source 'f04\.svm' (changed|was removed)") as caught:
        featurized(source_of(folder), tmp_path / "features")
    assert caught.value.exit_code == 4


def test_group__member_that_changes_while_it_is_read(folder):
    source = source_of(folder)
    split = source.splits()[0]
    pieces = source.read(split, 1)
    next(pieces)
    written(folder / "f08.svm", "1 1:1", "0 1:1", "1 1:2")
    with pytest.raises(SpecConflictError, match=r"f08\.svm has changed since the source was listed"):
        list(pieces)


def test_group__lost_and_damaged_shards_are_made_again(folder, tmp_path):
    manifest = featurized(source_of(folder), tmp_path / "features")
    lost = next(entry for entry in manifest.shards if entry.rows_by_file)
    before = (tmp_path / "features/data" / lost.name).read_bytes()
    (tmp_path / "features/data" / lost.name).write_bytes(before[:-9])
    assert featurized(source_of(folder), tmp_path / "features") == manifest
    assert (tmp_path / "features/data" / lost.name).read_bytes() == before
    assert dkfeat.open_shards(tmp_path / "features").verify().problems == []


@pytest.mark.fault("I-27")
def test_group__without_rows(tmp_path):
    for n, text in enumerate((b"", b"\n \n", b"# c", b"\r\n")):
        (tmp_path / f"{n}.svm").write_bytes(text)
        (tmp_path / f"{n}.svm.gz").write_bytes(gzip.compress(text) if n else b"")
    manifest = featurized(source_of(tmp_path), tmp_path.parent / f"{tmp_path.name}-out")
    assert (manifest.rows, len(manifest.shards), [source.rows for source in manifest.sources]) == (0, 1, [0] * 8)


MANY = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.sources import base

n, folder = int(sys.argv[1]), sys.argv[2]
listings = []
find = base.find_files
base.find_files = lambda *given, **options: listings.append(1) or find(*given, **options)
source = dkfeat.LibsvmSource(folder + "/source/*/*.svm")
threads = ExecutionConfig(n_workers=2, scheduler="threads")
gcws = dkfeat.GCWSFeatures(8, random_state=0)
manifest = dkfeat.featurize(source, folder + "/features", gcws, progress=False, client=threads)
with open("/proc/self/status") as status:  # getrusage has the peak of the process that started this one
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 2**20
assert len(listings) == 1, listings
assert manifest.rows == n == len(manifest.sources), manifest.rows
assert len(manifest.shards) == -(-n // 1000), len(manifest.shards)
assert peak < 1.25, f"{peak} GiB"
print(f"{peak:.2f} GiB")
"""


@pytest.mark.slow
@pytest.mark.fault("I-29")
@pytest.mark.parametrize(
    "n_files", [10_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_groups__many_files_of_one_row(tmp_path, n_files):
    for first in range(0, n_files, 1000):
        folder = tmp_path / "source" / f"{first // 1000:04d}"
        folder.mkdir(parents=True)
        for number in range(first, first + 1000):
            with open(folder / f"{number % 1000:03d}.svm", "w", encoding="ascii") as file:  # noqa: PTH123 - a third faster
                file.write(row(number))
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(n_files), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
