"""Encoder of rows of numbers: each column scaled by its ranks, or by its largest value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import validate_data

from dkfeat.compiled.jit import owned
from dkfeat.compiled.random import STREAM_TABLE, choose_rows
from dkfeat.compiled.tables import rank_entries
from dkfeat.encoders._base import N_DRAWN, Encoder
from dkfeat.encoders._columns import N_KNOTS
from dkfeat.kernels._rows import HeldColumns
from dkfeat.maps._rows import count_rows, is_dask, take_rows, transform_blocks
from dkfeat.validation import check_choice, check_integer, check_seed, rows_as_csr

MOST_VALUES = 1 << 22
"""Nonzeros of the drawn rows to which a scale is fitted, about: it bounds the knots of wide rows to 32 MiB."""


class _FittedScale(NamedTuple):
    """State of a fitted scale: the columns of the drawn rows and, for each, its knots, from one bound to the next.

    For ranks, the negative and the positive values of column j count as the columns 2j + 1 and 2j, and knots are
    magnitudes, ascending. Otherwise the only knot is the largest magnitude.
    """

    params: dict[str, Any]
    seed: int
    held: HeldColumns
    arrays: dict[str, NDArray[Any]]
    """``columns`` and ``bounds``, int64, and ``knots``, of the type of fit, to which rows are rounded."""


@dataclass(eq=False, repr=False)
class ColumnScale(OneToOneFeatureMixin, Encoder):
    """Scale of each column of rows of numbers, for maps whose kernel one large column would decide alone.

    It stands before a feature map for the min-max kernel, such as `DartFeatures` or `GCWSFeatures`, if the columns of
    LIBSVM text, vectors or arrays have different units. Zeros stay zeros, so sparse rows stay sparse, and values keep
    their signs.

    Parameters
    ----------
    column_scale : {"rank", "max"}, default="rank"
        Scale of each column of numbers: ranks of its nonzeros, or division by the largest magnitude. A rank is the
        share of the column's drawn nonzeros of the same sign that are at most as large in magnitude.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Seed of the draw of 10,000 rows to which longer data are fitted. None draws 64 bits in fit and keeps them in
        `seed_`.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features,), object
        Their names, if `fit` was called with a data frame.
    seed_ : int
        Seed in use, in [0, 2^64).
    n_features_out : int
        Number of columns of `transform`: `n_features_in_`.

    Raises
    ------
    dkfeat.errors.ConfigError
        In fit: a parameter is out of range.
    dkfeat.errors.InputError
        If a value is NaN or infinite (the error has ``row`` and ``column``, from 0), or the width is wrong.
    sklearn.exceptions.NotFittedError
        If transform is called before fit.

    See Also
    --------
    dkfeat.TableEncoder : Encoder of tables with columns of any type; numbers count by their ranks.
    sklearn.preprocessing.MaxAbsScaler : Division by the largest magnitude of all rows.

    Notes
    -----
    Scaled values are between -1 and 1. For ranks, at most 1,024 of the drawn values of each column and sign are kept;
    a rank is that of the lowest of them at least. Values beyond the largest drawn magnitude become 1 or -1, and so do
    all nonzeros of a column without drawn values (for ranks, of their sign). Of drawn rows with more than four million
    nonzeros, every second, third or further row is used, which bounds memory.

    A strictly increasing function of a column that keeps zero at zero, applied before fit, changes no rank; a positive
    factor changes the results of "max" by rounding at most.

    Examples
    --------
    >>> X = np.array([[1.0, 3e9], [0.0, 2e9], [-4.0, 1e9], [7.0, 0.0]])
    >>> ColumnScale().fit_transform(X).toarray().round(2)
    array([[ 0.5 ,  1.  ],
           [ 0.  ,  0.67],
           [-1.  ,  0.33],
           [ 1.  ,  0.  ]])
    >>> ColumnScale("max").fit_transform(X).toarray()[2].round(2)
    array([-0.57,  0.33])
    """

    name = "scale"
    version = 1
    takes_tables = False

    column_scale: Literal["rank", "max"] = "rank"
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn passes labels to every fit
        """Find the knots of the columns.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features), or a Dask array of such blocks
            Rows with finite values. Of a Dask array, the blocks that hold drawn rows are computed.
        y : ignored

        Returns
        -------
        self : ColumnScale
        """
        params, seed = self._checked_params(), check_seed(self.random_state)
        if is_dask(X):
            X, n_rows = count_rows(X)
            X = take_rows(X, choose_rows(seed, n_rows, N_DRAWN, STREAM_TABLE))
        X = validate_data(self, X, accept_sparse="csr", ensure_all_finite=False)
        rows = rows_as_csr(X[choose_rows(seed, X.shape[0], N_DRAWN, STREAM_TABLE)])
        rows = rows[:: max(1, -(-rows.nnz // MOST_VALUES))]
        columns, sizes = _columns(rows, params), np.abs(rows.data.astype(np.float64))
        order = np.lexsort((sizes, columns))
        columns, starts, counts = np.unique(columns[order], return_index=True, return_counts=True)
        most = 1 if params["column_scale"] == "max" else N_KNOTS
        kept = np.minimum(counts, most)
        bounds = np.concatenate([[0], np.cumsum(kept)])
        at = np.arange(bounds[-1]) - np.repeat(bounds[:-1], kept)  # of equal distances in rank, the last one for "max"
        at = (at + (most == 1)) * np.repeat(counts - 1, kept) // np.maximum(np.repeat(kept - 1, kept), 1)
        knots = sizes[order][np.repeat(starts, kept) + at].astype(rows.dtype)
        self._keep(params, seed, {"columns": columns, "bounds": bounds, "knots": knots})
        return self

    def transform(self, X: Any) -> Any:
        """Scale each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features), or a Dask array of such blocks

        Returns
        -------
        scaled : csr_matrix of shape (n_samples, n_features)
            Canonical; float32 if the rows or those of fit are, else float64: a row has equal ranks in both types. For a
            Dask array, a lazy Dask array of such blocks.
        """
        state = self._state()
        if is_dask(X):
            return transform_blocks(self, X)
        X = validate_data(self, X, reset=False, accept_sparse="csr", ensure_all_finite=False, ensure_min_samples=0)
        rows, knots = rows_as_csr(X), state.arrays["knots"]
        if knots.dtype < rows.dtype and rows.nnz:
            with np.errstate(over="ignore"):
                rows = rows.astype(knots.dtype)
            rows.eliminate_zeros()
        positions, values = state.held.positions(_columns(rows, state.params)), owned(rows.data)
        scaled, knots = np.empty_like(values), knots.astype(np.float64)
        if state.params["column_scale"] == "rank":
            rank_entries(positions, values, state.arrays["bounds"], knots, scaled)
        else:  # the last of these knots is that of columns without drawn values
            with np.errstate(divide="ignore", over="ignore"):
                shares = np.abs(values) / np.append(knots, 0)[positions]
            np.copysign(np.clip(shares, np.finfo(values.dtype).tiny, 1), values, out=scaled, casting="same_kind")
        encoded = csr_matrix((scaled, rows.indices, rows.indptr), shape=rows.shape)
        encoded.has_canonical_format = True
        return encoded

    @property
    def n_features_out(self) -> int:
        """Number of columns of `transform`: `n_features_in_`."""
        self._state()
        return int(self.n_features_in_)

    def _more_of_spec(self) -> dict[str, Any]:
        return {"n_features": int(self.n_features_in_)}

    def _restore(self, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self.n_features_in_ = check_integer(spec["n_features"], "n_features", low=1, high=2**62)
        self._keep(self._checked_params(), check_seed(spec["seed"]), arrays)

    def _fitted_arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = self._state().arrays
        return arrays

    def _checked_params(self) -> dict[str, Any]:
        return {"column_scale": check_choice(self.column_scale, "column_scale", ("rank", "max"))}

    def _keep(self, params: dict[str, Any], seed: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        order = np.arange(len(arrays["columns"]), dtype=np.int32)
        held = HeldColumns(arrays["columns"], order, 2 * self.n_features_in_)
        self._settings, self.seed_ = _FittedScale(params, seed, held, dict(arrays)), seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _columns(rows: csr_matrix, params: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the column of each entry as in `_FittedScale`."""
    columns = rows.indices.astype(np.int64)
    return columns if params["column_scale"] == "max" else 2 * columns + (rows.data < 0)
