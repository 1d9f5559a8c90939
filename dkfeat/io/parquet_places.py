"""Where a row of a Parquet piece stands that a map refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dkfeat.blocks import Split
from dkfeat.errors import ParquetError
from dkfeat.io.files import printable
from dkfeat.io.parquet_batches import open_split

if TYPE_CHECKING:
    from dkfeat.io.parquet import ParquetSource
    from dkfeat.io.source import Piece, Refusal

__all__ = ["refused_row"]


def refused_row(source: ParquetSource, split: Split, piece: Piece, refusal: Refusal) -> ParquetError:
    """Error for a row that a map refuses; where rows are filtered, the compared columns are read once more."""
    with open_split(source, split, source.filter_columns) as reader:
        place = piece.start + refusal.row
        left = refusal.row
        for batch, first_row in reader.batches() if source.filters is not None else ():
            numbers = first_row + batch.rows
            numbers = numbers[numbers >= piece.start]
            if left < len(numbers):
                place = int(numbers[left])
                break
            left -= len(numbers)
        ends = np.cumsum(reader.group_rows)
    group = int(np.searchsorted(ends, place, side="right"))
    names, reason = source.features or (), refusal.reason
    if source.features_as == "columns":
        name = names[refusal.column]
    else:
        name, reason = names[-1], f"{reason} (column {refusal.column:,} of the features)"
    return ParquetError(
        reason,
        path=printable(split.file.url),
        row_group=group,
        row=place - int(ends[group]) + reader.group_rows[group],
        column=printable(name),
    )
