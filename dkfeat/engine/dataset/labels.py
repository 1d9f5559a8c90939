"""Counts of a data set's labels, over all shards or over some at equal distances."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from dkfeat.messages import show_label
from dkfeat.store.shards import reader

LABELS_IN_LINE = 10
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
        if len(self.counts) > LABELS_IN_LINE:
            return f"{len(self.counts):,}, counted in {read}"
        return f"{', '.join(f'{show_label(label)}: {rows:,}' for label, rows in self.counts.items())} ({read})"


def count_labels(shards: reader.ShardReader, max_bytes: int | None = None) -> LabelCounts:
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
    chosen = [entry for entry in shards.manifest.shards if entry.rows]
    total = sum(entry.size for entry in chosen)
    if max_bytes is not None and total > max_bytes:
        n = max(1, len(chosen) * max_bytes // total)
        chosen = [chosen[len(chosen) * i // n] for i in range(n)]
    counts: Counter[int | float] = Counter()
    for entry in chosen if "label" in shards.manifest.schema else ():
        labels = shards.read(entry, "size", only=("label",)).y
        found, times = np.unique(np.asarray(labels), return_counts=True)
        counts.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
    return LabelCounts(
        counts=dict(sorted(counts.items())), rows=sum(entry.rows for entry in chosen), n_shards=len(chosen)
    )
