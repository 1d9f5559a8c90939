"""Batches of Parquet columns: plain arrays, and numbers out of them, with places for what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dkfeat.blocks import SourceFile
from dkfeat.errors import ParquetError
from dkfeat.io.files import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Batch", "RowError", "first_true", "floats_of", "int64_of", "lists_of", "owner_of", "plain", "refuse"]


class RowError(ParquetError):
    """What is wrong with one row, by a look at that row alone; `word` is one of ``quarantine.REASONS``."""

    word = "bad value"


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Columns of consecutive rows of a row group, those that a filter passed over left out."""

    file: SourceFile
    """The file."""
    row_group: int
    """Number of the row group."""
    rows: NDArray[np.int64]
    """Number of each row in the row group."""
    columns: dict[str, pa.Array]
    """Plain arrays by column name: no dictionaries, no extensions."""

    def error(self, column: str | None, row: int, reason: str, word: str = RowError.word) -> RowError:
        """Make an error about the row at a position of the batch, or about its value of a column."""
        place = int(self.rows[row])
        error = RowError(
            reason,
            path=printable(self.file.url),
            row_group=self.row_group,
            row=place,
            column=None if column is None else printable(column),
        )
        error.word = word
        return error

    def part(self, start: int, stop: int) -> Batch:
        """Rows from `start` to `stop`, as views."""
        columns = {name: array.slice(start, stop - start) for name, array in self.columns.items()}
        return replace(self, rows=self.rows[start:stop], columns=columns)

    def without(self, positions: Sequence[int]) -> Batch:
        """Copy without some rows."""
        kept = np.delete(np.arange(len(self.rows)), positions)
        columns = {name: array.take(pa.array(kept)) for name, array in self.columns.items()}
        return replace(self, rows=self.rows[kept], columns=columns)


def lists_of(batch: Batch, name: str, array: pa.Array, word: str = "bad feature") -> tuple[pa.Array, NDArray[np.int64]]:
    """Take what lists hold, end to end, and how long they are."""
    if array.null_count:
        raise batch.error(
            name, first_true(array.is_null()), "a null in place of a list; an empty list is one of no values", word
        )
    if pa.types.is_fixed_size_list(array.type):
        lengths = np.full(len(array), array.type.list_size, np.int64)
    else:
        lengths = array.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return plain(array.flatten()), lengths


def plain(array: pa.Array) -> pa.Array:
    """Array without extension, dictionary or view."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        return plain(array.dictionary_decode())
    kind = array.type
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return array.cast(pa.large_list(kind.value_type))
    return array


def floats_of(array: pa.Array) -> NDArray[Any]:
    """Numbers without nulls as float32 or float64."""
    kind = array.type
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        array = array.cast(pa.uint8() if pa.types.is_boolean(kind) else pa.float64())
    numbers = array.to_numpy(zero_copy_only=False)
    if numbers.dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        return numbers
    return numbers.astype(np.float32 if numbers.dtype == np.float16 else np.float64)


def int64_of(batch: Batch, name: str, array: pa.Array, row_of: Callable[[int], int], word: str) -> NDArray[np.int64]:
    """Integers without nulls as int64."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    numbers = array.to_numpy(zero_copy_only=False)
    if numbers.dtype == np.uint64:
        refuse(batch, name, row_of, numbers > 2**63 - 1, numbers, "integers are at most 2^63 - 1", word)
    return numbers.astype(np.int64, copy=False)


def refuse(
    batch: Batch, name: str, row_of: Callable[[int], int], bad: NDArray[np.bool_], values: Any, expected: str, word: str
) -> None:
    """Raise an error about the first bad value, if there is one."""
    if bad.any():
        place = int(np.argmax(bad))
        raise batch.error(name, row_of(place), f"{values[place]}, but {expected}", word)


def owner_of(lengths: NDArray[np.int64]) -> Callable[[int], int]:
    """Row that holds the value at a place."""
    return lambda place: int(np.searchsorted(np.cumsum(lengths), place, side="right"))


def first_true(mask: pa.Array) -> int:
    """Position of the first true value."""
    return int(np.argmax(mask.to_numpy(zero_copy_only=False)))
