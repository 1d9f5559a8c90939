"""Options of a Parquet source: its columns, and its row filters, which become an expression for each file."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from dkfeat.blocks import KEPT_TYPES, RESERVED, SourceFile
from dkfeat.errors import ConfigError, DkfeatError, ParquetError
from dkfeat.messages import printable
from dkfeat.sources.base import Source
from dkfeat.sources.options import declared_words

Filters = tuple[tuple[tuple[str, str, Any], ...], ...]
"""Alternatives, of which one must be true; each is a list of comparisons (column, operator, value), all to be true."""

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
_SHAPE = (
    'filters are comparisons such as ("day", ">=", "2026-11-20"), or lists of comparisons, one of which must be true'
)

_STORED = (
    pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")
)  # fmt: skip
ARROW_TYPES = dict(zip(KEPT_TYPES, _STORED, strict=True))
"""Arrow types of kept columns by their names."""


@dataclass(frozen=True, slots=True, repr=False)
class ParquetOptions(Source):
    """Options of a `ParquetSource`, without the methods that read files."""

    kind: ClassVar[str] = "parquet"
    holder: ClassVar[str] = "the file"
    """What has the columns, in messages."""
    column_remedy: ClassVar[str] = ""
    """Further advice in errors about a column without values, or that is lacking, with ``{}`` for its name."""
    _to_resolve: ClassVar[tuple[str, ...]] = (
        "features", "n_features", "kept_types", "features_as", "multilabel", "label_dtype"
    )  # fmt: skip
    row_options: ClassVar[frozenset[str]] = frozenset({"filters", "weight", "id", "keep", "kept_types"})

    features: str | Sequence[str] | None = field(default=None, kw_only=True)
    """Names of the feature columns, in order; None: found by their types. Stored as a tuple. Those found are the column
    ``features`` if it holds vectors or structs, else ``indices`` and ``values`` if they hold lists, else all columns of
    numbers in the first file that have no other use and are not the index of a pandas table."""
    features_as: Literal["auto", "columns", "vector", "sparse", "table"] = field(default="auto", kw_only=True)
    """Layout of the features: "columns" of numbers, one column of vectors, sparse pairs, or "table": columns of any
    type, for an encoder. "auto": found from their types; columns are a "table" if the run has a `TableEncoder`. Indices
    without values are "sparse"; the values are 1."""
    label: str | None = field(default="label", kw_only=True)
    """Column of labels. It holds integers, floats or booleans, or lists of them. None: rows have no labels, and get
    0."""
    weight: str | None = field(default=None, kw_only=True)
    """Column of weights for training, finite and at least 0; shards keep it as ``weight``."""
    query_id: Any = field(default=None, kw_only=True)
    """Column of integers that shards keep as ``qid``; True: the column ``qid``."""
    id: str | None = field(default=None, kw_only=True)
    """Column that shards keep as ``id``."""
    keep: str | Sequence[str] = field(default=(), kw_only=True)
    """More columns that shards keep, under their names. They hold integers, floats, booleans, text, dates or
    timestamps; nulls are allowed. Stored as a tuple."""
    filters: Any = field(default=None, kw_only=True)
    """Filter of rows: comparisons such as ``[("day", ">=", "2026-11-20"), ("kind", "in", ["a", "b"])]`` that must all
    be true, or lists of comparisons, one of which must be true. Row groups that have no such rows by their statistics
    are not read."""
    zero_based: bool = field(default=True, kw_only=True)
    """True if index 0 of sparse rows is the first column, not 1."""
    multilabel: bool | Literal["auto"] = field(default="auto", kw_only=True)
    """Labels are lists; "auto": by the type of their column."""
    kept_types: tuple[str, ...] | None = field(default=None, kw_only=True)
    """Types of `id` and `keep` in shards, in order; None: by the types of the first file."""

    def __post_init__(self) -> None:
        if any(isinstance(label, str) for label in self.labels or ()):
            self._set("classes", declared_words(self.labels))
            self._set("labels", None)
        Source.__post_init__(self)  # classes with slots have no super()
        if self.features is not None:
            self._set("features", column_names("features", self.features))
            if not self.features:
                raise ConfigError(
                    "features is empty; name columns, or leave features out to read all columns of numbers"
                )
            if self.label in self.features:
                raise ConfigError(
                    f"features has {self.label!r}, which is the label; leave it out, or pass label= (--label)"
                )
        self._set("keep", column_names("keep", self.keep))
        if isinstance(self.query_id, bool):
            self._set("query_id", "qid" if self.query_id else None)
        for name in ("label", "weight", "query_id", "id"):
            if (value := getattr(self, name)) is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"{name}={value!r:.100}, but it must be the name of a column")
        self._set("filters", normalize_filters(self.filters))
        if not self.zero_based and self.features_as in ("columns", "vector", "table"):
            raise ConfigError("zero_based=False is for indices of sparse rows; leave it out")
        self._check_kept()

    def _check_kept(self) -> None:
        taken = [name for name in self.keep if name in RESERVED]
        if taken:
            raise ConfigError(
                f"keep={taken[0]!r}, but shards use this name for another column; rename the column in the source"
            )
        if self.id is not None and "id" in self.keep and self.id != "id":
            raise ConfigError(f"keep='id' and id={self.id!r} would both be the shards' column id; leave one out")
        if self.kept_types is not None:
            kinds = tuple(self.kept_types)
            self._set("kept_types", kinds)
            if len(kinds) != len(self.kept_columns) or not set(kinds) <= {*KEPT_TYPES}:
                raise ConfigError(
                    f"kept_types={kinds!r}, but id and keep need {len(self.kept_columns)} of {', '.join(KEPT_TYPES)}"
                )

    @property
    def kept_columns(self) -> dict[str, str]:
        """Names in the source of the columns that shards keep, by their names in shards."""
        return {**({} if self.id is None else {"id": self.id}), **{name: name for name in self.keep}}

    @property
    def is_table(self) -> bool:
        """True if the columns are those of a table."""
        return self.features_as == "table"

    @property
    def may_be_table(self) -> bool:
        """True if the columns are those of a table, or may be."""
        return self.features_as in ("auto", "table")

    @property
    def has_labels(self) -> bool:
        """True if rows have labels of their own."""
        return self.label is not None

    @property
    def has_weights(self) -> bool:
        """True if rows have weights."""
        return self.weight is not None

    @property
    def kept(self) -> dict[str, str]:
        """Types of the columns that shards keep, by their names in shards; `kept_types` must be resolved."""
        return dict(zip(self.kept_columns, self.kept_types or (), strict=True))

    @property
    def filter_columns(self) -> tuple[str, ...]:
        """Distinct columns that filters compare."""
        filters: Filters = self.filters or ()
        return tuple(dict.fromkeys(column for alternative in filters for column, _, _ in alternative))

    def column_error(self, file: SourceFile, column: str | None, reason: str) -> DkfeatError:
        """Make an error about a column of a file, or about all."""
        return ParquetError(reason, path=printable(file.url), column=column)

    @property
    def texts(self) -> Mapping[str, Any]:
        """N-grams of columns of text, by their names, which the encoder makes."""
        return self.encoder.texts if self.has_table_encoder else {}

    @property
    def read_features(self) -> tuple[str, ...]:
        """Names of the feature columns that are read: those that a fitted encoder leaves out are not."""
        names = tuple(self.features or ())
        if not (self.is_table and self.is_encoded):
            return names
        left_out = {column.name for column in self.encoder.describe().left_out}
        return tuple(name for name in names if name not in left_out)

    @property
    def read_columns(self) -> list[str]:
        """Distinct names of all columns that are read."""
        names = (*self.read_features, self.label, self.weight, self.query_id, *self.kept_columns.values())
        return list(dict.fromkeys([name for name in (*names, *self.filter_columns) if name]))


def column_names(name: str, value: Any) -> tuple[str, ...]:
    """Check names of columns, which must be distinct."""
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else (None,)
    if not all(isinstance(item, str) and item for item in names):
        raise ConfigError(f"{name}={value!r:.100}, but it must be the name of a column, or a list of names")
    doubled = next((item for item in names if names.count(item) > 1), None) if len(set(names)) < len(names) else None
    if doubled is not None:
        raise ConfigError(f"{name} has {doubled!r} twice; name each column once")
    return tuple(str(item) for item in names)


def normalize_filters(filters: Any) -> Filters | None:
    """Check filters and convert them to plain values: tuples, text, numbers, and dates as ISO text.

    Raises
    ------
    ConfigError
        If they are not comparisons of columns with plain values.

    Examples
    --------
    >>> normalize_filters([("day", ">", 3), ("kind", "in", ["a", "b"])])
    ((('day', '>', 3), ('kind', 'in', ('a', 'b'))),)
    """
    if filters is None or (isinstance(filters, Sequence) and not filters):
        return None
    alternatives = [filters] if _is_alternative(filters) else filters
    if not (_is_list(alternatives) and all(map(_is_alternative, alternatives))):
        raise ConfigError(f"filters={filters!r:.200}: {_SHAPE}")
    return tuple(tuple(map(_comparison, item)) for item in alternatives)


def condition_of(filters: Filters, schema: pa.Schema, file: SourceFile) -> Any:
    """Turn filters into an expression for a file; text is converted if the column has dates or times.

    Raises
    ------
    ConfigError
        If a column cannot be compared with a value.
    """
    types = {item.name: storage_type(item.type) for item in schema}
    try:
        alternatives = [
            [(column, operator, _typed(value, types[column])) for column, operator, value in item] for item in filters
        ]
        condition = pq.filters_to_expression(alternatives)
        compared = {column for item in filters for column, _, _ in item}
        pa.table({column: pa.array([], types[column]) for column in compared}).filter(condition)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as fault:
        detail = printable(" ".join(str(fault).split()))[:200]
        raise ConfigError(
            f"filters={filters!r:.200} do not fit the columns of {printable(file.url)}: {detail}"
        ) from None
    return condition


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values in memory, without dictionary, extension and list view types."""
    if isinstance(kind, pa.BaseExtensionType):
        return storage_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return storage_type(kind.value_type)
    is_view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    return pa.large_list(kind.value_type) if is_view else kind


