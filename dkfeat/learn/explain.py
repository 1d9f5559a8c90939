"""Explanation of a model's scores for rows in memory or of a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

from dkfeat.engine.dataset.dataset import dataset_reader
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.errors import ConfigError, InputError
from dkfeat.learn.explanation import Explanation, explain_rows
from dkfeat.learn.model import LinearModel, load_model
from dkfeat.learn.predict import prediction_source
from dkfeat.sources.base import Source
from dkfeat.sources.formats import is_location
from dkfeat.sources.pieces import join_rows

PIECE_ROWS = 8192
"""Rows of a source that are read at a time."""
SAMPLED_ROWS, LEAST_ROWS = 1000, 20
"""Rows in the explanation of an evaluation, divided by the number of scores, but so many at least."""
_NO_ROWS = (
    "shards keep codes or predictions and no rows, and codes do not tell the columns that they come from; give the "
    "rows from which they were made"
)


def explain(
    model: LinearModel | str | PathLike[str],
    rows: Any,
    *,
    background: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Explanation:
    r"""Split the scores of rows into contributions of columns, exactly.

    Each code of `GCWSFeatures`, `DartFeatures` and `MinHashFeatures` comes from one column of the row, so the score of
    a linear model is the intercept plus a sum over columns. The contribution of a column is the sum of the weights of
    the codes that come from it. Rows and contributions are held in memory.

    Parameters
    ----------
    model : LinearModel, str or path
        Model on codes, or its folder or URL.
    rows : array or sparse matrix of shape (n_samples, n_features), table, or source
        Rows as for ``model.decision_function``; or files as for `dkfeat.predict`. Shards keep codes, which do not tell
        the columns.
    background : like `rows`, or None
        Rows whose mean contributions are the baseline, such as those of the training; read in bounded memory. None: the
        explained rows.
    storage_options : mapping or None
        Options of fsspec for sources and a model given by URL.

    Returns
    -------
    explanation : Explanation

    Raises
    ------
    dkfeat.errors.ConfigError
        If the features of the model's map do not come from single columns.
    dkfeat.errors.InputError
        For shards and codes, for rows with another number of columns, and for tables without a column of the encoder.
    dkfeat.errors.DkfeatError
        As from `dkfeat.predict`, for sources.

    See Also
    --------
    dkfeat.plot.ExplanationDisplay : Bars of importances, or of one row's contributions.

    Notes
    -----
    A contribution tells what the model does, and not what would happen if a value were another one: codes compete, so a
    value that grows takes codes from other columns. Columns of the background that no explained row holds have no
    baseline, if there are more than 2^20 columns, and for n-grams and lists.

    Examples
    --------
    >>> import dkfeat, numpy as np
    >>> X = np.random.default_rng(0).random((200, 3))
    >>> gcws = dkfeat.GCWSFeatures(n_components=64, random_state=0).fit(X)
    >>> from sklearn.linear_model import LogisticRegression
    >>> line = LogisticRegression().fit(gcws.transform(X), X[:, 1] > 0.5)
    >>> weights = {"coef": line.coef_, "intercept": line.intercept_}
    >>> model = LinearModel(map_spec=gcws.to_spec(), classes=np.array([0, 1]), **weights)
    >>> found = dkfeat.explain(model, X)
    >>> found, int(found.importances.argmax())
    (Explanation(200 rows, 3 columns), 1)
    >>> bool(np.allclose(found.intercept + found.contributions.sum(axis=1), model.decision_function(X), atol=1e-5))
    True
    """
    model = load_model(model, storage_options=storage_options)
    blocks = list(_blocks(model, rows, storage_options))
    others = None if background is None else _blocks(model, background, storage_options)
    return explain_rows(model, blocks[0] if len(blocks) == 1 else join_rows(blocks), others)


def explain_sample(model: LinearModel, source: Source) -> Explanation | str:
    """Explain the first rows of a resolved source, at most 1,000; or tell why there is no explanation."""
    n_rows = max(LEAST_ROWS, SAMPLED_ROWS // model.coef.shape[0])
    try:
        return explain_rows(model, next(_read(source, n_rows)))
    except (ConfigError, InputError) as error:
        return str(error)


def _blocks(model: LinearModel, rows: Any, storage_options: Mapping[str, Any] | None) -> Iterator[Any]:
    """Yield rows in memory, or those of a source piece by piece, as the model's encoder takes them."""
    if dataset_reader(rows, storage_options) is not None:
        raise InputError(_NO_ROWS)
    if is_location(rows) or isinstance(rows, Source):
        yield from _read(prediction_source(model, rows, storage_options), PIECE_ROWS)
    else:
        yield rows


def _read(source: Source, n_rows: int) -> Iterator[Any]:
    """Yield the rows of a resolved source, at most `n_rows` at a time, as they are before an encoder."""
    if isinstance(source, ShardSource):
        raise InputError(_NO_ROWS)
    if source.encoder is not None:
        unfitted = source.encoder._cloned()  # so rows are read as they are
        # files may lack the columns that the fitted encoder leaves out
        names = source.read_features if source.is_table else ()  # type: ignore[attr-defined]  # sources of tables have it
        given = {"features": names, "n_features": unfitted.width(names)} if names else {}
        source = source.replaced(encoder=unfitted, **given)
    for split in source.splits():
        for piece in source.read(split, n_rows, checksum=False):
            yield piece.block.X
