"""Label counts or label histogram of a data set, for its report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dkfeat.engine.dataset.dataset import count_labels, spread
from dkfeat.report import charts

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import ShardDataset


LABEL_BYTES = 1 << 30
"""Maximum size in bytes of the shards read to count labels."""
MOST_CLASSES = 100
"""Maximum number of distinct labels to count; with more the report shows a histogram."""
MOST_SHOWN = 30
"""Maximum number of classes in the chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Counts or histogram of the labels in the shards that were read."""

    counts: tuple[tuple[float, int], ...]
    """Pairs of a label and its number of rows, by label; empty if there is a histogram."""
    edges: tuple[float, ...]
    """Edges of the histogram's bins."""
    histogram: tuple[int, ...]
    """Number of rows in each bin."""
    rows: int
    """Number of rows in these shards."""
    n_shards: int
    """Number of shards read."""
    multilabel: bool
    """True if a row may have any number of labels."""

    def describe(self, n_shards: int) -> str:
        """Describe the chart in one sentence; `n_shards` is the number of shards of the data set."""
        of = "" if self.n_shards == n_shards else f", of {self.n_shards:,} shards spread over the data set"
        if not self.counts:
            return f"Labels of {self.rows:,} rows{of}."
        told = f"Rows of each label, {self.rows:,} in all{of}"
        told += "; a row may have several" if self.multilabel else ""
        told += f"; the {MOST_SHOWN} most frequent of {len(self.counts):,}" if len(self.counts) > MOST_SHOWN else ""
        return f"{told}."

    def most_frequent(self) -> list[tuple[str, int]]:
        """Labels in the chart and their numbers of rows, in order of labels, or the most frequent if there are many."""
        if len(self.counts) <= MOST_SHOWN:
            shown = sorted(self.counts)
        else:
            shown = sorted(self.counts, key=lambda pair: -pair[1])[:MOST_SHOWN]
        return [(f"{label:g}", count) for label, count in shown]

    def chart(self, n_shards: int) -> str:
        """SVG of the counts, or of the histogram."""
        what = self.describe(n_shards)
        if not self.counts:
            return charts.columns("Rows by label", self.edges, self.histogram, "label", what)

        def show(count: float) -> str:
            return f"{count:,.0f} ({count / max(1, self.rows):.1%})"

        return charts.bars("Rows by label", self.most_frequent(), show, what)


def read_labels(data: ShardDataset) -> Labels | None:
    """Count the labels in up to 1 GiB of shards, spread over the data set; None if rows have no labels."""
    entries = data.manifest.shards
    if "label" not in data.manifest.schema or not data.n_rows:
        return None
    labels, multilabel = data.manifest.labels, bool(data.spec["input"].get("multilabel"))
    if labels is not None and len(labels) <= MOST_CLASSES:
        found = count_labels(data.shards, LABEL_BYTES)
        return Labels(
            counts=tuple(found.counts.items()),
            edges=(),
            histogram=(),
            rows=found.rows,
            n_shards=found.n_shards,
            multilabel=multilabel,
        )
    chosen = spread([entry for entry in entries if entry.rows], LABEL_BYTES)
    drawn = [np.asarray(data.shards.read(entry, data.verifies, only=("label",)).y) for entry in chosen]
    heights, edges = np.histogram(np.concatenate(drawn), bins=30)
    return Labels(
        counts=(),
        edges=tuple(edges.tolist()),
        histogram=tuple(heights.tolist()),
        rows=sum(entry.rows for entry in chosen),
        n_shards=len(chosen),
        multilabel=multilabel,
    )
