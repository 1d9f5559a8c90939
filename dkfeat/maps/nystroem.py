"""Nyström features for any kernel.

P. Li and C.-H. Zhang, "Theory of the GMM Kernel", WWW 2017, §2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.random import TILE, choose_rows
from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels import NamedKernel, named_kernel
from dkfeat.kernels._rows import largest_magnitudes
from dkfeat.kernels.dot_product import OF_INNER_PRODUCTS
from dkfeat.maps._base import FeatureMap, Fitted
from dkfeat.maps._kernel_estimates import EstimatedKernel, parameters_shown
from dkfeat.maps._landmarks import LandmarkKernel, Landmarks, as_tiles, landmark_kernel
from dkfeat.maps._rows import RowsFrom, count_rows, dask_width, is_dask, slice_rows, take_rows
from dkfeat.projections import add_dense
from dkfeat.validation import check_columns, check_integer, check_real, check_rows, check_seed, rows_as_csr

_NOISE = 3000.0
"""Columns of the normalization longer than the first one by up to this factor are multiplied in float32, others in
float64. Rounding errors of kernel values are multiplied by these lengths, which are 1 / sqrt(eigenvalue)."""
_SMALLEST, _LARGEST = 2.0**-32, 2.0**32
"""Limits of the first column's length for products in float32."""
_LARGEST_VALUE = 1e30
"""Rows with larger kernel values are multiplied in float64."""


