"""Codes of all rows in a file, and runs: sorted files of the hashes of their bands, to which new rows are joined."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product, starmap
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Self

import numpy as np

from dkfeat.compiled.sampling.bands import band_keys, shared_keys, sought_keys
from dkfeat.compiled.sampling.codes import count_pair_matches, countable_bits, in_whole_bytes
from dkfeat.engine.runners.base import until_stopped
from dkfeat.errors import CommitError
from dkfeat.neighbors.scan import code_rows
from dkfeat.store.storage.base import faults_as

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import PackedCodes
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.neighbors.deduplication.work_files import WorkFolder
    from dkfeat.theory.bands import Bands

PARTITION_ROWS = 1 << 22
"""Maximum number of new rows in a partition, on average."""
RUN_ROWS = 1 << 20
"""Number of rows of a run, at most unless a single shard has more; a run has whole shards."""
MOST_RUNS = 30
"""Maximum number of runs of new rows."""
MOST_OPEN = 60
"""Maximum number of runs that a task opens, former ones and new ones."""
MERGED = 16
"""Number of runs that are merged, unless there are very many."""
CODES = "codes"
_ROW_BITS, _PART_BITS = 24, 8  # of a key, at least, and of the partitions of which a run has the places
_NO_KEY = np.uint64(2**64 - 1)  # of an empty row; no run has so many rows
_NONE = np.empty(0, np.uint64)
_MERGED_PARTS = 16  # of a band, at least, which are merged one after another
_PAIRS = 65_536  # pairs for which the file of codes is mapped at a time: the pages that they touch count as memory


class Run(NamedTuple):
    """Range of rows whose keys are a file."""

    first: int
    stop: int

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"run-{self.first}-{self.stop}"

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.first

    @property
    def row_bits(self) -> int:
        """Number of low bits of a key that tell the row; of 2^24 to 2^32 rows, high bits of the hash make room."""
        return max(_ROW_BITS, (self.n_rows - 1).bit_length())

    def has(self, other: Run) -> bool:
        """Return True if the rows of another run, which are all or none of this one's, are of this one."""
        return self.first <= other.first < self.stop


def plan_runs(firsts: Sequence[int], n_former: int, most: int) -> list[Run]:
    """Cut the rows after the former ones into runs of whole shards; `firsts` has their first rows, and the end.

    Examples
    --------
    >>> plan_runs([0, 4, 6, 9, 10], n_former=4, most=5)
    [Run(first=4, stop=9), Run(first=9, stop=10)]
    """
    runs: list[Run] = []
    for first, stop in pairwise(firsts):
        if first < n_former or first == stop:
            continue
        if runs and runs[-1].stop == first and stop - runs[-1].first <= most:
            runs[-1] = Run(runs[-1].first, stop)
        else:
            most_rows = (1 << _ROW_BITS) - 1
            runs += [Run(at, min(at + most_rows, stop)) for at in range(first, stop, most_rows)]
    return runs


