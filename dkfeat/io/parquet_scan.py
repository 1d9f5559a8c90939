"""The one pass over a Parquet source that settles what footers do not tell; it reads few columns, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dkfeat.blocks import Split
from dkfeat.io.files import check_unchanged
from dkfeat.io.parquet_batches import open_split
from dkfeat.io.parquet_decode import decode_labels, highest_index
from dkfeat.io.scans import MOST_LABELS, SplitScan, are_integers

if TYPE_CHECKING:
    from dkfeat.io.parquet import ParquetSource

__all__ = ["scan_groups"]


def scan_groups(source: ParquetSource, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
    """Read labels of a split, and indices where the width is open; see ``ParquetSource.scan_split``."""
    features = (source.features or ()) if source.n_features is None else ()
    names = (source.label, *features[:1], *source.filter_columns)
    columns = list(dict.fromkeys([name for name in names if name]))
    found: set[float] | None = set()
    has_integers, n_rows, highest = True, 0, None
    with open_split(source, split, columns) as reader:
        if not columns:  # footers tell all
            n_rows = reader.stop_row - reader.first_row
            found = {0} if n_rows else set()
        for batch, _ in reader.batches() if columns else ():
            if proceed is not None:
                proceed()
            n_rows += len(batch.rows)
            labels = np.unique(decode_labels(source, batch)[0])
            has_integers = has_integers and (labels.dtype.kind == "i" or are_integers(labels))
            if found is not None:
                found.update(labels.tolist())
                found = found if len(found) <= MOST_LABELS else None
            if source.n_features is None and (index := highest_index(source, batch)) is not None:
                highest = index if highest is None else max(highest, index)
        check_unchanged(split.file, source.storage_options)
    return SplitScan(
        n_rows=n_rows,
        nnz=None,
        n_empty_rows=None,
        min_index=None,
        max_index=highest,
        labels=None if found is None else tuple(sorted(found)),
        has_integer_labels=has_integers,
    )
