"""Task of one split: read it piece by piece, encode, publish and return the records."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.linalg  # loads its BLAS, so that all processes list the same libraries
import scipy.sparse as sp
from numpy._core import _multiarray_umath as umath  # type: ignore[attr-defined]
from threadpoolctl import threadpool_info

from dkfeat.blocks import BadRow, PackedCodes, RowBlock, Split
from dkfeat.engine.runners.base import until_stopped
from dkfeat.engine.scan import column_shares
from dkfeat.engine.tasks.landmarks import map_of
from dkfeat.errors import InputError
from dkfeat.filesystems.urls import thread_retries
from dkfeat.maps import WEIGHTED
from dkfeat.messages import counted
from dkfeat.sources.base import MOST_LABELS, Source
from dkfeat.sources.pieces import REFUSED, Piece, RejectedRow
from dkfeat.store.commit.publish import existing_entry, publish
from dkfeat.store.manifest.records import ShardEntry
from dkfeat.store.shards import codec as shards
from dkfeat.store.shards.columns import LAYOUTS
from dkfeat.store.storage.base import DATA, META, Storage

if TYPE_CHECKING:
    from dkfeat.maps import FeatureMap


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitResult:
    """Result of a task, small for splits of any size."""

    entries: tuple[ShardEntry, ...]
    """Records of the split's shards, in order."""
    labels: tuple[int | float, ...] | None
    """Sorted labels of the split, or None for more than `MOST_LABELS`."""
    unterminated: tuple[int, ...] | None = None
    """Positions in the split of the files whose last line has no line end; None if they are not text."""
    first_bad: BadRow | None = None
    """First row that was set aside."""
    rounded: BadRow | None = None
    """First row with an integer feature that was rounded."""
    odd: np.ndarray | None = field(default=None, compare=False)
    """Sums of ``Piece.odd``."""
    retries: int = 0
    """Number of retried requests to stores."""
    column_shares: Mapping[int, int] | None = None
    """Shares of columns as `column_shares` computes them for its first rows; None if they do not matter."""
    found: int = field(default=0, compare=False)
    """Number of shards that existed already."""
    environments: tuple[str, ...] = field(default=(), compare=False)
    """Numeric environments on which the features of shards made by this process may depend."""
    files: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """Shards themselves, by name, if only the driver has their storage."""

    @property
    def rows(self) -> int:
        """Number of rows in these shards."""
        return sum(entry.rows for entry in self.entries)

    @property
    def n_bad_rows(self) -> int:
        """Number of rows that were set aside."""
        return sum(entry.n_bad_rows for entry in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Common data of the tasks of a run, sent to each worker once."""

    run_in_driver: ClassVar[Callable[..., None] | None] = None
    """Method of a job whose tasks are not for workers, called with splits, a runner and a function of a split and its
    result: it processes the splits in this thread, each by tasks of its own on the runner."""

    source: Source
    """Source whose options are resolved."""
    storage: Storage
    """Storage of the target."""
    spec: Mapping[str, Any]
    """Settings that determine the shards' bytes."""
    spec_fp: str
    """Fingerprint of `spec`."""
    run_id: str
    """Id of the run for the storage; not part of any result."""
    is_resumed: bool = True
    """False if no earlier run can have made shards; in an object store a task then looks for none before it writes."""

    def encoder(self) -> Callable[[Any], Any]:
        """Return the function from rows of a block to the features of their shard; each process loads its map once."""
        fitted = map_of(self.spec, self.spec_fp, self.storage)
        return fitted.encode if self.spec["output"]["layout"] == "codes" else fitted.transform

    @property
    def map(self) -> FeatureMap | None:
        """Map of the features that the tasks make; None for rows that are encoded already."""
        return map_of(self.spec, self.spec_fp, self.storage) if self.source.kind != "shards" else None

    def select(self, split: Split, piece: Piece) -> Piece:  # noqa: ARG002 - for subclasses
        """Return the piece with those of its rows from which its shard is made."""
        return piece

    def block(self, split: Split, piece: Piece, encoded: Any, before: Sequence[int]) -> RowBlock:  # noqa: ARG002 - for subclasses
        """Return the rows of the piece's shard; `before` has the rows of each file of the split in earlier pieces."""
        return replace(piece.block, X=encoded, y=piece.block.y if self.keeps_labels else None)

    def write_text(self, split: Split, piece: Piece) -> shards.TextFile | None:  # noqa: ARG002 - for subclasses
        """Write the file of text of the piece's shard, and return its record; None if it has none."""
        return None

    def counts(self, piece: Piece, encoded: Any) -> dict[str, Any]:
        """Return the numbers of nonzeros of the source's rows, 0 if unknown, and of rows without features."""
        return {"nnz": int(getattr(piece.block.X, "nnz", 0)), "n_empty": count_empty(encoded)}

    @property
    def weighs_columns(self) -> bool:
        """True if the features are those of the min-max kernel of rows of numbers whose columns no encoder scales."""
        is_minmax = self.spec["map"]["map"] in WEIGHTED and self.spec["output"]["layout"] in LAYOUTS
        return is_minmax and self.source.encoder is None and self.source.kind != "shards"

    @property
    def is_exact(self) -> bool:
        """True if the features have equal bits on every machine: codes, or rows of ones at the places of codes."""
        output = self.spec["output"]
        return output["layout"] == "codes" or not output.get("values", True)

    @property
    def environments(self) -> tuple[str, ...]:
        """Numeric environments on which the features that this process makes may depend, unless they are exact."""
        return (numeric_env(),)

    @property
    def keeps_labels(self) -> bool:
        """True if shards have the column of labels."""
        return True

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> SplitResult:
        """Process one split, see `run_split`."""
        return run_split(self, split, stopped)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturningJob(Job):
    """Job whose shards are returned to the driver, which has the storage in its memory; made by `of`."""

    metadata: Mapping[str, bytes]
    """Spec, lock and files of map and encoder, by name."""

    @classmethod
    def of(cls, storage: Storage, **facts: Any) -> ReturningJob:
        """Make the job of a batch that has begun."""
        names = [f"{META}/{name}" for name in storage.list(META)]
        return cls(storage=storage, metadata={name: storage.read(name) for name in names}, **facts)

    @property
    def map(self) -> FeatureMap:
        """Map of the features, whose files this puts into the memory of the process."""
        for name, data in self.metadata.items():
            self.storage.replace(name, data)
        return map_of(self.spec, self.spec_fp, self.storage)

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> SplitResult:
        """Process one split in the memory of this process, which keeps no shards."""
        self.map  # noqa: B018 - puts files there
        result = run_split(self, split, stopped)
        files = {}
        for name in (f"{DATA}/{entry.name}" for entry in result.entries):
            files[name] = self.storage.read(name)
            self.storage.remove(name)
        return replace(result, files=files)


def run_split(job: Job, split: Split, stopped: Callable[[], bool] = lambda: False) -> SplitResult:
    """Convert a split to shards.

    A piece whose complete shard exists is read, but not written again, and is encoded only if the map rejected rows of
    it. Therefore the call can be repeated at any time, also on several workers at once. One piece is in memory at a
    time.

    Parameters
    ----------
    job : Job
    split : Split
    stopped : callable
        Called between pieces; True stops the task.

    Returns
    -------
    result : SplitResult

    Raises
    ------
    Stopped
        When `stopped()` is true; published shards stay and are reused.
    dkfeat.errors.DkfeatError
        Errors of source, map and storage.
    """
    retries_before = thread_retries()
    encode = job.encoder()
    before = [0] * len(split.files)
    entries: list[ShardEntry] = []
    found = 0
    labels: tuple[int | float, ...] | None = ()
    first_bad: BadRow | None = None
    unterminated: tuple[int, ...] | None = None
    rounded: BadRow | None = None
    odd: np.ndarray | None = None
    shares = None
    for piece in until_stopped(job.source.read(split, job.spec["split"]["max_piece_rows"]), stopped):
        entry, piece, existed = publish_piece(job, split, job.select(split, piece), encode, before)
        found += existed
        entries.append(entry if piece.lines is None else replace(entry, lines=piece.lines))
        before = [sum(pair) for pair in zip(before, entry.rows_by_file or (entry.rows,), strict=True)]
        if job.keeps_labels:
            labels = merge_labels(labels, _labels(piece.block.y, job.source))
        if len(entries) == 1 and job.weighs_columns:
            shares = column_shares(piece.block.X)
        first_bad = first_bad or next(iter(piece.bad_rows), None)
        unterminated, rounded = piece.unterminated, piece.rounded
        odd = piece.odd if odd is None or piece.odd is None else odd + piece.odd
        del piece  # before the next one is read
    return SplitResult(
        entries=tuple(entries),
        labels=labels,
        unterminated=unterminated,
        first_bad=first_bad,
        rounded=rounded,
        odd=odd,
        retries=thread_retries() - retries_before,
        column_shares=shares,
        found=found,
        environments=() if found == len(entries) or job.is_exact else job.environments,
    )


def numeric_env() -> str:
    """Describe what the last bits of features depend on: BLAS with its threads, the loops of NumPy, and the FFT.

    dkfeat's own loops give the same bits on every processor.

    Examples
    --------
    >>> numeric_env()  # doctest: +SKIP
    'x86_64, openblas SkylakeX with 1 thread, numpy X86_V3 X86_V4, scipy.fft 1.17.1'
    """
    loops = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name]]
    blas = {
        f"{pool['internal_api']} {pool.get('architecture', '')}".strip()
        + f" with {counted(pool['num_threads'], 'thread')}"
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }
    parts = [platform.machine(), *sorted(blas), " ".join(["numpy", *loops]), f"scipy.fft {scipy.__version__}"]
    return ", ".join(parts)


