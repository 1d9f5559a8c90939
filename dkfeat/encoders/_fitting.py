"""Fit of an encoder: the rows that are drawn, and the encoding that these give each column."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.random import STREAM_TABLE, choose_rows
from dkfeat.encoders._arrow import Plan, Rows, encode, read_numbers, read_table, storage_of
from dkfeat.encoders._base import N_DRAWN
from dkfeat.encoders._columns import ENCODINGS, LEFT_OUT, PARTS, ZEROS_ABSENT, Column, draw_knots
from dkfeat.errors import ConfigError, InputError
from dkfeat.maps._rows import is_dask

_FEWEST_IDS, _MOST_DISTINCT = 100, 0.9
"""Text is left out if, of this many values or more, a larger share is distinct."""
_LONGEST_EXAMPLE = 20  # characters
_NO_RANKS = np.empty(0), np.empty(0, np.float32)
_DAY = 86_400  # seconds


def is_dask_table(X: Any) -> bool:
    """Return True for a Dask DataFrame."""
    return is_dask(X) and hasattr(X, "map_partitions")


def draw(X: Any, seed: int) -> Rows:
    """Draw the rows to which an encoder is fitted."""
    if is_dask_table(X):
        ends = np.cumsum(X.map_partitions(len).compute().to_numpy())
        numbers = choose_rows(seed, int(ends[-1]), N_DRAWN, STREAM_TABLE)
        X = X.map_partitions(_take, numbers=numbers, ends=ends, meta=X._meta).compute()
    batches = read_table(X)
    ends = np.cumsum([0, *(batch.num_rows for batch in batches)])
    if not ends[-1]:
        what = "rows (0 samples)" if batches[0].num_columns else "columns"
        raise InputError(f"the table has no {what}, but a minimum of 1 is required to fit an encoder")
    numbers = choose_rows(seed, int(ends[-1]), N_DRAWN, STREAM_TABLE)
    cuts = np.searchsorted(numbers, ends)
    drawn = [(batch, numbers[cuts[at] : cuts[at + 1]] - ends[at]) for at, batch in enumerate(batches)]
    return [(batch, own) for batch, own in drawn if len(own)]


def _take(part: Any, *, numbers: NDArray[np.int64], ends: NDArray[np.int64], partition_info: Any) -> Any:
    """Take the drawn rows of a partition; `ends` are the numbers of the rows after each partition."""
    stop = ends[partition_info["number"]]
    return part.iloc[numbers[slice(*np.searchsorted(numbers, [stop - len(part), stop]))] - (stop - len(part))]


def learn_column(drawn: Rows, *, is_named: bool) -> tuple[Column, NDArray[np.float64]]:
    """Choose the encoding of the only column of some batches, and its knots."""
    schema = drawn[0][0].schema
    field = schema.field(0)
    storage, n_rows = storage_of(field.type), sum(len(numbers) for _, numbers in drawn)
    column = Column(name=field.name, type=storage.name, family=storage.family, encoding=LEFT_OUT, rows=n_rows)
    if is_named and storage.family not in ("null", "tags") and "category" not in ENCODINGS.get(storage.family, ()):
        raise ConfigError(
            f"categories names {field.name!r}, a column of type {field.type}, but categories are text, booleans or "
            "integers; leave it out, or convert it to text"
        )
    if not storage.family or storage.family == "null":
        return replace(column, nulls=n_rows if storage.family else 0), np.empty(0)
    column = replace(column, example=_example(drawn))
    usual = ENCODINGS[storage.family][0]
    if usual in ("rank", "date") and not is_named:
        column = replace(column, encoding=usual, n_knots=1)
        return _learn_ranks(column, read_numbers(Plan.of(schema, [(column, column.job)]), drawn))
    column = replace(column, encoding="tags" if usual == "tags" else "category")
    odd = np.zeros((1, 2), np.int64)
    slots = encode(Plan.of(schema, [(column, column.job)]), drawn, _NO_RANKS, 0, odd).indices
    nulls, distinct, n_values = int(odd[0, 0]), len(np.unique(slots)), len(slots)
    column = replace(column, nulls=nulls, distinct=distinct)
    is_constant = not distinct or (not nulls and n_values == distinct * n_rows)
    is_id = storage.family == "text" and not is_named and n_values >= _FEWEST_IDS
    if is_constant or (is_id and distinct > _MOST_DISTINCT * n_values):
        column = replace(column, encoding=LEFT_OUT)
    return column, np.empty(0)


def _example(drawn: Rows) -> str:
    """Show a value of the only column of some batches, the first that is neither missing nor zero; "" without any."""
    with suppress(ValueError, OverflowError):  # nanoseconds without pandas, and years beyond Python's
        for value in (batch.column(0)[at].as_py() for batch, numbers in drawn for at in numbers[:100].tolist()):
            if value and value == value:  # not NaN
                text = f"{value:.10g}" if isinstance(value, float) else str(value)
                text = text[:_LONGEST_EXAMPLE] + "…" * (len(text) > _LONGEST_EXAMPLE)
                return repr(text) if isinstance(value, str) else text
    return ""


def _learn_ranks(column: Column, numbers: NDArray[np.float64]) -> tuple[Column, NDArray[np.float64]]:
    """Choose the encoding of a column of numbers or dates."""
    values = numbers[~np.isnan(numbers)]
    nulls, zeros = len(numbers) - len(values), int(np.count_nonzero(values == 0))
    distinct = len(np.unique(values))
    is_id = "int" in column.type and _FEWEST_IDS <= distinct == len(numbers)
    is_id = is_id and bool((np.diff(values) > 0).all() or np.ptp(values) < 2 * distinct)  # in order, or few gaps
    column = replace(column, nulls=nulls, distinct=distinct, zeros=zeros, is_row_number=is_id)
    if distinct < 1 + (not nulls):
        return replace(column, encoding=LEFT_OUT, n_knots=0), np.empty(0)
    if column.encoding == "date":
        days = np.floor(values / _DAY)
        months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
        parts = dict(zip(PARTS, (values - days * _DAY, days % 7, months), strict=True))
        column = replace(column, parts=tuple(part for part, values in parts.items() if len(np.unique(values)) > 1))
    elif distinct > 1 and 2 * zeros >= len(values):
        column, values = replace(column, encoding=ZEROS_ABSENT), values[values != 0]
    knots = draw_knots(values)
    return replace(column, n_knots=len(knots)), knots
