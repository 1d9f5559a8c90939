"""Codes of all rows in a file, and runs: sorted files of the hashes of their bands, to which new rows are joined."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise, product, starmap
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from dkfeat.blocks import PackedCodes
from dkfeat.compiled.sampling.bands import band_keys, shared_keys, sought_keys
from dkfeat.compiled.sampling.codes import count_pair_matches, countable_bits, in_whole_bytes
from dkfeat.engine.runners.base import until_stopped
from dkfeat.errors import CommitError
from dkfeat.neighbors.scan import code_blocks
from dkfeat.store.storage.base import faults_as

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
_NONE = np.empty(0, np.uint64)
_MERGED_PARTS = 16  # of a band, which are merged one after another
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
            runs += [Run(at, min(at + int(_ROW), stop)) for at in range(first, stop, int(_ROW))]
    return runs


def plan_merges(runs: Sequence[Run]) -> list[Run]:
    """Choose runs to merge, those with the fewest rows first; no run is part of two.

    Examples
    --------
    >>> runs = [Run(at, at + 1) for at in range(MOST_RUNS + 2)]
    >>> plan_merges(runs)
    [Run(first=0, stop=16)]
    >>> plan_merges(runs[:MOST_RUNS])
    []
    """
    merged: list[Run] = []
    joined = [Run(some[0].first, some[-1].stop) for some in zip(*(runs[at:] for at in range(MERGED)), strict=False)]
    for run in sorted(joined, key=lambda run: (run.n_rows, run)):
        is_free = not any(run.has(other) or other.has(run) for other in merged)
        if is_free and run.n_rows < int(_ROW) and len(runs) - len(merged) * (MERGED - 1) > MOST_RUNS:
            merged.append(run)
    return merged


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

    def write_run(self, data: ShardDataset, run: Run, stopped: Callable[[], bool]) -> None:
        """Write the codes and keys of a run, unless they are written, from the shards that have its rows."""
        if self.work.has(run.name):
            return
        keys = np.empty((self.bands.n_bands + 1, run.n_rows), np.uint64)
        stop, start = np.searchsorted(data.first_rows, [run.stop, run.first + 1]).tolist()
        blocks = chain.from_iterable(code_blocks(data, shard) for shard in range(start - 1, stop))
        for first, packed in until_stopped(blocks, stopped):
            some = slice(max(run.first - first, 0), max(run.stop - first, 0))
            self._add(keys, run.first, first + some.start, PackedCodes(packed.codes[some], packed.empty[some]))
        with self._codes_file() as file:
            if self.work.storage.durable:
                os.fsync(file.fileno())
        keys.sort(axis=1)
        n_keys = keys.shape[1] - int(np.count_nonzero(keys[0] == _NO_KEY))
        self.work.write(run.name, [_head(keys[:, :n_keys]), *keys[:, :n_keys]])

    def _add(self, keys: NDArray[np.uint64], first: int, at: int, packed: PackedCodes) -> None:
        """Write the codes of consecutive rows from row `at` on, and set their keys, which begin with row `first`."""
        codes, bits = in_whole_bytes(packed.codes, self.n_components, self.bits)
        with self._codes_file() as file:
            file.seek(at * codes.shape[1])
            file.write(np.ascontiguousarray(codes).data)
        some, of_bands = slice(at - first, at - first + len(codes)), self.bands.n_bands
        keys[:of_bands, some] = band_keys(codes, bits, *self.bands, some.start, _ROW_BITS)
        keys[of_bands, some] = band_keys(codes, bits, 1, self.n_components, some.start, _ROW_BITS)
        keys[:, some][:, packed.empty] = _NO_KEY

    @contextmanager
    def _codes_file(self) -> Iterator[BinaryIO]:
        path = self.work.path(CODES)
        with faults_as(CommitError, f"{path} cannot be written"), path.open("r+b") as file:
            yield file

    def merge(self, merged: Run, stopped: Callable[[], bool]) -> None:
        """Write the run that has the rows of several, unless it is written."""
        if self.work.has(merged.name):
            return
        runs = [run for run in self.runs if merged.has(run)]

        def keys(band: int, part: int) -> NDArray[np.uint64]:
            parts = [self._slice(run, band, part, _MERGED_PARTS) + np.uint64(run.first - merged.first) for run in runs]
            return np.sort(np.concatenate(parts))

        head = np.sum([self._places(self.work.values(run.name, np.uint64)) for run in runs], axis=0)
        parts = until_stopped(product(range(self.bands.n_bands + 1), range(_MERGED_PARTS)), stopped)
        self.work.write(merged.name, chain([head], starmap(keys, parts)))

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

    def buckets(self, band: int, part: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the hashes and rows of a partition's buckets with several rows and a new one, in order."""
        new = [run for run in self.runs if run.first >= self.n_former]
        keys = [(run, self._slice(run, band, part, self.n_parts)) for run in new]
        if len(new) < len(self.runs):
            sought = np.sort(np.concatenate([_NONE, *(some for _, some in keys)]))
            former = (run for run in self.runs if run.first < self.n_former)
            keys += [(run, sought_keys(self._slice(run, band, part, self.n_parts), sought, _ROW)) for run in former]
        # the bits of the partition make room for those of all rows
        shift, low = np.uint64(self.part_bits), np.uint64((1 << (_ROW_BITS + self.part_bits)) - 1)
        numbered = [((some & _HASH) << shift) + ((some & _ROW) + np.uint64(run.first)) for run, some in keys]
        shared = shared_keys(np.concatenate([_NONE, *numbered]), low)
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
