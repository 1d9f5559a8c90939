"""How many rows have each label, from the labels that shards keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dkfeat.io.entries import ShardEntry
    from dkfeat.io.reader import ShardReader

__all__ = ["LabelCounts", "count_labels", "spread"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCounts:
    """Labels of the shards that were read."""

    counts: dict[int | float, int]
    """Rows by label, ascending; with lists of labels a row counts for each of its own."""
    rows: int
    """Rows in these shards."""
    n_shards: int
    """Shards that were read."""


def count_labels(shards: ShardReader, max_bytes: int | None = None) -> LabelCounts:
    """Count the labels of all shards, or of some that are spread over the data set.

    Parameters
    ----------
    shards : ShardReader
    max_bytes : int or None
        Bytes of shards to read, though one shard at least; None: all.

    Raises
    ------
    dkfeat.errors.ShardError
        A shard does not read back as committed.
    """
    chosen = spread([entry for entry in shards.manifest.shards if entry.rows], max_bytes)
    counts: Counter[int | float] = Counter()
    for entry in chosen if "label" in shards.manifest.schema else ():
        labels = shards.read(entry, "size", only=("label",)).y
        found, times = np.unique(np.asarray(labels), return_counts=True)
        counts.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
    return LabelCounts(
        counts=dict(sorted(counts.items())), rows=sum(entry.rows for entry in chosen), n_shards=len(chosen)
    )


def spread(entries: Sequence[ShardEntry], max_bytes: int | None) -> list[ShardEntry]:
    """Shards at equal distances, as many as have so many bytes together."""
    total = sum(entry.size for entry in entries)
    if max_bytes is None or total <= max_bytes:
        return list(entries)
    n = max(1, len(entries) * max_bytes // total)
    return [entries[len(entries) * place // n] for place in range(n)]
