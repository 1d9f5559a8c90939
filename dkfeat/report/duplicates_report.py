"""Report of a search for duplicates: sizes of groups, similarities, and pairs of rows side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.filesystems.urls import local_path, printable
from dkfeat.html import card, render
from dkfeat.messages import counted
from dkfeat.neighbors import Duplicates
from dkfeat.neighbors.deduplication.result import RECORD
from dkfeat.plot.style import has_matplotlib
from dkfeat.report import charts
from dkfeat.report.row_samples import PairSample, RowSample, read_features, read_origins
from dkfeat.store.outputs import check_outputs, write_output

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.sources.base import Source

MOST_SAMPLES, MOST_GROUPS, MOST_BINS = 6, 10, 30
"""Maximum numbers of pairs side by side, of groups in the table, and of bars of similarities."""
_SIZES = (2, 3, 4, 5, 9, 17, 33, 65, 129, 257, 513, 1025)
"""Lowest sizes of the bars of the chart of sizes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DuplicatesReport:
    """Facts about the duplicates of a data set; `duplicates_report` collects them."""

    found: Duplicates
    """The result of the search."""
    sizes: tuple[tuple[int, int], ...]
    """Pairs of a size and the number of groups of that size, ascending."""
    largest: tuple[tuple[int, RowSample], ...]
    """Sizes and first rows of the largest groups of more than two rows."""
    edges: tuple[float, ...]
    """Edges of the bins of similarities."""
    histogram: tuple[int, ...]
    """Number of pairs in each bin."""
    samples: tuple[PairSample, ...]
    """Pairs from different bins, in ascending order of similarity."""
    source_note: str
    """Reason why the samples have no columns; empty if they have."""

    def __repr__(self) -> str:
        return f"DuplicatesReport({self.found.folder!r}, {', '.join(self._counts())})"

    def _repr_html_(self) -> str:
        return card(f"Duplicates in {printable(str(self.found.folder))}", self.figures)

    def _counts(self) -> list[str]:
        found = self.found
        return [counted(found.n_rows, "row"), counted(found.n_groups, "group"), f"{found.n_kept:,} rows kept"]

    @property
    def figures(self) -> dict[str, str]:
        """Figures at the top of the page, by name, as text."""
        found = self.found
        dropped = found.n_rows - found.n_kept
        return {
            "rows": f"{found.n_rows:,}",
            "duplicates": f"{dropped:,} ({dropped / max(1, found.n_rows):.1%})",
            "rows kept": f"{found.n_kept:,}",
            "groups": f"{found.n_groups:,}",
            "largest group": counted(found.largest_group, "row"),
        }

    @property
    def facts(self) -> dict[str, str]:
        """Settings of the search and its cost, by name, as text."""
        found = self.found
        by = {"codes": "their codes, so similarities are estimates", "exact": "the exact kernel"}
        return {
            "threshold": f"{found.threshold:g}",
            "pairs": f"{found.n_pairs:,} at least as similar",
            "candidates compared by": by.get(found.verify, found.verify),
            "bands": f"{found.bands.n_bands:,} of {counted(found.bands.n_codes, 'code')}",
            "expected recall": f"{found.expected_recall:.1%} of the pairs at the threshold, more of others",
            "rows with equal codes": f"{found.n_copies:,}, each paired with the first of these rows only",
            "candidates": f"{found.n_candidates:,} pairs with a band in common; {found.expected_candidates:,.0f} were "
            f"expected, and {found.n_compared:,} compared",
        }

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values with the figures of the page."""
        return {
            "target": str(self.found.folder),
            **self.found.to_mapping(),
            "group_sizes": [list(pair) for pair in self.sizes],
            "largest_groups": [{"rows": size, **first.to_mapping()} for size, first in self.largest],
            "similarities": {"edges": list(self.edges), "pairs": list(self.histogram)},
            "samples": [sample.to_mapping() for sample in self.samples],
            "source_note": self.source_note,
        }

    def to_html(self) -> str:
        """Page of the whole report as HTML text; charts need matplotlib and are left out without it."""
        draws = has_matplotlib()
        return render(
            "duplicates_report.html",
            title=f"Duplicates in {printable(str(self.found.folder))}",
            report=self,
            has_matplotlib=draws,
            size_rows=[{"rows": name, "groups": n} for name, n in self._size_bars()],
            charts=[self._size_chart(), self._similarity_chart()] if draws and self.sizes else [],
            largest=[{"rows": f"{size:,}", "first row": f"{row.number:,}", **row.origin} for size, row in self.largest],
        )

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the page as one file, atomically. Its folder is created if missing, and an earlier page is replaced.

        Parameters
        ----------
        path : str or path
            File on this machine, outside of data sets and models.
        overwrite : bool, default=False
            Replace also a file that is not a page of dkfeat.

        Raises
        ------
        dkfeat.errors.ConfigError
            If the file may not be replaced, or is in a data set or a model.
        OSError
            If the page cannot be written.
        """
        check_outputs([path], overwrite=overwrite)
        write_output(path, self.to_html())

    def _size_bars(self) -> list[tuple[str, int]]:
        """Names of ranges of sizes, and the number of groups in each; all ranges up to the largest group."""
        bars = []
        for low, following in zip(_SIZES, (*_SIZES[1:], None), strict=True):
            number = sum(n for size, n in self.sizes if low <= size and (following is None or size < following))
            name = f"{low:,} or more" if following is None else f"{low}–{following - 1}"  # noqa: RUF001 - a range
            bars.append((str(low) if following == low + 1 else name, number))
        while bars and not bars[-1][1]:
            bars.pop()
        return bars

    def _size_chart(self) -> str:
        caption = f"Groups by their number of rows; {counted(self.found.n_groups, 'group')} of at least two rows."
        return charts.bars("Sizes of groups", self._size_bars(), lambda n: f"{n:,.0f}", caption)

    def _similarity_chart(self) -> str:
        caption = "Pairs by similarity. If many are near the threshold, a slightly different one gives other groups."
        mark = (self.found.threshold, f"threshold {self.found.threshold:g}")
        return charts.columns("Similarities of pairs", self.edges, self.histogram, "similarity", caption, mark=mark)


