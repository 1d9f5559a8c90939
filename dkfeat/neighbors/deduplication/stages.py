"""Stages of tasks on the files of a search: hashes of bands in runs, and pairs; a stage skips what is there already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

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
from dkfeat.neighbors.deduplication.work_files import Counts, FoundPairs, PairFiles, PairTask, Part

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.progress import Progress
    from dkfeat.engine.runners.base import Runner
    from dkfeat.maps._kernel_estimates import Codes
    from dkfeat.neighbors.deduplication.work_files import WorkFolder
    from dkfeat.theory.bands import Bands


_KEY_BYTES = 8
_TASK_KEYS, _PASSED = 1 << 18, 64  # new keys that are compared by a task; as many former keys are passed in that time
_MERGE_STEPS = 3  # of all merges, between which merged files are removed


class Former(NamedTuple):
    """What an earlier search of the first rows left in the work folder; nothing without one."""

    n_rows: int = 0
    runs: tuple[Run, ...] = ()
    n_shards: int = 0
    """Number of shards whose rows stay in the tables."""
    n_paired: int = 0
    """Number of rows whose pairs stay: all of these or, if the tables are made anew, none."""
    counts: Counts = Counts()


@dataclass(frozen=True, slots=True)
class Stages:
    """Stages of a search, which leave files in a work folder."""

    work: WorkFolder
    runner: Runner
    report: Progress

    def run(self, name: str, task: Any, items: Sequence[Part | Run]) -> Counts:
        """Run a stage of tasks; return the sums of their counts, if they have any."""
        total = Counts()

        def done(item: Part | Run, counts: Counts | None) -> None:
            nonlocal total
            total = Counts(*map(add, total, counts or Counts()))
            stage.advance(rows=item.n_rows, source_bytes=_KEY_BYTES * item.n_rows)

        n_bytes = sum(_KEY_BYTES * item.n_rows for item in items)
        with self.report.stage(name, total_tasks=len(items), total_bytes=n_bytes) as stage:
            self.runner.run(task, items, done)
        return total

    def hash_bands(self, data: ShardDataset, codes: Codes, bands: Bands, former: Former) -> BandRuns:
        """Write the codes and runs of the new rows, and merge runs.

        New runs are removed once they are merged, so that there are keys of a third of the rows twice.
        """
        work = self.work
        work.path(CODES).touch()
        files = BandRuns(work, data.n_rows, former.n_paired, codes.n_components, codes.bits, bands)
        new = plan_runs(data.first_rows.tolist(), former.n_rows, RUN_ROWS)
        rounds = plan_merges(new, MOST_RUNS)

        def missing(runs: Sequence[Run], later: Sequence[Sequence[Run]]) -> list[Run]:
            merges = [*chain.from_iterable(later)]
            return [run for run in runs if not any(each.has(run) and work.has(each.name) for each in merges)]

        self.run("hash", partial(files.write_run, data), missing(new, rounds))
        for number, merges in enumerate(rounds):
            left = missing(merges, rounds[number + 1 :])
            for some in filter(None, (left[at::_MERGE_STEPS] for at in range(_MERGE_STEPS))):
                self.run("merge", replace(files, runs=tuple(new)).merge, some)
                for run in set(new) - set(after_merges(new, some)):
                    work.remove(run.name)
            new = after_merges(new, merges)
        left = [*former.runs]  # whose files stay until the record of this search
        for merges in plan_merges(left, MOST_OPEN - len(new)):
            self.run("merge", replace(files, runs=tuple(left)).merge, merges)
            left = after_merges(left, merges)
        return replace(files, runs=(*left, *new))

    def find(
        self, name: str, kind: str, find: Callable[..., FoundPairs], parts: Sequence[Part]
    ) -> tuple[PairFiles, Counts]:
        """Find the pairs of each part, by a function as for `PairTask`; files are named by their kind and the part."""
        pairs = PairFiles(self.work, tuple(f"{kind}-{part.number}" for part in parts))
        return pairs, self.run(name, PairTask(pairs, find), parts)

    def merged(self, pairs: PairFiles) -> PairFiles:
        """Merge files of pairs until a task opens few."""
        while len(pairs.names) > MOST_OPEN:
            parts = cut([*range(0, len(pairs.names), MOST_OPEN), len(pairs.names)])
            self.run("merge pairs", pairs.merge, parts)
            pairs = replace(pairs, names=tuple(map(pairs.merged_name, parts)))
        return pairs


def cut(bounds: Iterable[int], rows: float = 1.0) -> list[Part]:
    """Make a part of each range between two bounds, with so many rows for each number in it.

    Examples
    --------
    >>> cut([0, 2, 3], rows=5)
    [Part(number=0, n_rows=10, start=0, stop=2), Part(number=1, n_rows=5, start=2, stop=3)]
    """
    ranges = enumerate(pairwise(bounds))
    return [Part(number, int((stop - start) * rows), start, stop) for number, (start, stop) in ranges]


def parts_of_bands(files: BandRuns) -> list[Part]:
    """Divide the partitions of all bands into tasks that are not too small; band 0 has the first partitions."""
    n_new, n_all = files.n_rows - files.n_former, files.bands.n_bands * files.n_parts
    step = 1 + _TASK_KEYS // ((n_new + files.n_former // _PASSED) // files.n_parts + 1)
    return cut([*range(0, n_all, step), n_all], n_new / files.n_parts)
