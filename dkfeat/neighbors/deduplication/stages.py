"""Stages of a search for duplicates; a stage skips what is in the work folder already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.scan import run_stage
from dkfeat.neighbors.deduplication.pairs import (
    MAX_COMPARISONS,
    STANDARD_ERRORS,
    BandFiles,
    CompareExactly,
    FindCopies,
    FindPairs,
    StoredRows,
)
from dkfeat.neighbors.deduplication.work_files import (
    BLOCK_ROWS,
    Counts,
    Groups,
    PairFiles,
    PairTask,
    Part,
    count_in_blocks,
)
from dkfeat.neighbors.exact import RowsInMemory
from dkfeat.neighbors.scan import sampled_map
from dkfeat.theory.bands import sharing_probability

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.progress import Progress
    from dkfeat.engine.runners.base import Runner
    from dkfeat.maps._kernel_estimates import Codes
    from dkfeat.neighbors.deduplication.work_files import WorkFolder
    from dkfeat.neighbors.exact import Rows
    from dkfeat.theory.bands import Bands


_EXACT_PAIRS = 1 << 18  # pairs of a task that compares exactly, and at most those of one block of rows more


class Found(NamedTuple):
    """Pairs and groups in a work folder."""

    pairs: PairFiles
    groups: Groups
    piece_rows: int
    """Number of rows whose pairs make a file of moderate size."""
    n_copies: int
    near: Counts
    """Sums over all bands."""


@dataclass(frozen=True, slots=True)
class DuplicateSearch:
    """Search for the pairs of rows whose estimated similarity is at least a threshold."""

    data: ShardDataset
    codes: Codes
    threshold: float
    bands: Bands
    report: Progress
    source: Rows | None = None
    """Rows by which candidates are compared exactly; None: they are compared by their codes."""

    @property
    def settings(self) -> dict[str, Any]:
        """Plain values that determine the result."""
        return {
            "shards": self.data.manifest.shards_sha256,
            "threshold": self.threshold,
            "bands": list(self.bands),
            "verify": "codes" if self.source is None else "exact",
        }

    def results(self, found: Found, n_pairs: int) -> dict[str, Any]:
        """Return the settings and numbers of a search that has ended, with the number of different pairs."""
        return {
            **self.settings,
            "shards": self.data.shards.storage.url,
            "bands": self.bands,
            "expected_recall": self._expected_recall,
            "n_rows": self.data.n_rows,
            "n_copies": found.n_copies,
            **found.groups.count(),
            **found.near._asdict(),
            "n_pairs": n_pairs,
        }

    def run(self, work: WorkFolder, runner: Runner) -> Found:
        """Run all stages."""
        self.report.note(
            f"{self.bands.n_bands} bands of {self.bands.n_codes} codes; {self._expected_recall:.1%} of pairs at the "
            f"threshold {self.threshold:g} should share one"
        )
        n_rows = self.data.n_rows
        files = BandFiles.of(work, self.data, self.codes, self.bands)
        shards = ShardSource.of(self.data.shards)
        splits = [split for split in shards.splits() if split.stop]
        write = partial(files.add_shard, self.data)
        run_stage("hash", write, shards, splits, runner, self.report, lambda split, _: split.stop)
        similarities = self.codes.similarity_of_counts(np.arange(self.codes.n_components + 1))
        copies = PairFiles(work, tuple(f"copies-{part}" for part in range(files.n_parts)))
        size = 8 * n_rows // files.n_parts
        parts = [Part(number, size // 8, size) for number in range(files.n_parts)]
        task = FindCopies(copies, files, float(similarities[-1]))
        n_copies = self._find("find copies", task, parts, runner).n_pairs
        is_copy = np.zeros(n_rows, np.bool_)
        for some in copies.chunks():
            is_copy[some.rows[1]] = True
        files.mark_copies(is_copy)
        names = (f"near-{band}-{part}" for band in range(self.bands.n_bands) for part in range(files.n_parts))
        near = PairFiles(work, tuple(names))
        compare = FindPairs(near, files, similarities, int(np.searchsorted(similarities, self._least_estimate)))
        most = MAX_COMPARISONS * n_rows
        self.report.note(f"{n_copies:,} copies; of other rows, at most {most:,} pairs are compared for each band")
        parts = [Part(number, size // 8, size) for number in range(len(near.names))]
        counts = self._find("compare", compare, parts, runner)
        pairs, groups = PairFiles(work, copies.names + near.names), Groups(work, n_rows)
        if self.source is not None:
            pairs = self._compare_exactly(pairs, self.source, runner)
        with self.report.stage("group", total_tasks=1, total_bytes=1) as stage:
            piece_rows = groups.find(pairs)
            stage.advance(rows=n_rows, source_bytes=1)
        return Found(pairs, groups, piece_rows, n_copies, counts)

    @property
    def _expected_recall(self) -> float:
        return float(sharing_probability(self.threshold, *self.bands, self.codes.chance))

    @property
    def _least_estimate(self) -> float:
        if self.source is None:
            return self.threshold
        error = self.data.map.expected_error_at(self.threshold)
        return max(self.threshold - STANDARD_ERRORS * float(0 if error is None else error), 1e-9)

    def _find(self, name: str, task: PairTask, parts: Sequence[Part], runner: Any) -> Counts:
        """Run a stage that finds pairs; return the sums of its counts."""
        total = np.zeros(len(Counts._fields), np.int64)

        def done(part: Part, counts: Counts) -> None:
            total[:] += counts
            stage.advance(rows=part.n_rows, source_bytes=part.n_bytes)

        n_bytes = sum(part.n_bytes for part in parts)
        with self.report.stage(name, total_tasks=len(parts), total_bytes=n_bytes) as stage:
            runner.run(task, parts, done)
        return Counts(*total.tolist())

    def _compare_exactly(self, candidates: PairFiles, source: Rows, runner: Runner) -> PairFiles:
        """Return the pairs among the candidates whose exact similarity is at least the threshold."""
        n_rows, work = self.data.n_rows, candidates.work
        wanted, n_pairs = np.zeros(n_rows, np.bool_), np.zeros(n_rows // BLOCK_ROWS + 1, np.int64)
        for some in candidates.chunks():
            lower, higher = some.rows
            wanted[lower] = wanted[higher] = True
            count_in_blocks(n_pairs, higher)
        bounds = np.unique(self.data.first_rows)
        rows = StoredRows(work, self.data.map.n_features_in_, bounds[:-1])
        rows.want(wanted)
        if isinstance(source, RowsInMemory):
            for first, stop in pairwise(bounds.tolist()):  # the same blocks as from the source
                rows.add(first, source.X[first:stop])
        else:
            run_stage(
                "read rows",
                partial(rows.add_split, source),
                source.source,
                source.splits,
                runner,
                self.report,
                lambda split, _: sum(entry.rows for _, entry in source.pieces[split.number]),
            )
        before = np.cumsum(n_pairs) - n_pairs
        firsts = BLOCK_ROWS * np.unique(before // _EXACT_PAIRS, return_index=True)[1]
        parts = []
        for number, (start, stop) in enumerate(pairwise([*firsts.tolist(), n_rows])):
            size = 16 * int(n_pairs[start // BLOCK_ROWS : -(-stop // BLOCK_ROWS)].sum()) + 1
            parts.append(Part(number, stop - start, size, start, stop))
        pairs = PairFiles(work, tuple(f"exact-{part.number}" for part in parts))
        task = CompareExactly(pairs, candidates, rows, sampled_map(self.data), self.threshold)
        self._find("compare exactly", task, parts, runner)
        return pairs
