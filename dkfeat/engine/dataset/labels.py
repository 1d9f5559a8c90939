"""Counts of a data set's labels, over all shards or over some at equal distances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dkfeat.messages import show_label

if TYPE_CHECKING:
    from dkfeat.store.manifest.records import ShardEntry
    from dkfeat.store.shards.reader import ShardReader


_IN_LINE = 10
"""Maximum number of labels whose counts are shown in a line; more are only shown in a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCounts:
    """Labels of the shards that were read."""

    counts: dict[int | float, int]
    """Number of rows by label, ascending; with lists of labels a row counts for each of its labels."""
    rows: int
    """Number of rows in these shards."""
    n_shards: int
    """Number of shards that were read."""

    def describe(self, n_rows: int) -> str:
        """Format the counts as one line; `n_rows` is the number of rows of the whole data set."""
        read = "all rows" if self.rows == n_rows else f"{self.rows:,} rows of {self.n_shards:,} shards"
        if len(self.counts) > _IN_LINE:
            return f"{len(self.counts):,}, counted in {read}"
        return f"{', '.join(f'{show_label(label)}: {rows:,}' for label, rows in self.counts.items())} ({read})"


def count_labels(shards: ShardReader, max_bytes: int | None = None) -> LabelCounts:
    """Count the labels of all shards, or of some that are spread over the data set.

    Parameters
    ----------
    shards : ShardReader
    max_bytes : int or None
        Maximum size of the shards to read, but at least one shard; None: all.

    Raises
    ------
    dkfeat.errors.ShardError
        If a shard is not as committed.
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
    """Select shards at equal distances, of about `max_bytes` in total, but at least one."""
    total = sum(entry.size for entry in entries)
    if max_bytes is None or total <= max_bytes:
        return list(entries)
    n = max(1, len(entries) * max_bytes // total)
    return [entries[len(entries) * i // n] for i in range(n)]
