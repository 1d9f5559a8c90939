"""What a task does: read a split piece by piece, encode, publish, and hand back the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from dkfeat.blocks import PackedCodes
from dkfeat.engine.landmarks import map_of
from dkfeat.engine.refusals import accepted
from dkfeat.engine.runners import Stopped
from dkfeat.io import commit, shards
from dkfeat.io.quarantine import REFUSED
from dkfeat.io.retries import made_again

if TYPE_CHECKING:
    from dkfeat.blocks import Split
    from dkfeat.io.entries import ShardEntry
    from dkfeat.io.quarantine import BadRow
    from dkfeat.io.source import Piece, Source
    from dkfeat.io.storage import Storage

__all__ = ["MAX_LABELS", "Job", "SplitResult", "merge_labels", "run_split"]

MAX_LABELS = 10_000
"""Labels beyond this number are not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitResult:
    """What a task hands back: small, whatever the split holds."""

    entries: tuple[ShardEntry, ...]
    """Records of the split's shards, in order."""
    labels: tuple[int | float, ...] | None
    """Sorted labels that occur in it, or None beyond `MAX_LABELS`."""
    first_bad: BadRow | None = None
    """First row that was set aside."""
    retries: int = 0
    """Requests to stores that failed and were made again."""
    found: int = field(default=0, compare=False)
    """Shards that were there already."""

    @property
    def rows(self) -> int:
        """Rows in these shards."""
        return sum(entry.rows for entry in self.entries)

    @property
    def n_bad_rows(self) -> int:
        """Rows that were set aside."""
        return sum(entry.n_bad_rows for entry in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that the tasks of a run have in common; sent to each worker once."""

    source: Source
    """Settled."""
    storage: Storage
    """Where shards go."""
    spec: Mapping[str, Any]
    """Decides the shards' bytes."""
    spec_fp: str
    """Fingerprint of `spec`."""
    run_id: str
    """Names the run to the storage; not part of any result."""

    def encoder(self) -> Callable[[Any], Any]:
        """Give what turns the rows of a block into what their shard holds; what it needs is loaded once a process."""
        fitted = map_of(self.spec["map"], self.storage)
        return fitted.encode if self.spec["output"]["layout"] == "codes" else fitted.transform

    def kept(self, split: Split, piece: Piece, before: Sequence[int]) -> Mapping[str, Any]:  # noqa: ARG002 - for others
        """Columns kept beside; `before` are the rows of each of the split's files in the pieces before."""
        return piece.block.kept

    @property
    def keeps_labels(self) -> bool:
        """Whether shards have the column of labels."""
        return True

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> SplitResult:
        """Work on one split, see `run_split`."""
        return run_split(self, split, stopped)


def run_split(job: Job, split: Split, stopped: Callable[[], bool] = lambda: False) -> SplitResult:
    """Turn a split into shards.

    Pieces whose shard exists and is whole are read over but neither encoded nor written, so a call may be repeated, at
    any time and on several workers at once. One piece is in memory at a time.

    Parameters
    ----------
    job : Job
    split : Split
    stopped : callable
        Asked between pieces whether to give up.

    Returns
    -------
    result : SplitResult

    Raises
    ------
    Stopped
        Once `stopped()` is true; what is published stays and is found again.
    dkfeat.errors.DkfeatError
        As source, map and storage raise them.
    """
    retries = made_again()
    encode = job.encoder()
    before = [0] * len(split.files)
    entries: list[ShardEntry] = []
    found = 0
    labels: tuple[int | float, ...] | None = ()
    first_bad: BadRow | None = None
    pieces = job.source.read(split, job.spec["split"]["max_piece_rows"])
    while (piece := next(pieces, None)) is not None:
        if stopped():
            raise Stopped
        entry, piece, was_there = _publish(job, split, piece, encode, before)
        found += was_there
        entries.append(replace(entry, lines=piece.lines))
        before = [sum(pair) for pair in zip(before, entry.rows_by_file or (entry.rows,), strict=True)]
        if job.keeps_labels:
            labels = merge_labels(labels, _labels(piece.block.y))
        first_bad = first_bad or next(iter(piece.bad_rows), None)
        del piece  # before the next one is read
    again = made_again() - retries
    return SplitResult(entries=tuple(entries), labels=labels, first_bad=first_bad, retries=again, found=found)


def _publish(
    job: Job, split: Split, piece: Piece, encode: Callable[[Any], Any], before: Sequence[int]
) -> tuple[ShardEntry, Piece, bool]:
    """Give the record of the piece's shard, the piece without the rows that the map refuses, and if it was there."""
    output = job.spec["output"]
    name = shards.shard_name(job.spec_fp, split, piece.number)
    existing = commit.existing_entry(
        job.storage,
        name,
        job.spec_fp,
        split.number,
        piece.number,
        run_id=job.run_id,
        span=(piece.start, piece.stop),
        source_sha256=piece.source_sha256,
        last=piece.last,
    )
    if existing is not None and not any(reason == REFUSED for _, reason, _ in existing.bad_rows):
        return existing, piece, True
    encoded, piece = accepted(encode, job.source, split, piece)
    if existing is not None:
        return existing, piece, True
    block = piece.block
    footer = shards.ShardFooter(
        spec_fp=job.spec_fp,
        split=split.number,
        piece=piece.number,
        last=piece.last,
        source=split.file.name,
        range=(piece.start, piece.stop),
        source_sha256=piece.source_sha256,
        rows=block.n_rows,
        nnz=int(getattr(block.X, "nnz", 0)),
        n_empty=_count_empty(block.X if output["layout"] == "predictions" else encoded),
        versions=shards.versions(),
        rows_by_file=piece.rows_by_file,
        bad_rows=piece.bad_rows,
    )
    shard = shards.encode_shard(
        layout=output["layout"],
        encoded=encoded,
        labels=block.y if job.keeps_labels else None,
        label_offsets=block.label_offsets,
        qid=block.qid,
        weight=block.weight,
        kept=job.kept(split, piece, before),
        values=output.get("values", True),
        footer=footer,
    )
    return commit.publish(job.storage, name, shard.data, shard.entry(name), run_id=job.run_id), piece, False


def _count_empty(encoded: Any) -> int:
    """Count rows without features: null codes, no stored columns, or zeros alone; what the source held is not asked."""
    if isinstance(encoded, PackedCodes):
        return int(np.count_nonzero(encoded.empty))
    if issparse(encoded):
        return int(np.count_nonzero(np.diff(encoded.indptr) == 0))
    return int(np.count_nonzero(~encoded.any(axis=1)))


def merge_labels(
    one: tuple[int | float, ...] | None, other: tuple[int | float, ...] | None
) -> tuple[int | float, ...] | None:
    """Sorted union of two label sets; None, which stands for too many, stays None.

    Examples
    --------
    >>> merge_labels((1, 3), (2, 3))
    (1, 2, 3)
    >>> merge_labels((1,), None) is None
    True
    """
    if one is None or other is None:
        return None
    both = one if set(other) <= set(one) else tuple(sorted({*one, *other}))
    return both if len(both) <= MAX_LABELS else None


def _labels(y: np.ndarray) -> tuple[int | float, ...] | None:
    found = np.unique(y)
    return tuple(found.tolist()) if len(found) <= MAX_LABELS else None
