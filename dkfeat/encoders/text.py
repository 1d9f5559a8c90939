"""Encoder of one column of text: its n-grams of words or characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa

from dkfeat.encoders._arrow import read_table
from dkfeat.encoders._fitting import is_dask_table
from dkfeat.encoders._ngrams import WEIGHTS, NGrams
from dkfeat.encoders._table import BaseTable, _FittedTable
from dkfeat.errors import ConfigError
from dkfeat.validation import check_choice


@dataclass(eq=False, repr=False)
class Text(BaseTable):
    r"""Sparse rows of the n-grams of a column of text, without a vocabulary.

    It stands before a feature map, such as `DartFeatures`, in a pipeline or a run.

    Parameters
    ----------
    column : str
        Name of the column; others of a table are ignored.
    ngrams : str, default="word 5"
        Grams of words or characters, and how many, from 1 to 16: ``"word 5"``, ``"word 1-2"`` or ``"char 3-5"``.
    weights : {"binary", "count", "log", "sqrt"}, default="binary"
        Weight of a gram that occurs c times in a text: 1, c, 1 + log(c), or the square root of c.
    lower : bool, default=True
        True: upper and lower case are the same.
    normalize : {"nfkc"} or None, default="nfkc"
        Unicode's normalisation form, in which different bytes of one character, ligatures and characters of full width
        are the same. None: none.

    Attributes
    ----------
    n_features_in_ : int
        1.
    feature_names_in_ : ndarray of shape (1,), object
        The column.
    n_features_out : int
        Number of columns of `transform`: 2^40.

    Raises
    ------
    dkfeat.errors.ConfigError
        In fit: a parameter is out of range.
    dkfeat.errors.InputError
        The input is no table, the column is missing or holds no text, or a text is not valid UTF-8 or too long (the
        error has ``row``, from 0).
    sklearn.exceptions.NotFittedError
        If transform is called before fit.

    See Also
    --------
    dkfeat.TableEncoder : Encoder of all columns of a table, with n-grams of those of its parameter ``text``.
    sklearn.feature_extraction.text.HashingVectorizer : N-grams in memory, in 2^20 columns.

    Notes
    -----
    Words are runs of letters, marks, numbers and connectors of Unicode 18, such as the underscore; each character of
    Han, kana and Thai is a word. The classes of characters are frozen. Grams of characters are of code points, spaces
    among them. A text of fewer words or characters than the shortest gram is one gram. A null, and a text without
    words, is an empty row.

    Upper and lower case are mapped character by character, after the normalisation, and words are split last. A
    coordinate is a hash of 40 bits of the gram and its length. Of ten million different grams about 45 pairs share one.

    Fit learns nothing but that the column is there, so a run reads each text once. The coordinates of a text depend on
    the parameters and the text alone: they are equal for all frames, blocks and storage of text, and one
    `TableEncoder` shifts them all by the same number.

    A text may have 32 MiB for words or 16 MiB for characters, divided by the number of lengths.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"body": ["To be, or not to be", None]})
    >>> encoder = Text("body", ngrams="word 1", weights="count").fit(table)
    >>> encoder.describe()
    body  string  n-grams  word 1 count
    >>> rows = encoder.transform(table)
    >>> rows.shape, rows.data.tolist()
    ((2, 1099511627776), [2.0, 1.0, 2.0, 1.0])
    >>> [name.value for name in encoder.name_of(rows[0].indices, table)]
    ['to', 'or', 'be', 'not']
    """

    name = "text"
    version = 1
    random_state: ClassVar[Any] = 0  # type: ignore[misc]  # no parameter: nothing is drawn

    column: str
    ngrams: str = "word 5"
    weights: Literal["binary", "count", "log", "sqrt"] = "binary"
    lower: bool = True
    normalize: Literal["nfkc"] | None = "nfkc"

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn passes labels to every fit
        """Check the parameters, and that the column holds text.

        Parameters
        ----------
        X : table
            A DataFrame of pandas, polars or Dask, a Table or RecordBatch of Arrow, or any other object with
            ``__arrow_c_stream__``.
        y : ignored

        Returns
        -------
        self : Text
        """
        schema: pa.Schema = read_table(X._meta if is_dask_table(X) else X)[0].schema
        self._keep(_FittedTable.of(self, self.random_state, self._text_columns([self.column])))
        self.check_schema(schema)
        return self

    def _ngrams(self) -> dict[str, NGrams]:
        weights = check_choice(self.weights, "weights", WEIGHTS)
        normalize = check_choice(self.normalize, "normalize", (None, "nfkc"))
        if not isinstance(self.lower, bool):
            raise ConfigError(f"lower={self.lower!r}, but it must be True or False")
        return {self.column: NGrams.parse(self.ngrams, "ngrams", weights, lower=self.lower, normalize=normalize)}

    def _checked_params(self) -> dict[str, Any]:
        if not isinstance(self.column, str):
            raise ConfigError(f"column={self.column!r:.100}, but it must be the name of a column")
        (ngrams,) = self._ngrams().values()
        options = {"lower": self.lower, "normalize": self.normalize}
        return {"column": self.column, "ngrams": ngrams.form, "weights": self.weights, **options}
