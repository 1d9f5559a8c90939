"""What a scan of a source finds: in one split, and joined, in the whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import InputError

if TYPE_CHECKING:
    from dkfeat.io.quarantine import BadRow
    from dkfeat.io.source import Source

__all__ = ["MOST_LABELS", "Scan", "SplitScan", "are_integers", "exact_integers"]

MOST_LABELS = 10_000
"""Labels beyond this number are not listed."""
_MOST_FEATURES = 2**63 - 1
_EXACT_INTEGERS = float(2**53)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitScan:
    """What a scan found in one split."""

    n_rows: int
    nnz: int | None
    """Values that are stored: zeros are not. None if they were not counted."""
    n_empty_rows: int | None
    """Rows without a stored value; None if they were not counted."""
    min_index: int | None
    """Lowest index written, also of zeros; None if there is none."""
    max_index: int | None
    """Highest index written."""
    labels: tuple[float, ...] | None
    """Sorted label set; None beyond 10,000 labels."""
    has_integer_labels: bool
    """Every label is an integer below 2**53 in magnitude."""
    n_bad_rows: int = 0
    """Rows that would be set aside; the other counts are without them."""
    first_bad: BadRow | None = None
    """The first of them."""


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
    nnz: int | None
    """Values that are stored; None where the format tells rows without them, as Parquet does."""
    n_empty_rows: int | None
    """Rows without a stored value; None as above."""
    rows_per_split: tuple[int, ...]
    """Rows of each split, in the order of `splits`."""
    files: tuple[SourceFile, ...]
    splits: tuple[Split, ...]
    n_bad_rows: int = 0
    """Rows that would be set aside; the other counts are without them."""
    first_bad: tuple[SourceFile, BadRow] | None = None
    """The first of them, with its file."""

    @classmethod
    def merge(
        cls,
        source: Source,
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
            if n_features > _MOST_FEATURES:
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
            labels = tuple(kind(label) for label in union) if len(union) <= MOST_LABELS else None
        bad = (
            (split.files[part.first_bad.file], part.first_bad)
            for split, part in zip(splits, parts, strict=True)
            if part.first_bad
        )
        return cls(
            n_bad_rows=sum(part.n_bad_rows for part in parts),
            first_bad=next(bad, None),
            n_features=n_features,
            zero_based=zero_based,
            label_dtype=label_dtype,
            labels=labels,
            n_rows=sum(part.n_rows for part in parts),
            nnz=_sum(part.nnz for part in parts),
            n_empty_rows=_sum(part.n_empty_rows for part in parts),
            rows_per_split=tuple(part.n_rows for part in parts),
            files=tuple(files),
            splits=tuple(splits),
        )


def are_integers(labels: np.ndarray) -> bool:
    """Tell whether float64 labels are exact as int64."""
    return bool(np.all(exact_integers(labels)))


def exact_integers(labels: np.ndarray) -> np.ndarray:
    """Which of float64 labels are exact as int64."""
    exact: np.ndarray = (labels == np.trunc(labels)) & (np.abs(labels) < _EXACT_INTEGERS)
    return exact


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)