@dataclass(frozen=True, eq=False, kw_only=True)
class _FittedNystroem(Fitted):
    """State of a fitted map: parameters as they were in fit, and the landmarks."""

    landmarks: Landmarks

    def __reduce__(self) -> tuple[Any, ...]:  # values computed from the landmarks are not pickled
        return partial(_FittedNystroem, params=self.params, seed=self.seed, landmarks=self.landmarks), ()

    @cached_property
    def kernel(self) -> NamedKernel:
        """Kernel with its parameters."""
        return NamedKernel(self.params["kernel"], self.params["kernel_params"])

    @cached_property
    def values(self) -> LandmarkKernel:
        """Kernel values with the landmarks."""
        return landmark_kernel(self.kernel, self.landmarks.rows)

    @cached_property
    def n_single(self) -> int:
        """Number of columns that are multiplied in float32: from the first, without a column that is too long."""
        lengths = np.sqrt(np.square(self.landmarks.normalization).sum(axis=0))
        if lengths[0] and not _SMALLEST <= lengths[0] <= _LARGEST:
            return 0
        return int(np.append(lengths > _NOISE * lengths[0], True).argmax())

    @cached_property
    def tables(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Normalization in tiles of columns: those in float32, and the rest in float64."""
        first, rest = np.split(self.landmarks.normalization, [self.n_single], axis=1)
        return as_tiles(first, np.float32), as_tiles(rest, np.float64)

    def fill(self, X: Any, features: NDArray[np.float32]) -> None:
        """Write the features of a block of rows."""
        single, rank = self.n_single, features.shape[1]
        values = self.values.values(X, np.float32 if single == rank else np.float64)
        with np.errstate(over="ignore"):
            for columns, table in zip((features[:, :single], features[:, single:]), self.tables, strict=True):
                if table.size:
                    _multiply(values.astype(table.dtype, copy=False), table, columns)
            if single and self.kernel.name in OF_INNER_PRODUCTS:  # other kernels are at most 1
                for row in np.flatnonzero(~(largest_magnitudes(values) <= _LARGEST_VALUE)):
                    exact = self.values.values(X[row : row + 1], np.float64)[0]
                    features[row] = (exact[:, None] * self.landmarks.normalization).sum(axis=0)


def _multiply(values: NDArray[Any], table: NDArray[Any], out: NDArray[np.float32]) -> None:
    """Write the products of rows and a table made by `as_tiles`."""
    rank = out.shape[1]
    shape = len(out), -(-rank // TILE) * TILE
    if out.shape == shape and out.flags.c_contiguous and out.dtype == table.dtype:
        out[:] = 0
        add_dense(values, [(0, rank, table)], out)
    else:
        products = np.zeros(shape, table.dtype)
        add_dense(values, [(0, rank, table)], products)
        out[:] = products[:, :rank]


@dataclass(eq=False, repr=False)
class NystroemFeatures(FeatureMap):
    r"""Dense features from a row's kernel values with landmarks, which are randomly drawn rows of the data.

    This is the only map that learns from data: if rows cluster, it reaches the same accuracy with far fewer features
    than maps with random features. It works with every kernel. A row costs n_components kernel values, and fit must see
    rows.

    Parameters
    ----------
    n_components : int, default=256
        Number of landmarks (k in the paper), from 1 to 16,384; all rows if there are fewer. The output has one column
        for each eigenvalue that `rank_tolerance` keeps, at most n_components.
    kernel : str, default="gmm"
        Kernel, a function of `dkfeat.kernels`. One of "gmm", "egmm", "resemblance", "rbf", "rbf_cosine",
        "exponential_semigroup", "reciprocal_semigroup", "polynomial", "vovk_real", "vovk_infinite",
        "exponential_dot_product" or "maclaurin".
    kernel_params : mapping or None, default=None
        Parameters of the kernel by name (such as ``{"gamma": 0.5}``); missing ones have the kernel's defaults.
    rank_tolerance : float, default=1e-10
        Share of the largest eigenvalue of the landmarks' kernel matrix below which eigenvalues are dropped, from 1e-15
        to 1.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Seed for drawing landmarks: the same value and rows give the same landmarks, on any number of workers. None
        draws 64 bits in fit and keeps them in `seed_`.

    Attributes
    ----------
    landmarks_ : csr_matrix of shape (n_landmarks, n_features), float64
        Rows drawn as landmarks.
    landmark_rows_ : ndarray of shape (n_landmarks,), int64
        Row numbers of the landmarks in the data, ascending, from 0.
    normalization_ : ndarray of shape (n_landmarks, n_features_out), float64
        Matrix by which a row's kernel values are multiplied.
    n_features_in_ : int
        Number of input columns.
    feature_names_in_ : ndarray of shape (n_features,), object
        Names of the input columns, if `fit` was called with a data frame.
    seed_ : int
        Seed in use, in [0, 2^64).
    n_features_out : int
        Number of columns of `transform`: the rank after the cut, at least 1.
    encoded_row_bytes : int
        Size of an encoded row in bytes, 4 * n_features_out.

    Raises
    ------
    dkfeat.errors.ConfigError
        If a parameter is out of range. `fit_width` always raises it, because landmarks are drawn from rows.
    dkfeat.errors.InputError
        If a value is NaN or infinite (the error has ``row`` and ``column``, from 0), the kernel rejects a row, the
        width is wrong, or there are no rows to fit to.
    sklearn.exceptions.NotFittedError
        If transform is called before fit.

    See Also
    --------
    dkfeat.GCWSFeatures, dkfeat.FourierFeatures : Features that need no fit to rows and no file beside the shards.
    sklearn.kernel_approximation.Nystroem : Estimator for data in memory; its features are a rotation of these.

    Notes
    -----
    With the landmarks' kernel matrix :math:`K = V D V^\top`, the features of a row are :math:`k(x, \cdot) V D^{-1/2}`.
    Their inner products are :math:`k(x, \cdot) K^+ k(\cdot, y)`, which equal the kernel if x is a landmark and y any
    row, up to the rank cut. The cut changes no inner product of two landmarks by more than `rank_tolerance` times the
    largest eigenvalue, which is at most n_components times the largest diagonal value.

    The fit takes n_components² kernel values and O(n_components³) operations. A row takes n_components kernel values
    and n_components * n_features_out multiplications.

    Landmarks are drawn uniformly without replacement from all rows; the draw depends only on the seed and the number of
    rows. `dkfeat.featurize` draws them from the whole source in an additional pass, and stores them in a file beside
    the spec.

    Kernel values of the RBF and dot-product kernels come from inner products in float64, and their products with the
    normalization are float32. For polynomial kernels of degree 4 at most, the products of float32 rows with dense
    landmarks that are float32, too, are summed in float32 for each 64 columns, and these sums in float64: features then
    differ from those of equal float64 rows in the last digits. Sparse landmarks (fewer than one nonzero in 8 cells) are
    kept by column, so that a row takes time only for the values that it shares columns with. Columns of eigenvalues
    below about 1e-7 of the largest are computed in float64 throughout, because they amplify rounding errors. For kernel
    values of about 1, inner products of features then have errors of about 5e-6, and single features of at most about
    1e-4. Dense and sparse rows, in blocks of any size, have features of equal bits on one machine; for the semigroup
    kernels, those of dense and sparse rows agree to about 1e-5.

    References
    ----------
    .. [1] "Theory of the GMM Kernel", P. Li, C.-H. Zhang, WWW 2017.
    .. [2] "Using the Nyström Method to Speed Up Kernel Machines", C. Williams, M. Seeger, NIPS 2000.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, -2.0], [1.0, 2.0], [2.0, -4.0]])
    >>> Z = NystroemFeatures(n_components=3, random_state=0).fit_transform(X)
    >>> (Z @ Z.T).round(3)
    array([[1.   , 0.2  , 0.5  ],
           [0.2  , 1.   , 0.125],
           [0.5  , 0.125, 1.   ]], dtype=float32)
    """

    name = "nystroem"
    version = 1
    layout = "dense"
    _needs_rows = True

    n_components: int = 256
    _: KW_ONLY
    kernel: Literal[
        "gmm",
        "egmm",
        "resemblance",
        "rbf",
        "rbf_cosine",
        "exponential_semigroup",
        "reciprocal_semigroup",
        "polynomial",
        "vovk_real",
        "vovk_infinite",
        "exponential_dot_product",
        "maclaurin",
    ] = "gmm"
    kernel_params: Mapping[str, Any] | None = None
    rank_tolerance: float = 1e-10
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn passes labels to every fit
        """Draw landmarks from the rows of X and decompose their kernel matrix.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features), or a Dask array of such blocks
            Rows with finite values. For a Dask array, the blocks that hold landmarks are computed, and if row chunks
            are unknown, the lengths of all blocks.
        y : ignored

        Returns
        -------
        self : NystroemFeatures
        """
        if is_dask(X):
            width = dask_width(X)
            X, n_rows = count_rows(X)
            return self._fit_drawn(n_rows, width, lambda numbers: take_rows(X, numbers))
        rows = self._as_rows(X, reset=True)
        check_rows(rows)
        self._draw(rows.shape[0], rows.shape[1], lambda numbers: rows[numbers])
        return self

    def _check_params(self) -> None:
        """See `FeatureMap._check_params`."""
        self._checked_params()

    def _fit_drawn(self, n_rows: int, n_features: int, take: Callable[[NDArray[np.int64]], Any]) -> Self:
        """See `FeatureMap._fit_drawn`."""
        n_features = check_integer(n_features, "n_features", low=1, high=2**62)
        self._draw(n_rows, n_features, take)
        self._set_width(n_features)
        return self

    def _fitted_arrays(self) -> dict[str, NDArray[Any]]:
        """Landmarks and normalization, which `dkfeat.from_spec` needs besides the spec.

        Returns
        -------
        arrays : dict of str to ndarray
            ``numbers``, ``indptr``, ``indices``, ``values`` and ``normalization``.
        """
        return self._fitted.landmarks.arrays()

    @property
    def n_features_out(self) -> int:
        """Number of columns of `transform`: the rank after the cut."""
        return int(self._fitted.landmarks.normalization.shape[1])

    @property
    def _working_bytes(self) -> int:
        """Memory of the landmarks, sparse, dense and as tables, and of a block of kernel values, in bytes."""
        fitted = self._fitted
        return 4 * fitted.landmarks.n_bytes + fitted.values.n_bytes + 32 * fitted.values.block_size

    def _resolve(self, params: dict[str, Any], n_features: int, seed: int) -> Fitted:  # noqa: ARG002 - of other maps
        raise ConfigError(
            f"NystroemFeatures cannot be fitted to a width ({n_features:,}) alone, for its landmarks are rows of the "
            "data; call fit(X), or give it unfitted to dkfeat.featurize, which draws them from the source"
        )

    def _checked_params(self) -> dict[str, Any]:
        n_components = check_integer(self.n_components, "n_components", low=1, high=2**14)
        kernel = named_kernel(self.kernel, self.kernel_params)
        tolerance = check_real(self.rank_tolerance, "rank_tolerance", low=1e-15, high=1)
        params = {"n_components": n_components, "kernel": kernel.name, "kernel_params": dict(kernel.params)}
        return params | {"rank_tolerance": tolerance}

    def _draw(self, n_rows: int, n_features: int, take: Callable[[NDArray[np.int64]], Any]) -> None:
        params, seed = self._checked_params(), check_seed(self.random_state)
        numbers = choose_rows(seed, n_rows, params["n_components"])
        if not len(numbers):
            raise InputError(
                "landmarks are rows of the data, but there are none (0 samples); a minimum of 1 is required"
            )
        rows = rows_as_csr(take(numbers), name="landmarks")
        check_columns(rows.shape[1], n_features, type(self).__name__)
        try:
            kernel = NamedKernel(params["kernel"], params["kernel_params"])
            landmarks = Landmarks.of(numbers, rows, kernel, params["rank_tolerance"])
        except InputError as error:
            row = None if error.row is None else int(numbers[error.row])
            message = f"{error}; this row number counts only the {len(numbers):,} landmarks"
            message += "" if row is None else f": it is row {row:,} of the data"
            raise InputError(message, row=row, column=error.column) from error
        self._keep(params, seed, landmarks)

    def _restore(self, n_features: int, arrays: Mapping[str, NDArray[Any]] | None) -> None:
        params, seed = self._checked_params(), check_seed(self.random_state)
        n_features = check_integer(n_features, "n_features", low=1, high=2**62)
        if not arrays:
            raise ConfigError(
                "the map's landmarks are not in its spec but in a file beside it; take the map from "
                "dkfeat.open_shards(folder).map or dkfeat.load_model(folder).map"
            )
        self._keep(params, seed, Landmarks.from_arrays(arrays, n_features))
        self._set_width(n_features)

    def _keep(self, params: dict[str, Any], seed: int, landmarks: Landmarks) -> None:
        self._settings, self.seed_ = _FittedNystroem(params=params, seed=seed, landmarks=landmarks), seed
        self.landmarks_, self.landmark_rows_ = landmarks.rows, landmarks.numbers
        self.normalization_ = landmarks.normalization

    def _more_of_spec(self) -> dict[str, Any]:
        return {"landmarks": self._fitted.landmarks.sha256}

    def _estimated_kernel(self) -> EstimatedKernel:
        params = self._settings.params if self.__sklearn_is_fitted__() else self._checked_params()
        kernel = NamedKernel(params["kernel"], params["kernel_params"])
        return EstimatedKernel(name=parameters_shown(kernel), exact=kernel)  # the error depends on the data

    def _transform_rows(self, X: Any) -> NDArray[np.float32]:
        s = self._fitted
        features = np.empty((X.shape[0], self.n_features_out), np.float32)
        is_sparse = sp.issparse(X)
        rows = rows_as_csr(X) if is_sparse else X
        step = s.values.rows_at_a_time(rows)
        for start in range(0, X.shape[0], step):
            if is_sparse:
                block = slice_rows(rows, slice(start, min(start + step, X.shape[0])))
            else:
                block = rows[start : start + step]
                check_rows(block, first_row=start)
            with RowsFrom(start):
                s.fill(block, features[start : start + step])
        return features
