"""Options of a Parquet source: its columns, found in the first file and checked in every file, and its row filters."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from dkfeat.blocks import KEPT_TYPES, RESERVED, SourceFile
from dkfeat.errors import ConfigError, ParquetError
from dkfeat.filesystems.urls import printable
from dkfeat.messages import meant
from dkfeat.sources.base import Source
from dkfeat.sources.options import dtype_of_labels

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
_VECTOR = "features"
_PAIR = ("indices", "values")
_SHOWN = 12
_FLAGS = {"query_id": "--query-column"}
"""Command-line options whose name differs from that of their parameter."""


@dataclass(frozen=True, slots=True, repr=False)
class ParquetOptions(Source):
    """Options of a `ParquetSource`, without the methods that read files."""

    kind: ClassVar[str] = "parquet"
    _to_resolve: ClassVar[tuple[str, ...]] = (
        "features", "n_features", "kept_types", "features_as", "multilabel", "label_dtype"
    )  # fmt: skip
    row_options: ClassVar[frozenset[str]] = frozenset({"filters", "weight", "id", "keep", "kept_types"})

    features: str | Sequence[str] | None = field(default=None, kw_only=True)
    """Names of the feature columns, in order; None: found by their types. Stored as a tuple. Those found are the column
    ``features`` if it holds vectors or structs, else ``indices`` and ``values`` if they hold lists, else all columns of
    numbers in the first file that have no other use and are not the index of a pandas table."""
    features_as: Literal["auto", "columns", "vector", "sparse"] = field(default="auto", kw_only=True)
    """Layout of the features: a column for each, one column of vectors, or one of sparse pairs; "auto": found from
    their types. Indices without values are "sparse"; the values are 1."""
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
        Source.__post_init__(self)  # classes with slots have no super()
        if self.features is not None:
            self._set("features", _names("features", self.features))
            if not self.features:
                raise ConfigError(
                    "features is empty; name columns, or leave features out to read all columns of numbers"
                )
            if self.label in self.features:
                raise ConfigError(
                    f"features has {self.label!r}, which is the label; leave it out, or pass label= (--label)"
                )
        self._set("keep", _names("keep", self.keep))
        if isinstance(self.query_id, bool):
            self._set("query_id", "qid" if self.query_id else None)
        for name in ("label", "weight", "query_id", "id"):
            if (value := getattr(self, name)) is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"{name}={value!r:.100}, but it must be the name of a column")
        self._set("filters", normalize_filters(self.filters))
        if not self.zero_based and self.features_as in ("columns", "vector"):
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

    @property
    def read_columns(self) -> list[str]:
        """Distinct names of all columns that are read."""
        names = (*(self.features or ()), self.label, self.weight, self.query_id, *self.kept_columns.values())
        return list(dict.fromkeys([name for name in (*names, *self.filter_columns) if name]))


def _names(name: str, value: Any) -> tuple[str, ...]:
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
    """Return the type of a column's values in memory, without dictionary and extension types."""
    if isinstance(kind, pa.BaseExtensionType):
        return storage_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return storage_type(kind.value_type)
    return kind


def _typed(value: Any, kind: pa.DataType) -> Any:
    is_exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    if isinstance(value, tuple):
        items = [_typed(item, kind) for item in value]
        if is_exact and not any(isinstance(item, str | bool) for item in items):
            return pa.array([item.as_py() for item in items if isinstance(item, pa.Scalar)], kind)
        return items
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


class Schema:
    """Columns of one file by name, with the types that values have in memory.

    Raises
    ------
    ParquetError
        If a method finds no such column, or several; the error names the file and the column.
    """

    def __init__(self, schema: pa.Schema, file: SourceFile) -> None:
        self._names = schema.names
        self._index = _pandas_index(schema)
        self._types = {item.name: storage_type(item.type) for item in schema}
        self._path = printable(file.url)

    def error(self, column: str, reason: str) -> ParquetError:
        """Make an error about a column."""
        return ParquetError(reason, path=self._path, column=printable(column))

    def type_of(self, column: str, use: str) -> pa.DataType:
        """Return the type of a column that is read for the option `use`."""
        if column not in self._types:
            shown = ", ".join(map(printable, self._names[:_SHOWN])) + (", …" if len(self._names) > _SHOWN else "")
            hint = "" if (use, column) == ("label", "label") else meant(column, self._names)
            if not hint:
                hint = f"; pass {use}= ({_FLAGS.get(use, f'--{use}')})"
                hint += ", or label=None (--no-label) if rows have none" if use == "label" else ""
            if f"/{column}=" in self._path:
                hint = "; values in names of folders are not read: write them into the files as a column"
            raise self.error(column, f"there is no such column: the file has {shown or 'none'}{hint}")
        if self._names.count(column) > 1:
            raise self.error(column, "the file has several columns of this name; rename them")
        return self._types[column]

    def numbers(self, leave_out: set[str]) -> list[str]:
        """Return the names of all columns of numbers, except those in `leave_out` and the index of a pandas table."""
        leave_out = leave_out | self._index
        return [name for name in self._names if name not in leave_out and is_number(self._types[name])]

    def has_vector(self, column: str) -> bool:
        """Return True if there is a column of this name that holds vectors or structs."""
        kind = self._types.get(column)
        return kind is not None and (_vector_value(kind) is not None or pa.types.is_struct(kind))

    def has_lists(self, column: str, *, integers: bool = False) -> bool:
        """Return True if there is a column of this name that holds lists of numbers, or of integers on request."""
        value = _list_value(self._types.get(column))
        return value is not None and (pa.types.is_integer(value) if integers else is_number(value))


