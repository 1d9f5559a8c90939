r"""Rates at which codes of rows agree, and the correlation of two long rows estimated from their GMM similarity.

"Theory of the GMM Kernel", P. Li and C.-H. Zhang, WWW 2017, Theorem 3.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkfeat.validation import check_range


def rho_from_gmm(similarity: ArrayLike, sigma: ArrayLike = 1.0) -> NDArray[np.float64]:
    r"""Estimate :math:`\hat\rho_g` of the correlation from a GMM similarity: the inverse of its limit.

    Parameters
    ----------
    similarity : float or array
        GMM of two long rows, exact or estimated from codes, in [0, 1].
    sigma : float or array, default=1.0
        Ratio of the two rows' scales, above 0; the estimate takes it as known.

    Returns
    -------
    rho : float or ndarray
        At most 1; below -1 if the similarity is smaller than for any correlation.

    Notes
    -----
    With :math:`R = (1 - g) / (1 + g)`, :math:`\hat\rho_g = (1 + \sigma^2 - (1 + \sigma)^2 R^2) / (2\sigma)`, which
    at :math:`\sigma = 1` is :math:`1 - 2 R^2`.

    Examples
    --------
    >>> round(float(rho_from_gmm(1 / 3)), 12)
    0.5
    """
    g, scale = check_range(similarity, "similarity", 0, 1), check_range(sigma, "sigma", 0, math.inf, open_low=True)
    ratio = (1 - g) / (1 + g)
    return (1 + scale**2 - ((1 + scale) * ratio) ** 2) / (2 * scale)


def collision_rate(similarity: ArrayLike, chance: float = 0.0) -> NDArray[np.float64]:
    r"""Probability that the codes of two rows agree in one component, :math:`g + (1 - g) c`.

    Parameters
    ----------
    similarity : float or array
        GMM of two rows, g, in [0, 1].
    chance : float, default=0
        Probability c that the codes of different samples are equal, in [0, 1]: :math:`2^{-b}` for b random bits.

    Returns
    -------
    rate : float or ndarray

    Examples
    --------
    >>> float(collision_rate(0.5, 2**-1)), float(collision_rate(0.0, 2**-8))
    (0.75, 0.00390625)
    """
    g, c = check_range(similarity, "similarity", 0, 1), check_range(chance, "chance", 0, 1)
    return g + (1 - g) * c
