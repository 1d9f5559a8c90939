"""Report of a search for duplicates: sizes of groups, similarities, and pairs of rows side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.config import ExecutionConfig
from dkfeat.encoders.table import TableEncoder
from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ConfigError, DkfeatError, SourceNotFoundError
from dkfeat.filesystems.urls import is_url, local_path
from dkfeat.html import render
from dkfeat.messages import counted, printable
from dkfeat.neighbors import Duplicates
from dkfeat.neighbors.deduplication.result import GROUPS, PAIRS, column_parts
from dkfeat.neighbors.exact import RowsOfSource
from dkfeat.report import page
from dkfeat.report.estimates import safe_source
from dkfeat.store.commit.run_log import read_logs
from dkfeat.store.manifest.manifest import column_named
from dkfeat.store.manifest.metadata import DUPLICATES_FILE
from dkfeat.store.storage.base import SPEC

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.sources.base import Source

NUMBERS = ("row", "group", "keep", "source_split", "source_row")

Columns = Mapping[str, float]
"""Values of a row that are not 0, by the names of the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSample:
    """Row of a data set, with its origin."""

    number: int
    """Number in the data set's order."""
    file: str
    """File of the source."""
    file_row: int
    """Row in the file, from 0."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Kept columns, such as an id."""

    @property
    def origin(self) -> dict[str, str]:
        """The place of the row and its kept columns, by name, as text."""
        shown = {name: "–" if value is None else str(value) for name, value in self.kept.items()}  # noqa: RUF001
        return {"file": printable(self.file), "row in the file": f"{self.file_row:,}", **shown}

    def to_mapping(self) -> dict[str, Any]:
        """Return plain JSON values."""
        plain = {k: v if isinstance(v, int | float | str | None) else str(v) for k, v in self.kept.items()}
        return {"row": self.number, "source_file": self.file, "file_row": self.file_row, "kept": plain}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSample:
    """Two similar rows."""

    similarity: float
    """Similarity in the table of pairs."""
    rows: tuple[RowSample, RowSample]
    """The two rows."""
    columns: tuple[Columns | None, Columns | None]
    """Their columns in the source; None if it was not read."""

    @property
    def differences(self) -> dict[str, tuple[float, float]]:
        """Columns whose values differ, the largest difference first."""
        return {name: pair for name, pair in self.values if pair[0] != pair[1]}

    def to_mapping(self) -> dict[str, Any]:
        """Return plain JSON values."""
        known: dict[str, Any] = {"similarity": self.similarity, "rows": [row.to_mapping() for row in self.rows]}
        if self.columns[0] is not None:
            known |= {"n_columns": len(self.values), "n_differences": len(self.differences)}
        return known

    @property
    def values(self) -> list[tuple[str, tuple[float, float]]]:
        """Columns with a value that is not 0: first those that differ, then those of the largest values."""
        left, right = (columns or {} for columns in self.columns)
        pairs = {name: (left.get(name, 0.0), right.get(name, 0.0)) for name in {**left, **right}}
        return sorted(pairs.items(), key=lambda item: (-abs(item[1][0] - item[1][1]), -max(map(abs, item[1]))))