def _pandas_index(schema: pa.Schema) -> set[str]:
    """Return the names of the columns that hold the index of a pandas table, by its metadata."""
    try:
        return {name for name in schema.pandas_metadata["index_columns"] if isinstance(name, str)}
    except (TypeError, KeyError, ValueError, RecursionError):  # none, or not as pandas writes it
        return set()


def is_number(kind: pa.DataType) -> bool:
    """Return True if values of a type are read as numbers."""
    return any(test(kind) for test in _NUMBERS)


def options_of_schema(options: ParquetOptions, schema: Schema) -> dict[str, Any]:
    """Return the options of a source that the schema of its first file determines; those that need rows are not set.

    Features that are not given are the column ``features`` if it holds vectors or structs, else ``indices`` and
    ``values`` if they hold lists, else every column of numbers that is not the label, weight, query id or kept.
    """
    features, features_as = options.features, str(options.features_as)
    used = {name for name in (options.label, options.weight, options.query_id, *options.kept_columns.values()) if name}
    if not features:
        if schema.has_vector(_VECTOR):
            features = (_VECTOR,)
        elif schema.has_lists(_PAIR[0], integers=True):
            features = tuple(name for name in _PAIR if schema.has_lists(name))
            features_as = "sparse"
        else:
            features = tuple(schema.numbers(used))
        if not features:
            reason = (
                "no column of numbers is left for features; name those to read by features= (--features), a column of "
                "vectors for instance"
            )
            raise schema.error(_VECTOR, reason)
        if "" in features:
            reason = (
                "a column of numbers without a name; name it in the file, or name the columns to read by "
                "features= (--features)"
            )
            raise schema.error("''", reason)
    types = [schema.type_of(name, "features") for name in features]
    if features_as == "auto":
        features_as = _layout(types)
    found: dict[str, Any] = {"features": features, "features_as": features_as}
    if options.n_features is None:
        found["n_features"] = _width(types, features_as)
    label = pa.int64() if options.label is None else schema.type_of(options.label, "label")
    value = _list_value(label)
    if options.multilabel == "auto":
        found["multilabel"] = value is not None
    label = label if value is None else value
    if options.label_dtype == "auto" and (options.labels is not None or is_integers(label)):
        found["label_dtype"] = dtype_of_labels(options.labels or ())
    if options.kept_types is None:
        found["kept_types"] = tuple(
            _kept_type(schema.type_of(column, "keep"), column, schema) for column in options.kept_columns.values()
        )
    return found


def is_integers(kind: pa.DataType) -> bool:
    """Return True for types of integers: also booleans, and decimals without digits after the point."""
    is_whole = pa.types.is_decimal(kind) and kind.scale <= 0
    return is_whole or pa.types.is_integer(kind) or pa.types.is_boolean(kind)


def check_schema(options: ParquetOptions, schema: Schema) -> None:
    """Check that the columns of a file are those that the source reads.

    Raises
    ------
    ParquetError
        If a column is missing, or its type does not match; the error names the file and the column.
    """
    _check_features(options, schema)
    if options.label is not None:
        _check_label(options, schema)
    if options.weight is not None and not is_number(kind := schema.type_of(options.weight, "weight")):
        raise schema.error(options.weight, f"is {kind}, but weights are numbers")
    if options.query_id is not None and not pa.types.is_integer(kind := schema.type_of(options.query_id, "query_id")):
        raise schema.error(options.query_id, f"is {kind}, but query ids are integers")
    for column, wanted in zip(options.kept_columns.values(), options.kept_types or (), strict=True):
        found = _kept_type(schema.type_of(column, "keep"), column, schema)
        if found != wanted:
            raise schema.error(column, f"is kept as {found}, but as {wanted} in the source's first file")
    for column in options.filter_columns:
        schema.type_of(column, "filters")