def plan_merges(runs: Sequence[Run], most: int) -> list[list[Run]]:
    """Choose runs to merge until at most `most` are left; those of one round do not overlap.

    Of runs with about as many rows, the first are merged first, so that few are left between merged ones.

    Examples
    --------
    >>> plan_merges([Run(at, at + 1) for at in range(32)], most=30)
    [[Run(first=0, stop=16)]]
    >>> [len(merges) for merges in plan_merges([Run(at, at + 1) for at in range(955)], most=30)]
    [29, 2]
    """
    left, rounds = [*runs], list[list[Run]]()
    while len(left) > most:
        width = min(max(MERGED, -(-len(left) // most)), len(left), MOST_OPEN)
        joined = [Run(some[0].first, some[-1].stop) for some in zip(*(left[at:] for at in range(width)), strict=False)]
        merged: dict[int, Run] = {}
        for at in sorted(range(len(joined)), key=lambda at: (joined[at].n_rows.bit_length(), at)):
            is_free = not any(near in merged for near in range(at - width + 1, at + width))
            if is_free and len(left) - len(merged) * (width - 1) > most:
                merged[at] = joined[at]
        rounds.append(sorted(merged.values()))
        left = after_merges(left, rounds[-1])
    return rounds


def after_merges(runs: Sequence[Run], merged: Sequence[Run]) -> list[Run]:
    """Return the runs that are left, with the merged ones."""
    return sorted([*merged, *(run for run in runs if not any(each.has(run) for each in merged))])


@dataclass(frozen=True, slots=True)
class BandRuns:
    """Codes of all rows in one file, and runs: files with the keys of the bands and of all codes of consecutive rows.

    A key has 40 bits of a band's hash, and the row, counted from the first one of its run, in its low bits. Rows with
    equal hashes are a bucket. All codes are a further band, the last one, whose buckets hold copies. A run begins with
    the places of the partitions of each band, which are those of the 8 high bits of the hash; in a partition, keys are
    sorted. If the row takes more than 24 bits, as many of these 8 are left out. Empty rows have no keys. The codes of a
    run have their place in the file, which does not change, and they are on disk before its keys are.
    """

    work: WorkFolder
    n_rows: int
    n_former: int
    """Number of rows among which pairs were found before; only pairs with other rows are found."""
    n_components: int
    bits: int
    """Bits of a code in the shards."""
    bands: Bands
    runs: tuple[Run, ...] = ()
    """All runs, in the order of their rows; none has both former and new rows."""

    @property
    def part_bits(self) -> int:
        """Number of high bits of a key that tell its partition."""
        of_new = (max(0, self.n_rows - self.n_former - 1) // PARTITION_ROWS).bit_length()
        return min(_PART_BITS, max(of_new, (self.n_rows - 1).bit_length() - _ROW_BITS))

    @property
    def n_parts(self) -> int:
        """Number of partitions."""
        return 1 << self.part_bits

    def write_run(self, data: ShardDataset, run: Run, stopped: Callable[[], bool]) -> None:
        """Write the codes and keys of a run, unless they are written, from the shards that have its rows."""
        if self.work.has(run.name):
            return
        keys = np.empty((self.bands.n_bands + 1, run.n_rows), np.uint64)
        path = self.work.path(CODES)
        with faults_as(CommitError, f"{path} cannot be written"), path.open("r+b") as file:
            for at, packed in until_stopped(code_rows(data, *run), stopped):
                self._add(file, keys, run.first, at, packed)
            file.flush()
            if self.work.storage.durable:
                os.fsync(file.fileno())
        keys.sort(axis=1)
        n_keys = keys.shape[1] - int(np.count_nonzero(keys[0] == _NO_KEY))
        self.work.write(run.name, [_head(keys[:, :n_keys]), *keys[:, :n_keys]])

    def _add(self, file: BinaryIO, keys: NDArray[np.uint64], first: int, at: int, packed: PackedCodes) -> None:
        """Write the codes of consecutive rows from row `at` on, and set their keys, which begin with row `first`."""
        codes, bits = in_whole_bytes(packed.codes, self.n_components, self.bits)
        file.seek(at * codes.shape[1])
        file.write(np.ascontiguousarray(codes).data)
        some, of_bands = slice(at - first, at - first + len(codes)), self.bands.n_bands
        keys[:of_bands, some] = band_keys(codes, bits, *self.bands, some.start, _ROW_BITS)
        keys[of_bands, some] = band_keys(codes, bits, 1, self.n_components, some.start, _ROW_BITS)
        keys[:, some][:, packed.empty] = _NO_KEY

    def merge(self, merged: Run, stopped: Callable[[], bool]) -> None:
        """Write the run that has the rows of several, unless it is written."""
        if self.work.has(merged.name):
            return
        runs = [run for run in self.runs if merged.has(run)]
        n_parts = max(_MERGED_PARTS, 1 << (merged.row_bits - _ROW_BITS))
        with self.opened() as files:

            def keys(band: int, part: int) -> NDArray[np.uint64]:
                moved = (files.keys(run, band, part, n_parts, merged.first, merged.row_bits) for run in runs)
                return np.sort(np.concatenate([*moved]))

            head = np.sum([files._places(files.work.values(run.name, np.uint64)) for run in runs], axis=0)
            parts = until_stopped(product(range(self.bands.n_bands + 1), range(n_parts)), stopped)
            self.work.write(merged.name, chain([head], starmap(keys, parts)))

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """Open each file once, when it is first read, until the end of a task."""
        with self.work.opened() as work:
            yield replace(self, work=work)

    def _places(self, values: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the places at the head of a run, shape (n_bands + 1, 2 ** _PART_BITS + 1)."""
        n = (self.bands.n_bands + 1) * ((1 << _PART_BITS) + 1)
        return values[:n].view(np.int64).reshape(self.bands.n_bands + 1, -1)

    def _slice(self, run: Run, band: int, part: int, n_parts: int) -> NDArray[np.uint64]:
        """Return the keys of a band in a partition of a run, which are read when they are used."""
        values = self.work.values(run.name, np.uint64)
        places, width = self._places(values), (1 << _PART_BITS) // n_parts
        start, stop = places[band, [part * width, (part + 1) * width]] + places.size
        return values[start:stop]

    def keys(self, run: Run, band: int, part: int, n_parts: int, first: int, row_bits: int) -> NDArray[np.uint64]:
        """Return the keys of a band in a partition of a run, with rows that are counted from row `first`."""
        return _moved(self._slice(run, band, part, n_parts), run.row_bits, run.first - first, row_bits)

    def empty_rows(self) -> Iterator[NDArray[np.bool_]]:
        """Yield for each run which of its rows are empty: those without keys."""
        for run in self.runs:
            empty = np.ones(run.n_rows, np.bool_)
            empty[self._slice(run, 0, 0, 1) & _low(run.row_bits)] = False
            yield empty

    def buckets(self, band: int, part: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the hashes and rows of a partition's buckets with several rows and a new one, in order."""
        given = band, part, self.n_parts
        row_bits = _ROW_BITS + self.part_bits  # the bits of the partition make room for the numbers of all rows
        keys = [self.keys(run, *given, 0, row_bits) for run in self.runs if run.first >= self.n_former]
        if len(keys) < len(self.runs):
            hashes = np.sort(np.concatenate([_NONE, *keys])) >> np.uint64(row_bits)
            for run in self.runs[: len(self.runs) - len(keys)]:
                known = np.uint64(part << (64 - self.part_bits + run.row_bits - _ROW_BITS) & int(_NO_KEY))
                sought = hashes << np.uint64(run.row_bits) | known
                some = sought_keys(self._slice(run, *given), sought, _low(run.row_bits))
                keys.append(_moved(some, run.row_bits, run.first, row_bits))
        low = _low(row_bits)
        shared = shared_keys(np.concatenate([_NONE, *keys]), low)
        return shared & ~low, (shared & low).astype(np.int64)

    def count_matches(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int32]:
        """Count the equal codes of pairs of rows."""
        wide = countable_bits(self.bits)
        row_bytes = (self.n_components * wide + 7) // 8
        counts = [np.empty(0, np.int32)]
        for at in range(0, len(left), _PAIRS):
            mapped = self.work.values(CODES, np.uint8)[: self.n_rows * row_bytes].reshape(-1, row_bytes)
            some = slice(at, at + _PAIRS)
            counts.append(count_pair_matches(mapped, left[some], right[some], self.n_components, wide))
        return np.concatenate(counts)


def _head(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the places of the partitions of each band, and of its end, in the sorted keys of all bands."""
    bounds, n_keys = np.arange(1, 1 << _PART_BITS, dtype=np.uint64) << np.uint64(64 - _PART_BITS), keys.shape[1]
    places = [[0, *np.searchsorted(band, bounds).tolist(), n_keys] for band in keys]
    return np.array(places, np.int64) + n_keys * np.arange(len(keys))[:, None]


def _low(row_bits: int) -> np.uint64:
    """Return the mask of the bits of a key that tell the row."""
    return np.uint64((1 << row_bits) - 1)


def _moved(keys: NDArray[np.uint64], row_bits: int, offset: int, to_bits: int) -> NDArray[np.uint64]:
    """Return keys with an offset added to their rows, which get another number of bits."""
    hashes: NDArray[np.uint64] = keys >> np.uint64(row_bits) << np.uint64(to_bits)
    return hashes + ((keys & _low(row_bits)) + np.uint64(offset))
