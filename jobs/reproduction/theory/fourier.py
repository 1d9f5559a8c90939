r"""Bias of NRFF, and variances of exponentiated GCWS and relative ones, as the figures have them.

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, §2-3. The words are those of
`dkfeat.theory.fourier`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkfeat.theory.fourier import gcws_variance as gcws_variance
from dkfeat.theory.fourier import nrff_variance as nrff_variance
from dkfeat.theory.fourier import rff_variance as rff_variance
from dkfeat.validation import check_range


def nrff_bias(rho: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    r"""Bias of NRFF times the number of components k; the bias falls as 1/k.

    Parameters
    ----------
    rho : float or array
        Cosine of two rows, in [-1, 1].
    gamma : float or array
        Factor of 1 - rho, above 0.

    Returns
    -------
    bias : float or ndarray
        At most 0: NRFF underestimates. Asymptotic, with an error of order 1/k.

    Notes
    -----
    This is the second-order term of the expansion whose first-order term gives `nrff_variance`:
    :math:`-\frac18 \kappa (1 - \kappa^4)`. The paper does not state it.

    Examples
    --------
    >>> float(nrff_bias(0.0, 1e9)) == float(nrff_bias(1.0, 1.0)) == 0
    True
    """
    kernel = _kernel(rho, gamma)
    return -kernel * (1 - kernel**4) / 8


def exponentiated_gcws_variance(similarity: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    r"""Variance of :math:`e^{-\gamma(1-\hat g)}` with ĝ estimated by GCWS, :math:`V_{g,\gamma}` (Theorem 4).

    Parameters
    ----------
    similarity : float or array
        GMM of two rows, in [0, 1].
    gamma : float or array
        Factor of 1 - GMM, above 0.

    Returns
    -------
    variance : float or ndarray
        Asymptotic: with k components the variance is this over k, with an error of order 1/k².

    Notes
    -----
    By the delta method, the slope squared times `gcws_variance`:
    :math:`V_{g,\gamma} = \gamma^2 e^{-2\gamma(1-g)} g (1 - g)`.

    Examples
    --------
    >>> float(exponentiated_gcws_variance(1.0, 3.0))
    0.0
    """
    g, factor = check_range(similarity, "similarity", 0, 1), check_range(gamma, "gamma", 0, math.inf, open_low=True)
    return factor**2 * np.exp(-2 * factor * (1 - g)) * gcws_variance(g)


def rff_relative_variance(rho: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    """`rff_variance` divided by the square of the kernel, as in figure 3.

    Examples
    --------
    >>> float(rff_relative_variance(1.0, 3.0))
    0.5
    """
    return rff_variance(rho, gamma) / _kernel(rho, gamma) ** 2


def nrff_relative_variance(rho: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    """`nrff_variance` divided by the square of the kernel, as in figure 3.

    Examples
    --------
    >>> bool(nrff_relative_variance(0.9, 1.0) < rff_relative_variance(0.9, 1.0))
    True
    """
    return nrff_variance(rho, gamma) / _kernel(rho, gamma) ** 2


def exponentiated_gcws_relative_variance(similarity: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    r"""`exponentiated_gcws_variance` divided by the square of the kernel, :math:`\gamma^2 g (1 - g)`, as in figure 3.

    Compared at equal similarities and gamma near 0, it is below `nrff_relative_variance` up to a similarity of 5/6.

    Examples
    --------
    >>> float(exponentiated_gcws_relative_variance(0.5, 2.0))
    1.0
    """
    return check_range(gamma, "gamma", 0, math.inf, open_low=True) ** 2 * gcws_variance(similarity)


def _kernel(rho: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    factor = check_range(gamma, "gamma", 0, math.inf, open_low=True)
    return np.exp(-factor * (1 - check_range(rho, "rho", -1, 1)))
