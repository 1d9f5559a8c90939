r"""Covariances of random Laplace features whose weights are dense, circulant or alternating circulant.

Y. Mukuta, Y. Ushiku and T. Harada, "Alternating Circulant Random Features for Semigroup Kernels", AAAI 2018,
Theorems 1-3.

A semigroup kernel is a product over coordinates, :math:`k(z) = \prod_l f(z_l)` at z = x + y, and one
random Laplace feature estimates it by :math:`e^{-w^\top x} e^{-w^\top y} = e^{-w^\top z}` with independent weights,
:math:`E e^{-w_l t} = f(t)`. Functions here take z and the logarithm of f, elementwise: `exponential_log_factor` or
`reciprocal_log_factor` with a fixed parameter, or another function. If rows are padded with zeros for the transform,
pad z in the same way: the dimension d is the padded one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkfeat.validation import check_integer, check_range

LogFactor = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def exponential_log_factor(z: ArrayLike, beta: float = 1.0) -> NDArray[np.float64]:
    r"""Logarithm of one coordinate's factor of the exponential-semigroup kernel, :math:`-\beta\sqrt z`.

    Examples
    --------
    >>> float(exponential_log_factor(4.0, beta=0.5))
    -1.0
    """
    return -check_range(beta, "beta", 0, math.inf, open_low=True) * np.sqrt(_non_negative(z))


def reciprocal_log_factor(z: ArrayLike, rate: float = 1.0) -> NDArray[np.float64]:
    r"""Logarithm of one coordinate's factor of the reciprocal-semigroup kernel, :math:`\log\frac{\lambda}{z+\lambda}`.

    Examples
    --------
    >>> bool(np.isclose(reciprocal_log_factor(1.0, rate=1.0), -np.log(2)))
    True
    """
    return -np.log1p(_non_negative(z) / check_range(rate, "rate", 0, math.inf, open_low=True))


def laplace_variance(z: ArrayLike, log_factor: LogFactor) -> float:
    r"""Variance of one random Laplace feature's estimate, :math:`k(2z) - k(z)^2` (Theorem 1).

    Parameters
    ----------
    z : array of shape (d,)
        The sum of two non-negative rows.
    log_factor : callable
        Logarithm of the kernel's factor, elementwise.

    Returns
    -------
    variance : float
        It is the same for all projections, because each weight follows its law. With D independent components the
        variance of the estimate is 1/D of this.

    Notes
    -----
    The estimate's square is :math:`e^{-w^\top 2z}`, of mean k(2z).

    Examples
    --------
    >>> z = np.array([1.0, 4.0])
    >>> bool(np.isclose(laplace_variance(z, reciprocal_log_factor), 1 / (3 * 9) - 1 / (2 * 5) ** 2))
    True
    """
    return circulant_covariance(z, log_factor, shift=0)


def circulant_covariance(z: ArrayLike, log_factor: LogFactor, shift: int = 1) -> float:
    r"""Covariance of two components of one circulant block, :math:`k(z + S^h z) - k(z)^2` (Theorem 2).

    Parameters
    ----------
    z : array of shape (d,)
        The sum of two non-negative rows.
    log_factor : callable
        Logarithm of the kernel's factor, elementwise.
    shift : int, default=1
        h, the distance of the two components; taken modulo d. 0 gives the variance.

    Returns
    -------
    covariance : float
        At least 0.

    Notes
    -----
    Row i of the block is :math:`w_{(l - i) \bmod d}` at column l. The product of the estimates of rows i and i + h is
    :math:`\exp(-\sum_l w_l (z_{l+i} + z_{l+i+h}))`, and each weight appears once. Components of different blocks are
    independent. (With w_{(i - l)} or w_{(l + i)} instead the covariances are the same.)

    Examples
    --------
    >>> z = np.array([1.0, 4.0])
    >>> bool(np.isclose(circulant_covariance(z, reciprocal_log_factor), 1 / 36 - 1 / 100))
    True
    """
    return alternating_covariance(z, log_factor, n_mixtures=1, shift=shift)


def alternating_covariance(z: ArrayLike, log_factor: LogFactor, n_mixtures: int, shift: int = 1) -> float:
    r"""Covariance of two components of one alternating circulant block (Theorem 3, for neighbours shift = 1).

    Parameters
    ----------
    z : array of shape (d,)
        The sum of two non-negative rows.
    log_factor : callable
        Logarithm of the kernel's factor, elementwise.
    n_mixtures : int
        m, the number of independent circulant matrices that the block mixes, at least 1.
    shift : int, default=1
        h, the distance of the two components; taken modulo d. 0 gives the variance.

    Returns
    -------
    covariance : float
        Exact, over both the weights and the choice of matrices; at least 0, at most the circulant one.

    Notes
    -----
    Each column l of the block comes from one of m independent circulant matrices, drawn uniformly and
    independently of the other columns (equation 7). The weight of column l in row i and that of column l + h in row
    i + h are at the same position of a circulant matrix: they are equal if both columns chose the same matrix, and
    independent otherwise. With :math:`a_l = f(z_l + z_{l+h})` and :math:`b_l = f(z_l) f(z_{l+h})`, the
    product's mean, given the choices r, is the product over l of :math:`a_l` if :math:`r_l = r_{l+h}`, else
    :math:`b_l`. Its mean over the choices is the trace of a product of m by m matrices,
    :math:`(b_l J + (a_l - b_l) I)/m` with J all ones, along each cycle of the shift; they share
    their eigenvectors, so that for gcd(h, d) = 1

    .. math:: \mathrm{cov} = \prod_l \frac{a_l + (m-1) b_l}{m} + (m-1) \prod_l \frac{a_l - b_l}{m} - k(z)^2.

    For other shifts the first two terms are those of each of the gcd(h, d) cycles, multiplied over the cycles.
    With m = 1 this is the circulant covariance; as m grows it falls to 0.

    Examples
    --------
    >>> z = np.ones(8)
    >>> circulant, mixed = (alternating_covariance(z, reciprocal_log_factor, m) for m in (1, 3))
    >>> bool(mixed < circulant / 2)
    True
    """
    m = check_integer(n_mixtures, "n_mixtures", low=1)
    sums = _non_negative(z)
    if sums.ndim != 1 or not len(sums):
        raise ValueError(
            f"z has shape {sums.shape}, but it must be one row of at least 1 value; give x + y of two rows"
        )
    d = len(sums)
    h = shift % d
    logs = log_factor(sums)
    # log(a / b), at least 0 because f is a Laplace transform; rounding may make it negative
    log_ratios = np.maximum(log_factor(sums + np.roll(sums, -h)) - logs - np.roll(logs, -h), 0.0)
    if h == 0:  # both components have the same weights, whatever the choice of matrices
        log_growth = float(log_ratios.sum())
    else:
        excess = np.expm1(log_ratios) / m
        n_cycles = math.gcd(h, d)
        cycles = excess.reshape(d // n_cycles, n_cycles)  # a cycle of the shift is a residue modulo gcd(h, d)
        common = np.log1p(cycles).sum(axis=0)
        others = np.exp(np.log(cycles + (cycles == 0)).sum(axis=0) - common) * (cycles > 0).all(axis=0)
        log_growth = float((common + np.log1p((m - 1) * others)).sum())
    log_square = 2 * float(logs.sum())
    if log_growth > 1:  # expm1 alone might overflow if the kernel is tiny
        return math.exp(log_growth + log_square) - math.exp(log_square)
    return math.expm1(log_growth) * math.exp(log_square)


def estimator_variance(covariances: ArrayLike, n_components: int) -> float:
    r"""Variance of the mean over all components, from the covariances within a block.

    Parameters
    ----------
    covariances : array of shape (d,)
        Entry h is the covariance of two components at distance h in a block, and entry 0 the variance. Symmetric:
        entries h and d - h are equal.
    n_components : int
        D. Blocks of d components are independent; the last one may be truncated.

    Returns
    -------
    variance : float

    Examples
    --------
    >>> estimator_variance([1.0, 0.5], n_components=4)  # two blocks of a pair each: (2 + 2 * 0.5) * 2 / 16
    0.375
    """
    by_distance = np.asarray(covariances, dtype=np.float64)
    d, total = len(by_distance), check_integer(n_components, "n_components", low=1)
    whole, cut = divmod(total, d)

    def block(size: int) -> float:
        distances = np.arange(1, size)
        return size * float(by_distance[0]) + 2 * float(((size - distances) * by_distance[1:size]).sum())

    return (whole * block(d) + (block(cut) if cut else 0.0)) / total**2


def _non_negative(z: ArrayLike) -> NDArray[np.float64]:
    return check_range(z, "z", 0, math.inf)
