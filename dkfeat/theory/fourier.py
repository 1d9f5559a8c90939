r"""Variances of random Fourier features and of GCWS, which decide how many components a kernel needs.

"Linearized GMM Kernels and Normalized Random Fourier Features", P. Li, KDD 2017, §2-3.

Throughout, :math:`\rho` is the cosine of two rows, :math:`\gamma` multiplies :math:`1 - \rho`, and
:math:`\kappa = e^{-\gamma(1-\rho)}` is the kernel that random Fourier features estimate. Variances
are those of one component: an estimate from k components has 1/k of them. All functions broadcast over arrays.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkfeat.theory.gmm import collision_rate
from dkfeat.validation import check_integer, check_range


def rff_variance(rho: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    r"""Variance of one random Fourier feature's estimate, :math:`V_{\rho,\gamma}` (Theorem 2).

    Parameters
    ----------
    rho : float or array
        Cosine of two rows, in [-1, 1].
    gamma : float or array
        Factor of 1 - rho, above 0.

    Returns
    -------
    variance : float or ndarray
        Exact for every number of components, in [1/2, 1].

    Notes
    -----
    The product of two features :math:`\sqrt 2 \cos(\sqrt\gamma w^\top x + b)` is
    :math:`\cos\delta + \cos(s + 2b)` with :math:`\delta = \sqrt\gamma w^\top(x - y)` normal of variance
    :math:`2\gamma(1-\rho)`. The phase b makes both terms uncorrelated, so the variances
    :math:`\frac12(1 - \kappa^2)^2` and 1/2 add up:

    .. math:: V_{\rho,\gamma} = \tfrac12 + \tfrac12\left(1 - e^{-2\gamma(1-\rho)}\right)^2.

    Examples
    --------
    >>> float(rff_variance(1.0, 3.0))
    0.5
    """
    return 0.5 + 0.5 * (1 - _kernel(rho, gamma) ** 2) ** 2


def nrff_variance(rho: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    r"""Variance of one normalized random Fourier feature's estimate, :math:`V_{n,\rho,\gamma}` (Theorem 3).

    Parameters
    ----------
    rho : float or array
        Cosine of two rows, in [-1, 1].
    gamma : float or array
        Factor of 1 - rho, above 0.

    Returns
    -------
    variance : float or ndarray
        Asymptotic: with k components the variance is this over k, with an error of order 1/k².

    Notes
    -----
    NRFF divides each row of features by its length. With
    a, b, c the means of zz', z² and z'² over the components, the estimate is :math:`a / \sqrt{bc}`. The delta method at
    :math:`(\kappa, 1, 1)` with var(b) = var(c) = 1/2, cov(a, b) = cov(a, c) = κ/2 and cov(b, c) = κ⁴/2 gives

    .. math:: V_n = V_{\rho,\gamma} - \tfrac14 e^{-2\gamma(1-\rho)}\left[3 - e^{-4\gamma(1-\rho)}\right],

    the paper's statement with its c² written as gamma. It is 0 at rho = 1, where that of RFF is 1/2.

    Examples
    --------
    >>> float(nrff_variance(1.0, 3.0))
    0.0
    """
    kernel = _kernel(rho, gamma)
    return rff_variance(rho, gamma) - 0.25 * kernel**2 * (3 - kernel**4)


def gcws_variance(similarity: ArrayLike, i_bits: int | None = None) -> NDArray[np.float64]:
    r"""Variance of one component's estimate of the GMM kernel by GCWS or darts: each collision is a Bernoulli trial.

    Parameters
    ----------
    similarity : float or array
        GMM of two rows, in [0, 1].
    i_bits : int or None, default=None
        Bits b that are kept of a sample: different samples agree in them with probability :math:`c = 2^{-b}`; None:
        all.

    Returns
    -------
    variance : float or ndarray
        Exact for codes of darts, and for samples (i*, t*) of GCWS that are kept in full, or as b bits made by an ideal
        hash.

    Notes
    -----
    Components agree at the rate r of `dkfeat.theory.gmm.collision_rate`, and the estimate is
    :math:`(\hat r - c) / (1 - c)`: its variance is :math:`r (1 - r) / (1 - c)^2`, for c = 0 :math:`g (1 - g)`.

    Examples
    --------
    >>> float(gcws_variance(0.5)), float(gcws_variance(0.5, i_bits=1))
    (0.25, 0.75)
    """
    chance = 0.0 if i_bits is None else 2.0 ** -check_integer(i_bits, "i_bits", low=1)
    rate = collision_rate(similarity, chance)
    return rate * (1 - rate) / (1 - chance) ** 2


def _kernel(rho: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    return np.exp(-check_range(gamma, "gamma", 0, math.inf, open_low=True) * (1 - check_range(rho, "rho", -1, 1)))
