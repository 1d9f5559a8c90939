r"""GMM similarity: correlation of two long rows estimated from it, and the rate at which codes of rows agree.

P. Li and C.-H. Zhang, "Theory of the GMM Kernel", WWW 2017, Theorems 1-3.

The n coordinates :math:`(x_i, y_i)` of two rows are independent draws of an elliptical law: a radius
T times a direction, stretched to correlation :math:`\rho` and to the ratio :math:`\sigma` of the two scales.
:math:`g_n` is their GMM and :math:`c_n` their cosine. In polar form, with :math:`\alpha = \frac12\arccos\rho`,

.. math:: x = T\,\sigma\cos\theta, \qquad y = T\cos(\theta - 2\alpha), \qquad
          \tau = \arctan\frac{\sigma - \cos 2\alpha}{\sin 2\alpha},

where :math:`\theta` is uniform on the circle and :math:`\theta = \tau` is where x = y. All moments below are integrals
of :math:`\cos` and :math:`\cos^2` over the arcs on which x and y have equal or opposite signs, and on which x or y is
the smaller in magnitude. All functions broadcast over arrays.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, xlogy

from dkfeat.theory.gmm import rho_from_gmm as rho_from_gmm
from dkfeat.validation import check_range


class GmmMoments(NamedTuple):
    """Constants of the asymptotic law of g_n (Theorem 2)."""

    v: NDArray[np.float64]
    """V, the variance of one coordinate's ``min * E max - max * E min`` for a constant radius of 1."""
    h: NDArray[np.float64]
    """H, the mean of one coordinate's contribution to the sum of maxima for a radius of mean 1."""


def f_1(rho: ArrayLike, sigma: ArrayLike = 1.0) -> NDArray[np.float64]:
    r"""Mean of the GMM of two rows of one coordinate (Theorem 1).

    Parameters
    ----------
    rho : float or array
        Correlation, in [-1, 1].
    sigma : float or array, default=1.0
        Ratio of the two rows' scales, above 0. The result is the same for 1 / sigma.

    Returns
    -------
    mean : float or ndarray
        In [0, 1].

    Notes
    -----
    With :math:`s = \sin 2\alpha` and :math:`q = \sqrt{1 + \sigma^2 - 2 \rho\sigma}`, integrating min / max over
    the arc where the signs are equal gives

    .. math:: f_1 = \frac1\pi\left\{\sigma\left[\rho\left(\tfrac\pi2 - \tau\right) + s \log\tfrac q\sigma\right]
              + \frac1\sigma\left[\rho\left(\tfrac\pi2 + \tau - 2\alpha\right) + s \log q\right]\right\}.

    Examples
    --------
    >>> float(f_1(1.0)), float(f_1(-1.0)), round(float(f_1(0.0)), 3)
    (1.0, 0.0, 0.221)
    """
    r, scale, s, alpha, tau = _angles(rho, sigma)
    q = _distance(r, scale)
    x_smaller = scale * (r * (np.pi / 2 - tau) + xlogy(s, q) - s * np.log(scale))
    y_smaller = (r * (np.pi / 2 + tau - 2 * alpha) + xlogy(s, q)) / scale
    return np.clip((x_smaller + y_smaller) / np.pi, 0, 1)


def f_infinity(rho: ArrayLike, sigma: ArrayLike = 1.0) -> NDArray[np.float64]:
    r"""Limit of the GMM of two rows as they grow long (Theorem 1).

    Parameters
    ----------
    rho : float or array
        Correlation, in [-1, 1].
    sigma : float or array, default=1.0
        Ratio of the two rows' scales, above 0. The result is the same for 1 / sigma.

    Returns
    -------
    limit : float or ndarray
        In [0, 1], if the radius has a finite mean; for a t-distribution, with more than 1 degree of freedom.

    Notes
    -----
    The sums of minima and maxima add up to that of ``|x| + |y|`` and differ by that of ``|x - y|``, whose means have
    the ratio 1 + sigma to :math:`q = \sqrt{1 + \sigma^2 - 2\rho\sigma}` for every elliptical law, so

    .. math:: f_\infty = \frac{1 + \sigma - q}{1 + \sigma + q}
              = \frac{\sigma(1 - \sin\tau) + 1 - \sin(2\alpha - \tau)}{\sigma(1 + \sin\tau) + 1 + \sin(2\alpha - \tau)}.

    Examples
    --------
    >>> float(f_infinity(0.5))
    0.333...
    """
    r, scale, *_ = _angles(rho, sigma)
    q = _distance(r, scale)
    return (1 + scale - q) / (1 + scale + q)


