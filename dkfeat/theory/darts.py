r"""Collision probability and variance of darts: samples of the GMM kernel, kept as b random bits.

T. Christiani, "DartMinHash: Fast Sketching for Weighted Sets", 2020.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkfeat.theory._ranges import integer_of_at_least, within


def collision_probability(similarity: ArrayLike, bits: int) -> NDArray[np.float64]:
    r"""Probability that the codes of two rows agree in one component, :math:`g + (1 - g) 2^{-b}`.

    Parameters
    ----------
    similarity : float or array
        GMM of two rows, g, in [0, 1].
    bits : int
        Bits b of a code, at least 1.

    Returns
    -------
    probability : float or ndarray
        Exact: two rows sample the same dart with probability g, and different darts have independent codes.

    Examples
    --------
    >>> float(collision_probability(0.5, 1)), float(collision_probability(0.0, 8))
    (0.75, 0.00390625)
    """
    g = within(similarity, "similarity", 0, 1)
    return g + (1 - g) * 2.0 ** -integer_of_at_least(bits, "bits", 1)


def dart_variance(similarity: ArrayLike, bits: int) -> NDArray[np.float64]:
    r"""Variance of one component's estimate of the GMM kernel: each collision is a Bernoulli trial.

    Parameters
    ----------
    similarity : float or array
        GMM of two rows, g, in [0, 1].
    bits : int
        Bits b of a code, at least 1.

    Returns
    -------
    variance : float or ndarray
        Exact; an estimate from k components has 1/k of it, since they are independent.

    Notes
    -----
    Components agree at the rate r of `collision_probability`. The estimate is :math:`(\hat r - c) / (1 - c)` with
    :math:`c = 2^{-b}`, which is unbiased, and its variance is :math:`r (1 - r) / (1 - c)^2`.

    Examples
    --------
    >>> float(dart_variance(0.5, 1)), float(dart_variance(1.0, 8))
    (0.75, 0.0)
    """
    rate = collision_probability(similarity, bits)
    return rate * (1 - rate) / (1 - 2.0**-bits) ** 2
