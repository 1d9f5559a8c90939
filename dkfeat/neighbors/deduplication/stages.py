"""Stages of a search for duplicates; a stage skips what is in the work folder already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dkfeat.engine.scan import run_stage
from dkfeat.errors import ConfigError
from dkfeat.neighbors.deduplication.groups import BLOCK_ROWS, Groups, count_in_blocks
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
    MOST_OPEN,
    MOST_RUNS,
    RUN_ROWS,
    BandRuns,
    Run,
    after_merges,
    plan_merges,
    plan_runs,
)
from dkfeat.neighbors.deduplication.work_files import MAX_ROWS, Counts, PairFiles, Part
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


_KEY_BYTES = 8
_TASK_KEYS, _PASSED = 1 << 18, 64  # new keys that are compared by a task; as many former keys are passed in that time
_MERGE_STEPS = 3  # of all merges, between which merged files are removed
_EXACT_PAIRS = 1 << 18  # pairs of a task that compares exactly, and at most those of one block of rows more


class Former(NamedTuple):
    """What an earlier search of the first rows left in the work folder; nothing without one."""

    n_rows: int = 0
    n_shards: int = 0
    runs: tuple[Run, ...] = ()
    counts: Counts = Counts()


class Found(NamedTuple):
    """Pairs of new rows, and groups and runs of all rows, in a work folder."""

    pairs: PairFiles
    groups: Groups
    runs: tuple[Run, ...]
    sizes: dict[str, int]
    """Numbers of groups of several rows and of kept rows, and of rows in the largest group."""
    piece_rows: int
    """Number of rows whose pairs make a file of moderate size."""
    n_copies: int
    counts: Counts
    """Numbers of pairs in all bands, for all rows."""


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

    def __post_init__(self) -> None:
        if self.data.n_rows > MAX_ROWS:
            raise ConfigError(
                f"{self.data.shards.storage.url} has {self.data.n_rows:,} rows, but at most {MAX_ROWS:,} are compared; "
                "divide the data set, for example by dates"
            )

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
            **found.sizes,
            **found.counts._asdict(),
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
        files = self.hash_bands(work, runner, former)
        similarities = self.codes.similarity_of_counts(np.arange(self.codes.n_components + 1))
        part_rows = n_new // files.n_parts
        parts = [Part(number, part_rows, number, number + 1) for number in range(files.n_parts)]
        copies = PairFiles(work, tuple(f"same-{part.number}" for part in parts))
        self.stage("find copies", FindCopies(copies, files, groups, float(similarities[-1])), parts, runner)
        n_copies = groups.mark_copies(copies)
        parts = self.parts_of_bands(files)
        near = PairFiles(work, tuple(f"near-{part.number}" for part in parts))
        compare = FindPairs(near, files, groups, similarities, int(np.searchsorted(similarities, self._least_estimate)))
        most = MAX_COMPARISONS * n_rows
        self.report.note(f"{n_copies:,} copies; of other rows, at most {most:,} pairs are compared for each band")
        counts = self.stage("compare", compare, parts, runner)
        pairs = self.merged(PairFiles(work, copies.names + near.names), runner)
        if self.source is not None:
            pairs = self.merged(self._compare_exactly(pairs, self.source, runner), runner)
        with self.report.stage("group", total_tasks=1, total_bytes=1) as stage:
            sizes, piece_rows = groups.find(pairs)
            stage.advance(rows=n_new, source_bytes=1)
        counts = Counts(*map(add, former.counts, counts))
        return Found(pairs, groups, files.runs, sizes, piece_rows, n_copies, counts)

    def hash_bands(self, work: WorkFolder, runner: Runner, former: Former) -> BandRuns:
        """Write the codes and runs of the new rows, and merge runs.

        New runs are removed once they are merged, so that there are keys of a third of the rows twice.
        """
        n_rows, firsts = self.data.n_rows, self.data.first_rows.tolist()
        work.path(CODES).touch()
        files = BandRuns(work, n_rows, former.n_rows, self.codes.n_components, self.codes.bits, self.bands)
        new = plan_runs(firsts, former.n_rows, RUN_ROWS)
        rounds = plan_merges(new, MOST_RUNS)

        def missing(runs: Sequence[Run], later: Sequence[Sequence[Run]]) -> list[Run]:
            merges = [*chain.from_iterable(later)]
            return [run for run in runs if not any(each.has(run) and work.has(each.name) for each in merges)]

        self.stage("hash", partial(files.write_run, self.data), missing(new, rounds), runner)
        for number, merges in enumerate(rounds):
            left = missing(merges, rounds[number + 1 :])
            for some in filter(None, (left[at::_MERGE_STEPS] for at in range(_MERGE_STEPS))):
                self.stage("merge", replace(files, runs=tuple(new)).merge, some, runner)
                for run in set(new) - set(after_merges(new, some)):
                    work.remove(run.name)
            new = after_merges(new, merges)
        left = [*former.runs]  # whose files stay until the record of this search
        for merges in plan_merges(left, MOST_OPEN - len(new)):
            self.stage("merge", replace(files, runs=tuple(left)).merge, merges, runner)
            left = after_merges(left, merges)
        return replace(files, runs=(*left, *new))

    def merged(self, pairs: PairFiles, runner: Runner) -> PairFiles:
        """Merge files of pairs until a task opens few."""
        while len(pairs.names) > MOST_OPEN:
            bounds = enumerate(pairwise([*range(0, len(pairs.names), MOST_OPEN), len(pairs.names)]))
            parts = [Part(number, 1, start, stop) for number, (start, stop) in bounds]
            self.stage("merge pairs", pairs.merge, parts, runner)
            pairs = replace(pairs, names=tuple(map(pairs.merged_name, parts)))
        return pairs

    def parts_of_bands(self, files: BandRuns) -> list[Part]:
        """Divide the partitions of all bands into tasks that are not too small; band 0 has the first partitions."""
        n_rows, n_all = files.n_rows - files.n_former, self.bands.n_bands * files.n_parts
        cost = (n_rows + files.n_former // _PASSED) // files.n_parts
        bounds = [*range(0, n_all, 1 + _TASK_KEYS // (cost + 1)), n_all]
        parts = enumerate(pairwise(bounds))
        return [Part(number, (stop - at) * n_rows // files.n_parts, at, stop) for number, (at, stop) in parts]

    @property
    def _expected_recall(self) -> float:
        return float(sharing_probability(self.threshold, *self.bands, self.codes.chance))

    @property
    def _least_estimate(self) -> float:
        if self.source is None:
            return self.threshold
        error = self.data.map.expected_error_at(self.threshold)
        return max(self.threshold - STANDARD_ERRORS * float(0 if error is None else error), 1e-9)

    def stage(self, name: str, task: Any, items: Sequence[Part | Run], runner: Runner) -> Counts:
        """Run a stage of tasks; return the sums of their counts, of those that find pairs."""
        total = Counts()

        def done(item: Part | Run, counts: Counts | None) -> None:
            nonlocal total
            total = Counts(*map(add, total, counts or Counts()))
            stage.advance(rows=item.n_rows, source_bytes=_KEY_BYTES * item.n_rows)

        n_bytes = sum(_KEY_BYTES * item.n_rows for item in items)
        with self.report.stage(name, total_tasks=len(items), total_bytes=n_bytes) as stage:
            runner.run(task, items, done)
        return total

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
            parts.append(Part(number, stop - start, start, stop))
        pairs = PairFiles(work, tuple(f"exact-{part.number}" for part in parts))
        task = CompareExactly(pairs, candidates, rows, sampled_map(self.data), self.threshold)
        self.stage("compare exactly", task, parts, runner)
        return pairs
