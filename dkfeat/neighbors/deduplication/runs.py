"""Codes of all rows in a file, and runs: sorted files of the hashes of their bands, to which new rows are joined."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dkfeat.compiled.sampling.bands import band_keys, find_sorted, shared_keys
from dkfeat.compiled.sampling.codes import count_pair_matches, countable_bits, in_whole_bytes
from dkfeat.engine.runners.base import until_stopped
from dkfeat.errors import CommitError
from dkfeat.neighbors.scan import first_row, numbered_codes
from dkfeat.store.storage.base import faults_as

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.neighbors.deduplication.work_files import WorkFolder
    from dkfeat.theory.bands import Bands

PARTITION_ROWS = 1 << 22
"""Maximum number of new rows in a partition, on average."""
RUN_ROWS = 1 << 20
"""Number of rows of a run, at most unless a single shard has more; a run has whole shards."""
MOST_RUNS = 30
"""Maximum number of runs of former rows, and of new ones, as long as runs may be merged."""
MERGED = 16
"""Number of runs that are merged."""
CODES = "codes"
_ROW_BITS, _PART_BITS = 24, 8  # of a key, and of the partitions of which a run has the places
_ROW, _HASH = np.uint64((1 << _ROW_BITS) - 1), np.uint64((1 << 64) - (1 << _ROW_BITS))
_NO_KEY = np.uint64(2**64 - 1)  # of an empty row; no run has so many rows
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
            runs += [Run(at, min(at + int(_ROW), stop)) for at in range(first, stop, int(_ROW))]
    return runs


def plan_merges(runs: Sequence[Run]) -> list[Sequence[Run]]:
    """Choose runs to merge, those with the fewest rows first; no run is chosen twice.

    Examples
    --------
    >>> runs = [Run(at, at + 1) for at in range(MOST_RUNS + 2)]
    >>> [(some[0].first, some[-1].stop) for some in plan_merges(runs)]
    [(0, 16)]
    >>> plan_merges(runs[:MOST_RUNS])
    []
    """
    left, merges = len(runs), list[Sequence[Run]]()
    free = [True] * len(runs)
    windows = [(runs[at + MERGED - 1].stop - runs[at].first, at) for at in range(len(runs) - MERGED + 1)]
    for n_rows, at in sorted(windows):
        if left > MOST_RUNS and n_rows < int(_ROW) and all(free[at : at + MERGED]):
            free[at : at + MERGED] = [False] * MERGED
            merges.append(runs[at : at + MERGED])
            left -= MERGED - 1
    return merges


def merged_runs(runs: Sequence[Run], merges: Sequence[Sequence[Run]]) -> list[Run]:
    """Return the runs after merges, in the order of their rows."""
    gone = {run for some in merges for run in some}
    return sorted([*(run for run in runs if run not in gone), *(Run(some[0].first, some[-1].stop) for some in merges)])


@dataclass(frozen=True, slots=True)
class BandRuns:
    """Codes of all rows in one file, and runs: files with the keys of the bands and of all codes of consecutive rows.

    A key has the high bits of a band's hash, and the row, counted from the first one of its run, in its low bits. Rows
    with equal high bits are a bucket. All codes are a further band, the last one, whose buckets hold copies. A run
    begins with the places of the partitions of each band; in a band, keys are sorted. Empty rows have no keys. The
    codes of a run have their place in the file, which does not change, and they are on disk before its keys are.
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

    def write_run(self, data: ShardDataset, item: tuple[Run, Sequence[Split]], stopped: Callable[[], bool]) -> None:
        """Write the codes and keys of a run, unless they are written, from the shards that have its rows."""
        run, splits = item
        if self.work.has(run.name):
            return
        keys = np.empty((self.bands.n_bands + 1, run.n_rows), np.uint64)
        path = self.work.path(CODES)
        for split in until_stopped(splits, stopped):
            first, packed = numbered_codes(data, split)
            some = slice(max(run.first - first, 0), run.stop - first)
            first += some.start
            self._add(keys, first - run.first, first, packed.codes[some], packed.empty[some])
        with faults_as(CommitError, f"{path} cannot be written"), path.open("r+b") as file:
            if self.work.storage.durable:
                os.fsync(file.fileno())
        keys.sort(axis=1)
        n_keys = keys.shape[1] - int(np.count_nonzero(keys[0] == _NO_KEY))
        self.work.write(run.name, [_head(keys[:, :n_keys]), *keys[:, :n_keys]])

    def _add(
        self, keys: NDArray[np.uint64], at: int, first: int, codes: NDArray[np.uint8], empty: NDArray[np.bool_]
    ) -> None:
        """Write the codes of consecutive rows, and set their keys."""
        codes, bits = in_whole_bytes(codes, self.n_components, self.bits)
        path = self.work.path(CODES)
        with faults_as(CommitError, f"{path} cannot be written"), path.open("r+b") as file:
            file.seek(first * codes.shape[1])
            file.write(np.ascontiguousarray(codes).data)
        some, of_bands = slice(at, at + len(codes)), self.bands.n_bands
        keys[:of_bands, some] = band_keys(codes, bits, *self.bands, at, _ROW_BITS)
        keys[of_bands, some] = band_keys(codes, bits, 1, self.n_components, at, _ROW_BITS)
        keys[:, some][:, empty] = _NO_KEY

    def merge(self, runs: Sequence[Run], stopped: Callable[[], bool]) -> None:
        """Write the run with the rows of consecutive runs, unless it is written."""
        merged = Run(runs[0].first, runs[-1].stop)
        if self.work.has(merged.name):
            return

        def band(number: int) -> NDArray[np.uint64]:
            moved = [self._slice(run, number, 0, 0) + np.uint64(run.first - merged.first) for run in runs]
            return np.sort(np.concatenate(moved))

        head = np.sum([self._places(run) for run in runs], axis=0)
        numbers = until_stopped(range(self.bands.n_bands + 1), stopped)
        self.work.write(merged.name, chain([head], map(band, numbers)))

    def _places(self, run: Run) -> NDArray[np.int64]:
        n = (self.bands.n_bands + 1) * ((1 << _PART_BITS) + 1)
        return self.work.values(run.name, np.int64)[:n].reshape(self.bands.n_bands + 1, -1)

    def _slice(self, run: Run, band: int, part: int, part_bits: int) -> NDArray[np.uint64]:
        """Return the keys of a band in a partition of a run, which are read when they are used."""
        values, places = self.work.values(run.name, np.uint64), self._places(run)
        width = 1 << (_PART_BITS - part_bits)
        start, stop = places[band, [part * width, (part + 1) * width]] + places.size
        return values[start:stop]

    def buckets(self, band: int, part: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the hashes and rows of a partition's buckets with several rows and a new one, in order."""
        new = [run for run in self.runs if run.first >= self.n_former]
        slices = [(run, np.array(self._slice(run, band, part, self.part_bits))) for run in new]
        if self.n_former:
            sought = np.sort(np.concatenate([np.empty(0, np.uint64), *(keys & _HASH for _, keys in slices)]))
            sought = sought[np.flatnonzero(np.concatenate([[True], sought[1:] != sought[:-1]])[: len(sought)])]
            former = (run for run in self.runs if run.first < self.n_former)
            slices += [(run, _with_hashes(self._slice(run, band, part, self.part_bits), sought)) for run in former]
        # the bits of the partition make room for those of all rows
        shift, low = np.uint64(self.part_bits), np.uint64((1 << (_ROW_BITS + self.part_bits)) - 1)
        numbered = [((keys & _HASH) << shift) + ((keys & _ROW) + np.uint64(run.first)) for run, keys in slices]
        keys = shared_keys(np.concatenate([np.empty(0, np.uint64), *numbered]), low)
        return keys & ~low, (keys & low).astype(np.int64)

    def count_matches(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int32]:
        """Count the equal codes of pairs of rows."""
        wide = countable_bits(self.bits)
        row_bytes = (self.n_components * wide + 7) // 8
        counts = [np.empty(0, np.int32)]
        for at in range(0, len(left), _PAIRS):
            # private pages are writeable, so that no loop copies them
            path = str(self.work.path(CODES))  # numpy takes long to resolve a Path
            mapped = np.asarray(np.memmap(path, np.uint8, "c", shape=(self.n_rows, row_bytes)))
            some = slice(at, at + _PAIRS)
            counts.append(count_pair_matches(mapped, left[some], right[some], self.n_components, wide))
        return np.concatenate(counts)


def _head(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the places of the partitions of each band, and of its end, in the sorted keys of all bands."""
    bounds, n_keys = np.arange(1, 1 << _PART_BITS, dtype=np.uint64) << np.uint64(64 - _PART_BITS), keys.shape[1]
    places = [[0, *np.searchsorted(band, bounds).tolist(), n_keys] for band in keys]
    return np.array(places, np.int64) + n_keys * np.arange(len(keys))[:, None]


def _with_hashes(keys: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the keys with any of some hashes; both are sorted.

    Examples
    --------
    >>> keys = np.array([1, 5, 5, 6], np.uint64) << np.uint64(24) | np.array([7, 0, 3, 9], np.uint64)
    >>> [hex(key) for key in _with_hashes(keys, np.array([2, 5], np.uint64) << np.uint64(24)).tolist()]
    ['0x5000000', '0x5000003']
    """
    starts = np.empty(len(hashes), np.int64)
    find_sorted(keys, hashes, starts)
    held = np.flatnonzero(starts < len(keys))
    held = held[keys[starts[held]] & _HASH == hashes[held]]
    starts, stops = starts[held], np.searchsorted(keys, hashes[held] | _ROW, side="right")
    sizes = stops - starts
    positions = np.arange(sizes.sum()) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    return keys[positions]


def splits_of(run: Run, data: ShardDataset, splits: Sequence[Split]) -> list[Split]:
    """Return the splits that have rows of a run."""
    firsts = (first_row(data, split) for split in splits)
    return [split for split, at in zip(splits, firsts, strict=True) if at < run.stop and at + split.stop > run.first]
