"""Search for duplicates: rows that share bands are compared, and pairs joined to groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dkfeat.engine.scan import run_stage
from dkfeat.errors import ConfigError
from dkfeat.neighbors.deduplication.groups import BLOCK_ROWS, Groups, count_in_blocks
from dkfeat.neighbors.deduplication.pairs import STANDARD_ERRORS, StoredRows, compare_exactly, find_copies, find_pairs
from dkfeat.neighbors.deduplication.stages import Former, Stages, cut, parts_of_bands
from dkfeat.neighbors.deduplication.work_files import MAX_ROWS, Counts, PairFiles
from dkfeat.neighbors.exact import RowsInMemory
from dkfeat.neighbors.scan import sampled_map
from dkfeat.theory.bands import sharing_probability

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.progress import Progress
    from dkfeat.engine.runners.base import Runner
    from dkfeat.maps._kernel_estimates import Codes
    from dkfeat.neighbors.deduplication.runs import Run
    from dkfeat.neighbors.deduplication.work_files import WorkFolder
    from dkfeat.neighbors.exact import Rows
    from dkfeat.theory.bands import Bands


_EXACT_PAIRS = 1 << 18  # pairs of a task that compares exactly, and at most those of one block of rows more


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
        n_rows, n_new = self.data.n_rows, self.data.n_rows - former.n_paired
        stages, groups = Stages(work, runner, self.report), Groups(work, n_rows, former.n_rows, self.keep_earlier)
        files = stages.hash_bands(self.data, self.codes, self.bands, former)
        similarities = self.codes.similarity_of_counts(np.arange(self.codes.n_components + 1))
        same = partial(find_copies, files, replace(groups, n_rows=former.n_paired), float(similarities[-1]))
        copies, _ = stages.find("find copies", "same", same, cut(range(files.n_parts + 1), n_new / files.n_parts))
        n_copies = groups.mark_copies(copies)
        least = self.threshold
        if self.source is not None:
            error = self.data.map.expected_error_at(self.threshold)
            least = max(least - STANDARD_ERRORS * float(0 if error is None else error), 1e-9)
        least_count = int(np.searchsorted(similarities, least))
        compare = partial(find_pairs, files, groups, similarities, least_count)
        near, counts = stages.find("compare", "near", compare, parts_of_bands(files))
        pairs = stages.merged(PairFiles(work, copies.names + near.names))
        if self.source is not None:
            pairs = stages.merged(self._compare_exactly(pairs, self.source, stages))
        with self.report.stage("group", total_tasks=1, total_bytes=1) as stage:
            sizes, piece_rows = groups.find(pairs)
            stage.advance(rows=n_new, source_bytes=1)
        counts = Counts(*map(add, former.counts, counts))
        return Found(pairs, groups, files.runs, sizes, piece_rows, n_copies, counts)

    @property
    def _expected_recall(self) -> float:
        return float(sharing_probability(self.threshold, *self.bands, self.codes.chance))

    def _compare_exactly(self, candidates: PairFiles, source: Rows, stages: Stages) -> PairFiles:
        """Return the pairs among the candidates whose exact similarity is at least the threshold."""
        n_rows = self.data.n_rows
        wanted, n_pairs = np.zeros(n_rows, np.bool_), np.zeros(n_rows // BLOCK_ROWS + 1, np.int64)
        for some in candidates.chunks():
            lower, higher = some.rows
            wanted[lower] = wanted[higher] = True
            count_in_blocks(n_pairs, higher)
        bounds = np.unique(self.data.first_rows)
        rows = StoredRows(stages.work, self.data.map.n_features_in_, bounds[:-1])
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
                stages.runner,
                self.report,
                lambda split, _: sum(entry.rows for _, entry in source.pieces[split.number]),
            )
        before = np.cumsum(n_pairs) - n_pairs
        firsts = BLOCK_ROWS * np.unique(before // _EXACT_PAIRS, return_index=True)[1]
        compare = partial(compare_exactly, candidates, rows, sampled_map(self.data), self.threshold)
        return stages.find("compare exactly", "exact", compare, cut([*firsts.tolist(), n_rows]))[0]
