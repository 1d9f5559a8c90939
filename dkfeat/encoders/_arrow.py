"""Tables of pandas, polars and Arrow as batches of Arrow, the storage of their columns, and calls of the loops."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from dkfeat.compiled import tables
from dkfeat.encoders._columns import NGRAMS, Column
from dkfeat.errors import InputError
from dkfeat.messages import counted

Rows = Sequence[tuple[pa.RecordBatch, NDArray[np.int64]]]
"""Batches of one schema, each with the numbers of some of its rows."""
_POINTER = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Storage(NamedTuple):
    """Storage of a column: what its values are, and where the loops find them.

    Columns of one family hold the same values, however they are stored; the family of a type without an encoding is
    empty. The name is the same for all types of strings or timestamps, and for a dictionary as for its values. A column
    with `cast` is converted first.
    """

    family: str
    name: str
    values: int = 0
    indices: int = 0
    offsets: int = 0
    unit: int = 1
    cast: pa.DataType | None = None


_SIMPLE = {
    pa.null(): Storage("null", "null"),
    pa.bool_(): Storage("boolean", "bool", tables.BOOLEAN),
    pa.string(): Storage("text", "string", tables.TEXT),
    pa.large_string(): Storage("text", "string", tables.LONG_TEXT),
    pa.string_view(): Storage("text", "string", tables.TEXT_VIEW),
    pa.date32(): Storage("date", "date", 4, unit=-86_400),
    pa.date64(): Storage("date", "date", 8, unit=1_000),
    pa.float16(): Storage("number", "float16", cast=pa.float64()),
    pa.float32(): Storage("number", "float32", 4 | tables.FLOAT),
    pa.float64(): Storage("number", "float64", 8 | tables.FLOAT),
}


def storage_of(kind: pa.DataType) -> Storage:
    """Describe a type of Arrow.

    Examples
    --------
    >>> storage_of(pa.dictionary(pa.uint8(), pa.string()))[:4], storage_of(pa.binary()).family
    (('text', 'string', 65, 17), '')
    """
    of = pa.types
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if of.is_integer(kind):
        is_unsigned = of.is_unsigned_integer(kind)
        return Storage("number", str(kind), kind.bit_width // 8 | tables.UNSIGNED * is_unsigned)
    if of.is_decimal(kind):
        return Storage("number", "decimal", cast=pa.float64())
    if of.is_time(kind) or of.is_timestamp(kind) or of.is_duration(kind):
        name = "time" if of.is_time(kind) else "timestamp" if of.is_timestamp(kind) else "duration"
        return Storage("date" if name == "timestamp" else name, name, kind.bit_width // 8, unit=_TICKS[kind.unit])
    if isinstance(kind, pa.BaseExtensionType):
        return storage_of(kind.storage_type)
    if of.is_dictionary(kind):
        values = storage_of(kind.value_type)
        if values.offsets:  # of lists
            return Storage("", f"dictionary<{values.name}>")
        return values._replace(indices=storage_of(kind.index_type).values) if values.values else values
    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        items = storage_of(kind.value_type)
        tags = items._replace(family="tags", name="list<string>", offsets=8 if of.is_large_list(kind) else 4)
        if items.family == "text":
            return tags._replace(cast=pa.list_(kind.value_type)) if of.is_fixed_size_list(kind) else tags
        if items.family == "null":
            return tags._replace(cast=pa.list_(pa.string()))
    return Storage("", "binary" if "binary" in str(kind) and not kind.num_fields else str(kind))


def read_table(X: Any) -> list[pa.RecordBatch]:
    """Read a table as Arrow batches, at least one, without a copy where its own storage is Arrow's.

    Raises
    ------
    InputError
        If `X` is no table, two columns have one name, or a column has no type of Arrow.
    """
    try:
        if hasattr(X, "iloc") and hasattr(X, "columns"):  # of pandas
            X = pa.Table.from_pandas(X, preserve_index=False, nthreads=1)
            for at, column in enumerate(X.columns):  # numbers that are all missing may be of any type
                if pa.types.is_floating(column.type) and 0 < len(column) == column.null_count:
                    X = X.set_column(at, X.column_names[at], pa.nulls(len(column)))
        if isinstance(X, pa.RecordBatch):
            batches = [X]
        elif isinstance(X, Mapping):
            # NaN, which pandas has for missing values of any type, becomes null
            batches = [pa.RecordBatch.from_pydict({name: pa.array([one], from_pandas=True) for name, one in X.items()})]
        elif hasattr(X, "__arrow_c_stream__") and not hasattr(X, "to_frame"):
            reader = pa.RecordBatchReader.from_stream(X)
            schema = reader.schema
            batches = list(reader) or [pa.record_batch([pa.nulls(0, kind) for kind in schema.types], schema=schema)]
        else:
            raise InputError(
                f"X is a {type(X).__name__}, but an encoder takes a table: a DataFrame of pandas, polars or Dask, a "
                "Table or RecordBatch of Arrow, or a mapping of names to the values of one row; a Series becomes a "
                "table by to_frame(), one of a single row by to_dict()"
            )
    except InputError:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"X cannot be read as a table of Arrow: {error}; convert or rename columns first") from error
    names = batches[0].schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"the table has two columns {twice!r}, but columns are found by name; rename one")
    return batches


class Plan(NamedTuple):
    """Work on the batches of a schema; `casts` has the columns to convert first, by their positions."""

    schema: pa.Schema
    jobs: NDArray[np.int64]
    casts: dict[int, pa.DataType]

    @classmethod
    def of(cls, schema: pa.Schema, columns: Iterable[tuple[Column, Mapping[int, int]]]) -> Plan:
        """Find encoded columns, each given with the fields of its job that do not depend on storage.

        Raises
        ------
        InputError
            If a column is missing or of another type.
        """
        places, kinds = {name: at for at, name in enumerate(schema.names)}, schema.types
        jobs, casts = [], {}
        for column, fields in columns:
            is_text = column.encoding == NGRAMS
            if column.name not in places:
                was = f"for n-grams {column.ngrams!r}" if is_text else f"which was of type {column.type} in fit"
                raise InputError(
                    f"the table has no column {column.name!r}, {was}; its {counted(len(places), 'column')}: "
                    f"{', '.join(map(repr, schema.names[:10]))}"
                )
            child = places[column.name]
            storage = storage_of(kinds[child])
            if is_text and storage.family not in ("text", "null"):
                raise InputError(
                    f"column {column.name!r} is of type {kinds[child]}, but n-grams are made of text; convert it to "
                    "text, or name another column"
                )
            if storage.family not in (column.family, "null"):
                of_pandas = " (in pandas by .astype('string'), which keeps missing values)" * (column.family == "text")
                raise InputError(
                    f"column {column.name!r} is of type {kinds[child]}, but it was {column.type} in fit; convert it to "
                    f"{column.type}{of_pandas}, or fit the encoder anew"
                )
            kind = storage.cast
            if storage.family in ("number", "null"):  # integers among categories, and nulls of no type
                usual = pa.float64() if storage.family == "null" else kind
                texts = {"category": pa.string(), NGRAMS: pa.string(), "tags": pa.list_(pa.string())}
                kind = texts.get(column.encoding, usual)
            if kind:
                casts[child], storage = kind, storage_of(kind)
            job = np.zeros(tables.N_FIELDS, np.int64)
            job[[tables.CHILD, tables.STORAGE, tables.INDEX, tables.OFFSETS, tables.UNIT]] = child, *storage[2:6]
            job[list(fields)] = list(fields.values())
            jobs.append(job)
        return cls(schema, np.array(jobs, np.int64).reshape(-1, tables.N_FIELDS), casts)

    def exported(self, batch: pa.RecordBatch) -> tuple[int, Any]:
        """Export a batch to Arrow's C data interface: its address, and its owner, which must live as long.

        Raises
        ------
        InputError
            If a number among categories is no integer.
        """
        for child, kind in self.casts.items():
            name = self.schema.names[child]
            try:
                batch = batch.set_column(child, name, as_type(batch.column(child), kind))
            except pa.ArrowInvalid as error:
                raise InputError(
                    f"column {name!r} has a number that is no integer, but categories are text, booleans or integers: "
                    f"{error}; leave it out of `categories`, or convert it to text"
                ) from error
        owner = batch.__arrow_c_array__()[1]
        return _POINTER(owner, b"arrow_array"), owner


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert a column; numbers become text as integers in decimal digits, or raise pyarrow.ArrowInvalid."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(column, pa.DictionaryArray):
        return as_type(column.dictionary, kind).take(column.indices)  # Arrow does not decode a view
    is_decimal = pa.types.is_decimal(column.type)
    if is_decimal or pa.types.is_floating(column.type):  # text is read as the nearest float64, which a cast may miss
        column = (column.cast(pa.string()) if is_decimal else column).cast(pa.float64())
        if not pa.types.is_floating(kind):
            column = pc.if_else(pc.is_nan(column), None, column).cast(pa.int64())
    return column.cast(kind)


def encode(
    plan: Plan,
    rows: Rows,
    ranks: tuple[NDArray[np.float64], NDArray[np.float32]],
    missing: float,
    odd: NDArray[np.int64],
) -> csr_matrix:
    """Encode rows of batches of the plan's schema.

    Parameters
    ----------
    plan : Plan
    rows : sequence of tuple
    ranks : tuple of ndarrays
        Distinct knots, and the weights of their places, of all columns.
    missing : float
        Weight of a missing value, 0 or 1.
    odd : ndarray of shape (n_columns, 2), int64
        For each column of the table in fit, the missing values and those beyond the knots are added to it.

    Returns
    -------
    encoded : csr_matrix of shape (n_rows, n_columns * 2**32), float32
        Canonical, with int64 indices.
    """
    parts = [(*plan.exported(batch), numbers) for batch, numbers in rows]
    bounds = [tables.room(address, numbers, plan.jobs) for address, _, numbers in parts]
    size = sum(int(ends[-1]) for ends in bounds)
    indices, values = np.empty(size, np.int64), np.empty(size, np.float32)
    indptr = np.zeros(sum(len(numbers) for _, numbers in rows) + 1, np.int64)
    first = 0
    for (address, _, numbers), ends in zip(parts, bounds, strict=True):
        own = indptr[first : first + len(numbers) + 1]
        tables.encode_rows(address, numbers, plan.jobs, *ranks, np.float32(missing), ends, own, indices, values, odd)
        first += len(numbers)
    indices.resize(indptr[-1], refcheck=False)
    values.resize(indptr[-1], refcheck=False)
    encoded = csr_matrix((values, indices, indptr), shape=(len(indptr) - 1, len(odd) << 32))
    encoded.has_canonical_format = True
    return encoded


def read_numbers(plan: Plan, rows: Rows) -> NDArray[np.float64]:
    """Read the numbers of the plan's only column; NaN for null, seconds since 1970 for dates."""
    found = []
    for batch, numbers in rows:
        address, _owner = plan.exported(batch)
        found.append(np.empty(len(numbers)))
        tables.read_numbers(address, numbers, plan.jobs[0], found[-1])
    return np.concatenate(found)
