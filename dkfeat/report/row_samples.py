"""Rows of a report's samples: their origins and kept columns, and their columns in the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.config import ExecutionConfig
from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ConfigError, DkfeatError, SourceNotFoundError
from dkfeat.filesystems.urls import is_url, printable
from dkfeat.neighbors.exact import RowsOfSource
from dkfeat.report.estimates import safe_source
from dkfeat.store.commit.run_log import read_logs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.neighbors import Duplicates

MOST_COLUMNS = 20
"""Maximum number of columns shown of a pair."""
_NUMBERS = ("row", "group", "keep", "source_split", "source_row")

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
        return {name: pair for name, pair in self._values() if pair[0] != pair[1]}

    @property
    def shown(self) -> list[tuple[str, str, str, bool]]:
        """Names, values as text, and True if they differ: first columns that do, then those of the largest values."""
        return [(name, _text(a), _text(b), a != b) for name, (a, b) in self._values()[:MOST_COLUMNS]]

    @property
    def note(self) -> str:
        """Numbers of columns and of differences."""
        values = self._values()
        text = f"{len(self.differences):,} of {len(values):,} columns that are not 0 differ"
        return f"{text}; {MOST_COLUMNS:,} are shown" if len(values) > MOST_COLUMNS else text

    def to_mapping(self) -> dict[str, Any]:
        """Return plain JSON values."""
        known: dict[str, Any] = {"similarity": self.similarity, "rows": [row.to_mapping() for row in self.rows]}
        if self.columns[0] is not None:
            known |= {"n_columns": len(self._values()), "n_differences": len(self.differences)}
        return known

    def _values(self) -> list[tuple[str, tuple[float, float]]]:
        left, right = (columns or {} for columns in self.columns)
        pairs = {name: (left.get(name, 0.0), right.get(name, 0.0)) for name in {**left, **right}}
        return sorted(pairs.items(), key=lambda item: (-abs(item[1][0] - item[1][1]), -max(map(abs, item[1]))))


def _text(value: float) -> str:
    return f"{value:.6g}" if value else "·"


def read_origins(groups: ShardDataset, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Read the fields of `RowSample` of rows in ascending order from a table of groups."""
    found: dict[int, dict[str, Any]] = {}
    for entry, positions, first in _shards_with(groups, numbers):
        columns = groups.shards.read(entry, groups.verifies).kept
        for position in positions.tolist():
            row = {name: column[position].as_py() for name, column in columns.items() if name not in _NUMBERS}
            file, file_row = row.pop("source_file"), row.pop("file_row")
            found[first + position] = {"file": file, "file_row": file_row, "kept": row}
    return found


def _shards_with(table: ShardDataset, numbers: Sequence[int]) -> Iterator[tuple[Any, NDArray[np.int64], int]]:
    """Yield the shards with any of the rows, the rows' positions in the shard, and the number of its first row."""
    wanted, first = np.asarray(numbers, np.int64), 0
    for entry in table.manifest.shards:
        begin, end = np.searchsorted(wanted, [first, first + entry.rows])
        if begin < end:
            yield entry, wanted[begin:end] - first, first
        first += entry.rows


def read_features(
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
    name = _names(data.spec["input"])
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


def _names(options: Mapping[str, Any]) -> Any:
    """Return a function that names a column as the source does."""
    features, first = options.get("features"), 0 if options.get("zero_based", True) else 1
    if isinstance(features, Sequence) and len(features) > 1:
        return lambda column: str(features[column])
    return lambda column: f"column {column + first:,}"