def publish_piece(
    job: Job, split: Split, piece: Piece, encode: Callable[[Any], Any], before: Sequence[int]
) -> tuple[ShardEntry, Piece, bool]:
    """Return the record of the piece's shard, the piece without rejected rows, and True if the shard existed."""
    output = job.spec["output"]
    name = shards.shard_name(job.spec_fp, split, piece.number)
    identity: dict[str, Any] = {
        "spec_fp": job.spec_fp,
        "split": split.number,
        "piece": piece.number,
        "last": piece.last,
        "range": (piece.start, piece.stop),
        "source_sha256": piece.source_sha256,
    }
    looks = job.is_resumed or not job.storage.is_remote
    existing = existing_entry(job.storage, name, identity, run_id=job.run_id) if looks else None
    if existing is not None and not any(reason == REFUSED for _, reason, _ in existing.bad_rows):
        return existing, piece, True
    encoded, piece = encode_accepted(encode, job.source, split, piece)
    if existing is not None:
        return existing, piece, True
    result = job.block(split, piece, encoded, before)
    footer = shards.ShardFooter(
        **identity,
        source=split.file.name,
        rows=result.n_rows,
        **job.counts(piece, encoded),
        versions=shards.versions(),
        rows_by_file=piece.rows_by_file,
        bad_rows=piece.bad_rows,
        text=job.write_text(split, piece),
    )
    shard = shards.encode_shard(output["layout"], result, footer, values=output.get("values", True))
    entry = publish(job.storage, name, shard, run_id=job.run_id)
    return entry, piece, entry.sha256 != shard.sha256


