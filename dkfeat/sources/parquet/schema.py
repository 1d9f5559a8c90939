"""Columns of a Parquet source, found in the schema of its first file and checked in that of every file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dkfeat.blocks import KEPT_TYPES, SourceFile
from dkfeat.errors import ConfigError, DkfeatError, InputError
from dkfeat.messages import meant, printable
from dkfeat.sources.find import warn_of_left_out
from dkfeat.sources.options import dtype_of_labels
from dkfeat.sources.parquet.options import ARROW_TYPES, ParquetOptions, storage_type

_VECTOR = "features"
_PAIR = ("indices", "values")
_SHOWN = 12
_NOT_NUMBERS = (
    "features are read as numbers; gcws and dart encode all columns, other maps with encoder= (--text or --categories)"
)
_FLAGS = {"query_id": "--query-column"}
"""Command-line options whose name differs from that of their parameter."""


class Schema:
    """Columns of one file by name, with the types that values have in memory.

    Raises
    ------
    ParquetError, ParseError
        If a method finds no such column, or several; the error names the file and the column.
    """

    def __init__(self, options: ParquetOptions, schema: pa.Schema, file: SourceFile) -> None:
        self._options, self._file = options, file
        self._names = schema.names
        self._counts = Counter(schema.names)
        self._index = _pandas_index(schema)
        self._types = {item.name: storage_type(item.type) for item in schema}
        self.path = printable(file.url)

    def error(self, column: str, reason: str) -> DkfeatError:
        """Make an error about a column."""
        if self._types.get(column) == pa.null():
            reason += self._options.column_remedy.format(printable(column))
        return self._options.column_error(self._file, printable(column), reason)

    def type_of(self, column: str, use: str) -> pa.DataType:
        """Return the type of a column that is read for the option `use`."""
        if column not in self._types:
            shown = ", ".join(map(printable, self._names[:_SHOWN])) + (", …" if len(self._names) > _SHOWN else "")
            shown = (shown or "none") + self._options.column_remedy.format(printable(column))
            hint = "" if (use, column) == ("label", "label") else meant(column, self._names)
            if not hint:
                hint = f"; pass {use}= ({_FLAGS.get(use, f'--{use}')})"
                hint += ", or label=None (--no-label) if rows have none" if use == "label" else ""
                hint += ", or an array if the other rows were one" if column == "features" else ""
            if f"/{column}=" in self.path:
                hint = "; values in names of folders are not read: write them into the files as a column"
            raise self.error(column, f"there is no such column: {self._options.holder} has {shown}{hint}")
        if self._counts[column] > 1:
            raise self.error(column, f"{self._options.holder} has several columns of this name; rename them")
        return self._types[column]

    def numbers(self, leave_out: set[str]) -> list[str]:
        """Return the names of all columns of numbers, except those in `leave_out` and the index of a pandas table."""
        return [name for name in self.columns(leave_out) if is_number(self._types[name])]

    def columns(self, leave_out: set[str]) -> list[str]:
        """Return the names of all columns, except those in `leave_out` and the index of a pandas table."""
        return [name for name in self._names if name not in leave_out | self._index]

    def check_encoder(self, encoder: Any, names: Sequence[str]) -> None:
        """Check that a fitted encoder takes those columns of these names that the file has."""
        others = {column.name for column in encoder.describe()} - {*names}
        try:
            encoder.check_schema(pa.schema([item for item in self._types.items() if item[0] not in others]))
        except InputError as fault:
            raise self._options.column_error(self._file, None, str(fault)) from None

    def has_vector(self, column: str) -> bool:
        """Return True if there is a column of this name that holds vectors or structs."""
        kind = self._types.get(column)
        return kind is not None and (_vector_value(kind) is not None or pa.types.is_struct(kind))

    def has_lists(self, column: str, *, integers: bool = False) -> bool:
        """Return True if there is a column of this name that holds lists of numbers, or of integers on request."""
        value = list_value(self._types.get(column))
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
    ``values`` if they hold lists, else every column that is not the label, weight, query id or kept: those of numbers,
    or all if there is an encoder.
    """
    features, features_as = options.features, str(options.features_as)
    used = {name for name in (options.label, options.weight, options.query_id, *options.kept_columns.values()) if name}
    _check_texts(options, schema)
    is_table = features_as == "table" or bool(options.texts)
    if not features:
        if not is_table and schema.has_vector(_VECTOR):
            features = (_VECTOR,)
        elif not is_table and schema.has_lists(_PAIR[0], integers=True):
            features = tuple(name for name in _PAIR if schema.has_lists(name))
            features_as = "sparse"
        else:
            takes_all = is_table or (features_as == "auto" and options.has_table_encoder)
            used -= options.texts.keys()
            features = tuple(schema.columns(used) if takes_all else schema.numbers(used))
            if takes_all and options.has_table_encoder:
                if options.is_encoded:
                    schema.check_encoder(options.encoder, features)
                features = options.encoder.columns_among(features)
            if features and not takes_all:
                others = [name for name in schema.columns(used) if name not in features]
                warn_of_left_out(schema.path, others, _NOT_NUMBERS, "column")
        if not features:
            reason = (
                "no column of numbers is left for features; name those to read by features= (--features), a column of "
                "vectors for instance"
            )
            raise schema.error(_VECTOR, reason)
        if "" in features:
            reason = "a column without a name; name it in the file, or name those to read by features= (--features)"
            raise schema.error("''", reason)
    elif is_table and options.is_encoded:
        schema.check_encoder(options.encoder, features)
    types = [schema.type_of(name, "features") for name in options.read_features or features]
    if features_as == "auto":
        features_as = _layout(types)
        if features_as == "columns" and options.has_table_encoder:
            features_as = "table"
    found: dict[str, Any] = {"features": features, "features_as": features_as}
    if options.n_features is None:
        found["n_features"] = _width(features, types, features_as, options)
    label = pa.int64() if options.label is None else schema.type_of(options.label, "label")
    value = list_value(label)
    if options.multilabel == "auto":
        found["multilabel"] = value is not None
    label = label if value is None else value
    if is_text(label) and options.classes is None:
        found["classes"] = ()
    if options.label_dtype == "auto" and (options.labels is not None or is_integers(label) or is_text(label)):
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


