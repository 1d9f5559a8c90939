"""Stages of a search for duplicates; a stage skips what is in the work folder already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dkfeat.blocks import SourceFile, Split
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.neighbors.deduplication.bands import MOST_COMPARISONS, BandFiles, FindCopies, FindPairs, WriteKeys
from dkfeat.neighbors.deduplication.exact import STANDARD_ERRORS, CompareExactly, StoredRows, StoreRows, ranges
from dkfeat.neighbors.deduplication.groups import BLOCK_ROWS, Groups, count_in_blocks
from dkfeat.neighbors.deduplication.pairs import Counts, PairFiles
from dkfeat.neighbors.deduplication.result import Facts
from dkfeat.neighbors.exact import RowsInMemory, RowsOfSource
from dkfeat.theory.bands import sharing_probability

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.progress import Progress
    from dkfeat.engine.runners.local import Runner
    from dkfeat.maps._sampled import SampledMap
    from dkfeat.neighbors.deduplication.bands import FindTask
    from dkfeat.neighbors.deduplication.work_files import WorkFolder
    from dkfeat.theory.bands import Bands


_EXACT_PAIRS = 1 << 18  # pairs of a task that compares exactly


class Expected(NamedTuple):
    """Number of candidates that is expected after two bands, and its standard error."""

    n_candidates: float
    error: float


class Found(NamedTuple):
    """Pairs and groups in a work folder."""

    pairs: PairFiles
    groups: Groups
    piece_rows: int
    """Number of rows whose pairs make a file of moderate size."""
    n_copies: int
    expected: Expected
    near: Counts
    """Sums over all bands."""


@dataclass(frozen=True, slots=True)
class Search:
    """Search for the pairs of rows whose estimated similarity is at least a threshold."""

    data: ShardDataset
    fitted: SampledMap
    threshold: float
    bands: Bands
    report: Progress
    source: RowsInMemory | RowsOfSource | None = None
    """Rows by which candidates are compared exactly; None: they are compared by their codes."""

    @property
    def verify(self) -> str:
        """Way in which candidates are compared."""
        return "codes" if self.source is None else "exact"

    @property
    def settings(self) -> dict[str, Any]:
        """Plain values that determine the result."""
        return {
            "shards": self.data.manifest.shards_sha256,
            "threshold": self.threshold,
            "bands": list(self.bands),
            "verify": self.verify,
        }

    def facts(self, found: Found, n_pairs: int) -> Facts:
        """Return the settings and numbers of a search that has ended, with the number of different pairs."""
        n_groups, n_kept, largest_group = found.groups.count()
        return Facts(
            shards=self.data.shards.storage.url,
            threshold=self.threshold,
            verify=self.verify,
            bands=self.bands,
            expected_recall=self._expected_recall,
            n_rows=self.data.n_rows,
            n_copies=found.n_copies,
            n_pairs=n_pairs,
            n_groups=n_groups,
            n_kept=n_kept,
            largest_group=largest_group,
            expected_candidates=found.expected.n_candidates,
            expected_candidates_error=found.expected.error,
            n_candidates=found.near.n_candidates,
            n_compared=found.near.n_compared,
        )

    def run(self, work: WorkFolder, runner: Runner) -> Found:
        """Run all stages."""
        self.report.note(
            f"{self.bands.n_bands} bands of {self.bands.n_codes} codes; {self._expected_recall:.1%} of pairs at the "
            f"threshold {self.threshold:g} should share one"
        )
        files = BandFiles.of(work, self.data.n_rows, self.fitted, self.bands)
        self._write_keys(files, runner)
        n_parts = 1 << files.part_bits
        similarities = self.fitted._similarity_of_counts(np.arange(self.fitted.n_components + 1))
        firsts = files.first_rows(self.data)
        copies = PairFiles(work, tuple(f"copies-{part}" for part in range(n_parts)))
        n_copies = self._find("find copies", FindCopies(files, firsts, copies, similarities), runner).n_pairs
        self._mark_copies(files, copies)
        names = (f"near-{band}-{part}" for band in range(self.bands.n_bands) for part in range(n_parts))
        near = PairFiles(work, tuple(names))
        least_count = int(np.searchsorted(similarities, self._least_estimate))
        task = FindPairs(files, firsts, near, similarities, least_count)
        expected = Expected(*task.expect())
        self.report.note(
            f"{n_copies:,} copies; {expected.n_candidates:,.0f} (± {expected.error:,.0f}) pairs of other rows should "
            f"share a band; at most {MOST_COMPARISONS * self.data.n_rows:,} are compared for each band"
        )
        counts = self._find("compare", task, runner)
        pairs, groups = PairFiles(work, copies.names + near.names), Groups(work, self.data.n_rows)
        if self.source is not None:
            pairs = self._compare_exactly(pairs, runner)
        with self.report.stage("group", total_tasks=1, total_bytes=1) as stage:
            piece_rows = groups.find(pairs)
            stage.advance(rows=self.data.n_rows, source_bytes=1)
        return Found(pairs, groups, piece_rows, n_copies, expected, counts)

    @property
    def _expected_recall(self) -> float:
        return float(sharing_probability(self.threshold, *self.bands, self.fitted.chance))

    @property
    def _least_estimate(self) -> float:
        if self.source is None:
            return self.threshold
        error = self.fitted.expected_error_at(self.threshold)
        return max(self.threshold - STANDARD_ERRORS * float(0 if error is None else error), 1e-9)

    def _compare_exactly(self, candidates: PairFiles, runner: Runner) -> PairFiles:
        """Return the pairs among the candidates whose exact similarity is at least the threshold."""
        n_rows, work = self.data.n_rows, candidates.work
        wanted, n_pairs = np.zeros(n_rows, np.bool_), np.zeros(n_rows // BLOCK_ROWS + 1, np.int64)
        for some in candidates.chunks():
            lower, higher = some.rows
            wanted[lower] = wanted[higher] = True
            count_in_blocks(n_pairs, higher)
        rows = self._store_rows(work, wanted, runner)
        parts = [
            Split(number=number, file=SourceFile(name="pairs", url="", size=0), start=start, stop=stop)
            for number, (start, stop) in enumerate(ranges(n_pairs, BLOCK_ROWS, _EXACT_PAIRS))
        ]
        pairs = PairFiles(work, tuple(f"exact-{part.number}" for part in parts))
        task = CompareExactly(candidates, pairs, rows, self.fitted, self.threshold)

        def done(split: Split, counts: Counts) -> None:
            stage.advance(rows=min(split.stop, n_rows) - split.start, source_bytes=16 * counts.n_candidates + 1)

        size = 16 * int(n_pairs.sum()) + len(parts)
        with self.report.stage("compare exactly", total_tasks=len(parts), total_bytes=size) as stage:
            runner.run(task, parts, done)
        return pairs

    def _store_rows(self, work: WorkFolder, wanted: NDArray[np.bool_], runner: Runner) -> StoredRows:
        """Store the rows that are compared, in a stage over the source, or from memory."""
        source, n_features = self.source, self.fitted.n_features_in_
        if isinstance(source, RowsInMemory):
            bounds = np.unique(self.data.first_rows)  # the same blocks as from the source
            rows = StoredRows(work, n_features, bounds[:-1])
            rows.want(wanted)
            for first, stop in pairwise(bounds.tolist()):
                rows.add(first, source.X[first:stop])
            return rows
        assert source is not None
        blocks = [(first, entry.rows) for split in source.splits for first, entry in source.pieces[split.number]]
        rows = StoredRows(work, n_features, np.array(sorted(first for first, n in blocks if n), np.int64))
        rows.want(wanted)

        def done(split: Split, _: None) -> None:
            n_rows = sum(entry.rows for _, entry in source.pieces[split.number])
            stage.advance(rows=n_rows, source_bytes=source.source.split_bytes(split))

        size = sum(map(source.source.split_bytes, source.splits))
        with self.report.stage("read rows", total_tasks=len(source.splits), total_bytes=size) as stage:
            runner.run(StoreRows(source, rows), source.splits, done)
        return rows

    def _write_keys(self, files: BandFiles, runner: Runner) -> None:
        source = ShardSource.of(self.data.shards)
        splits = [split for split in source.splits() if split.stop]

        def done(split: Split, _: None) -> None:
            stage.advance(rows=split.stop, source_bytes=source.split_bytes(split))

        size = sum(map(source.split_bytes, splits))
        with self.report.stage("hash", total_tasks=len(splits), total_bytes=size) as stage:
            runner.run(WriteKeys(self.data, files), splits, done)

    def _find(self, name: str, task: FindTask, runner: Runner) -> Counts:
        parts = _partitions(len(task.pairs.names), 8 * self.data.n_rows >> task.files.part_bits)
        total = np.zeros(len(Counts._fields), np.int64)

        def done(split: Split, counts: Counts) -> None:
            total[:] += counts
            stage.advance(rows=split.stop // 8, source_bytes=split.stop)

        with self.report.stage(name, total_tasks=len(parts), total_bytes=len(parts) * parts[0].stop) as stage:
            runner.run(task, parts, done)
        return Counts(*total.tolist())

    def _mark_copies(self, files: BandFiles, copies: PairFiles) -> None:
        is_copy = np.zeros(self.data.n_rows, np.bool_)
        for some in copies.chunks():
            is_copy[some.rows[1]] = True
        files.mark_copies(is_copy)


def _partitions(n: int, size: int) -> Sequence[Split]:
    return [
        Split(number=number, file=SourceFile(name=f"partition {number}", url="", size=size), start=0, stop=size)
        for number in range(n)
    ]
