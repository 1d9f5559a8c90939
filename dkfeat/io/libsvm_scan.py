"""The one cheap pass over a LIBSVM source that settles what a single split cannot know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from dkfeat.blocks import SourceFile, Split
from dkfeat.compiled import libsvm as loop
from dkfeat.errors import InputError
from dkfeat.io.files import check_unchanged
from dkfeat.io.libsvm_parser import NO_LIMIT, open_split

if TYPE_CHECKING:
    from dkfeat.io.libsvm import LibsvmSource

__all__ = ["Scan", "SplitScan", "are_integers", "scan_pieces"]

_MOST_LABELS = 10_000
_MOST_BINS = 1 << 16
_EXACT_INTEGERS = float(2**53)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitScan:
    """What a scan found in one split."""

    n_rows: int
    nnz: int
    """Values that are stored: zeros are not."""
    n_empty_rows: int
    """Rows without a stored value."""
    min_index: int | None
    """Lowest index written, also of zeros; None if there is none."""
    max_index: int | None
    """Highest index written."""
    labels: tuple[float, ...] | None
    """Sorted label set; None beyond 10,000 labels."""
    has_integer_labels: bool
    """Every label is an integer below 2**53 in magnitude."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a scan found in a whole source; settles the options that were left open."""

    n_features: int
    """Columns of the source, at least 1: as given, or up to the highest index written."""
    zero_based: bool
    """As given, or whether any index is 0."""
    label_dtype: str
    """As given, or "int64" if every label, found or declared, is an integer, else "float64"."""
    labels: tuple[float, ...] | None
    """Sorted label set, of int for integer labels; None beyond 10,000 labels."""
    n_rows: int
    nnz: int
    n_empty_rows: int
    rows_per_split: tuple[int, ...]
    """Rows of each split, in the order of `splits`."""
    files: tuple[SourceFile, ...]
    splits: tuple[Split, ...]

    @classmethod
    def merge(
        cls,
        source: LibsvmSource,
        files: Sequence[SourceFile],
        splits: Sequence[Split],
        parts: Sequence[SplitScan],
    ) -> Self:
        """Join what was found in all splits of a source; `parts` are in the order of `splits`."""
        lowest = min((part.min_index for part in parts if part.min_index is not None), default=1)
        highest = max((part.max_index for part in parts if part.max_index is not None), default=0)
        zero_based = lowest == 0 if source.zero_based == "auto" else source.zero_based
        n_features = source.n_features
        if n_features is None:
            n_features = max(highest + zero_based, 1)
            if n_features > 2 * NO_LIMIT - 1:
                message = f"the highest index of the source is {highest:,}, but a source has at most 2^63 - 1 features"
                raise InputError(message)
        label_dtype = source.label_dtype
        if label_dtype == "auto":
            declared = are_integers(np.array(source.labels or (), np.float64))
            label_dtype = "int64" if declared and all(part.has_integer_labels for part in parts) else "float64"
        labels = None
        if all(part.labels is not None for part in parts):
            union = sorted({label for part in parts for label in part.labels or ()})
            kind = int if label_dtype == "int64" else float
            labels = tuple(kind(label) for label in union) if len(union) <= _MOST_LABELS else None
        return cls(
            n_features=n_features,
            zero_based=zero_based,
            label_dtype=label_dtype,
            labels=labels,
            n_rows=sum(part.n_rows for part in parts),
            nnz=sum(part.nnz for part in parts),
            n_empty_rows=sum(part.n_empty_rows for part in parts),
            rows_per_split=tuple(part.n_rows for part in parts),
            files=tuple(files),
            splits=tuple(splits),
        )


def scan_pieces(source: LibsvmSource, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
    """Run the parser over a split and keep counts only; see ``LibsvmSource.scan_split``."""
    found: set[float] | None = set()
    has_integers = True
    n_rows = nnz = 0
    scratch = _scratch(source, 0)
    with open_split(source, split) as parser:
        while parser.load():
            if proceed is not None:
                proceed()
            n_bytes = parser.window.end - parser.window.begin
            if len(scratch.indices) < n_bytes // 4 + 2:
                scratch = _scratch(source, n_bytes)
            parser.parse(scratch, NO_LIMIT, NO_LIMIT)
            cursor = parser.cursor
            if found is not None or has_integers:
                labels = _distinct(scratch.labels[: cursor[loop.LABELS]])
                has_integers = has_integers and are_integers(labels)
                if found is not None:
                    found.update(labels.tolist())
                    found = found if len(found) <= _MOST_LABELS else None
            n_rows += int(cursor[loop.ROWS])
            nnz += int(cursor[loop.NNZ])
            cursor[[loop.ROWS, loop.NNZ, loop.LABELS]] = 0
        check_unchanged(split.file, source.storage_options)
        lowest, highest = int(parser.cursor[loop.LOWEST]), int(parser.cursor[loop.HIGHEST])
        n_empty = int(parser.cursor[loop.EMPTY_ROWS])
    has_features = lowest < NO_LIMIT
    return SplitScan(
        n_rows=n_rows,
        nnz=nnz,
        n_empty_rows=n_empty,
        min_index=lowest if has_features else None,
        max_index=highest if has_features else None,
        labels=None if found is None else tuple(sorted(found)),
        has_integer_labels=has_integers,
    )


def _scratch(source: LibsvmSource, n_bytes: int) -> loop.Tables:
    """Tables that are written over and over; the indices in them are cut to 32 bits and mean nothing."""
    return loop.Tables(
        indices=np.empty(n_bytes // 4 + 2, np.int32),
        values=np.empty(n_bytes // 4 + 2, source.dtype),
        indptr=np.zeros(n_bytes // 2 + 2, np.int32),
        labels=np.empty(n_bytes // 2 + 2, np.float64),
        label_offsets=np.zeros(n_bytes // 2 + 2 if source.multilabel else 1, np.int64),
        qids=np.empty(n_bytes // 2 + 2 if source.query_id else 1, np.int64),
    )


def are_integers(labels: np.ndarray) -> bool:
    """Tell whether float64 labels are exact as int64."""
    return bool(np.all((labels == np.trunc(labels)) & (np.abs(labels) < _EXACT_INTEGERS)))


def _distinct(labels: np.ndarray) -> np.ndarray:
    """Sorted distinct labels: by counting where they are few integers, which is ten times as fast as sorting."""
    if len(labels) and are_integers(labels[:100]):
        low, high = labels.min(), labels.max()
        if high - low < _MOST_BINS and np.all(labels == np.trunc(labels)):
            return np.flatnonzero(np.bincount((labels - low).astype(np.int64))) + low
    return np.unique(labels)