def gmm_moments(rho: ArrayLike, sigma: ArrayLike = 1.0) -> GmmMoments:
    r"""V and H of the asymptotic normal law of g_n (Theorem 2).

    Parameters
    ----------
    rho : float or array
        Correlation, in [-1, 1].
    sigma : float or array, default=1.0
        Ratio of the two rows' scales, above 0.

    Returns
    -------
    moments : GmmMoments
        :math:`\sqrt n (g_n - f_\infty)` tends to a normal law of variance :math:`(V / H^4) \cdot E(T^2) / E(T)^2`.

    Notes
    -----
    This is the delta method for a ratio of means. Let A and B be one coordinate's contributions to the sums of minima
    and maxima at T = 1, and :math:`a = \pi E A = \sigma(1 - \sin\tau) + 1 - \sin(2\alpha - \tau)`,
    :math:`b = \pi E B = \sigma(1 + \sin\tau) + 1 + \sin(2\alpha - \tau)`. Then :math:`H = b / \pi` and

    .. math:: V = E (B\,E A - A\,E B)^2 = \frac1{\pi^3}\left\{b^2 A_2 + a^2 B_2 - 2 a C b\right\},

    where the last term has b to the first power. :math:`A_2, B_2, C` are π times the second moments:

    .. math::

        A_2 &= \tfrac{\sigma^2}2\left(\tfrac\pi2 - \tau - \tfrac12\sin 2\tau\right)
               + \tfrac12\left(\tfrac\pi2 + \tau - 2\alpha - \tfrac12 \sin(4\alpha - 2\tau)\right), \\
        B_2 &= \tfrac\pi2(1 + \sigma^2) + \sigma(\sin 2\alpha - 2\alpha\cos 2\alpha) - A_2, \\
        C &= \tfrac\sigma2\left(\sin 2\alpha + (\pi - 2\alpha)\cos 2\alpha\right).

    At :math:`\sigma = 1`, where :math:`\tau = \alpha`, a and b are :math:`2(1 \mp \sin\alpha)` and the constant in
    front becomes :math:`4/\pi^3` (Corollary 2).

    Examples
    --------
    >>> v, h = gmm_moments(1.0)
    >>> float(v), bool(np.isclose(h, 2 / np.pi))
    (0.0, True)
    """
    r, scale, s, alpha, tau = _angles(rho, sigma)
    beta = 2 * alpha - tau
    a = scale * (1 - np.sin(tau)) + 1 - np.sin(beta)
    b = scale * (1 + np.sin(tau)) + 1 + np.sin(beta)
    x_smaller = np.pi / 2 - tau - np.sin(2 * tau) / 2
    y_smaller = np.pi / 2 - beta - np.sin(2 * beta) / 2
    a_2 = (scale**2 * x_smaller + y_smaller) / 2
    b_2 = np.pi / 2 * (1 + scale**2) + scale * (s - 2 * alpha * r) - a_2
    c = scale / 2 * (s + (np.pi - 2 * alpha) * r)
    v = (b**2 * a_2 + a**2 * b_2 - 2 * a * c * b) / np.pi**3
    return GmmMoments(v=np.maximum(v, 0.0), h=b / np.pi)


def radial_ratio(df: ArrayLike) -> NDArray[np.float64]:
    r""":math:`E(T^2) / E(T)^2` of the bivariate t-distribution.

    Parameters
    ----------
    df : float or array
        Degrees of freedom, above 1; infinity is the normal law.

    Returns
    -------
    ratio : float or ndarray
        4/π for the normal law, larger for others, infinite for at most 2 degrees of freedom.

    Notes
    -----
    T is a Rayleigh variable over the root of an independent :math:`\chi^2_\nu / \nu`, which gives
    :math:`\frac4\pi \frac2{\nu - 2} \frac{\Gamma(\nu/2)^2}{\Gamma((\nu-1)/2)^2}`.

    Examples
    --------
    >>> bool(np.isclose(radial_ratio(np.inf), 4 / np.pi)), float(radial_ratio(2.0))
    (True, inf)
    """
    nu = check_range(df, "df", 1, math.inf, open_low=True, infinite=True)
    finite = (nu > 2) & np.isfinite(nu)
    safe = np.where(finite, nu, 4.0)
    ratio = 4 / np.pi * 2 / (safe - 2) * np.exp(2 * (gammaln(safe / 2) - gammaln((safe - 1) / 2)))
    return np.where(finite, ratio, np.where(nu <= 2, np.inf, 4 / np.pi))


