"""Darts: min-max samples by enumeration, as one-hot features for the GMM kernel.

T. Christiani, "DartMinHash: Fast Sketching for Weighted Sets", 2020. P. Li, "Linearized GMM Kernels and Normalized
Random Fourier Features", KDD 2017, §1.1-1.4, for the kernel.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.sampling import darts
from dkfeat.compiled.sampling.darts import signed_octaves
from dkfeat.maps._base import N_COMPONENTS
from dkfeat.maps._kernel_estimates import EstimatedKernel
from dkfeat.maps._rows import RowPreparation
from dkfeat.maps._sampled import PREPARATION_CHECKS, FittedSamples, WeightedMap
from dkfeat.validation import check_integer


@dataclass(eq=False, repr=False)
class DartFeatures(WeightedMap):
    r"""One-hot features whose inner products estimate the GMM kernel, for rows of many nonzeros over many columns.

    Each component samples one dart of a row; the probability that two rows sample the same one is their similarity.
    A code of `bits` random bits maps the dart to one of :math:`2^b` columns. Linear models on these sparse, binary rows
    come close to the accuracy of a GMM kernel machine at the cost of a linear model. `GCWSFeatures` evaluates each pair
    of a nonzero and a component; here the few darts that can win are listed instead, so the time of a row is
    proportional to its nonzeros plus a constant, for each 512 components. That is much less for rows of thousands of
    nonzeros on columns that few other rows have; for short rows on few columns `GCWSFeatures` is faster.

    Parameters
    ----------
    n_components : int, default=512
        Number of samples (k in the paper), from 1 to 2^24. Output width is n_components * 2^bits.
    bits : int, default=8
        Bits b kept of a sample, from 1 to 16.
    p : float, default=1.0
        Power of the pGMM kernel, above 0 and at most 1,000, without unit: every coordinate is raised to it.
    center : float, array-like of shape (n_features,) or None, default=None
        Number (or one number for each column) that is subtracted from the values before any other step, also from the
        absent entries of sparse rows; in the unit of the columns. Columns with a centre other than 0 become dense, so
        there may be at most 2^24 of them.
    normalize : {"l1", "l2", "max"} or None, default=None
        Norm by which each row is divided, after centring.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Root of all random numbers: the same value gives the same features on any machine and any number of workers.
        None draws 64 bits in fit and keeps them in `seed_`.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the input.
    feature_names_in_ : ndarray of shape (n_features,), object
        Names of the input columns, if `fit` was called with a data frame.
    seed_ : int
        Seed in use, in [0, 2^64).
    n_features_out : int
        Number of columns of `transform`.
    encoded_row_bytes : int
        Size of a packed row in bytes, ceil(n_components * bits / 8).

    Raises
    ------
    dkfeat.errors.ConfigError
        In fit: a parameter is out of range.
    dkfeat.errors.InputError
        A value is NaN or infinite (the error has ``row`` and ``column``, from 0), or the width is wrong.
    sklearn.exceptions.NotFittedError
        If transform is called before fit.

    See Also
    --------
    dkfeat.GCWSFeatures : The same kernel; faster for short rows on columns that many rows have.
    dkfeat.kernels.gmm : The exact kernel, in quadratic time.
    dkfeat.theory.fourier.gcws_variance : Variance of an estimate from codes.

    Notes
    -----
    A positive value at column f becomes coordinate 2f; a negative one becomes coordinate 2f + 1, with its magnitude.
    Each coordinate has a Poisson process of darts (weight w, rank, component), of intensity 1 for each component. A row
    whose coordinate weighs u owns the darts with w < u. The sample of a component is the owned dart of least rank, so

    .. math:: P[\text{samples of } u \text{ and } v \text{ agree}]
              = \frac{\sum_j \min(u_j, v_j)}{\sum_j \max(u_j, v_j)} = GMM(u, v)

    exactly, independently in each component. The code of a dart is a random word of its own, of which `bits` bits are
    kept, so codes agree with probability :math:`GMM + (1 - GMM) 2^{-b}`. `estimate_kernel` corrects this chance, which
    leaves no bias: unlike GCWS without levels, darts have no 0-bit bias. The variance of an estimate is
    `dkfeat.theory.fourier.gcws_variance`, divided by n_components.

    All-zero rows have no sample: `sample` returns -1, `encode` marks them as empty, `transform` returns a zero row.

    Random numbers are functions of (seed, coordinate, octave of the weight, arrival), so there is no table. float32 and
    float64 arrays of equal values give equal codes, values from 1e-308 to 1e308 work, and codes are equal on every CPU.

    References
    ----------
    .. [1] "DartMinHash: Fast Sketching for Weighted Sets", T. Christiani, arXiv 2005.11547, 2020.
    .. [2] "Linearized GMM Kernels and Normalized Random Fourier Features", P. Li, KDD 2017.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, -2.0, 0.0], [0.5, -1.0, 0.0], [0.0, 0.0, 0.0]])
    >>> features = DartFeatures(n_components=64, random_state=0).fit(X)
    >>> Z = features.transform(X)
    >>> Z.shape, Z.sum(axis=1).A1.tolist()
    ((3, 16384), [64.0, 64.0, 0.0])
    """

    name = "dart"
    version = 1
    _checks: ClassVar = {
        "n_components": N_COMPONENTS,
        "bits": partial(check_integer, low=1, high=16),
        **PREPARATION_CHECKS,
    }

    n_components: int = 512
    _: KW_ONLY
    bits: int = 8
    p: float = 1.0
    center: Any = None
    normalize: Literal["l1", "l2", "max"] | None = None
    random_state: Any = None

    def _resolve(self, params: dict[str, Any], n_features: int, seed: int) -> FittedSamples:
        preparation = RowPreparation.of(n_features, params["center"], params["normalize"])
        return FittedSamples(params=params, seed=seed, bits=params["bits"], preparation=preparation)

    def _estimated_kernel(self) -> EstimatedKernel:
        return self._gmm_kernel(self._fitted.bits)

    def _encode_block(
        self, rows: sp.csr_matrix, i_star: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        s = self._fitted
        return darts.encode(*self._entries(rows), s.params["n_components"], s.seed, s.bits, i_star)

    def _sample_block(self, rows: sp.csr_matrix) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        s = self._fitted
        return darts.sample(*self._entries(rows), s.params["n_components"], s.seed)

    def _entries(
        self, rows: sp.csr_matrix
    ) -> tuple[NDArray, NDArray, NDArray[np.int32], NDArray[np.uint32], NDArray[np.bool_]]:
        """Return row bounds, columns, octaves of magnitudes, places in them, and signs of prepared rows."""
        exponents, fractions, negative = signed_octaves(rows.data, self._fitted.params["p"])
        return rows.indptr, rows.indices, exponents, fractions, negative
