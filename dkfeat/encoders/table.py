"""Encoder of mixed tables: ranks of numbers and dates, coordinates of categories, and n-grams of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np

from dkfeat.encoders._columns import ColumnTable
from dkfeat.encoders._fitting import draw, learn_column
from dkfeat.encoders._ngrams import NGrams
from dkfeat.encoders._table import BaseTable, _FittedTable
from dkfeat.errors import ConfigError, InputError
from dkfeat.validation import check_choice, check_seed


@dataclass(eq=False, repr=False)
class TableEncoder(BaseTable):
    r"""Sparse rows of non-negative coordinates from a table of numbers, dates, text and nulls.

    It stands before a feature map for the min-max kernel, such as `DartFeatures` or `GCWSFeatures`, in a pipeline.
    Columns need no scaling: numbers count by their ranks, so outliers and units change nothing. A row takes about 20 ns
    for each cell.

    Parameters
    ----------
    categories : sequence of str, default=()
        Names of columns to encode as categories: integers, such as postal codes, and text that would be left out.
    text : mapping of str to str or None, default=None
        N-grams of columns of text, such as ``word 1-2`` or ``word 1 idf``. For instance ``{"body": "word 1-2"}``;
        `Text` tells more. A column of text without is a category.
    missing : {"ignore", "indicator"}, default="ignore"
        A null or NaN writes nothing, or a coordinate of weight 1; by default nothing.
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
        Number of columns of `transform`: 2^32 for each column of the table, and 2^40 for each of n-grams.

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
    .. [1] "A General Coefficient of Similarity and Some of Its Properties", J. C. Gower, Biometrics 27, 1971.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"age": [31, 45, 52], "city": ["Oslo", None, "Bergen"], "id": [b"0", b"1", b"2"]})
    >>> encoder = TableEncoder(random_state=0).fit(table)
    >>> encoder.describe()
    age   int64   rank      3 distinct, such as 31
    city  string  category  2 distinct, such as 'Oslo'; 33.3% null
    id    binary  left out  binary and nested types have no encoding
    >>> encoder.transform(table).data
    array([1. , 1. , 0.5, 0.5, 1. , 1. ], dtype=float32)
    """

    name = "table"
    version = 1

    _: KW_ONLY
    categories: Sequence[str] = ()
    text: Mapping[str, str] | None = None
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
        self.check_names(names)
        learnt = []
        for at, name in enumerate(names):
            if name not in self.texts:
                alone = [(batch.select([at]), numbers) for batch, numbers in drawn]
                learnt.append(learn_column(alone, is_named=name in params["categories"]))
        texts = self._text_columns(names, sum(len(numbers) for _, numbers in drawn))
        columns = ColumnTable([*(column for column, _ in learnt), *texts])
        if len(columns.left_out) == len(columns):
            raise InputError(
                "no column of the table can be encoded; name those to keep in categories= (--categories), or for "
                f"columns of numbers as they are pass encoder=None (--features-as columns) to a run:\n{columns!r}"
            )
        knots = np.concatenate([np.empty(0), *(knots for _, knots in learnt)])
        self._keep(_FittedTable.of(self, seed, columns, knots, self._counted(texts, drawn)))
        self.check_schema(drawn[0][0].schema)
        return self

    def _ngrams(self) -> dict[str, NGrams]:
        if not isinstance(self.text, Mapping | None) or not all(isinstance(name, str) for name in self.text or ()):
            raise ConfigError(f"text={self.text!r:.100}, but it must be a mapping of names of columns to n-grams")
        return {name: NGrams.parse(value, f"text[{name!r}]") for name, value in (self.text or {}).items()}

    def _checked_params(self) -> dict[str, Any]:
        """Return the parameters of the spec, or raise ConfigError."""
        is_list = isinstance(self.categories, Iterable) and not isinstance(self.categories, str | Mapping)
        names = list(self.categories) if is_list else [None]
        if not all(isinstance(name, str) for name in names):
            raise ConfigError(f"categories={self.categories!r}, but it must be a list of names of columns")
        texts = {name: str(ngrams) for name, ngrams in self._ngrams().items()}
        if twice := [name for name in names if name in texts]:
            raise ConfigError(f"categories and text both name {twice[0]!r}; leave it out of one of them")
        missing = check_choice(self.missing, "missing", ("ignore", "indicator"))
        return {"categories": names, **({"text": texts} if texts else {}), "missing": missing}