def _typed(value: Any, kind: pa.DataType) -> Any:
    is_exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    if isinstance(value, tuple):
        items = [_typed(item, kind) for item in value]
        if is_exact and not any(isinstance(item, str | bool) for item in items):
            return pa.array([item.as_py() for item in items if isinstance(item, pa.Scalar)], kind)
        # sets hold bits: a zero of one sign does not find the other, nor does the statistic -0.0 that writers store
        return [*items, 0.0, -0.0] if pa.types.is_floating(kind) and 0 in items else items
    if isinstance(value, str) and pa.types.is_temporal(kind):
        return pa.scalar(value).cast(kind).as_py()
    if is_exact and isinstance(value, int | float) and not isinstance(value, bool):
        return _exact(value, kind)
    return value


def _exact(value: float, kind: pa.DataType) -> pa.Scalar | decimal.Decimal | float:
    """Return a number as a scalar of the column's type, or as a decimal if no value of the column is equal to it.

    pyarrow compares integers with floats as floats and unsigned integers as signed ones, and fails if one does not fit.
    Integers of more than 64 bits are left as they are, for pyarrow to refuse.
    """
    exact = decimal.Decimal(str(value))
    try:
        return pa.scalar(exact).cast(kind)
    except pa.ArrowInvalid:
        return value if isinstance(value, int) and abs(value) >= 2**64 else exact


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_alternative(value: object) -> bool:
    return _is_list(value) and bool(value) and all(map(_is_comparison, value))  # type: ignore[call-overload]  # it is a sequence


def _is_comparison(value: object) -> bool:
    return _is_list(value) and len(value) == 3 and all(isinstance(item, str) for item in value[:2])  # type: ignore[arg-type,index]  # it is a sequence


def _comparison(item: Sequence[Any]) -> tuple[str, str, Any]:
    column, operator, value = item
    operator = "==" if operator == "=" else " ".join(operator.split())
    if operator not in OPERATORS:
        raise ConfigError(f"filters: {operator!r} is not an operator; choose from {', '.join(OPERATORS)}")
    if operator.endswith("in"):
        if not isinstance(value, Sequence | set | frozenset) or isinstance(value, str):
            raise ConfigError(f"filters: {column} {operator} {value!r:.100}, but the operator takes a list of values")
        chosen = sorted(value) if isinstance(value, set | frozenset) else value
        return column, operator, tuple(_plain(one) for one in chosen)
    return column, operator, _plain(value)


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):  # a number or a date of NumPy
        value = value.item()
    if isinstance(value, datetime.date):  # or its subclass, datetime
        return value.isoformat()
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"filters: {value!r:.100}, but a value is text, a finite number or a date")
    return value
