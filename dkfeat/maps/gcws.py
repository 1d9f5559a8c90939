"""Generalized consistent weighted sampling: one-hot features for the GMM kernel.

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, §1.1-1.4, Alg. 1.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.sampling import gcws as cws
from dkfeat.compiled.sampling.feature_major import signed_logs
from dkfeat.maps._base import N_COMPONENTS
from dkfeat.maps._kernel_estimates import EstimatedKernel
from dkfeat.maps._rows import RowPreparation
from dkfeat.maps._sampled import PREPARATION_CHECKS, FittedSamples, WeightedMap
from dkfeat.validation import check_choice, check_integer


@dataclass(eq=False, repr=False)
class GCWSFeatures(WeightedMap):
    r"""One-hot features whose inner products estimate the generalized min-max (GMM) kernel.

    Each component samples one coordinate of a row; the probability that two rows sample the same one is their
    similarity. A code of `i_bits` bits maps the coordinate to one of :math:`2^b` columns. Linear models on these
    sparse, binary rows come close to the accuracy of a GMM kernel machine at the cost of a linear model. The time of a
    row is proportional to its nonzeros times `n_components`, and does not depend on the number of columns.

    Parameters
    ----------
    n_components : int, default=256
        Number of samples (k in the paper), from 1 to 2^24. Output width is n_components * 2^(i_bits + t_bits).
    i_bits : int, default=8
        Bits kept of the sampled coordinate i* (b in the paper), from 1 to 16.
    t_bits : int, default=0
        Bits kept of its level t*, from 0 to 2. The default is the paper's "0-bit" scheme.
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
    code : {"auto", "lowest"}, default="auto"
        Rule that maps i* to `i_bits` bits: "auto", without loss if they suffice, else by a hash (see Notes); "lowest",
        the lowest bits of i*, as in the paper.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the input.
    feature_names_in_ : ndarray of shape (n_features,), object
        Names of the input columns, if `fit` was called with a data frame.
    seed_ : int
        Seed in use, in [0, 2^64).
    code_mode_ : {"injective", "signed", "mixed", "lowest"}
        Rule that maps i* to a code at this width.
    n_features_out : int
        Number of columns of `transform`.
    encoded_row_bytes : int
        Size of a packed row in bytes, ceil(n_components * (i_bits + t_bits) / 8).

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
    dkfeat.kernels.gmm : The exact kernel, in quadratic time.

    Notes
    -----
    A positive value at column f becomes coordinate 2f; a negative one becomes coordinate 2f + 1, with its magnitude
    (§1.1). For each component (Alg. 1), with r, c ~ Gamma(2, 1) and beta ~ U(0, 1) for each coordinate,

    .. math:: t = \lfloor \log u / r + \beta \rfloor, \quad a = \log c - r (t + 1 - \beta), \quad
              i^* = \operatorname{argmin} a, \quad t^* = t_{i^*},

    and :math:`P[(i^*, t^*)_u = (i^*, t^*)_v] = GMM(u, v)` exactly. With ``t_bits=0`` the level is dropped, so slightly
    more pairs agree: the "0-bit" bias, which is small for most data (§1.4) and is not corrected.

    All-zero rows have no sample: `sample` returns -1, `encode` marks them as empty, `transform` returns a zero row.

    The code of i*, for n columns and b = i_bits:

    * ``injective``, if 2n <= 2^b: i* itself.
    * ``signed``, if n <= 2^b < 2n: lossless among coordinates of one sign; codes of the other sign are shifted by a
      number drawn for each component.
    * ``mixed``, if n > 2^b: b bits of a hash of (seed, component, i*); two coordinates share a code with
      probability 2^-b, independently in each component.

    A packed code is that of i*, plus (t* mod 2^t_bits) * 2^i_bits. `estimate_kernel` corrects estimates from mixed
    codes for their chance, 2^-b times the rate at which the levels of the two rows agree in their t_bits. There is no
    correction for injective and signed codes, which are lossless except between coordinates of opposite sign, and for
    the lowest bits, whose chance depends on the data. The 0-bit bias remains; each bit of the level removes a part of
    it.

    Departures from the paper:

    * The codes above are used instead of the lowest b bits, one of which is the sign; ``code="lowest"`` gives the
      paper's codes.
    * Random numbers are functions of (seed, coordinate, component), so there is no table of n_features * n_components.

    Logarithms are taken in strict float64 and rounded once to float32: float32 and float64 arrays of equal values give
    equal codes, and values from 1e-308 to 1e308 work. Codes are equal on every CPU.

    References
    ----------
    .. [1] "Linearized GMM Kernels and Normalized Random Fourier Features", P. Li, KDD 2017.
    .. [2] "Improved Consistent Sampling, Weighted Minhash and L1 Sketching", S. Ioffe, ICDM 2010.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, -2.0, 0.0], [0.5, -1.0, 0.0], [0.0, 0.0, 0.0]])
    >>> features = GCWSFeatures(n_components=64, random_state=0).fit(X)
    >>> Z = features.transform(X)
    >>> Z.shape, Z.sum(axis=1).A1.tolist()
    ((3, 16384), [64.0, 64.0, 0.0])
    """

    name = "gcws"
    version = 1
    _checks: ClassVar = {
        "n_components": N_COMPONENTS,
        "i_bits": partial(check_integer, low=1, high=16),
        "t_bits": partial(check_integer, low=0, high=2),
        **PREPARATION_CHECKS,
        "code": partial(check_choice, choices=("auto", "lowest")),
    }

    n_components: int = 256
    _: KW_ONLY
    i_bits: int = 8
    t_bits: int = 0
    p: float = 1.0
    center: Any = None
    normalize: Literal["l1", "l2", "max"] | None = None
    random_state: Any = None
    code: Literal["auto", "lowest"] = "auto"

    @property
    def code_mode_(self) -> cws.CodeMode:
        """Code of i*."""
        mode: cws.CodeMode = self._fitted.mode
        return mode

    def _resolve(self, params: dict[str, Any], n_features: int, seed: int) -> FittedSamples:
        mode = "lowest" if params["code"] == "lowest" else _code_mode(n_features, params["i_bits"])
        preparation = RowPreparation.of(n_features, params["center"], params["normalize"])
        bits = params["i_bits"] + params["t_bits"]
        return FittedSamples(params=params, seed=seed, bits=bits, preparation=preparation, mode=mode)

    def _more_of_spec(self) -> dict[str, Any]:
        return {"code_mode": self.code_mode_}

    def _estimated_kernel(self) -> EstimatedKernel:
        s = self._fitted
        dropped = "plus the bias of dropped levels, which is large for rows of few columns; t_bits=1 or 2 reduces it"
        bits = s.params["i_bits"] if s.mode == "mixed" else None
        return self._gmm_kernel(bits, note="" if s.params["t_bits"] else dropped)

    def _encode_block(
        self, rows: sp.csr_matrix, i_star: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        s = self._fitted
        logs, negative = signed_logs(rows.data, s.params["p"])
        return cws.encode(
            rows.indptr,
            rows.indices,
            logs,
            negative,
            n_components=s.params["n_components"],
            seed=s.seed,
            i_bits=s.params["i_bits"],
            t_bits=s.params["t_bits"],
            mode=s.mode,
            i_star=i_star,
        )

    def _sample_block(self, rows: sp.csr_matrix) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        s = self._fitted
        logs, negative = signed_logs(rows.data, s.params["p"])
        return cws.sample(rows.indptr, rows.indices, logs, negative, n_components=s.params["n_components"], seed=s.seed)

    def _chance(self, left: sp.csr_matrix, right: sp.csr_matrix) -> float | NDArray[np.float64]:
        """Return the probability that mixed codes of different samples are equal; 0 for other codes.

        The t_bits of different samples agree as often as those of two levels drawn from the two rows, and always for
        rows of zeros and ones, whose levels are all 0. The levels of components that differ are not distributed exactly
        like those of all components, so for similar rows a few hundredths of the chance remain.
        """
        s = self._fitted
        if s.mode != "mixed":
            return 0.0
        rates = [_level_rates(rows, s.params["i_bits"], s.params["t_bits"]) for rows in (left, right)]
        chances: NDArray[np.float64] = 2.0 ** -s.params["i_bits"] * (rates[0] @ rates[1].T)
        return chances


def _level_rates(rows: sp.csr_matrix, i_bits: int, t_bits: int) -> NDArray[np.float64]:
    """Frequency of each remainder of a level in a row, shape (n_rows, 2^t_bits)."""
    remainders = (rows.indices >> i_bits) & ((1 << t_bits) - 1)
    ones = np.ones(len(remainders))
    counts = sp.csr_matrix((ones, remainders, rows.indptr), shape=(rows.shape[0], 1 << t_bits)).toarray()
    return counts / np.maximum(np.diff(rows.indptr), 1)[:, None]


def _code_mode(n_features: int, i_bits: int) -> cws.CodeMode:
    if 2 * n_features <= 1 << i_bits:
        return "injective"
    return "signed" if n_features <= 1 << i_bits else "mixed"
