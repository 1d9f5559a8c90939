"""The one pass over a Parquet source that settles what footers do not tell; it reads few columns, or none.

Where bad rows are set aside it reads all of them, for such rows settle nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dkfeat.blocks import Split
from dkfeat.errors import ConfigError
from dkfeat.io.files import check_unchanged
from dkfeat.io.parquet_batches import open_split
from dkfeat.io.parquet_columns import read_columns
from dkfeat.io.parquet_decode import decode_labels, highest_index
from dkfeat.io.parquet_quarantine import decode_good
from dkfeat.io.scans import MOST_LABELS, SplitScan, are_integers

if TYPE_CHECKING:
    from dkfeat.io.parquet import ParquetSource

__all__ = ["scan_groups"]


def scan_groups(source: ParquetSource, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
    """Read labels of a split, and indices where the width is open; see ``ParquetSource.scan_split``."""
    aside = source.on_bad_row == "quarantine"
    decoded = _decodable(source) if aside else source
    features = (source.features or ()) if source.n_features is None else ()
    names = (source.label, *features[:1], *source.filter_columns)
    columns = read_columns(source) if aside else list(dict.fromkeys([name for name in names if name]))
    n_bad, first_bad = 0, None
    found: set[float] | None = set()
    has_integers, n_rows, highest = True, 0, None
    with open_split(source, split, columns) as reader:
        if not columns:  # footers tell all
            n_rows = reader.stop_row - reader.first_row
            found = {0} if n_rows else set()
        for batch, first_row in reader.batches() if columns else ():
            if proceed is not None:
                proceed()
            if aside:
                batch, _, bad = decode_good(decoded, batch, first_row)
                n_bad, first_bad = n_bad + len(bad), first_bad or next(iter(bad), None)
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
        n_bad_rows=n_bad,
        first_bad=first_bad,
    )


def _decodable(source: ParquetSource) -> ParquetSource:
    """Source that tells bad rows from good ones before its width is known."""
    if source.n_features is not None:
        return source
    if source.features_as == "vector":
        message = (
            'on_bad_row="quarantine" needs n_features for vectors in lists of any length: '
            "which of them are bad depends on it"
        )
        raise ConfigError(message)
    return source.replaced(n_features=2**63 - 1)
