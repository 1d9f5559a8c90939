r"""Similarity sketches of sets: variance of the resemblance estimated from their codes.

S. Dahlgaard, M. B. T. Knudsen and M. Thorup, "Fast Similarity Sketching", FOCS 2017, prove that an estimate is unbiased
and deviates at most as far as that of plain minwise hashing. The exact variance follows from one probability. Let two
sets have u elements in all, of which a share J is in both. The element that fills a bin is uniform on the u, and two
bins that are filled in one round have different ones, so they agree more rarely together than independent ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkfeat.theory.fourier import gcws_variance
from dkfeat.validation import check_integer, check_range


def sketch_variance(
    resemblance: ArrayLike, n_components: int, union: ArrayLike = np.inf, bits: int | None = None
) -> NDArray[np.float64]:
    r"""Variance of the resemblance of two sets estimated from the codes of `dkfeat.MinHashFeatures`.

    Parameters
    ----------
    resemblance : float or array
        Resemblance J of the sets, in [0, 1].
    n_components : int
        Number of components k.
    union : float or array, default=inf
        Number u of elements in either set, at least 1. The default gives the upper bound for sets of any size, which is
        the variance of plain minwise hashing.
    bits : int or None, default=None
        Bits b that are kept of a sample; None: all.

    Returns
    -------
    variance : float or ndarray
        Exact for ideal hash functions. About half the bound while the union is below k.

    Notes
    -----
    Let P be the probability that two bins are filled in one round. An element falls into neither of them with
    probability :math:`1 - 2/k`, and there are :math:`\max(k - 1, 1)` rounds R, so with :math:`a = (1 - 1/k)^u` and
    :math:`b = (1 - 2/k)^u`

    .. math:: P = (1 - 2 a + b) \frac{1 - b^R}{1 - b}, \qquad
              V = \frac{J (1 - J)}{k} \left(1 - \frac{k - 1}{u - 1} P\right) + \frac{c (1 - J)}{(1 - c) k},

    where :math:`c = 2^{-b}` is the chance of codes.

    Examples
    --------
    >>> sketch_variance(0.5, 256), sketch_variance(0.5, 256, union=100).round(6)
    (np.float64(0.0009765625), np.float64(0.000494))
    """
    k = check_integer(n_components, "n_components", low=1)
    similarity, u = check_range(resemblance, "resemblance", 0, 1), check_range(union, "union", 1, np.inf, infinite=True)
    bound = gcws_variance(similarity, bits) / k
    neither, not_one = (1 - min(2 / k, 1.0)) ** u, (1 - 1 / k) ** u
    together = 1 - 2 * not_one + neither
    in_one_round = together * (1 - neither ** max(k - 1, 1)) / (1 - neither)
    pairs = (k - 1) * in_one_round / np.maximum(u - 1, 1)
    return bound - similarity * (1 - similarity) / k * pairs
