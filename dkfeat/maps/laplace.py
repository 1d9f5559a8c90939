"""Random Laplace features for the exponential- and the reciprocal-semigroup kernel of non-negative rows.

Y. Mukuta, Y. Ushiku, T. Harada, "Alternating Circulant Random Features for Semigroup Kernels", AAAI 2018.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.jit import owned
from dkfeat.compiled.products.rows import decay_features, scale_values
from dkfeat.compiled.random import (
    STREAM_LAPLACE_CIRCULANT,
    STREAM_LAPLACE_DENSE,
    STREAM_LAPLACE_MIXTURE,
    Law,
    exponentials,
    levy,
)
from dkfeat.kernels import NamedKernel
from dkfeat.kernels._rows import check_non_negative
from dkfeat.maps._base import N_COMPONENTS, FittedProjection, ProjectedMap
from dkfeat.maps._kernel_estimates import EstimatedKernel
from dkfeat.projections import CirculantProjection, DenseProjection, Projection, check_mixtures, mixtures_of
from dkfeat.validation import check_choice, check_real, check_rows, rows_as_csr

_CHUNK = 2**17
"""Maximum number of values, or of features, in a block of rows, so that they stay in the second-level cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Law:
    """Law of the weights at parameter 1, and limits that its tails require."""

    draw: Law
    double: bool
    heavy: float
    """Weights above this would cause too large rounding errors in the transform; they are added one by one."""
    largest: float
    """Values above this are replaced by it; even with the smallest weight it makes a feature 0."""


_LAWS = {
    # an error of a projection is about 2e-16 * 0.4 * heavy^(3/4) of a row's length
    "exponential": _Law(draw=levy, double=True, heavy=2.0**30, largest=1e5),
    "reciprocal": _Law(draw=exponentials, double=False, heavy=math.inf, largest=1e12),
}


