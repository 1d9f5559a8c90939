"""Stages of a search for duplicates; a stage skips what is in the work folder already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dkfeat.blocks import SourceFile, Split
from dkfeat.io.sources.shards import ShardSource
from dkfeat.neighbors.buckets import BandFiles, FindCopies, FindPairs, WriteKeys
from dkfeat.neighbors.copies.groups import Groups
from dkfeat.neighbors.copies.pairs import Counts, PairFiles
from dkfeat.neighbors.copies.result import Facts
from dkfeat.theory.bands import sharing_probability

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.progress import Progress
    from dkfeat.engine.runners.local import Runner
    from dkfeat.maps._sampled import SampledMap
    from dkfeat.neighbors.buckets import FindTask
    from dkfeat.neighbors.copies.work import WorkFolder
    from dkfeat.theory.bands import Bands


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
class Search:
    """Search for the pairs of rows whose estimated similarity is at least a threshold."""

    data: ShardDataset
    fitted: SampledMap
    threshold: float
    bands: Bands
    report: Progress

    @property
    def settings(self) -> dict[str, Any]:
        """Plain values that determine the result."""
        return {
            "manifest": self.data.manifest.sha256,
            "threshold": self.threshold,
            "bands": list(self.bands),
            "verify": "codes",
        }

    def facts(self, found: Found, n_pairs: int) -> Facts:
        """Return the settings and numbers of a search that has ended, with the number of different pairs."""
        n_groups, n_kept = found.groups.count()
        return Facts(
            shards=self.data.shards.storage.url,
            threshold=self.threshold,
            verify="codes",
            bands=self.bands,
            expected_recall=float(sharing_probability(self.threshold, *self.bands, self.fitted.chance)),
            n_rows=self.data.n_rows,
            n_copies=found.n_copies,
            n_pairs=n_pairs,
            n_groups=n_groups,
            n_kept=n_kept,
            n_candidates=found.near.n_candidates,
            n_compared=found.near.n_compared,
        )

    def run(self, work: WorkFolder, runner: Runner) -> Found:
        """Run all stages."""
        files = BandFiles.of(work, self.data.n_rows, self.fitted, self.bands)
        self._write_keys(files, runner)
        n_parts = 1 << files.part_bits
        similarities = self.fitted.similarity_of_counts(np.arange(self.fitted.n_components + 1))
        firsts = files.first_rows(self.data)
        copies = PairFiles(work, tuple(f"copies-{part}" for part in range(n_parts)))
        n_copies = self._find("find copies", FindCopies(files, firsts, copies, similarities), runner).n_pairs
        self._mark_copies(files, copies)
        names = (f"near-{band}-{part}" for band in range(self.bands.n_bands) for part in range(n_parts))
        near = PairFiles(work, tuple(names))
        least_count = int(np.searchsorted(similarities, self.threshold))
        counts = self._find("compare", FindPairs(files, firsts, near, similarities, least_count), runner)
        pairs, groups = PairFiles(work, copies.names + near.names), Groups(work, self.data.n_rows)
        with self.report.stage("group", total_tasks=1, total_bytes=1) as stage:
            piece_rows = groups.find(pairs)
            stage.advance(rows=self.data.n_rows, source_bytes=1)
        return Found(pairs, groups, piece_rows, n_copies, counts)

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