def count_empty(encoded: Any) -> int:
    """Count rows without features: null codes, no stored columns, or only zeros."""
    if isinstance(encoded, PackedCodes):
        return int(np.count_nonzero(encoded.empty))
    if sp.issparse(encoded):
        return int(np.count_nonzero(np.diff(encoded.indptr) == 0))
    return int(np.count_nonzero(~encoded.any(axis=1)))


def merge_labels(
    one: tuple[int | float, ...] | None, other: tuple[int | float, ...] | None
) -> tuple[int | float, ...] | None:
    """Return the sorted union of two label sets; None if it, or one of them, has more than `MOST_LABELS` labels.

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
    return both if len(both) <= MOST_LABELS else None


def _labels(y: np.ndarray, source: Source) -> tuple[int | float, ...] | None:
    """Return the labels of rows, ascending; None for too many, or for words that are not among the classes."""
    found = np.unique(source.numbered(y)).tolist()
    has_others = y.dtype == object and len(source.classes or ()) in found
    return None if len(found) > MOST_LABELS or has_others else tuple(found)


MOST_REJECTED = 1 << 13
"""Maximum number of rejected rows of one piece; with more, the map is considered wrong, not the rows."""

_ROWS_AT_A_TIME = 1024
_CELL = re.compile(r" at row [\d,]+, column [\d,]+ \(counted from 0\)")
_ROW = re.compile(r"\brow [\d,]+ \(counted from 0\)")


def encode_accepted(encode: Callable[[Any], Any], source: Source, split: Split, piece: Piece) -> tuple[Any, Piece]:
    """Encode a piece without the rows that the map rejects.

    `encode` rejects a row by an `InputError` with its number; the rejection must depend on that row alone.

    Parameters
    ----------
    encode : callable
        From the rows of a block to their features.
    source : Source
        With ``on_bad_row="raise"`` the first rejected row is an error with its position in the source.
    split : Split
        Split of the piece.
    piece : Piece
        Piece to encode.

    Returns
    -------
    encoded
        Result of `encode` for the other rows.
    piece : Piece
        Piece with the other rows; the rejected ones are among its bad rows.

    Raises
    ------
    dkfeat.errors.DkfeatError
        If a row is rejected and the source has ``on_bad_row="raise"``, or too many rows are rejected.
    """
    try:
        return encode(piece.block.X), piece
    except InputError as error:
        if error.row is None:
            raise
        if source.on_bad_row == "raise":
            first = RejectedRow(error.row, error.column, _reason(encode, piece.block.X, error.row))
            raise source.rejected_row_error(split, piece, first) from None
    found = rejected_rows(encode, piece.block.X)
    left = piece.without([rejected.row for rejected in found], source.rejected_rows(split, piece, found))
    return encode(left.block.X), left


def rejected_rows(encode: Callable[[Any], Any], X: Any) -> list[RejectedRow]:
    """Find all rows that `encode` rejects, in order.

    Raises
    ------
    InputError
        If more than `MOST_REJECTED` rows are rejected, or an error of `encode` has no row number.

    Examples
    --------
    >>> import numpy as np
    >>> def encode(X):
    ...     for row in np.flatnonzero(X[:, 0] < 0):
    ...         raise InputError("a negative value", row=int(row), column=0)
    >>> rejected_rows(encode, np.array([[1.0], [-1.0], [2.0], [-2.0]]))
    [RejectedRow(row=1, column=0, reason='a negative value'), RejectedRow(row=3, column=0, reason='a negative value')]
    """
    found: list[RejectedRow] = []
    for stop in range(_ROWS_AT_A_TIME, X.shape[0] + _ROWS_AT_A_TIME, _ROWS_AT_A_TIME):
        start = stop - _ROWS_AT_A_TIME
        while start < X.shape[0]:
            try:
                encode(X[start:stop])
                break
            except InputError as error:
                if error.row is None:
                    raise
                row = start + error.row
                found.append(RejectedRow(row, error.column, _reason(encode, X, row)))
                start = row + 1
        if len(found) > MOST_REJECTED:
            raise InputError(
                f"the map refuses more than {MOST_REJECTED:,} rows of one piece, the first with this message: "
                f"{found[0].reason}; choose another map, or lower blocksize if so many are to be set aside"
            )
    return found


def _reason(encode: Callable[[Any], Any], X: Any, row: int) -> str:
    """Return the reason for the rejection of a row, as text that does not depend on its block."""
    try:
        encode(X[row : row + 1])
    except InputError as error:
        return _ROW.sub("the row", _CELL.sub("", str(error)))
    raise InputError(f"the map refuses row {row:,} of a block, but accepts it alone")
