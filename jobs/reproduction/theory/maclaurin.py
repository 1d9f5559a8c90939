r"""Bounds and variances of random Maclaurin features for dot-product kernels.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012, §4.

One component draws a degree N, and N vectors of random signs, :math:`w_1 \dots w_N`. Its estimate of
:math:`f(\langle x, y\rangle) = \sum_n a_n \langle x, y\rangle^n` is
:math:`\frac{a_N}{P_N} \prod_{j \le N} w_j^\top x \; w_j^\top y`, divided by the weight P_N of the draw:

- ``"paper"``: :math:`P_n = p^{-(n+1)}` as printed, probabilities that add up to 1 for p = 2 only;
- ``"proper"``: :math:`P_n = (p - 1) p^{-(n+1)}`, a probability for every p > 1;
- ``"kernel"``: :math:`P_n = a_n R^{2n} / f(R^2)`, which depends on the kernel and on the radius R of the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkfeat.validation import check_choice, check_range, check_real

Measure = Literal["paper", "proper", "kernel"]


def component_bound(f: Callable[[float], float], radius: float, p: float = 2.0, measure: Measure = "proper") -> float:
    r"""Largest absolute value of one component's estimate, :math:`C_\Omega` of §4.

    Parameters
    ----------
    f : callable
        The kernel as a function of the inner product. Its series must converge at :math:`p R^2`, or at :math:`R^2` for
        ``"kernel"``.
    radius : float
        R, the largest **l1** norm of a row, above 0: :math:`|w^\top x| \le \|x\|_1`, with equality for some
        rows. The l2 norm is not an upper bound of :math:`|w^\top x|`.
    p : float, default=2.0
        Base of the measure on degrees, above 1; without effect for ``"kernel"``.
    measure : {"paper", "proper", "kernel"}, default="proper"

    Returns
    -------
    bound : float
        :math:`p f(p R^2)` for ``"paper"``, :math:`\frac p{p-1} f(p R^2)` for ``"proper"``,
        :math:`f(R^2)` for ``"kernel"``. By Hoeffding's inequality the mean of k components has an error above ε with a
        probability of at most :math:`2\exp(-k\varepsilon^2 / 2C_\Omega^2)`.

    Notes
    -----
    A component of degree n is at most :math:`a_n R^{2n} / P_n`. For ``"paper"`` this is one term of
    :math:`p \sum_n a_n (p R^2)^n`; the other bounds follow in the same way.

    Examples
    --------
    >>> component_bound(lambda t: t**2, radius=1.0, p=2.0, measure="paper")
    8.0
    >>> component_bound(lambda t: t**2, radius=1.0, p=2.0, measure="kernel")
    1.0
    """
    square = check_real(radius, "radius", above=0) ** 2
    base = check_real(p, "p", above=1)
    if check_choice(measure, "measure", get_args(Measure)) == "kernel":
        return _value(f, square)
    return (base if measure == "paper" else base / (base - 1)) * _value(f, base * square)


def degree_probabilities(
    coefficients: ArrayLike, p: float = 2.0, measure: Measure = "proper", radius: float = 1.0
) -> NDArray[np.float64]:
    """Weight P_n of each degree that has a coefficient.

    For ``"proper"`` the weights of all degrees sum to 1, including those beyond the coefficients.

    Parameters
    ----------
    coefficients : array of shape (n_degrees,)
        a_0, a_1, ..., at least 0.
    p : float, default=2.0
        Base of the measure, above 1; without effect for ``"kernel"``.
    measure : {"paper", "proper", "kernel"}, default="proper"
    radius : float, default=1.0
        R of ``"kernel"``; without effect for the others.

    Returns
    -------
    weights : ndarray of shape (n_degrees,), float64

    Examples
    --------
    >>> degree_probabilities([1.0, 1.0, 1.0])
    array([0.5  , 0.25 , 0.125])
    >>> degree_probabilities([1.0, 2.0, 1.0], measure="kernel")
    array([0.25, 0.5 , 0.25])
    """
    a = check_range(coefficients, "coefficients", 0, math.inf)
    degrees = np.arange(len(a), dtype=np.float64)
    base = check_real(p, "p", above=1)
    if check_choice(measure, "measure", get_args(Measure)) == "kernel":
        terms = a * check_real(radius, "radius", above=0) ** (2 * degrees)
        return terms / terms.sum()
    return (1.0 if measure == "paper" else base - 1) * base ** -(degrees + 1)


def component_variance(coefficients: ArrayLike, probabilities: ArrayLike, x: ArrayLike, y: ArrayLike) -> float:
    r"""Variance of one component's estimate; the mean of k components has 1/k of it.

    Parameters
    ----------
    coefficients : array of shape (n_degrees,)
        a_0, a_1, ..., at least 0; coefficients of higher degrees count as 0.
    probabilities : array of shape (n_degrees,)
        P_n of each degree, above 0 for each coefficient above 0, for example from `degree_probabilities`; not the
        weights of ``"paper"`` with a p other than 2, which are no probabilities.
    x, y : array of shape (n_features,)
        Two rows.

    Returns
    -------
    variance : float
        Exact.

    Notes
    -----
    Factors are independent, and for random signs :math:`E (w^\top x)^2 (w^\top y)^2 = M` with
    :math:`M = \|x\|^2\|y\|^2 + 2\langle x, y\rangle^2 - 2\sum_l x_l^2 y_l^2`. So the variance is
    :math:`\sum_n \frac{a_n^2}{P_n} M^n - f(\langle x, y\rangle)^2`. The paper states the bound only.

    Examples
    --------
    >>> component_variance([0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0])
    0.0
    """
    a = check_range(coefficients, "coefficients", 0, math.inf)
    weights = check_range(probabilities, "probabilities", 0, 1)
    if ((a > 0) & (weights == 0)).any():
        degree = int(((a > 0) & (weights == 0)).argmax())
        raise ValueError(f"degree {degree} has a coefficient above 0 but is never drawn; give it a probability above 0")
    u, v = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    inner = float(u @ v)
    moment = float((u @ u) * (v @ v) + 2 * inner**2 - 2 * ((u * v) ** 2).sum())
    degrees = np.arange(len(a), dtype=np.float64)
    drawn = a > 0
    square = (a[drawn] ** 2 / weights[drawn] * moment ** degrees[drawn]).sum()
    return float(square - (a * inner**degrees).sum() ** 2)


def _value(f: Callable[[float], float], at: float) -> float:
    value = float(f(at))
    if not 0 <= value < math.inf:
        raise ValueError(
            f"f({at:g}) = {value:g}, so its series does not converge there; scale the rows down, or use a smaller p"
        )
    return value
