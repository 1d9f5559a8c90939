"""Encoder of mixed tables: ranks of numbers and dates, and coordinates of categories."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple, NoReturn, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import issparse

from dkfeat import canonical
from dkfeat.compiled import tables
from dkfeat.encoders._arrow import Plan, as_type, encode, read_table, storage_of
from dkfeat.encoders._base import Encoder
from dkfeat.encoders._columns import (
    LEFT_OUT,
    PARTS,
    ZEROS_ABSENT,
    Column,
    ColumnTable,
    rank_table,
)
from dkfeat.encoders._fitting import draw, is_dask_table, learn_column
from dkfeat.errors import ConfigError, InputError
from dkfeat.html import card
from dkfeat.maps._rows import transform_blocks
from dkfeat.messages import counted, nearest
from dkfeat.validation import check_choice, check_seed


class Coordinate(NamedTuple):
    """Meaning of a coordinate of encoded rows.

    The part is one of "rank", "1 - rank", "positive", "negative", "hour", "weekday", "month", "missing" and "category";
    the value is the category, or None if the rows do not hold it.
    """

    column: str
    part: str
    value: str | None


class _FittedTable(NamedTuple):
    """State of a fitted encoder, and what is derived from it: the jobs of encoded columns, and the tables of ranks."""

    params: dict[str, Any]
    seed: int
    columns: ColumnTable
    knots: NDArray[np.float64]
    used: list[tuple[Column, dict[int, int]]]
    ranks: tuple[NDArray[np.float64], NDArray[np.float32]]

    @classmethod
    def of(cls, params: dict[str, Any], seed: int, columns: ColumnTable, knots: NDArray[np.float64]) -> Self:
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
            if column.encoding != LEFT_OUT:
                used.append((column, job))
        return cls(params, seed, columns, knots, used, (np.concatenate(distinct), np.concatenate(weights).reshape(-1)))


@dataclass(eq=False, repr=False)
class TableEncoder(Encoder, auto_wrap_output_keys=None):  # type: ignore[call-arg]  # untyped base
    r"""Sparse rows of non-negative coordinates from a table of numbers, dates, text and nulls.

    It stands before a feature map for the min-max kernel, such as `DartFeatures` or `GCWSFeatures`, in a pipeline.
    Columns need no scaling: numbers count by their ranks, so outliers and units change nothing. A row takes about 20 ns
    for each cell.

    Parameters
    ----------
    categories : sequence of str, default=()
        Names of columns to encode as categories: integers, such as postal codes, and text that would be left out.
    missing : {"ignore", "indicator"}, default="ignore"
        A null or NaN writes nothing, or a coordinate of weight 1.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Seed of the draw of 10,000 rows to which a longer table is fitted. None draws 64 bits in fit and keeps them in
        `seed_`.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of shape (n_features,), object
        Their names.
    seed_ : int
        Seed in use, in [0, 2^64).
    n_features_out : int
        Number of columns of `transform`: 2^32 for each column of the table.

    Raises
    ------
    dkfeat.errors.ConfigError
        In fit: a parameter is out of range, or a column cannot be a category.
    dkfeat.errors.InputError
        The input is no table, or a column is missing or of another type than in fit.
    sklearn.exceptions.NotFittedError
        If transform is called before fit.

    See Also
    --------
    dkfeat.DartFeatures, dkfeat.GCWSFeatures : Maps for the encoded rows.
    dkfeat.kernels.gmm : The kernel of encoded rows.
    sklearn.compose.ColumnTransformer : Encodings chosen by hand, in memory.

    Notes
    -----
    The type of a column chooses its encoding, which `describe` lists:

    * Numbers: the midrank r among at most 1,024 of the drawn values, 0 at the lowest and below, 1 at the highest and
      above, and 1 - r. If half of the drawn values or more are 0: nothing for 0, and for other numbers the rank among
      the drawn numbers of their sign, by magnitude.
    * Text, booleans and the columns of `categories`: a coordinate of weight 1 for each category, whether fit has seen
      it or not. A dictionary is encoded as its values are.
    * Dates and times: the rank, and the time of day, the weekday and the month (in UTC) if they vary: each is a point
      on a circle with four marks, and its weight of 1 is divided between the two nearest.
    * Lists of text: a coordinate of weight 1 for each distinct entry.
    * Left out: columns with one value, text with more than 90 % distinct values (of 100 or more), binary and nested
      types.

    A coordinate is the number of the column in fit times 2^32 plus a slot: 0 and 1 for ranks, 2 to 13 for parts of
    dates, 15 for a missing value, and 16 + (XXH64 of the UTF-8 bytes, with seed 0) mod (2^32 - 16) for a category;
    integers are hashed as decimal digits. There is no vocabulary, so millions of categories cost nothing. Two
    categories of a column share a slot with a probability of 2^-32.

    The features of a row depend on the fitted encoder and the row alone. They are equal for all frames, blocks, storage
    of text, and types of numbers of equal values; numbers are compared as float64, so integers beyond 2^53 are rounded.
    A strictly increasing function of a column, applied before fit, changes nothing if it keeps 0 at 0.

    For columns of numbers with ranks r and 1 - r and for categories, without nulls, the min-max kernel of two rows is
    :math:`s / (2 - s)`, where s is Gower's similarity [1]_: the mean over columns of 1 minus the difference in rank, or
    of 1 for equal categories.

    References
    ----------
    .. [1] J. C. Gower, "A General Coefficient of Similarity and Some of Its Properties", Biometrics 27, 1971.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"age": [31, 45, 52], "city": ["Oslo", None, "Bergen"], "id": [b"0", b"1", b"2"]})
    >>> encoder = TableEncoder(random_state=0).fit(table)
    >>> encoder.describe()
    age   int64   rank      3 distinct values in 3 rows
    city  string  category  2 distinct values in 3 rows; 33.3% null
    id    binary  left out  binary and nested types have no encoding
    >>> encoder.transform(table).data
    array([1. , 1. , 0.5, 0.5, 1. , 1. ], dtype=float32)
    """

    name = "table"
    version = 1
    takes_tables = True

    _: KW_ONLY
    categories: Sequence[str] = ()
    missing: Literal["ignore", "indicator"] = "ignore"
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn passes labels to every fit
        """Choose an encoding for each column, and the knots of ranks.

        Parameters
        ----------
        X : table
            A DataFrame of pandas, polars or Dask, a Table or RecordBatch of Arrow, or any other object with
            ``__arrow_c_stream__``. A Dask DataFrame is computed twice: to count its rows, and to take those drawn.
        y : ignored

        Returns
        -------
        self : TableEncoder
        """
        params, seed = self._checked_params(), check_seed(self.random_state)
        drawn = draw(X, seed)
        names = drawn[0][0].schema.names
        for name in params["categories"]:
            if name not in names:
                hint = nearest(name, names, "columns")
                raise ConfigError(f"categories names {name!r}, but the table has no such column; {hint}")
        learnt = []
        for at, name in enumerate(names):
            alone = [(batch.select([at]), numbers) for batch, numbers in drawn]
            learnt.append(learn_column(alone, is_named=name in params["categories"]))
        columns = ColumnTable(column for column, _ in learnt)
        if len(columns.left_out) == len(columns):
            raise InputError(
                "no column of the table can be encoded; name those to keep in categories= (--categories), or for "
                f"columns of numbers as they are pass encoder=None (--features-as columns) to a run:\n{columns!r}"
            )
        knots = np.concatenate([knots for _, knots in learnt])
        self._keep(_FittedTable.of(params, seed, columns, knots))
        return self

    def transform(self, X: Any) -> Any:
        """Encode each row.

        Parameters
        ----------
        X : table
            As for `fit`, or a mapping of names to the values of one row. Columns are found by name; others than those
            of fit are ignored, with a warning.

        Returns
        -------
        encoded : csr_matrix of shape (n_rows, n_features_out), float32, with int64 indices
            Canonical. For a Dask DataFrame, a lazy Dask array with one such block for each partition.
        """
        return self._transform(X)

    def _transform(self, X: Any, known: Collection[str] = (), odd: NDArray[np.int64] | None = None) -> Any:
        state = self._state()
        if is_dask_table(X):
            self._plan_for(read_table(X._meta)[0].schema, known)
            blocks = X.map_partitions(_same, meta=np.empty((0, self.n_features_in_)), enforce_metadata=False)
            return transform_blocks(self, blocks)
        batches = read_table(X)
        rows = [(batch, np.arange(batch.num_rows)) for batch in batches]
        missing = float(state.params["missing"] == "indicator")
        odd = np.zeros((len(state.columns), 2), np.int64) if odd is None else odd
        return encode(self._plan_for(batches[0].schema, known), rows, state.ranks, missing, odd)

    def rows_for_map(self, X: Any, known: Collection[str] = (), odd: NDArray[np.int64] | None = None) -> Any:
        """Encode a table in memory as `transform` does; sparse rows that it has made are returned."""
        return X if issparse(X) and X.shape[1] == self.n_features_out else self._transform(X, known, odd)

    def encodes(self, kind: pa.DataType) -> bool:
        """Return True if columns of a type are encoded, unless their values say otherwise."""
        return bool(storage_of(kind).family)

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise InputError if a column of fit is missing in a schema, or of another type."""
        Plan.of(schema, self._state().used)

    def describe(self) -> ColumnTable:
        """Return the columns of the table in fit with their encodings and the reasons, which is printed as a table."""
        return self._state().columns

    def name_of(self, coordinates: Any, rows: Any = None) -> list[Coordinate]:
        """Name the column, the part and the category that coordinates stand for.

        Parameters
        ----------
        coordinates : array-like of int of shape (n_coordinates,)
            Columns of `transform`.
        rows : table or None, default=None
            Rows in which to look for the categories, because an encoder keeps none.

        Returns
        -------
        names : list of Coordinate

        Examples
        --------
        >>> import pyarrow as pa
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
        is_category = coordinates & 0xFFFFFFFF >= tables.FIRST_CATEGORY
        held = {} if rows is None else self._categories((coordinates[is_category] >> 32).tolist(), rows)
        places = [(state.columns[at >> 32], at) for at in coordinates.tolist()]
        return [Coordinate(column.name, _part(column, at & 0xFFFFFFFF), held.get(at)) for column, at in places]

    @property
    def n_features_out(self) -> int:
        """Number of columns of `transform`: 2^32 for each column of the table."""
        return len(self._state().columns) << 32

    def get_feature_names_out(self, input_features: Any = None) -> NoReturn:  # noqa: ARG002 - scikit-learn's argument
        """Raise InputError: there are 2^32 features a column, most of which stand for no category."""
        raise InputError(f"{self.n_features_out:,} coordinates have no list of names; name_of names those that occur")

    def set_output(self, *, transform: Any = None) -> Self:
        """Raise ConfigError for dense containers, which cannot hold 2^32 columns for each column of the table."""
        if transform not in (None, "default"):
            raise ConfigError(f'transform={transform!r}, but sparse rows of 2^32 columns a column fit only "default"')
        return self

    def _more_of_spec(self) -> dict[str, Any]:
        return {"columns": [column.to_json() for column in self._settings.columns]}

    def _restore(self, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        columns = ColumnTable(canonical.typed(spec["columns"], tuple[Column, ...], "columns"))
        self._keep(_FittedTable.of(self._checked_params(), check_seed(spec["seed"]), columns, arrays["knots"]))

    def _fitted_arrays(self) -> dict[str, NDArray[Any]]:
        return {"knots": self._state().knots}

    def _checked_params(self) -> dict[str, Any]:
        """Return the parameters of the spec, or raise ConfigError."""
        is_list = isinstance(self.categories, Iterable) and not isinstance(self.categories, str | Mapping)
        names = list(self.categories) if is_list else [None]
        if not all(isinstance(name, str) for name in names):
            raise ConfigError(f"categories={self.categories!r}, but it must be a list of names of columns")
        return {"categories": names, "missing": check_choice(self.missing, "missing", ("ignore", "indicator"))}

    def _keep(self, settings: _FittedTable) -> None:
        self._settings, self.seed_ = settings, settings.seed
        self._plan: Plan | None = None
        self.n_features_in_ = len(settings.columns)
        self.feature_names_in_ = np.array([column.name for column in settings.columns], object)

    def _plan_for(self, schema: pa.Schema, known: Collection[str]) -> Plan:
        """Find the columns in a schema; the plan of the latest one is kept, for rows that come one by one."""
        plan = self._plan
        if plan is None or not plan.schema.equals(schema):
            plan = Plan.of(schema, self._settings.used)
            known = {*self.feature_names_in_, *known}
            more = [name for name in schema.names if name not in known]
            if more:
                warnings.warn(
                    f"{counted(len(more), 'column')} that fit has not seen, such as {more[0]!r}, "
                    f"{'is' if len(more) == 1 else 'are'} ignored; fit the encoder anew to use more columns",
                    stacklevel=4,
                )
            self._plan = plan
        return plan

    def _categories(self, numbers: Sequence[int], rows: Any) -> dict[int, str]:
        """Return the categories of some columns in a table, by their coordinates."""
        held = {}
        for batch in read_table(rows):
            for number in {each for each in numbers if self._settings.columns[each].name in batch.schema.names}:
                for text in _texts(batch.column(self._settings.columns[number].name)):
                    held[number << 32 | tables.category_slot(text)] = text
        return held

    def _repr_html_inner(self) -> str:
        if not self.__sklearn_is_fitted__():
            return card(type(self).__name__, {}, note="not fitted", details={"Parameters": self._shown_params()})
        columns = self.describe()
        n_left = len(columns.left_out)
        facts = {"encoded": counted(len(columns) - n_left, "column"), "left out": counted(n_left, "column")}
        note = f"fitted to {counted(len(columns), 'column')}, seed {self.seed_}"
        details: Any = {"Columns": columns.rows(), "Parameters": self._shown_params()}
        return card(type(self).__name__, facts, note=note, details=details)


def _same(part: Any) -> Any:
    """Return a partition as a block of a Dask array, whose blocks a map then transforms."""
    return part


def _part(column: Column, slot: int) -> str:
    """Name the part of a column that a slot stands for."""
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
