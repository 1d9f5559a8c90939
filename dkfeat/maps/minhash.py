"""Minwise samples of sets by Fast Similarity Sketching, as one-hot features for the resemblance.

S. Dahlgaard, M. B. T. Knudsen and M. Thorup, "Fast Similarity Sketching", FOCS 2017. P. Li and A. C. König, "b-Bit
Minwise Hashing", WWW 2010, for codes of a few bits.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.sampling import minhash
from dkfeat.maps._base import N_COMPONENTS
from dkfeat.maps._kernel_estimates import EstimatedKernel
from dkfeat.maps._rows import RowPreparation, check_sets
from dkfeat.maps._sampled import FittedSamples, SampledMap
from dkfeat.theory.minhash import sketch_variance
from dkfeat.validation import check_integer, check_rows, rows_as_csr


@dataclass(eq=False, repr=False)
class MinHashFeatures(SampledMap):
    r"""One-hot features whose inner products estimate the resemblance (Jaccard similarity) of sets.

    A row of zeros and ones is the set of its columns that are 1, such as the n-grams of a text. Each component samples
    one element of a set; the probability that two sets sample the same one is their resemblance. A code of `bits`
    random bits maps the element to one of :math:`2^b` columns. The time of a row is proportional to its nonzeros plus
    :math:`k \log k` for k components, which is much less than for `GCWSFeatures` and `DartFeatures`, and while two sets
    have fewer than about k elements, the variance of an estimate is half of theirs.

    Parameters
    ----------
    n_components : int, default=256
        Number of samples (k in the paper), from 1 to 2^24, not only powers of two. Output width is
        n_components * 2^bits.
    bits : int, default=8
        Bits b kept of a sample, from 1 to 16.
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
        In fit and transform: a value is neither 0 nor 1 (the error has ``row`` and ``column``, from 0), or the width is
        wrong.
    sklearn.exceptions.NotFittedError
        If transform is called before fit.

    See Also
    --------
    dkfeat.DartFeatures : The min-max kernel of rows of any values, such as counts, which is the resemblance for sets.
    dkfeat.kernels.gmm : The exact kernel, in quadratic time.
    dkfeat.theory.minhash.sketch_variance : Variance of an estimate from codes.

    Notes
    -----
    The components are bins. In each round an element goes to one bin at random; a bin samples the element with the
    least random number of the first round in which it received one, and the rounds end once no bin is empty (Algorithm
    1). The sample of a bin is uniform on the elements, and depends on them alone, so

    .. math:: P[\text{samples of } A \text{ and } B \text{ agree}] = \frac{|A \cap B|}{|A \cup B|} = J

    and codes agree with probability :math:`J + (1 - J) 2^{-b}`. `estimate_kernel` corrects this chance, which leaves no
    bias. Bins that are filled in one round sample different elements, so a set smaller than k shows nearly all of its
    elements, which is why the variance is smaller than that of independent samples. The bins are exchangeable: any part
    of the components is a sketch too.

    Empty rows have no sample: `encode` marks them as empty, `transform` returns a zero row.

    Columns are hashed to 32 bits: two columns are one with a probability of :math:`2^{-32}`. Hashes are arithmetic of
    integers, so codes are equal on every CPU.

    References
    ----------
    .. [1] "Fast Similarity Sketching", S. Dahlgaard, M. B. T. Knudsen, M. Thorup, FOCS 2017.
    .. [2] "b-Bit Minwise Hashing", P. Li, A. C. König, WWW 2010.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 0, 0]])
    >>> features = MinHashFeatures(n_components=4096, random_state=0).fit(X)
    >>> features.estimate_kernel(features.encode(X)).round(1)
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 0. ]])
    """

    name = "minhash"
    version = 1
    takes_sets = True
    _checks: ClassVar = {"n_components": N_COMPONENTS, "bits": partial(check_integer, low=1, high=16)}

    n_components: int = 256
    _: KW_ONLY
    bits: int = 8
    random_state: Any = None

    def _resolve(self, params: dict[str, Any], n_features: int, seed: int) -> FittedSamples:
        preparation = RowPreparation(n_features=n_features, center=None, normalize=None, takes_sets=True)
        return FittedSamples(params=params, seed=seed, bits=params["bits"], preparation=preparation)

    def _estimated_kernel(self) -> EstimatedKernel:
        k, bits = self._fitted.params["n_components"], self._fitted.bits

        def variance(X: Any, Y: Any, exact: NDArray[np.float64]) -> NDArray[np.float64]:
            x, y = (np.diff(self._prepared(rows).indptr) for rows in (X, X if Y is None else Y))
            unions = np.maximum((x[:, None] + y) / (1 + exact), 1)
            return sketch_variance(np.clip(exact, 0, 1), k, unions, bits)

        return replace(self._gmm_kernel(bits), name="resemblance", variance=variance, bound="at most")

    def _as_rows(self, X: Any, *, reset: bool) -> Any:
        rows = super()._as_rows(X, reset=reset)
        if reset:
            check_rows(rows)
            check_sets(rows_as_csr(rows) if sp.issparse(rows) else rows)
        return rows

    def _encode_block(
        self, rows: sp.csr_matrix, i_star: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        s = self._fitted
        return minhash.encode(rows.indptr, rows.indices, s.params["n_components"], s.seed, s.bits, i_star)

    @property
    def _working_bytes(self) -> int:
        """Memory of the keys."""
        return minhash.KEY_BYTES * int(self._fitted.params["n_components"])