def _check_texts(options: ParquetOptions, schema: Schema) -> None:
    """Check that there are columns of text for n-grams, which are among the features."""
    for name in options.texts:
        if options.features and name not in options.features:
            reason = "is not in features= (--features), but in text= (--text); name it in both, or leave features out"
            raise schema.error(name, reason)
        kind = schema.type_of(name, "text")
        if not is_text(kind) and not pa.types.is_null(kind):
            raise schema.error(name, f"is {kind}, but n-grams are made of text; convert it, or name another column")


def _check_features(options: ParquetOptions, schema: Schema) -> None:
    features = options.read_features
    _check_texts(options, schema)
    if options.is_table and options.is_encoded:
        schema.check_encoder(options.encoder, features)
    types = [schema.type_of(name, "features") for name in features]
    if options.features_as == "columns":
        for name, kind in zip(features, types, strict=True):
            if not is_number(kind):
                remedy = ", encode it as numbers, or pass it as keep=" if is_text(kind) else ""
                reason = f"is {kind}, but feature columns are numbers; leave it out{remedy}"
                raise schema.error(name, reason)
    if options.features_as in ("columns", "table"):
        if options.n_features != (width := _width(features, types, options.features_as, options)):
            remedy = "the two must be equal; if a fitted map states it, give a new one, as by sklearn.base.clone"
            if options.is_table:
                remedy = f'their encoder makes {width:,} features; leave it out, or pass features_as="columns"'
            raise ConfigError(f"features are {len(types):,} columns, but n_features={options.n_features:,}; {remedy}")
        return
    if options.features_as == "vector":
        kind = types[0]
        if len(types) > 1 or _vector_value(kind) is None:
            reason = f"is {kind}, but a vector is one column of lists of numbers, or of float32 as fixed-size binary"
            raise schema.error(features[0], reason)
        width = _width(features, types, "vector", options)
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
    value = list_value(types[0])
    if value is None or not pa.types.is_integer(value):
        raise schema.error(names[0], f"is {types[0]}, but indices are lists of integers")
    if len(types) == 2 and ((value := list_value(types[1])) is None or not is_number(value)):
        raise schema.error(names[1], f"is {types[1]}, but values are lists of numbers")


def _check_label(options: ParquetOptions, schema: Schema) -> None:
    name = str(options.label)
    kind = schema.type_of(name, "label")
    value = list_value(kind)
    if options.multilabel and value is None:
        raise schema.error(name, f"is {kind}, but with multilabel=True labels are lists of numbers")
    if not options.multilabel and value is not None:
        raise schema.error(name, f"is {kind}; pass multilabel=True to read lists of labels")
    kind = kind if value is None else value
    if options.classes is not None and not is_text(kind):
        raise schema.error(name, f"is {kind}, but labels are {_words(options.classes)}; convert it to text")
    if options.classes is None and not is_number(kind):
        raise schema.error(name, f"is {kind}, but labels are numbers; convert it to integers, or in all files to text")


def _words(classes: Sequence[str]) -> str:
    return f"the words {', '.join(classes)[:100]}" if classes else "words"


def _layout(types: list[pa.DataType]) -> str:
    """Find the layout of the features by the types of their columns."""
    lists = [list_value(kind) for kind in types]
    if len(types) == 2 and None not in lists and pa.types.is_integer(lists[0]):
        return "sparse"
    if len(types) == 1 and pa.types.is_struct(types[0]):
        return "sparse"
    return "vector" if len(types) == 1 and _vector_value(types[0]) is not None else "columns"


def _width(names: Sequence[str], types: list[pa.DataType], features_as: str, options: ParquetOptions) -> int | None:
    """Return the number of features if the types of their columns, or their encoder, determine it."""
    if features_as == "columns":
        return len(types)
    if features_as == "table":
        if options.is_encoded:
            return int(options.encoder.n_features_out)
        return int(options.encoder.width(names)) if options.has_table_encoder else len(types) << 32
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
    value = list_value(kind)
    return value if value is not None and is_number(value) else None


def list_value(kind: pa.DataType | None) -> pa.DataType | None:
    """Return the type of the items of lists of any kind; None for other types."""
    is_list = hasattr(kind, "value_type") and not pa.types.is_run_end_encoded(kind)
    return storage_type(kind.value_type) if is_list else None  # type: ignore[union-attr]  # it has the attribute


def is_text(kind: pa.DataType) -> bool:
    """Return True if values of a type are text."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
_KEPT = (
    (pa.types.is_integer, pa.int64()),
    (pa.types.is_floating, pa.float64()),
    (pa.types.is_boolean, pa.bool_()),
    (is_text, pa.string()),
    (pa.types.is_date, pa.date32()),
)
