"""Stages of a search for duplicates; a stage skips what is in the work folder already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.scan import run_stage
from dkfeat.neighbors.deduplication.pairs import (
    MAX_COMPARISONS,
    STANDARD_ERRORS,
    CompareExactly,
    FindCopies,
    FindPairs,
    StoredRows,
)
from dkfeat.neighbors.deduplication.runs import (
    CODES,
    RUN_ROWS,
    BandRuns,
    Run,
    merged_runs,
    plan_merges,
    plan_runs,
    splits_of,
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


class Former(NamedTuple):
    """What an earlier search of the first rows left in the work folder; nothing without one."""

    n_rows: int = 0
    n_shards: int = 0
    runs: tuple[Run, ...] = ()
    n_candidates: int = 0
    n_compared: int = 0


class Found(NamedTuple):
    """Pairs of new rows, and groups and runs of all rows, in a work folder."""

    pairs: PairFiles
    groups: Groups
    runs: tuple[Run, ...]
    piece_rows: int
    """Number of rows whose pairs make a file of moderate size."""
    n_copies: int
    sums: dict[str, int]
    """Numbers of candidates and comparisons in all bands, for all rows."""


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
    keep_earlier: bool = False
    """Keep all rows that an earlier search kept."""

    @property
    def settings(self) -> dict[str, Any]:
        """Plain values that, with the shards, determine the result."""
        return {
            "threshold": self.threshold,
            "bands": list(self.bands),
            "verify": "codes" if self.source is None else "exact",
            "keep_earlier": self.keep_earlier,
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
            **found.sums,
            "n_pairs": n_pairs,
        }

    def run(self, work: WorkFolder, runner: Runner, former: Former) -> Found:
        """Run all stages."""
        self.report.note(
            f"{self.bands.n_bands} bands of {self.bands.n_codes} codes; {self._expected_recall:.1%} of pairs at the "
            f"threshold {self.threshold:g} should share one"
        )
        n_rows, n_new = self.data.n_rows, self.data.n_rows - former.n_rows
        groups = Groups(work, n_rows, former.n_rows, self.keep_earlier)
        files = self._hash(work, runner, former)
        similarities = self.codes.similarity_of_counts(np.arange(self.codes.n_components + 1))
        copies = PairFiles(work, tuple(f"same-{part}" for part in range(files.n_parts)))
        size = 8 * n_new // files.n_parts
        parts = [Part(number, size // 8, size) for number in range(files.n_parts)]
        self._find("find copies", FindCopies(copies, files, groups, float(similarities[-1])), parts, runner)
        n_copies = groups.mark_copies(copies)
        names = (f"near-{band}-{part}" for band in range(self.bands.n_bands) for part in range(files.n_parts))
        near = PairFiles(work, tuple(names))
        compare = FindPairs(near, files, groups, similarities, int(np.searchsorted(similarities, self._least_estimate)))
        most = MAX_COMPARISONS * n_rows
        self.report.note(f"{n_copies:,} copies; of other rows, at most {most:,} pairs are compared for each band")
        parts = [Part(number, size // 8, size) for number in range(len(near.names))]
        counts = self._find("compare", compare, parts, runner)
        pairs = PairFiles(work, copies.names + near.names)
        if self.source is not None:
            pairs = self._compare_exactly(pairs, self.source, runner)
        with self.report.stage("group", total_tasks=1, total_bytes=1) as stage:
            piece_rows = groups.find(pairs)
            stage.advance(rows=n_new, source_bytes=1)
        before = (former.n_candidates, former.n_compared)
        sums = {name: n + sum for name, n, sum in zip(Counts._fields[1:], before, counts[1:], strict=True)}
        return Found(pairs, groups, files.runs, piece_rows, n_copies, sums)

    def _hash(self, work: WorkFolder, runner: Runner, former: Former) -> BandRuns:
        """Write the codes and runs of the new rows, and merge runs."""
        n_rows, firsts = self.data.n_rows, self.data.first_rows.tolist()
        work.path(CODES).touch()
        shards = ShardSource.of(self.data.shards).splits()[former.n_shards :]
        new = plan_runs(firsts, former.n_rows, RUN_ROWS)
        files = BandRuns(work, n_rows, former.n_rows, self.codes.n_components, self.codes.bits, self.bands)
        items = [(run, splits_of(run, self.data, shards)) for run in new]
        self._stage("hash", partial(files.write_run, self.data), items, runner, lambda item: item[0].n_rows)
        parts: list[Run] = []
        for runs in (former.runs, new):
            part: Sequence[Run] = runs
            while merges := plan_merges(part):
                self._stage("merge", files.merge, merges, runner, lambda some: some[-1].stop - some[0].first)
                part = merged_runs(part, merges)
            parts += part
        return replace(files, runs=tuple(parts))

    def _stage(self, name: str, task: Any, items: Sequence[Any], runner: Runner, n_rows: Callable[[Any], int]) -> None:
        """Run a stage of tasks that write runs."""
        size = 8 * (self.bands.n_bands + 1)
        with self.report.stage(name, total_tasks=len(items), total_bytes=size * sum(map(n_rows, items))) as stage:
            runner.run(task, items, lambda item, _: stage.advance(rows=n_rows(item), source_bytes=size * n_rows(item)))

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