MOST_SAMPLES, MOST_GROUPS, MOST_BINS = 6, 10, 30
"""Maximum numbers of pairs side by side, of groups in the table, and of bars of similarities."""
_SIZES = (2, 3, 4, 5, 9, 17, 33, 65, 129, 257, 513, 1025)
"""Lowest sizes of the bars of the chart of sizes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DuplicatesReport(page.Page):
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
        rows, groups = counted(self.found.n_rows, "row"), counted(self.found.n_groups, "group")
        return f"DuplicatesReport({self.found.folder!r}, {rows}, {groups}, {counted(self.found.n_kept, 'row')} kept)"

    @property
    def title(self) -> str:
        """Title of the page and of the card."""
        return f"Duplicates in {printable(str(self.found.folder))}"

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
        return render(
            "duplicates_report.html",
            title=self.title,
            report=self,
            sizes=self._size_bars(),
            charts=list(filter(None, self._charts())) if self.sizes else [],
        )

    def _size_bars(self) -> list[tuple[str, int]]:
        """Names of ranges of sizes, and the number of groups in each; all ranges up to the largest group."""
        sizes, numbers = np.array(self.sizes, np.int64).reshape(-1, 2).T
        bars = np.bincount(np.searchsorted(_SIZES, sizes, side="right") - 1, numbers).astype(np.int64)
        names = [str(low) if high == low + 1 else f"{low}–{high - 1}" for low, high in pairwise(_SIZES)]  # noqa: RUF001 - a range
        return list(zip([*names, f"{_SIZES[-1]:,} or more"], bars.tolist(), strict=False))

    def _charts(self) -> Iterator[str]:
        caption = f"Groups by their number of rows; {counted(self.found.n_groups, 'group')} of at least two rows."
        yield page.bars("Sizes of groups", self._size_bars(), lambda n: f"{n:,.0f}", caption)
        caption = "Pairs by similarity. If many are near the threshold, a slightly different one gives other groups."
        mark = (self.found.threshold, f"threshold {self.found.threshold:g}")
        yield page.columns("Similarities of pairs", self.edges, self.histogram, "similarity", caption, mark=mark)


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
    groups, pairs = found.arrays[GROUPS], found.arrays[PAIRS]
    sizes, largest = _group_sizes(groups, found.n_rows)
    edges = _bin_edges(groups, found.threshold)
    histogram, chosen = _histogram(pairs, edges)
    numbers = {row for _, *rows in chosen for row in rows}
    rows = _read_origins(groups, sorted(numbers | {row for row, _ in largest}))
    columns, note = _read_features(found, groups, sorted(numbers), source, storage_options)
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
    return path is not None and ((path / DUPLICATES_FILE).is_file() or (path / GROUPS / SPEC).is_file())


def _group_sizes(groups: ShardDataset, n_rows: int) -> tuple[tuple[tuple[int, int], ...], list[tuple[int, int]]]:
    """Count groups by size, and find the first rows and the sizes of the largest ones of more than two rows."""
    sizes = np.zeros(n_rows, np.int32)
    for column in column_parts(groups, "group"):
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
        *(column_parts(pairs, name) for name in ("similarity", "row", "other")), strict=True
    ):
        bins = np.clip(np.searchsorted(edges, similarities, side="right") - 1, 0, len(heights) - 1)
        heights += np.bincount(bins, minlength=len(heights))
        for place, at in zip(*np.unique(bins, return_index=True), strict=True):
            first.setdefault(int(place), (float(similarities[at]), int(rows[at]), int(others[at])))
    places = sorted(first)
    chosen = np.unique(np.linspace(0, len(places) - 1, MOST_SAMPLES).round().astype(np.int64)) if places else ()
    return heights, [first[places[at]] for at in chosen]


def _read_origins(groups: ShardDataset, numbers: Sequence[int]) -> dict[int, RowSample]:
    """Read rows, in ascending order, from a table of groups."""
    found: dict[int, RowSample] = {}
    wanted, first = np.asarray(numbers, np.int64), 0
    for entry in groups.manifest.shards:
        begin, end = np.searchsorted(wanted, [first, first + entry.rows])
        if begin < end:  # else the shard is not read
            columns = groups.shards.read(entry, groups.verifies).kept
            for number in wanted[begin:end].tolist():
                kept = {key: column[number - first].as_py() for key, column in columns.items() if key not in NUMBERS}
                file, file_row = kept.pop("source_file"), kept.pop("file_row")
                found[number] = RowSample(number=number, file=file, file_row=file_row, kept=kept)
        first += entry.rows
    return found


def _read_features(
    found: Duplicates,
    groups: ShardDataset,
    numbers: Sequence[int],
    source: Any,
    storage_options: Mapping[str, Any] | None,
) -> tuple[dict[int, Columns], str]:
    """Read rows, in ascending order, from the source of the shards; none and the reason if that is not possible.

    Records of runs are not trusted, since others may write to their folder: without a given source, only shards and
    source files on this machine are read that the manifests list.
    """
    if not numbers:
        return {}, ""
    given = source is not None
    try:
        data = _shards_of(found, groups)
        if not given:
            source, note = safe_source(read_logs(data.shards.storage))
            if note:
                return {}, note
        rows = RowsOfSource.of(data, source, storage_options if given else None)
        if not given:
            listed = [entry.identity for entry in data.manifest.sources]
            if any(file.identity not in listed for split in rows.splits for file in split.files):
                return {}, "The source has changed since the shards were made."
        with open_runner(ExecutionConfig(scheduler="synchronous")) as runner:
            X = rows.at(np.asarray(numbers, np.int64), runner)
    except (DkfeatError, OSError, ValueError) as error:
        if given and isinstance(error, SourceNotFoundError | ConfigError):
            raise  # a mistake in the call, not a source that was removed
        return {}, f"The rows cannot be read: {error}"
    options = data.spec["input"]

    def name(column: int) -> str:
        if isinstance(data.encoder, TableEncoder):
            found = data.encoder.name_of([column])[0]
            is_category = found.part == "category"  # the encoder keeps no words, but a number for each
            return f"{found.column}: {found.part}" + (f" {column & 0xFFFFFFFF:08x}" if is_category else "")
        return column_named(column, options)

    return {
        number: {name(column): value for column, value in zip(row.indices.tolist(), row.data.tolist(), strict=True)}
        for number, row in zip(numbers, X, strict=True)
    }, ""


def _shards_of(found: Duplicates, groups: ShardDataset) -> ShardDataset:
    """Open the shards whose duplicates were found.

    Raises
    ------
    DkfeatError
        If they are not on this machine, or have changed.
    """
    if is_url(found.shards):
        raise ConfigError(f"the shards are at {printable(found.shards)}, not on this machine")
    data = open_shards(found.shards, verify="size")
    if data.manifest.shards_sha256 != groups.spec[groups.layout]["shards"]:
        raise ConfigError(f"{data.shards.storage.url} has changed since the search")
    return data