def gmm_variance(rho: ArrayLike, df: ArrayLike = math.inf, sigma: ArrayLike = 1.0) -> NDArray[np.float64]:
    r"""Asymptotic variance of g_n under a t-distribution, times n (Theorem 2).

    Parameters
    ----------
    rho : float or array
        Correlation, in [-1, 1].
    df : float or array, default=inf
        Degrees of freedom, above 1; infinity is the normal law.
    sigma : float or array, default=1.0
        Ratio of the two rows' scales, above 0.

    Returns
    -------
    variance : float or ndarray
        :math:`(V / H^4) E(T^2) / E(T)^2`; infinite for at most 2 degrees of freedom, except where g_n is constant.

    Examples
    --------
    >>> bool(gmm_variance(0.5, df=3) > gmm_variance(0.5))
    True
    """
    v, h = gmm_moments(rho, sigma)
    ratio = radial_ratio(df)
    return np.where(v > 0, v / h**4, 0.0) * np.where(v > 0, ratio, 1.0)


def rho_from_gmm_variance(rho: ArrayLike, df: ArrayLike = math.inf, sigma: ArrayLike = 1.0) -> NDArray[np.float64]:
    r"""Asymptotic variance of :math:`\hat\rho_g` under a t-distribution, times n (Theorem 3).

    Parameters
    ----------
    rho : float or array
        Correlation, in [-1, 1].
    df : float or array, default=inf
        Degrees of freedom, above 1.
    sigma : float or array, default=1.0
        Ratio of the two rows' scales, above 0.

    Returns
    -------
    variance : float or ndarray
        `gmm_variance` times the squared slope of `rho_from_gmm` at `f_infinity`.

    Examples
    --------
    >>> bool(rho_from_gmm_variance(0.5, df=5) < rho_from_cosine_variance(0.5, df=5))
    True
    """
    g, scale = f_infinity(rho, sigma), _scale(sigma)
    slope = 2 * (1 + scale) ** 2 / scale * (1 - g) / (1 + g) ** 3
    return slope**2 * gmm_variance(rho, df, sigma)


def rho_from_cosine_variance(rho: ArrayLike, df: ArrayLike = math.inf) -> NDArray[np.float64]:
    r"""Asymptotic variance of :math:`\hat\rho_c`, the cosine itself, under a t-distribution, times n (Theorem 3).

    Parameters
    ----------
    rho : float or array
        Correlation, in [-1, 1].
    df : float or array, default=inf
        Degrees of freedom, above 1.

    Returns
    -------
    variance : float or ndarray
        :math:`(1 - \rho^2)^2 \frac{\nu - 2}{\nu - 4}` for every ratio of scales; infinite for at most 4
        degrees of freedom.

    Notes
    -----
    By the delta method the variance is :math:`(1 - \rho^2)^2` times :math:`E(T^4) / (2 E(T^2)^2)`.

    Examples
    --------
    >>> rho_from_cosine_variance(0.0, df=[4, 6, np.inf])
    array([inf,  2.,  1.])
    """
    r, nu = check_range(rho, "rho", -1, 1), check_range(df, "df", 1, math.inf, open_low=True, infinite=True)
    finite = (nu > 4) & np.isfinite(nu)
    safe = np.where(finite, nu, 6.0)
    ratio = np.where(finite, (safe - 2) / (safe - 4), np.where(nu <= 4, np.inf, 1.0))
    square = (1 - r**2) ** 2
    return square * np.where(square > 0, ratio, 1.0)


def _scale(sigma: ArrayLike) -> NDArray[np.float64]:
    return check_range(sigma, "sigma", 0, math.inf, open_low=True)


def _angles(rho: ArrayLike, sigma: ArrayLike) -> tuple[NDArray[np.float64], ...]:
    """Correlation, scale, sin(2 alpha), alpha and tau, all of one shape."""
    r, scale = np.broadcast_arrays(check_range(rho, "rho", -1, 1), _scale(sigma))
    s = np.sqrt(1 - r**2)
    return r, scale, s, np.arccos(r) / 2, np.arctan2(scale - r, s)


def _distance(rho: NDArray[np.float64], sigma: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale of x - y divided by the scale of y."""
    return np.sqrt(np.maximum((1 - sigma) ** 2 + 2 * sigma * (1 - rho), 0.0))