@dataclass(eq=False, repr=False)
class LaplaceFeatures(ProjectedMap):
    r"""Dense features whose inner products estimate a semigroup kernel, for histograms and other non-negative rows.

    Each component is :math:`e^{-w^\top x}` with random positive weights w. With a circulant projection the time of a
    row is O(n_components log n_features) and memory O(n_components), both times n_mixtures. With the dense one the time
    is proportional to n_components times the row's nonzeros, and the number of columns is unbounded.

    Parameters
    ----------
    n_components : int, default=1024
        Number of features (D in the paper), from 1 to 2^24; the width of the output.
    kernel : {"exponential", "reciprocal"}, default="exponential"
        Kernel of two rows of non-negative values: :math:`e^{-\beta \sum_j \sqrt{x_j + y_j}}` or :math:`\prod_j
        \frac{\lambda}{x_j + y_j + \lambda}`.
    beta : float, default=1.0
        Steepness of the kernel "exponential", above 0, in 1 / √(unit of the values).
    rate : float, default=1.0
        Rate :math:`\lambda` of the kernel "reciprocal", above 0, in the unit of the values.
    projection : {"dense", "circulant", "alternating_circulant"}, default="dense"
        Distribution of the weights: "dense", all independent; or in independent square blocks, each a circulant matrix
        ("circulant") or a mixture of several ("alternating_circulant"). Both circulant projections convert sparse rows
        to dense ones, of at most 2^24 columns. The components of a circulant block are strongly correlated; mixtures
        have errors close to those of "dense". For dense rows of less than about 1,000 columns, "dense" is as fast, and
        its error is the smallest.
    n_mixtures : int or "log2", default="log2"
        Circulant matrices that "alternating_circulant" mixes (m in the paper), 1 to 65,536: 2 is the
        fast preset, "log2" the base-2 logarithm of n_features, rounded up, and at least 2. Other projections ignore it.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Root of all random numbers: the same value gives the same features on any number of workers. None draws 64 bits
        in fit and keeps them in `seed_`.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the input.
    feature_names_in_ : ndarray of shape (n_features,), object
        Names of the input columns, if `fit` was called with a data frame.
    seed_ : int
        Seed in use, in [0, 2^64).
    n_features_out : int
        Number of columns of `transform`, n_components.
    encoded_row_bytes : int
        Size of a row in a shard, 4 * n_components bytes.

    Raises
    ------
    dkfeat.errors.ConfigError
        In fit: a parameter is out of range, or there are too many columns for a circulant projection.
    dkfeat.errors.InputError
        In fit and transform: a value is negative, NaN or infinite (the error has ``row`` and ``column``, from 0), or
        the width is wrong. Values of a Dask array are checked when they are transformed.
    sklearn.exceptions.NotFittedError
        If transform is called before fit.

    See Also
    --------
    dkfeat.kernels.exponential_semigroup : The exact exponential kernel.
    dkfeat.kernels.reciprocal_semigroup : The exact reciprocal kernel.
    dkfeat.GCWSFeatures : Sparse, binary features for the GMM kernel, which suits histograms too and needs no beta.

    Notes
    -----
    A component is :math:`e^{-w^\top x} / \sqrt D` with independent weights: of the Lévy law of scale
    :math:`\beta^2 / 2`, that is :math:`\beta^2 / (2 Z^2)` with a standard Gaussian Z, or of the exponential law of rate
    :math:`\lambda`.
    Inner products are unbiased for all projections, because each row of the projection has independent weights of this
    law. With z = x + y a component's variance is :math:`k(2z) - k(z)^2` (Theorem 1), where k(z) is
    the kernel. Components of a circulant block covary by Theorems 2 and 3.

    A circulant block has as many rows as columns, padded to a length that suits the fast Fourier transform; for
    "exponential" and more than 128 columns, to a power of two. Padding columns hold zeros: each row keeps independent
    weights of its law, so there is no bias, and two rows share fewer weights. In the theorems, pad z in the same way.
    Columns get no random signs, unlike in circulant projections of Gaussian weights, because weights are positive.

    Lévy weights have no mean: among n of them the largest is about :math:`n^2`. Rounding errors of a transform are
    relative to it, and in float32 they would reach 0.1 of a feature. Therefore the circulant projections transform Lévy
    weights in float64 and add those above 2^30 one by one. No weight is clipped, because this would be a bias for rows
    of many tiny values. A feature times :math:`\sqrt D` then differs from its formula by at most 2e-7 (measured on
    dense, sparse and widely spread rows: 3e-8). Exponential weights are transformed in float32, which adds up to 1e-6
    of the length of :math:`x / \lambda`. Below 1e-38 a feature is 0.

    Dense and sparse rows, and blocks of any size, give equal bits on one machine; between CPUs the features agree to
    the errors above.

    References
    ----------
    .. [1] "Alternating Circulant Random Features for Semigroup Kernels", Y. Mukuta, Y. Ushiku, T. Harada, AAAI 2018.
    .. [2] "Random Laplace Feature Maps for Semigroup Kernels on Histograms", J. Yang, V. Sindhwani, Q. Fan, H. Avron,
       M. Mahoney, CVPR 2014.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.1, 0.0, 0.3], [0.2, 0.2, 0.0]])
    >>> Z = LaplaceFeatures(n_components=4096, beta=0.5, random_state=0).fit_transform(X)
    >>> bool(abs(Z[0] @ Z[1] - np.exp(-0.5 * np.sqrt(X[0] + X[1]).sum())) < 0.02)
    True
    """

    name = "laplace"
    version = 1
    _checks: ClassVar = {
        "kernel": partial(check_choice, choices=tuple(_LAWS)),
        "projection": partial(check_choice, choices=("dense", "circulant", "alternating_circulant")),
        "n_components": N_COMPONENTS,
        "beta": partial(check_real, above=0),
        "rate": partial(check_real, above=0),
        "n_mixtures": check_mixtures,
    }

    n_components: int = 1024
    _: KW_ONLY
    kernel: Literal["exponential", "reciprocal"] = "exponential"
    beta: float = 1.0
    rate: float = 1.0
    projection: Literal["dense", "circulant", "alternating_circulant"] = "dense"
    n_mixtures: int | Literal["log2"] = "log2"
    random_state: Any = None

    def _resolve(self, params: dict[str, Any], n_features: int, seed: int) -> FittedProjection:
        law = _LAWS[params["kernel"]]
        sizes = {"n_features": n_features, "n_components": params["n_components"], "seed": seed}
        operator: Projection
        if params["projection"] == "dense":
            operator = DenseProjection(**sizes, draw=law.draw, stream=STREAM_LAPLACE_DENSE)
        else:
            is_plain = params["projection"] == "circulant"
            operator = CirculantProjection(
                **sizes,
                n_mixtures=1 if is_plain else mixtures_of(params["n_mixtures"], n_features),
                flips=False,
                draw=law.draw,
                double=law.double,
                heavy=law.heavy,
                stream=STREAM_LAPLACE_CIRCULANT,
                choice_stream=STREAM_LAPLACE_MIXTURE,
            )
        return FittedProjection(params=params, seed=seed, operator=operator)

    def _estimated_kernel(self) -> EstimatedKernel:
        params, n_components = self._fitted.params, self.n_features_out
        is_exponential, is_dense = params["kernel"] == "exponential", params["projection"] == "dense"
        name, symbol = ("beta", "β") if is_exponential else ("rate", "λ")
        exact = NamedKernel(f"{params['kernel']}_semigroup", {name: params[name]})

        def variance_at(values: NDArray[np.float64]) -> NDArray[np.float64]:
            # kernel of 2 (x + y) for rows of one column; the exponential kernel does not depend on their number
            twice = values ** math.sqrt(2) if is_exponential else values / (2 - values)
            return np.maximum(twice - values**2, 0.0) / n_components

        def variance(X: Any, Y: Any, values: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.maximum(exact(2 * X, None if Y is None else 2 * Y) - values**2, 0.0) / n_components  # Theorem 1

        at_most: Literal["", "at most"] = "" if is_exponential else "at most"
        return EstimatedKernel(
            name=f"{params['kernel']} semigroup, {symbol} = {params[name]:g}",
            exact=exact,
            variance_at=variance_at,
            variance=variance if is_dense else None,
            bound=at_most if is_dense else "at least",
            note="" if is_dense else "by the theory of independent weights; circulant ones covary",
        )

    def _as_rows(self, X: Any, *, reset: bool) -> Any:
        rows = super()._as_rows(X, reset=reset)
        if reset:
            check_rows(rows)
            check_non_negative(rows_as_csr(rows) if sp.issparse(rows) else rows)
        return rows

    def _transform_rows(self, X: Any) -> NDArray[np.float32]:
        operator = self._fitted.operator
        amplitude = np.float32(1 / math.sqrt(operator.n_components))
        if sp.issparse(X) or not isinstance(operator, CirculantProjection):
            features = operator.project(self._scaled(X, X))
            decay_features(features.reshape(-1), amplitude)
            return features
        features = np.empty((len(X), operator.n_components), np.float32)
        step = max(1, _CHUNK // max(X.shape[1], operator.n_components))
        for first in range(0, len(X), step):  # blocks of rows fit the cache
            target = features[first : first + step]
            operator.project_into(self._scaled(X[first : first + step], X), target)
            decay_features(target.reshape(-1), amplitude)
        return features

    def _scaled(self, rows: Any, X: Any) -> Any:
        """Scale some rows of X for weights of parameter 1, by beta squared or 1 / rate, in float32."""
        params = self._fitted.params
        if sp.issparse(rows):
            rows = rows_as_csr(rows)
        values = rows.data if sp.issparse(rows) else rows
        values = owned(values, values.dtype.newbyteorder("=")).reshape(-1)
        factor, divisor = (params["beta"], 1.0) if params["kernel"] == "exponential" else (1.0, params["rate"])
        scaled = np.empty(len(values), np.float32)
        if not scale_values(values, factor, divisor, _LAWS[params["kernel"]].largest, scaled):
            check_non_negative(rows_as_csr(X))  # checks for NaN and infinity first
        if sp.issparse(rows):
            return sp.csr_matrix((scaled, rows.indices, rows.indptr), shape=rows.shape)
        return scaled.reshape(rows.shape)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags
