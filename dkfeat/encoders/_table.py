"""Base class of encoders of tables: columns of any type and n-grams of text, to one range of coordinates each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import hstack, issparse
from sklearn.base import clone

from dkfeat import canonical
from dkfeat.compiled import tables
from dkfeat.compiled.text import GRAM_BITS
from dkfeat.encoders._arrow import Plan, Rows, as_type, encode, read_table, storage_of
from dkfeat.encoders._base import Encoder
from dkfeat.encoders._columns import LEFT_OUT, NGRAMS, PARTS, ZEROS_ABSENT, Column, ColumnTable, rank_table
from dkfeat.encoders._fitting import is_dask_table
from dkfeat.encoders._ngrams import WEIGHTS, Frequencies, NGrams
from dkfeat.errors import ConfigError, InputError
from dkfeat.maps._rows import transform_blocks
from dkfeat.messages import counted, nearest
from dkfeat.validation import check_seed

_LISTS = (NGRAMS, "tags")
"""Encodings of columns with several values a row."""


class Coordinate(NamedTuple):
    """Meaning of a coordinate of encoded rows.

    The part is one of "rank", "1 - rank", "positive", "negative", "hour", "weekday", "month", "missing", "category" and
    "n-gram"; the value is the category or the n-gram, or None if the rows do not hold it.
    """

    column: str
    part: str
    value: str | None


class _FittedTable(NamedTuple):
    """State of a fitted encoder, and what is derived from it.

    `texts` are the n-grams of the last columns, by their names, and `frequencies` those of grams, or None without idf;
    `used` are the jobs of others, `ranks` their tables.
    """

    params: dict[str, Any]
    seed: int
    columns: ColumnTable
    knots: NDArray[np.float64]
    texts: dict[str, NGrams]
    frequencies: list[Frequencies | None]
    used: list[tuple[Column, dict[int, int]]]
    ranks: tuple[NDArray[np.float64], NDArray[np.float32]]

    @classmethod
    def of(
        cls,
        encoder: BaseTable,
        seed: int,
        columns: Sequence[Column],
        knots: Any = (),
        counted: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    ) -> Self:
        """Check the parameters of an encoder, and derive its state; columns of n-grams are the last.

        `counted` are the arrays of `NGrams.count_rows`, by ``rows_`` and the number of the column among those of text.
        """
        params, knots = encoder._checked_params(), np.array(knots, np.float64)
        texts = {column.name: encoder._ngrams()[column.name] for column in columns if column.encoding == NGRAMS}
        frequencies = [
            Frequencies(column.rows, counted[f"rows_{at}"]) if texts[column.name].idf else None
            for at, column in enumerate(columns[len(columns) - len(texts) :])
        ]
        used, distinct, weights = [], [np.empty(0)], [np.empty((0, 2), np.float32)]
        first = n_distinct = n_places = 0
        for number, column in enumerate(columns):
            job = column.job | {tables.COLUMN: number, tables.KNOTS: n_distinct, tables.PLACES: n_places}
            if column.n_knots:
                own = knots[first : first + column.n_knots]
                places, table = rank_table(own, zeros_absent=column.encoding == ZEROS_ABSENT)
                job[tables.N_KNOTS] = len(places)
                first, n_distinct, n_places = first + len(own), n_distinct + len(places), n_places + len(table)
                distinct.append(places)
                weights.append(table)
            if column.encoding not in (LEFT_OUT, NGRAMS):
                used.append((column, job))
        ranks = np.concatenate(distinct), np.concatenate(weights).reshape(-1)
        return cls(params, seed, ColumnTable(columns), knots, texts, frequencies, used, ranks)

    @property
    def first_text(self) -> int:
        """Number of the first column of n-grams, which is after all others."""
        return len(self.columns) - len(self.texts)

    @property
    def jobs_of_texts(self) -> list[tuple[Column, dict[int, int]]]:
        """Jobs of the columns of n-grams."""
        return [(column, {}) for column in self.columns[self.first_text :]]


class BaseTable(Encoder, auto_wrap_output_keys=None):  # type: ignore[call-arg]  # untyped base
    """Base of encoders of tables.

    A subclass has `_ngrams`, which returns the settings of the columns of n-grams by their names. These are the last
    columns of the fitted encoder, with ranges of coordinates after those of all others, so that n-grams alone have the
    coordinates of `Text`.
    """

    takes_tables = True
    _ngrams: Callable[[], dict[str, NGrams]]

    @property
    def takes_all(self) -> bool:
        """True if columns are encoded besides those of n-grams."""
        return self._settings.first_text > 0 if self.__sklearn_is_fitted__() else self.name != "text"

    @property
    def named(self) -> dict[str, str]:
        """Columns that parameters name, each with the parameter."""
        params = self._checked_params()
        return {name: option for option in ("text", "categories") for name in params.get(option, ())}

    @property
    def weighted(self) -> list[str]:
        """Columns of n-grams with counts, and, if the encoder is fitted, of ranks."""
        texts = [name for name, ngrams in self.texts.items() if ngrams.weights != WEIGHTS[0] or ngrams.idf]
        columns = self.describe() if self.__sklearn_is_fitted__() else ()
        return texts + [column.name for column in columns if column.n_knots]

    @property
    def texts(self) -> dict[str, NGrams]:
        """Settings of the columns of n-grams, by their names."""
        return self._settings.texts if self.__sklearn_is_fitted__() else self._ngrams()

    def columns_among(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of some columns that the encoder takes."""
        known = {*names} if self.takes_all else {*self.texts}
        if self.__sklearn_is_fitted__():
            known = {*self.feature_names_in_}
        return tuple(name for name in names if name in known)

    def width(self, names: Sequence[str]) -> int:
        """Return the number of columns of `transform` for a table with columns of these names."""
        n_texts = len(self.texts.keys() & {*names})
        return (len(names) - n_texts << 32) + (n_texts << GRAM_BITS)

    def check_names(self, names: Sequence[str]) -> None:
        """Raise ConfigError if a parameter names a column that is none of these."""
        for name, option in self.named.items():
            if name not in names:
                hint = nearest(name, list(names), "columns")
                raise ConfigError(f"{option} names {name!r}, but there is no such column among the features; {hint}")

    def fit_texts(self, names: Sequence[str]) -> Self:
        """Fit a copy to columns of these names if all are of n-grams that need no rows; else return the encoder.

        Raises
        ------
        ConfigError
            If a parameter names another column.
        """
        if self.__sklearn_is_fitted__() or not names:
            return self
        self.check_names(names)
        if any(name not in self.texts or self.texts[name].idf for name in names):
            return self
        fitted: Self = clone(self)
        return fitted._keep(_FittedTable.of(fitted, check_seed(self.random_state), fitted._text_columns(names)))

    def _text_columns(self, names: Sequence[str], n_rows: int = 0) -> list[Column]:
        """Make the columns of n-grams among these names; `n_rows` drawn rows are counted for idf."""
        found = self._ngrams()
        facts: Any = {"type": "string", "family": "text", "encoding": NGRAMS}
        rows = {name: n_rows * ngrams.idf for name, ngrams in found.items()}
        return [Column(name=name, ngrams=str(found[name]), rows=rows[name], **facts) for name in names if name in found]

    def _counted(self, columns: Sequence[Column], drawn: Rows) -> dict[str, NDArray[np.int32]]:
        """Count the drawn rows that hold a gram, for those columns of n-grams that have idf."""
        found = self._ngrams()
        plan = Plan.of(drawn[0][0].schema, [(column, {}) for column in columns])
        counted = [(at, found[column.name]) for at, column in enumerate(columns) if found[column.name].idf]
        return {f"rows_{at}": ngrams.count_rows(plan, at, drawn) for at, ngrams in counted}

    def transform(self, X: Any) -> Any:
        """Encode each row.

        Parameters
        ----------
        X : table
            As for `fit`, or a mapping of names to the values of one row. Columns are found by name; others than those
            of fit are ignored.

        Returns
        -------
        encoded : csr_matrix of shape (n_rows, n_features_out), float32, with int64 indices
            Canonical. For a Dask DataFrame, a lazy Dask array with one such block for each partition.
        """
        return self._transform(X)

    def _transform(self, X: Any, known: Collection[str] = (), odd: NDArray[np.int64] | None = None) -> Any:
        state = self._state()
        if is_dask_table(X):
            self._plans_for(read_table(X._meta)[0].schema, known)
            features = np.empty((0, self.n_features_in_))
            blocks = X.map_partitions(lambda part: part, meta=features, enforce_metadata=False)
            return transform_blocks(self, blocks)
        batches = read_table(X)
        rows = [(batch, np.arange(batch.num_rows)) for batch in batches]
        missing = float(state.params.get("missing") == "indicator")
        odd = np.zeros((len(state.columns), 2), np.int64) if odd is None else odd
        plan, plan_of_texts = self._plans_for(batches[0].schema, known)
        parts = [encode(plan, rows, state.ranks, missing, odd[: state.first_text])] if state.first_text else []
        for at, (ngrams, frequencies) in enumerate(zip(state.texts.values(), state.frequencies, strict=True)):
            parts.append(ngrams.encode(plan_of_texts, at, rows, frequencies))
        encoded = parts[0] if len(parts) == 1 else hstack(parts, "csr")
        encoded.has_canonical_format = True
        return encoded

    def rows_for_map(self, X: Any, known: Collection[str] = (), odd: NDArray[np.int64] | None = None) -> Any:
        """Encode a table in memory as `transform` does; sparse rows that it has made are returned."""
        return X if issparse(X) and X.shape[1] == self.n_features_out else self._transform(X, known, odd)

    def encodes(self, kind: pa.DataType) -> bool:
        """Return True if columns of a type are encoded, unless their values say otherwise."""
        return bool(storage_of(kind).family)

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise InputError if a column of fit is missing in a schema, or of another type."""
        state = self._state()
        Plan.of(schema, [*state.used, *state.jobs_of_texts])

    def describe(self) -> ColumnTable:
        """Return the columns of the table in fit with their encodings and the reasons, which is printed as a table."""
        return self._state().columns

    def name_of(self, coordinates: Any, rows: Any = None) -> list[Coordinate]:
        """Name the column, the part and the category or n-gram that coordinates stand for.

        Parameters
        ----------
        coordinates : array-like of int of shape (n_coordinates,)
            Columns of `transform`.
        rows : table or None, default=None
            Rows in which to look for the categories and n-grams, because an encoder keeps none.

        Returns
        -------
        names : list of Coordinate

        Examples
        --------
        >>> import pyarrow as pa
        >>> from dkfeat import TableEncoder
        >>> table = pa.table({"age": [31, 45], "city": ["Oslo", "Bergen"]})
        >>> encoder = TableEncoder(random_state=0).fit(table)
        >>> for name in encoder.name_of(encoder.transform(table)[0].indices, table):
        ...     print(*name)
        age 1 - rank None
        city category Oslo
        """
        state, coordinates = self._state(), np.asarray(coordinates, np.int64).reshape(-1)
        if len(coordinates) and not 0 <= coordinates.min() <= coordinates.max() < self.n_features_out:
            most = self.n_features_out - 1
            raise InputError(f"a coordinate is not from 0 to {most:,}; give columns of this encoder's transform")
        columns, slots = self._split(coordinates)
        held = {} if rows is None else self._values(columns, slots, rows)
        found = zip(columns.tolist(), slots.tolist(), strict=True)
        return [
            Coordinate(state.columns[column].name, _part(state.columns[column], slot), held.get((column, slot)))
            for column, slot in found
        ]

    def single_columns(self) -> tuple[NDArray[np.int64], bool]:
        """Return the first coordinates of the encoded columns with one value a row, and whether there are no others."""
        encodings = [column.encoding for column in self._state().columns]
        single = [number << 32 for number, each in enumerate(encodings) if each not in (*_LISTS, LEFT_OUT)]
        return np.array(single, np.int64), not {*_LISTS} & {*encodings}

    def own_columns(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first coordinate of the column of each coordinate, or itself for n-grams and entries of lists."""
        columns, _ = self._split(coordinates)
        is_list = np.array([column.encoding in _LISTS for column in self._state().columns])
        return np.where(is_list[columns], coordinates, columns << 32)

    def _split(self, coordinates: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of the columns that coordinates belong to, and their places in the columns' ranges."""
        first_text = self._state().first_text
        places = coordinates - (first_text << 32)
        is_text = places >= 0
        columns = np.where(is_text, first_text + (places >> GRAM_BITS), coordinates >> 32)
        return columns, np.where(is_text, places & (1 << GRAM_BITS) - 1, coordinates & 0xFFFFFFFF)

    @property
    def n_features_out(self) -> int:
        """Number of columns of `transform`: 2^32 for each column of the table, and 2^40 for each of n-grams."""
        return self.width([column.name for column in self._state().columns])

    def get_feature_names_out(self, input_features: Any = None) -> NoReturn:  # noqa: ARG002 - scikit-learn's argument
        """Raise InputError: there are 2^32 features a column, most of which stand for no category."""
        raise InputError(
            f"{self.n_features_out:,} coordinates have no list of names; name_of names those that occur, and of a "
            "pipeline the map has names: pipeline[-1].get_feature_names_out()"
        )

    def set_output(self, *, transform: Any = None) -> Self:
        """Raise ConfigError for dense containers, which cannot hold 2^32 columns for each column of the table."""
        if transform not in (None, "default"):
            raise ConfigError(f'transform={transform!r}, but sparse rows of 2^32 columns a column fit only "default"')
        return self

    def _more_of_spec(self) -> dict[str, Any]:
        return {"columns": [column.to_json() for column in self._settings.columns]}

    def _restore(self, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        columns = ColumnTable(canonical.typed(spec["columns"], tuple[Column, ...], "columns"))
        self._keep(_FittedTable.of(self, check_seed(spec["seed"]), columns, arrays["knots"], arrays))

    def _fitted_arrays(self) -> dict[str, NDArray[Any]]:
        state = self._state()
        counted = {f"rows_{at}": found.counted for at, found in enumerate(state.frequencies) if found is not None}
        return {"knots": state.knots, **counted}

    def _keep(self, settings: _FittedTable) -> Self:
        self._settings, self.seed_ = settings, settings.seed
        self._plans: tuple[Plan, Plan] | None = None
        self.n_features_in_ = len(settings.columns)
        self.feature_names_in_ = np.array([column.name for column in settings.columns], object)
        return self

    def _plans_for(self, schema: pa.Schema, known: Collection[str]) -> tuple[Plan, Plan]:
        """Find the columns in a schema; the plans of the latest one are kept, for rows that come one by one."""
        if self._plans is None or not self._plans[0].schema.equals(schema):
            state = self._settings
            plans = Plan.of(schema, state.used), Plan.of(schema, state.jobs_of_texts)
            known = {*self.columns_among(schema.names), *known}
            more = [name for name in schema.names if name not in known]
            if more and self.takes_all:
                warnings.warn(
                    f"{counted(len(more), 'column')} that fit has not seen, such as {more[0]!r}, "
                    f"{'is' if len(more) == 1 else 'are'} ignored; fit the encoder anew to use more columns",
                    stacklevel=4,
                )
            self._plans = plans
        return self._plans

    def _values(self, columns: NDArray[np.int64], slots: NDArray[np.int64], rows: Any) -> dict[tuple[int, int], str]:
        """Return the categories and n-grams of some columns in a table, by column and place."""
        held: dict[tuple[int, int], str] = {}
        state = self._settings
        wanted = {*columns[slots >= tables.FIRST_CATEGORY].tolist()}
        for batch in read_table(rows):
            for number in wanted:
                column = state.columns[number]
                if column.name not in batch.schema.names:
                    continue
                texts = _texts(batch.column(column.name))
                if number >= state.first_text:
                    grams = state.texts[column.name].grams_of(texts)
                else:
                    grams = {tables.category_slot(text): text for text in texts}
                held |= {(number, slot): text for slot, text in grams.items()}
        return held


def _part(column: Column, slot: int) -> str:
    """Name the part of a column that a slot stands for."""
    if column.encoding == NGRAMS:
        return "n-gram"
    if slot >= tables.FIRST_CATEGORY:
        return "category"
    if slot >= tables.DAY:
        return "missing" if slot == tables.MISSING else PARTS[min((slot - tables.DAY) // 4, 2)]
    return (("positive", "negative") if column.encoding == ZEROS_ABSENT else ("rank", "1 - rank"))[slot]


def _texts(column: pa.Array) -> list[str]:
    """Return the distinct categories of a column as text."""
    if storage_of(column.type).family == "tags":
        column = column.flatten()
    texts: list[str] = as_type(column, pa.large_string()).drop_null().unique().to_pylist()
    return texts