def duplicates_report(
    folder: str | PathLike[str],
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> DuplicatesReport:
    r"""Report on a search for duplicates: sizes of groups, similarities of pairs, and some pairs side by side.

    The function writes nothing. It reads the tables of the search once, and of the source the splits that hold the rows
    of the samples.

    Parameters
    ----------
    folder : str or path
        Folder that `dkfeat.neighbors.duplicates` wrote.
    source : LibsvmSource, ParquetSource, path, glob, URL, a list of these, or None
        Source from which the shards were made. None: the local files that the run which made the shards read, if they
        are unchanged.
    storage_options : mapping or None
        Options of the storage for a source given by URL.

    Returns
    -------
    report : DuplicatesReport
        ``save(path)`` writes an HTML page, ``to_mapping()`` returns the figures.

    Raises
    ------
    dkfeat.errors.ConfigError
        If the folder holds no duplicates, or `source` is not a source.
    dkfeat.errors.SourceNotFoundError
        If no file matches the given `source`.
    dkfeat.errors.ShardError
        If a table is not as committed.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("1 1:4 3:1\n1 2:3\n1 1:4 3:1.1\n1 2:3\n")
    >>> dart = dkfeat.DartFeatures(n_components=512, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", dart, progress=False)
    >>> _ = dkfeat.neighbors.duplicates(folder / "features", target=folder / "found", progress=False)
    >>> report = dkfeat.duplicates_report(folder / "found")
    >>> report.sizes, [row.number for row in report.samples[0].rows], report.samples[0].differences
    (((2, 2),), [0, 2], {'column 3': (1.0, 1.100000023841858)})
    >>> report.save(folder / "duplicates.html")
    """
    found = Duplicates.open(folder)
    groups, pairs = (open_shards(Path(str(found.folder), name)) for name in ("groups", "pairs"))
    sizes, largest = _group_sizes(groups, found.n_rows)
    edges = _bin_edges(groups, found.threshold)
    histogram, chosen = _histogram(pairs, edges)
    numbers = {row for _, *rows in chosen for row in rows}
    origins = read_origins(groups, sorted(numbers | {row for row, _ in largest}))
    columns, note = read_features(found, groups, sorted(numbers), source, storage_options)
    rows = {number: RowSample(number=number, **origin) for number, origin in origins.items()}
    samples = [
        PairSample(similarity=similarity, rows=(rows[row], rows[other]), columns=(columns.get(row), columns.get(other)))
        for similarity, row, other in chosen
    ]
    return DuplicatesReport(
        found=found,
        sizes=sizes,
        largest=tuple((size, rows[row]) for row, size in largest),
        edges=tuple(edges.tolist()),
        histogram=tuple(histogram.tolist()),
        samples=tuple(samples),
        source_note=note,
    )


def holds_duplicates(folder: str) -> bool:
    """Return True if a folder on this machine is one that `dkfeat.neighbors.duplicates` wrote or is writing."""
    path = local_path(folder)
    return path is not None and (path / RECORD).is_file()


def _group_sizes(groups: ShardDataset, n_rows: int) -> tuple[tuple[tuple[int, int], ...], list[tuple[int, int]]]:
    """Count groups by size, and find the first rows and the sizes of the largest ones of more than two rows."""
    sizes = np.zeros(n_rows, np.int32)
    for column in _column(groups, "group"):
        lowest, counts = np.unique(column, return_counts=True)
        sizes[lowest] += counts.astype(np.int32)
    several = np.flatnonzero(sizes > 1)
    values, counts = np.unique(sizes[several], return_counts=True)
    large = several[sizes[several] > 2]
    order = large[np.argsort(-sizes[large], kind="stable")[:MOST_GROUPS]].tolist()
    return tuple(zip(values.tolist(), counts.tolist(), strict=True)), [(row, int(sizes[row])) for row in order]


def _bin_edges(groups: ShardDataset, threshold: float) -> NDArray[np.float64]:
    """Edges of bins above a threshold, each of equally many of the values that estimates from codes can have."""
    features: Any = groups.map
    values = features._similarity_of_counts(np.arange(features.n_components + 1))
    step = float(values[-1] - values[-2])
    n_values = int(np.count_nonzero(values >= threshold))
    width = -(-n_values // MOST_BINS)
    n_bins = -(-n_values // width)
    first = values[len(values) - n_values] - step / 2
    return np.asarray(first + step * width * np.arange(n_bins + 1))


def _histogram(
    pairs: ShardDataset, edges: NDArray[np.float64]
) -> tuple[NDArray[np.int64], list[tuple[float, int, int]]]:
    """Count pairs by similarity; choose pairs of different bins, evenly spaced, in ascending order of similarity."""
    heights = np.zeros(len(edges) - 1, np.int64)
    first: dict[int, tuple[float, int, int]] = {}
    for similarities, rows, others in zip(
        *(_column(pairs, name) for name in ("similarity", "row", "other")), strict=True
    ):
        bins = np.clip(np.searchsorted(edges, similarities, side="right") - 1, 0, len(heights) - 1)
        heights += np.bincount(bins, minlength=len(heights))
        for place, at in zip(*np.unique(bins, return_index=True), strict=True):
            first.setdefault(int(place), (float(similarities[at]), int(rows[at]), int(others[at])))
    places = sorted(first)
    with suppress(IndexError):
        chosen = np.unique(np.linspace(0, len(places) - 1, MOST_SAMPLES).round().astype(np.int64))
        return heights, [first[places[at]] for at in chosen.tolist()]
    return heights, []


def _column(table: ShardDataset, name: str) -> Any:
    """Yield the values of a column, shard by shard."""
    for entry in table.manifest.shards:
        yield table.shards.read(entry, table.verifies, only=(name,)).kept[name].to_numpy(zero_copy_only=False)
