"""Generalized consistent weighted sampling: one-hot features for the GMM kernel.

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, §1.1-1.4, Alg. 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.blocks import PackedCodes
from dkfeat.compiled.jit import owned
from dkfeat.compiled.sampling import gcws as cws
from dkfeat.compiled.sampling.feature_major import signed_logs
from dkfeat.compiled.sampling.packing import one_hot_columns
from dkfeat.errors import InputError
from dkfeat.kernels import gmm
from dkfeat.maps._base import checked_seed
from dkfeat.maps._code_estimates import EstimatesFromCodes
from dkfeat.maps._kernel_estimates import KernelFacts
from dkfeat.maps._rows import RowPreparation
from dkfeat.theory.fourier import gcws_variance
from dkfeat.validation import MAX_POWER, check_choice, check_integer, check_real

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _FittedGCWS:
    """State of a fitted map: parameters as they were in fit, and values derived from them."""

    n_components: int
    i_bits: int
    t_bits: int
    p: float
    preparation: RowPreparation
    code: Literal["auto", "lowest"]
    mode: cws.CodeMode
    seed: int

    @property
    def bits(self) -> int:
        return self.i_bits + self.t_bits


class GCWSFeatures(EstimatesFromCodes):
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
        Number, or one number for each column, that is subtracted from the values before any other step, also from the
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

    Departures from the paper:

    * The codes above are used instead of the lowest b bits, one of which is the sign; ``code="lowest"`` gives the
      paper's codes.
    * Random numbers are functions of (seed, coordinate, component), so there is no table of n_features * n_components.

    Logarithms are taken in strict float64 and rounded once to float32: float32 and float64 arrays of equal values give
    equal codes, and values from 1e-308 to 1e308 work. Codes are equal on every CPU.

    References
    ----------
    .. [1] P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017.
    .. [2] S. Ioffe, "Improved Consistent Sampling, Weighted Minhash and L1 Sketching", ICDM 2010.

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
    layout = "codes"

    def __init__(
        self,
        n_components: int = 256,
        *,
        i_bits: int = 8,
        t_bits: int = 0,
        p: float = 1.0,
        center: Any = None,
        normalize: Literal["l1", "l2", "max"] | None = None,
        random_state: Any = None,
        code: Literal["auto", "lowest"] = "auto",
    ) -> None:
        self.n_components = n_components
        self.i_bits = i_bits
        self.t_bits = t_bits
        self.p = p
        self.center = center
        self.normalize = normalize
        self.random_state = random_state
        self.code = code

    def sample(self, X: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Compute the full samples (i*, t*), of which codes keep a few bits.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        i_star : ndarray of shape (n_samples, n_components), int64
            Sampled coordinates: 2 * column, plus 1 for a negative value. -1 in an all-zero row.
        t_star : ndarray of shape (n_samples, n_components), int64
            Their levels. 0 in an all-zero row.

        Examples
        --------
        >>> import numpy as np
        >>> i_star, t_star = GCWSFeatures(n_components=3, random_state=0).fit_width(2).sample(np.array([[0.0, -4.0]]))
        >>> i_star
        array([[3, 3, 3]])
        """
        s = self._fitted
        parts = [
            cws.sample(*columns, n_components=s.n_components, seed=s.seed)
            for columns in self._columns(self._check_rows(X))
        ]
        i_star, t_star = (
            np.concatenate(arrays) if len(parts) > 1 else arrays[0] for arrays in zip(*parts, strict=True)
        )
        return i_star, t_star

    def encode(self, X: Any) -> PackedCodes:
        """Compute codes as shards store them: i_bits + t_bits bits for each component.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        encoded : PackedCodes
            ``codes``: ndarray of shape (n_samples, encoded_row_bytes), uint8; components in order, least significant
            bit first. A code is that of i*, plus (t* mod 2^t_bits) * 2^i_bits. ``empty``: the all-zero rows.

        Examples
        --------
        >>> import numpy as np
        >>> encoded = GCWSFeatures(n_components=4, i_bits=4, random_state=0).fit_width(3).encode(np.eye(2, 3))
        >>> encoded.codes.tolist(), encoded.empty.tolist()
        ([[0, 0], [34, 34]], [False, False])
        """
        return self._encode_rows(self._check_rows(X))

    def decode(self, encoded: PackedCodes) -> sp.csr_matrix:
        """Expand packed codes to one-hot rows: ``decode(encode(X))`` equals ``transform(X)``.

        Parameters
        ----------
        encoded : PackedCodes
            From `encode`, or from a shard.

        Returns
        -------
        features : csr_matrix of shape (n_samples, n_features_out), float32
            Rows of n_components ones, none in an empty row. Indices are int32, or int64 if the width or the number of
            ones exceeds 2^31 - 1.

        Raises
        ------
        dkfeat.errors.InputError
            If the arrays are not codes of this map.
        """
        s = self._fitted
        if not isinstance(encoded, PackedCodes):
            raise InputError(
                f"got {type(encoded).__name__}, but it must be codes: pass the result of encode(X), or codes of a shard"
            )
        codes, empty = np.asarray(encoded.codes), np.asarray(encoded.empty)
        n_samples = len(empty)
        wanted = (n_samples, self.encoded_row_bytes)
        if codes.shape != wanted or codes.dtype != np.uint8 or empty.dtype != np.bool_:
            raise InputError(
                f"codes have the shape {codes.shape} and dtype {codes.dtype}, and `empty` has {n_samples} values of "
                f"{empty.dtype}, but this map needs {self.encoded_row_bytes} bytes of uint8 and one bool for each row; "
                "pass codes of this map"
            )
        ones = np.where(empty, 0, s.n_components)
        indptr = np.concatenate([[0], np.cumsum(ones)])
        index_dtype = np.int32 if max(self.n_features_out, indptr[-1]) <= _INT32_MAX else np.int64
        columns = np.empty(indptr[-1], index_dtype)
        one_hot_columns(owned(codes), owned(empty), s.n_components, s.bits, columns)
        data = np.ones(len(columns), np.float32)
        features = sp.csr_matrix((data, columns, indptr.astype(index_dtype)), shape=(n_samples, self.n_features_out))
        features.has_canonical_format = True
        return features

    @property
    def n_features_out(self) -> int:
        """Number of columns of `transform`: n_components * 2^(i_bits + t_bits)."""
        return self._fitted.n_components << self._fitted.bits

    @property
    def encoded_row_bytes(self) -> int:
        """Size of a packed row in bytes: ceil(n_components * (i_bits + t_bits) / 8)."""
        return (self._fitted.n_components * self._fitted.bits + 7) // 8

    def check_params(self) -> None:
        """See `FeatureMap.check_params`."""
        self._check_at_width(max(1, len(self.center)) if np.ndim(self.center) == 1 else 1)

    def _resolve(self, n_features: int) -> None:
        i_bits = check_integer(self.i_bits, "i_bits", low=1, high=16)
        code = check_choice(self.code, "code", ("auto", "lowest"))
        settings = _FittedGCWS(
            n_components=check_integer(self.n_components, "n_components", low=1, high=2**24),
            i_bits=i_bits,
            t_bits=check_integer(self.t_bits, "t_bits", low=0, high=2),
            p=check_real(self.p, "p", above=0, high=MAX_POWER),
            preparation=RowPreparation.checked(n_features=n_features, center=self.center, normalize=self.normalize),
            code=code,
            mode="lowest" if code == "lowest" else _code_mode(n_features, i_bits),
            seed=checked_seed(self.random_state),
        )
        self._settings = settings
        self.code_mode_ = settings.mode
        self.seed_ = settings.seed

    def _spec_part(self) -> dict[str, Any]:
        s = self._fitted
        center = s.preparation.center
        params = {
            "n_components": s.n_components,
            "i_bits": s.i_bits,
            "t_bits": s.t_bits,
            "p": s.p,
            "center": center.tolist() if isinstance(center, np.ndarray) else center,
            "normalize": s.preparation.normalize,
            "code": s.code,
        }
        return {"params": params, "code_mode": s.mode}

    def _kernel_facts(self) -> KernelFacts:
        s = self._fitted

        def prepared(X: Any) -> sp.csr_matrix:
            return sp.vstack(list(s.preparation.blocks(X)), format="csr")

        def exact(X: Any, Y: Any) -> NDArray[np.float64]:
            return gmm(prepared(X), None if Y is None else prepared(Y), p=s.p)

        def variance_at(values: NDArray[np.float64]) -> NDArray[np.float64]:
            i_bits = s.i_bits if s.mode == "mixed" else None
            return gcws_variance(np.clip(values, 0.0, 1.0), i_bits) / s.n_components

        dropped = "plus the bias of dropped levels, which is large for rows of few columns; t_bits=1 or 2 reduces it"
        name = "GMM" if s.p == 1 else f"pGMM, p = {s.p:g}"
        return KernelFacts(name=name, exact=exact, variance_at=variance_at, note="" if s.t_bits else dropped)

    def _transform_rows(self, X: Any) -> sp.csr_matrix:
        return self.decode(self._encode_rows(X))

    def _encode_rows(self, X: Any) -> PackedCodes:
        s = self._fitted
        n_samples, first = X.shape[0], 0
        packed = PackedCodes(np.empty((n_samples, self.encoded_row_bytes), np.uint8), np.empty(n_samples, np.bool_))
        for columns in self._columns(X):
            codes, empty = cws.encode(
                *columns,
                n_components=s.n_components,
                seed=s.seed,
                i_bits=s.i_bits,
                t_bits=s.t_bits,
                mode=s.mode,
            )
            last = first + len(empty)
            packed.codes[first:last], packed.empty[first:last] = codes, empty
            first = last
        return packed

    def _columns(self, X: Any) -> Iterator[tuple[NDArray, NDArray, NDArray[np.float32], NDArray[np.bool_]]]:
        """Yield row bounds, columns, logarithms of magnitudes and signs of each block of X."""
        s = self._fitted
        for rows in s.preparation.blocks(X):
            logs, negative = signed_logs(rows.data, s.p)
            yield rows.indptr, rows.indices, logs, negative


def _code_mode(n_features: int, i_bits: int) -> cws.CodeMode:
    if 2 * n_features <= 1 << i_bits:
        return "injective"
    return "signed" if n_features <= 1 << i_bits else "mixed"
