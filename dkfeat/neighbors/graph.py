"""Graph of the nearest rows of all rows, approximately: bands of codes give neighbours, and theirs refine them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from math import ceil, log
from typing import TYPE_CHECKING

import numpy as np

from dkfeat.compiled.sampling.codes import best_rows, countable_bits, empty_heaps, keep_best, merged
from dkfeat.compiled.sampling.graph import find_candidates, refined
from dkfeat.engine.progress import Progress
from dkfeat.engine.runners.base import until_stopped
from dkfeat.errors import CommitError
from dkfeat.maps._kernel_estimates import Codes
from dkfeat.messages import percent
from dkfeat.neighbors.deduplication.runs import CODES, BandRuns
from dkfeat.neighbors.deduplication.stages import Former, Stages, cut, parts_of_bands
from dkfeat.neighbors.deduplication.work_files import Counts, FoundPairs, PairFiles, Part, WorkFolder
from dkfeat.neighbors.scan import ShardScan
from dkfeat.store.storage.base import faults_as
from dkfeat.theory.bands import Bands

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.engine.runners.base import Runner

LINKS = 32
"""Number of neighbours whose neighbours are compared with a row."""
SAMPLE = 256
"""Number of rows whose nearest rows are searched exactly, which estimates the recall."""
_BANDS, _NEXT = 32, 2  # bands, and rows of a bucket with which each row of it is compared
_ROUNDS, _STILL = 20, 0.002  # of refinement, at most; share of neighbours that may change in the last one
_PART_ROWS, _PARTS = 1 << 13, 1 << 10  # rows of a task, at least; tasks of a round, at most, unless rows are fewer
_EMPTY = "empty"
_FIRST_ROWS, _ROWS = 1 << 15, 512  # rows whose first lists are made, or which are refined, at a time


def _find_next(files: BandRuns, part: Part, stopped: Callable[[], bool]) -> FoundPairs:
    """Pair rows with the next ones in the buckets of a band, both ways: a pair's first row is in the upper 32 bits."""
    found = [np.empty(0, np.uint64)]
    for number in until_stopped(range(part.start, part.stop), stopped):
        hashes, rows = files.buckets(*divmod(number, files.n_parts))
        for distance in range(1, _NEXT + 1):
            at = distance + np.flatnonzero(hashes[distance:] == hashes[:-distance])
            one, other = (rows[some].astype(np.uint64) for some in (at - distance, at))
            found += [one << np.uint64(32) | other, other << np.uint64(32) | one]
    keys = np.concatenate(found)
    return FoundPairs(keys, np.zeros(len(keys)))


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """Files with the lists of the nearest rows of all rows, one after each round of refinement."""

    files: BandRuns
    pairs: PairFiles
    """Pairs of rows that share a band, see `_find_next`."""
    n_kept: int
    """Number of entries of a list."""
    n_neighbors: int
    """Number of them whose changes are counted."""

    def lists(self, number: int) -> NDArray[np.int64]:
        """Return the lists after a round, read when they are used; see `dkfeat.compiled.sampling.graph`."""
        return self.files.work.values(f"graph-{number}", np.int64).reshape(-1, self.n_kept)

    def begin(self, part: Part, stopped: Callable[[], bool]) -> None:
        """Write the first lists of a range of rows, from pairs."""
        for first in until_stopped(range(part.start, part.stop, _FIRST_ROWS), stopped):
            stop = min(first + _FIRST_ROWS, part.stop)
            right, left = self.pairs.between(first, stop).rows
            self._extend(0, first, empty_heaps(stop - first, self.n_kept), left, right)

    def refine(self, number: int, part: Part, stopped: Callable[[], bool]) -> Counts:
        """Write the lists of a range of rows after a round; count the changes."""
        n_changed = 0
        for first in until_stopped(range(part.start, part.stop, _ROWS), stopped):
            graph = self.lists(number - 1)
            heaps = np.ascontiguousarray(graph[first : min(first + _ROWS, part.stop), ::-1]) & ~1
            left, right = find_candidates(first, graph, heaps, LINKS)
            lists = self._extend(number, first, heaps, left, right)
            n_changed += int(np.count_nonzero(lists[:, : self.n_neighbors] & 1))
        return Counts(n_changed)

    def _extend(
        self, number: int, first: int, heaps: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Add pairs to the lists of some rows, and write these into their place, to which no other task writes."""
        empty = self.files.work.values(_EMPTY, np.bool_)
        counts = np.where(empty[left] | empty[right], 0, self.files.count_matches(left, right))
        lists, path = refined(first, heaps, left, right, counts), self.files.work.path(f"graph-{number}")
        with faults_as(CommitError, f"{path} cannot be written"), path.open("r+b") as file:
            file.seek(first * self.n_kept * 8)
            file.write(np.ascontiguousarray(lists).data)
        return lists

    def check(self, sample: NDArray[np.int64], part: Part, stopped: Callable[[], bool]) -> NDArray[np.int64]:
        """Compare rows of a sample with a range of rows; return the heaps of the best."""
        files, heaps = self.files, empty_heaps(len(sample), self.n_neighbors)
        codes, empty = files.work.values(CODES, np.uint8).reshape(files.n_rows, -1), files.work.values(_EMPTY, np.bool_)
        for first in until_stopped(range(part.start, part.stop, _PART_ROWS), stopped):
            some = slice(first, min(first + _PART_ROWS, part.stop))
            queries, rows = (codes[sample], empty[sample]), (codes[some], empty[some])
            keep_best(queries, rows, first, sample, heaps, files.n_components, countable_bits(files.bits))
        return heaps


def make_graph(folder: str, scan: ShardScan, runner: Runner, reporter: Progress) -> tuple[NDArray[np.int64], float]:
    """Make the graph of a scan for all rows; its bytes do not depend on workers, or on the division into shards.

    Parameters
    ----------
    folder : str
        Folder for files, which all workers see.
    scan : ShardScan
    runner : Runner
    reporter : Progress

    Returns
    -------
    lists : ndarray of shape (n_rows, n_kept), int64
        The lists of all rows, see `dkfeat.compiled.sampling.graph`.
    recall : float
        Share of the nearest rows, or others as near, that are in them: of `SAMPLE` rows, which are searched exactly.
        Rows without equal codes are not near; 1 if there are no others.
    """
    data, work = scan.data, WorkFolder.of(folder, durable=False)
    n_rows, codes, stages = data.n_rows, Codes.of(data.spec["map"]), Stages(work, runner, reporter)
    n_codes = min(codes.n_components, ceil(log(n_rows, 2) / codes.bits))  # buckets have few rows by chance
    bands = Bands(min(_BANDS, codes.n_components // n_codes), n_codes)
    files = stages.hash_bands(data, codes, bands, Former())
    work.write(_EMPTY, files.empty_rows())
    pairs, _ = stages.find("find candidates", "next", partial(_find_next, files), parts_of_bands(files))
    n_kept = min(max(LINKS, scan.n_candidates), n_rows - 1)
    graph = GraphFiles(files, stages.merged(pairs), n_kept, scan.n_neighbors)
    parts = cut([*range(0, n_rows, max(_PART_ROWS, -(-n_rows // _PARTS))), n_rows])
    for number in range(_ROUNDS + 1):
        work.path(f"graph-{number}").touch()
        counts = stages.run(f"round {number}", partial(graph.refine, number) if number else graph.begin, parts)
        if number:
            work.remove(f"graph-{number - 1}")
            if counts.n_candidates <= _STILL * n_rows * scan.n_neighbors:
                break
    lists, sample = graph.lists(number), np.arange(min(SAMPLE, n_rows)) * n_rows // min(SAMPLE, n_rows)
    found: list[NDArray[np.int64]] = []
    runner.run(partial(graph.check, sample), parts, lambda _, heaps: found.append(heaps))
    nearest, _ = best_rows(reduce(merged, found))
    least = np.maximum(nearest[:, -1:], 1)
    n_near = np.count_nonzero(nearest)  # rows without equal codes are not
    n_found = np.count_nonzero(best_rows(lists[sample, : scan.n_neighbors])[0] >= least)
    recall = n_found / n_near if n_near else 1.0
    reporter.note(f"approximate graph: {percent(recall)} of the nearest rows of {len(sample)} rows are in it")
    return lists, recall
