"""Row filters of a Parquet source, as plain values and as an expression."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dkfeat.blocks import SourceFile
from dkfeat.errors import ConfigError
from dkfeat.io.storage.urls import printable

Filters = tuple[tuple[tuple[str, str, Any], ...], ...]
"""Alternatives, of which one must hold; each is a list of comparisons (column, operator, value), which all must."""

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
_SHAPE = 'filters are comparisons such as ("day", ">=", "2026-11-20"), or lists of these of which one must hold'


def normalized(filters: Any) -> Filters | None:
    """Check filters and make them of plain values: tuples, text, numbers; dates as ISO text.

    Raises
    ------
    ConfigError
        For what is no comparison of a column with plain values.

    Examples
    --------
    >>> normalized([("day", ">", 3), ("kind", "in", ["a", "b"])])
    ((('day', '>', 3), ('kind', 'in', ('a', 'b'))),)
    """
    if filters is None or (isinstance(filters, Sequence) and not filters):
        return None
    if not _is_list(filters):
        raise _misshapen(filters)
    alternatives = [filters] if all(_is_comparison(item) for item in filters) else filters
    if not all(_is_list(item) and item and all(map(_is_comparison, item)) for item in alternatives):
        raise _misshapen(filters)
    return tuple(tuple(map(_comparison, item)) for item in alternatives)


def condition_of(filters: Filters, schema: pa.Schema, file: SourceFile) -> Any:
    """Turn filters into an expression for a file; text is compared with dates and times as such.

    Raises
    ------
    ConfigError
        Where a column cannot be compared with a value.
    """
    types = {item.name: storage_type(item.type) for item in schema}
    try:
        alternatives = [
            [(column, operator, _typed(value, types[column])) for column, operator, value in item] for item in filters
        ]
        condition = pq.filters_to_expression(alternatives)
        plain = pa.schema([(column, types[column]) for item in filters for column, _, _ in item])
        pa.table({name: pa.array([], plain.field(name).type) for name in dict.fromkeys(plain.names)}).filter(condition)
    except (pa.ArrowException, ValueError, TypeError) as fault:
        detail = printable(" ".join(str(fault).split()))[:200]
        raise ConfigError(
            f"filters={filters!r:.200} do not fit the columns of {printable(file.url)}: {detail}"
        ) from None
    return condition


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Type of a column's values in memory: behind extensions, which are never loaded, and dictionaries."""
    if isinstance(kind, pa.BaseExtensionType):
        return storage_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return storage_type(kind.value_type)
    return kind


def _typed(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, tuple):
        return [_typed(item, kind) for item in value]
    if isinstance(value, str) and pa.types.is_temporal(kind):
        return pa.scalar(value).cast(kind).as_py()
    return value


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_comparison(value: object) -> bool:
    return _is_list(value) and len(value) == 3 and all(isinstance(item, str) for item in value[:2])  # type: ignore[arg-type,index]  # it is a sequence


def _comparison(item: Sequence[Any]) -> tuple[str, str, Any]:
    column, operator, value = item
    operator = "==" if operator == "=" else " ".join(operator.split())
    if operator not in OPERATORS:
        raise ConfigError(f"filters: {operator!r} is no operator; they are {', '.join(OPERATORS)}")
    if operator.endswith("in"):
        if not isinstance(value, Sequence | set | frozenset) or isinstance(value, str):
            raise ConfigError(f"filters: {column} {operator} {value!r:.100}, but it takes a list of values")
        chosen = sorted(value) if isinstance(value, set | frozenset) else value
        return column, operator, tuple(_plain(one) for one in chosen)
    return column, operator, _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.date):  # times are dates too
        return value.isoformat()
    if hasattr(value, "item"):  # numpy's numbers
        value = value.item()
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"filters: {value!r:.100} is no value to compare with: text, a finite number or a date is")
    return value


def _misshapen(filters: object) -> ConfigError:
    return ConfigError(f"filters={filters!r:.200}: {_SHAPE}")
