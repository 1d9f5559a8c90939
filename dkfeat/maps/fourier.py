"""Random Fourier features, plain and normalized, for the Gaussian kernel of rows or of their directions.

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, §2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.products.rows import finish_features
from dkfeat.compiled.random import STREAM_PHASE, draw_words
from dkfeat.kernels import NamedKernel
from dkfeat.maps._base import N_COMPONENTS, FittedProjection, ProjectedMap, check_flag
from dkfeat.maps._kernel_estimates import EstimatedKernel, parameters_shown
from dkfeat.maps._rows import float32_rows, rows_and_lengths
from dkfeat.projections import (
    CirculantProjection,
    DenseProjection,
    FastfoodProjection,
    OrthogonalProjection,
    Projection,
    check_mixtures,
    mixtures_of,
)
from dkfeat.theory.fourier import nrff_variance, rff_variance
from dkfeat.validation import check_choice, check_real

_PROJECTIONS: dict[str, Callable[..., Projection]] = {
    "dense": DenseProjection,
    "circulant": CirculantProjection,
    "alternating_circulant": CirculantProjection,
    "fastfood": FastfoodProjection,
    "orthogonal": OrthogonalProjection,
}
_GAMMA = 700.0
"""Gamma used to invert the kernel: with it, cosines in [-1, 1] give all positive kernel values of float64."""


@dataclass(eq=False, repr=False)
class FourierFeatures(ProjectedMap):
    r"""Dense features whose inner products estimate a Gaussian kernel: RFF and normalized RFF (NRFF).

    Each component is the cosine of a random projection plus a random phase. NRFF divides each row of cosines by its
    length, which lowers the variance for similar rows. With a structured projection the time of a row is
    O(n_components log n_features). With the dense one it is proportional to n_components times the row's nonzeros, and
    the number of columns is unbounded.

    Parameters
    ----------
    n_components : int, default=1024
        Number of features (k in the paper), from 1 to 2^24; the width of the output.
    gamma : float, default=1.0
        Steepness of the Gaussian kernel, above 0 and at most 1e12. For "rbf_cosine" it multiplies 1 - rho and has no
        unit; on unit rows it is twice scikit-learn's rbf gamma. For "rbf" it multiplies the squared distance, in
        1 / (input unit)^2, as scikit-learn's does.
    kernel : {"rbf_cosine", "rbf"}, default="rbf_cosine"
        Gaussian kernel of two rows' directions, or of their distance. "rbf_cosine" is
        :math:`e^{-\gamma (1 - \rho)}` with the cosine :math:`\rho` of the rows, which are divided by their l2 norm
        first; "rbf" is :math:`e^{-\gamma \lVert x - y \rVert^2}`.
    normalize : bool, default=True
        Scale rows of features to l2 norm 1, which makes them NRFF. False gives cosines times :math:`\sqrt{2 / k}`, an
        unbiased estimate (RFF).
    projection : str, default="dense"
        Distribution of the random directions: "dense", all independent; "circulant", "alternating_circulant",
        "fastfood" or "orthogonal" (SORF), structured and fast. Structured projections convert sparse rows to dense
        ones, of at most 2^24 columns.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Root of all random numbers: the same value gives the same features on any number of workers. None draws 64 bits
        in fit and keeps them in `seed_`.
    n_mixtures : int or "log2", default="log2"
        Circulant matrices that "alternating_circulant" mixes (m in the paper), 1 to 65,536: 2 is the
        fast preset, "log2" the base-2 logarithm of n_features, rounded up, and at least 2. Other projections ignore it.

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
        Size of an encoded row before compression, 4 * n_components bytes.

    Raises
    ------
    dkfeat.errors.ConfigError
        In fit: a parameter is out of range, or there are too many columns for a structured projection.
    dkfeat.errors.InputError
        A value is NaN or infinite (the error has ``row`` and ``column``, from 0), for "rbf" also one beyond 1e25; or
        the width is wrong.
    sklearn.exceptions.NotFittedError
        If transform is called before fit.

    See Also
    --------
    dkfeat.GCWSFeatures : Sparse, binary features for the GMM kernel, which needs no gamma.
    sklearn.kernel_approximation.RBFSampler : RFF for "rbf" with a table of n_features * n_components in memory.

    Notes
    -----
    With w of independent standard Gaussian entries and b uniform on a circle, a component of a row x of length 1 is
    :math:`\sqrt 2 \cos(\sqrt\gamma\, w^\top x + b)`, for "rbf" with :math:`\sqrt{2 \gamma}` in place of
    :math:`\sqrt\gamma`. Products of components of two rows have the kernel as their mean and, with :math:`k =
    e^{-\gamma (1 - \rho)}`, the variance :math:`V = \frac12 + \frac12 (1 - k^2)^2` (Thm 2). NRFF has the asymptotic
    variance :math:`V - \frac14 k^2 (3 - k^4)` (Thm 3) and a bias of O(1 / n_components). With dense projections,
    estimates have these variances divided by n_components. RFF is unbiased for all projections but SORF, which has a
    small bias that falls as n_features grows.

    An all-zero row has no direction and stays zero: for "rbf_cosine" its kernel with any other row is
    :math:`e^{-\gamma / 2}`.

    The arithmetic is float32: an angle's rounding error is about 1e-7 of a row's length times :math:`\sqrt\gamma`, so
    for "rbf" centre rows that are much further from the origin than :math:`1 / \sqrt\gamma`. Dense and sparse
    rows, and blocks of any size, give equal bits on one machine; between CPUs features of rows of length
    :math:`1 / \sqrt\gamma` agree to about 1e-6.

    References
    ----------
    .. [1] "Linearized GMM Kernels and Normalized Random Fourier Features", P. Li, KDD 2017.
    .. [2] "Random Features for Large-Scale Kernel Machines", A. Rahimi, B. Recht, NeurIPS 2007.
    .. [3] "Alternating Circulant Random Features for Semigroup Kernels", Y. Mukuta, Y. Ushiku, T. Harada, AAAI 2018.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[3.0, 4.0], [4.0, 3.0]])
    >>> Z = FourierFeatures(n_components=4096, gamma=1.0, random_state=0).fit_transform(X)
    >>> bool(abs(Z[0] @ Z[1] - np.exp(-(1 - 24 / 25))) < 0.02)
    True
    """

    name = "fourier"
    version = 1
    _checks: ClassVar = {
        "projection": partial(check_choice, choices=tuple(_PROJECTIONS)),
        "kernel": partial(check_choice, choices=("rbf_cosine", "rbf")),
        "n_components": N_COMPONENTS,
        "gamma": partial(check_real, above=0, high=1e12),
        "n_mixtures": check_mixtures,
        "normalize": partial(check_flag, yes="NRFF", no="RFF"),
    }

    n_components: int = 1024
    _: KW_ONLY
    gamma: float = 1.0
    kernel: Literal["rbf_cosine", "rbf"] = "rbf_cosine"
    normalize: bool = True
    projection: Literal["dense", "circulant", "alternating_circulant", "fastfood", "orthogonal"] = "dense"
    random_state: Any = None
    n_mixtures: int | Literal["log2"] = "log2"

    def _resolve(self, params: dict[str, Any], n_features: int, seed: int) -> FittedProjection:
        sizes = {"n_features": n_features, "n_components": params["n_components"], "seed": seed}
        if params["projection"] == "alternating_circulant":
            sizes["n_mixtures"] = mixtures_of(params["n_mixtures"], n_features)
        return FittedProjection(params=params, seed=seed, operator=_PROJECTIONS[params["projection"]](**sizes))

    def _estimated_kernel(self) -> EstimatedKernel:
        params, n_components = self._fitted.params, self.n_features_out
        kernel = NamedKernel(params["kernel"], {"gamma": params["gamma"]})
        formula = nrff_variance if params["normalize"] else rff_variance

        def variance_at(values: NDArray[np.float64]) -> NDArray[np.float64]:
            cosines = 1.0 + np.log(np.clip(values, 1e-300, 1.0)) / _GAMMA  # the variance depends on the kernel alone
            return np.maximum(formula(cosines, _GAMMA), 0.0) / n_components

        return EstimatedKernel(
            name=parameters_shown(kernel),
            exact=kernel,
            variance_at=variance_at,
            note="" if params["projection"] == "dense" else "by the theory of independent directions",
        )

    def _transform_rows(self, X: Any) -> NDArray[np.float32]:
        params, operator = self._fitted.params, self._fitted.operator
        # turns per unit of the projection; divided by the length of the row if the kernel depends on directions only
        if params["kernel"] == "rbf_cosine":
            rows, lengths = rows_and_lengths(X)
            scales = np.divide(
                math.sqrt(params["gamma"]) / (2 * math.pi), lengths, out=np.zeros_like(lengths), where=lengths > 0
            )
        else:
            rows = float32_rows(X)
            scales = np.full(X.shape[0], math.sqrt(2 * params["gamma"]) / (2 * math.pi))
        features = operator.project(rows)
        n_components = operator.n_components
        amplitude = 0.0 if params["normalize"] else math.sqrt(2 / n_components)
        phases = _phases(operator.seed, n_components)
        finish_features(features.reshape(-1), phases, scales.astype(np.float32), np.float32(amplitude), n_components)
        return features


@lru_cache(maxsize=4)
def _phases(seed: int, n_components: int) -> NDArray[np.float32]:
    """Draw uniform numbers in (0, 1): phases in turns."""
    words = np.empty((n_components, 4), np.uint32)
    draw_words(np.uint64(0), np.uint64(STREAM_PHASE), np.uint64(seed), words)
    return ((2 * (words[:, 0] >> 9) + 1) * 2.0**-24).astype(np.float32)