def _check_features(options: ParquetOptions, schema: Schema) -> None:
    features = options.features or ()
    types = [schema.type_of(name, "features") for name in features]
    if options.features_as == "columns":
        for name, kind in zip(features, types, strict=True):
            if not is_number(kind):
                remedy = ", encode it as numbers, or pass it as keep=" if _is_text(kind) else ""
                reason = f"is {kind}, but feature columns are numbers; leave it out{remedy}"
                raise schema.error(name, reason)
        if len(types) != options.n_features:
            raise ConfigError(
                f"features are {len(types):,} columns, but n_features={options.n_features:,}; the two must be equal"
            )
        return
    if options.features_as == "vector":
        kind = types[0]
        if len(types) > 1 or _vector_value(kind) is None:
            reason = f"is {kind}, but a vector is one column of lists of numbers, or of float32 as fixed-size binary"
            raise schema.error(features[0], reason)
        width = _width(types, "vector")
        if None not in (width, options.n_features) and width != options.n_features:
            raise schema.error(features[0], f"holds vectors of {width:,} values, but n_features={options.n_features:,}")
        return
    if len(types) == 1 and pa.types.is_struct(types[0]):
        fields = {item.name: storage_type(item.type) for item in types[0]}
        if not set(_PAIR) <= fields.keys():
            reason = f"is a struct of {', '.join(fields)}, but sparse rows are a struct of indices and values"
            raise schema.error(features[0], reason)
        names, types = [f"{features[0]}.{name}" for name in _PAIR], [fields[name] for name in _PAIR]
    else:
        names = list(features)
    if len(types) > 2:
        raise schema.error(names[2], "sparse rows are two columns of lists, indices and values, or one of structs")
    value = _list_value(types[0])
    if value is None or not pa.types.is_integer(value):
        raise schema.error(names[0], f"is {types[0]}, but indices are lists of integers")
    if len(types) == 2 and ((value := _list_value(types[1])) is None or not is_number(value)):
        raise schema.error(names[1], f"is {types[1]}, but values are lists of numbers")


def _check_label(options: ParquetOptions, schema: Schema) -> None:
    name = str(options.label)
    kind = schema.type_of(name, "label")
    value = _list_value(kind)
    if options.multilabel and value is None:
        raise schema.error(name, f"is {kind}, but with multilabel=True labels are lists of numbers")
    if not options.multilabel and value is not None:
        raise schema.error(name, f"is {kind}; pass multilabel=True to read lists of labels")
    kind = kind if value is None else value
    if not is_number(kind):
        hint = f"; number the classes first, and pass keep={name!r} if the names matter" if _is_text(kind) else ""
        raise schema.error(name, f"is {kind}, but labels are numbers{hint}")


def _layout(types: list[pa.DataType]) -> str:
    """Find the layout of the features by the types of their columns."""
    lists = [_list_value(kind) for kind in types]
    if len(types) == 2 and None not in lists and pa.types.is_integer(lists[0]):
        return "sparse"
    if len(types) == 1 and pa.types.is_struct(types[0]):
        return "sparse"
    return "vector" if len(types) == 1 and _vector_value(types[0]) is not None else "columns"


def _width(types: list[pa.DataType], features_as: str) -> int | None:
    """Return the number of features if the types of their columns determine it."""
    if features_as == "columns":
        return len(types)
    if features_as == "vector" and pa.types.is_fixed_size_list(types[0]):
        return int(types[0].list_size)
    if features_as == "vector" and pa.types.is_fixed_size_binary(types[0]):
        return int(types[0].byte_width) // 4
    return None


def _kept_type(kind: pa.DataType, column: str, schema: Schema) -> str:
    """Return the type of a kept column in shards."""
    kept = next((kept for is_kind, kept in _KEPT if is_kind(kind)), None)
    if pa.types.is_timestamp(kind):
        kept = pa.timestamp("us", None if kind.tz is None else "UTC")
    if kept is None:
        raise schema.error(column, f"is {kind}, which cannot be kept; {', '.join(KEPT_TYPES)} can")
    return next(name for name, storage in ARROW_TYPES.items() if storage == kept)


def _vector_value(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return pa.float32() if kind.byte_width and kind.byte_width % 4 == 0 else None
    value = _list_value(kind)
    return value if value is not None and is_number(value) else None


def _list_value(kind: pa.DataType | None) -> pa.DataType | None:
    """Return the type of the items of lists of any kind; None for other types."""
    is_list = hasattr(kind, "value_type") and not pa.types.is_run_end_encoded(kind)
    return storage_type(kind.value_type) if is_list else None  # type: ignore[union-attr]  # it has the attribute


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
_KEPT = (
    (pa.types.is_integer, pa.int64()),
    (pa.types.is_floating, pa.float64()),
    (pa.types.is_boolean, pa.bool_()),
    (_is_text, pa.string()),
    (pa.types.is_date, pa.date32()),
)
