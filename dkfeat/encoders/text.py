"""Encoder of one column of text: its n-grams of words or characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dkfeat.encoders._arrow import read_table
from dkfeat.encoders._fitting import draw, is_dask_table
from dkfeat.encoders._ngrams import NGrams
from dkfeat.encoders._table import BaseTable, _FittedTable
from dkfeat.errors import ConfigError


@dataclass(eq=False, repr=False)
class Text(BaseTable):
    r"""Sparse rows of the n-grams of a column of text, without a vocabulary.

    It stands before a feature map, such as `DartFeatures`, in a pipeline or a run.

    Parameters
    ----------
    column : str
        Name of the column; others of a table are ignored.
    ngrams : str, default="word 5"
        Grams of words or characters, and how many, from 1 to 16: ``"word 5"``, ``"word 1-2"`` or ``"char 3-5"``. The
        weight of a gram that occurs c times in a text may follow: ``binary`` (1, the default), ``count`` (c), ``log``
        (1 + log(c)) or ``sqrt`` (the square root of c), then ``idf``, and then ``cased``, if upper and lower case are
        different. With idf, for classes of texts, the weight is multiplied by 1 + log(n / d) for a gram that d of n
        drawn rows hold, and grams with d below 3 are left out.

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

    Text is first brought to Unicode's normalisation form NFKC, in which different bytes of one character, ligatures and
    characters of full width are the same; upper and lower case are then mapped character by character. A
    coordinate is a hash of 40 bits of the gram and its length. Of ten million different grams about 45 pairs share one.

    Without idf, fit learns nothing but that the column is there, so a run reads each text once. The coordinates of a
    text depend on the parameters and the text alone: they are equal for all frames, blocks and storage of text, and one
    `TableEncoder` shifts them all by the same number.

    With idf, fit counts in up to 10,000 rows, which a seed draws: 0 here, that of `TableEncoder` there. Counts are kept
    for the top 22 bits of coordinates, so a rare gram may share the count of another one. They are a file beside the
    spec, about a megabyte. A text of left out grams alone is an empty row. Rare grams matter little to tf-idf, but they
    enlarge the union of each pair of texts, which the min-max kernel divides by.

    A text may have 32 MiB for words or 16 MiB for characters, divided by the number of lengths.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"body": ["To be, or not to be", None]})
    >>> encoder = Text("body", "word 1 count").fit(table)
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

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn passes labels to every fit
        """Check the parameters, and that the column holds text; count the rows that hold a gram, for idf.

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
        drawn = draw(X, self.random_state) if self._ngrams()[self.column].idf else []
        columns = self._text_columns([self.column], sum(len(numbers) for _, numbers in drawn))
        counted = self._counted(columns, drawn) if drawn else {}
        self._keep(_FittedTable.of(self, self.random_state, columns, counted=counted))
        self.check_schema(read_table(X._meta if is_dask_table(X) else X)[0].schema)
        return self

    def _ngrams(self) -> dict[str, NGrams]:
        if not isinstance(self.column, str):
            raise ConfigError(f"column={self.column!r:.100}, but it must be the name of a column")
        return {self.column: NGrams.parse(self.ngrams, "ngrams")}

    def _checked_params(self) -> dict[str, Any]:
        return {"column": self.column, "ngrams": str(self._ngrams()[self.column])}
