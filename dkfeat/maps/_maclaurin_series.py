"""Dot-product kernels as finite series with non-negative terms, and the measures from which degrees are drawn.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012, §3, Alg. 1 and §4.2.

A term is ``a_n R^(2n)``, the value of degree n at the largest inner product of rows of length R: terms stay moderate
where coefficients and powers of R alone would overflow.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dkfeat.errors import ConfigError
from dkfeat.validation import check_real

__all__ = ["MAX_DEGREE", "Measure", "Series", "degree_weights", "exponential", "listed", "polynomial", "vovk"]

MAX_DEGREE = 10_000
"""Largest degree of a series."""
_LARGEST_COUNT = int(sys.float_info.max)
"""Largest binomial coefficient that fits a float."""
_PATIENCE = 16
"""Degrees at least that must be small at the end of a series of which only a callable is known."""

Measure = Literal["kernel", "proper"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Series:
    """A kernel ``sum_n terms[n] (t / R^2)^n`` for inner products t."""

    terms: NDArray[np.float64]
    """Shape (n_degrees,): a_n R^(2n), at least 0; the last is above 0."""
    left_out: float
    """Largest sum of the degrees left out, over inner products up to R^2; 0 for a kernel that is finite."""
    coefficients: tuple[float, ...] | None = None
    """a_n, where the user gave them."""


def polynomial(degree: int, coef0: float, square: float) -> Series:
    """(t + coef0)^degree, for R^2 = `square`."""
    terms, count = [], 1
    try:
        for n in range(degree + 1):
            terms.append(_binomial_term(count, degree - n, coef0, n, square))
            count = count * (degree - n) // (n + 1)
    except OverflowError:
        terms = [math.inf]
    return _finite(terms, "a smaller degree, coef0, radius or scale")


def _binomial_term(count: int, rest: int, coef0: float, n: int, square: float) -> float:
    if count <= _LARGEST_COUNT:
        return count * coef0**rest * square**n
    if coef0 == 0 or square == 0:
        return 0.0
    return math.exp(math.log(count) + rest * math.log(coef0) + n * math.log(square))


def exponential(gamma: float, square: float, tolerance: float) -> Series:
    """exp(gamma t), truncated."""
    rate = gamma * square
    if rate > 700:
        message = (
            f"gamma times the squared radius is {rate:g}, but e^700 is about the largest number; choose gamma below "
            f"{700 / square:g}, or a smaller radius and scale"
        )
        raise ConfigError(message)
    return _truncated(1.0, lambda n: rate / (n + 1), 0.0, tolerance)


def vovk(alpha: float, square: float, tolerance: float) -> Series:
    """(1 - t)^-alpha, truncated."""
    if not square < 1:
        message = (
            f"Vovk's infinite polynomial converges for inner products below 1, but rows of length "
            f"{math.sqrt(square):g} have larger ones; choose a radius below 1, and bring rows there by scale, for "
            "instance normalize='l2' with scale=0.9"
        )
        raise ConfigError(message)
    return _truncated(1.0, lambda n: square * (alpha + n) / (n + 1), square, tolerance)


def listed(coefficients: Any, square: float, tolerance: float) -> Series:
    """``sum_n a_n t^n`` of a sequence, or of a callable that gives a_n, which is truncated."""
    if callable(coefficients):
        return _called(coefficients, square, tolerance)
    given = list(coefficients) if isinstance(coefficients, Iterable) and not isinstance(coefficients, str) else []
    if not 1 <= len(given) <= MAX_DEGREE + 1:
        message = (
            f"coefficients={coefficients!r}, but the kernel 'maclaurin' needs a_0, a_1, ...: a list of 1 to "
            f"{MAX_DEGREE + 1:,} numbers, or a callable that gives a_n for a degree n"
        )
        raise ConfigError(message)
    a = [_coefficient(value, n) for n, value in enumerate(given)]
    while len(a) > 1 and a[-1] == 0:
        a.pop()
    series = _finite([_term(value, square, n) for n, value in enumerate(a)], "smaller coefficients, radius or scale")
    return Series(terms=series.terms, left_out=0.0, coefficients=tuple(a))


def _called(coefficient: Callable[[int], float], square: float, tolerance: float) -> Series:
    """Stop where the later half of the degrees adds little: beyond, a power series falls at least as fast."""
    a: list[float] = []
    terms: list[float] = []
    total = 0.0
    for n in range(MAX_DEGREE + 1):
        try:
            value = coefficient(n)
        except ArithmeticError as error:
            message = f"coefficients({n}) raises {error!r}; give 0 where a coefficient is too small for a float"
            raise ConfigError(message) from error
        a.append(_coefficient(value, n))
        terms.append(_term(a[-1], square, n))
        total += terms[-1]
        if not math.isfinite(total):
            break
        if n >= 2 * _PATIENCE and n % _PATIENCE == 0 and total > 0:
            late = sum(terms[n // 2 + 1 :])
            if late <= tolerance * total / 2:
                while terms[-1] == 0:
                    a.pop()
                    terms.pop()
                return Series(terms=np.array(terms), left_out=late, coefficients=tuple(a))
    message = (
        f"the series of coefficients does not converge to a part of {tolerance:g} within {MAX_DEGREE:,} degrees for "
        f"rows of length {math.sqrt(square):g}; choose a smaller radius and scale, or a larger tolerance"
    )
    raise ConfigError(message)


def _coefficient(value: object, n: int) -> float:
    number = check_real(value, f"coefficients[{n}]")
    if number < 0:
        message = (
            f"coefficients[{n}]={value!r}, but a dot-product kernel needs every coefficient at least 0: else it is not "
            "positive definite in every dimension"
        )
        raise ConfigError(message)
    return number


def _term(coefficient: float, square: float, n: int) -> float:
    """Give a_n R^(2n), also where the power alone would overflow."""
    if coefficient == 0:
        return 0.0
    try:
        return coefficient * square ** (n // 2) * square ** (n - n // 2)
    except OverflowError:
        return math.inf


def _finite(terms: list[float], remedy: str) -> Series:
    if not math.isfinite(sum(terms)):
        message = f"the kernel of the longest rows overflows a float; choose {remedy}"
        raise ConfigError(message)
    if not any(terms):
        message = "the kernel is 0: every coefficient is; give one above 0"
        raise ConfigError(message)
    while terms[-1] == 0:
        terms.pop()
    return Series(terms=np.array(terms), left_out=0.0)


def _truncated(first: float, ratio: Callable[[int], float], limit: float, tolerance: float) -> Series:
    """Cut a series where what is left out is at most `tolerance` of the whole (§4.2).

    ``ratio(n)`` is term n + 1 over term n. It falls or rises to `limit`, so that a geometric series bounds the rest.
    """
    terms, total = [first], first
    for n in range(MAX_DEGREE):
        following = terms[-1] * ratio(n)
        bound = max(ratio(n + 1), limit)
        if bound < 1 and following <= tolerance * total * (1 - bound):
            return Series(terms=np.array(terms), left_out=following / (1 - bound))
        terms.append(following)
        total += following
    message = (
        f"the series needs more than {MAX_DEGREE:,} degrees to be within tolerance={tolerance:g}; choose a smaller "
        "radius and scale, or a larger tolerance"
    )
    raise ConfigError(message)


def degree_weights(terms: NDArray[np.float64], measure: Measure, p: float, lowest: int) -> NDArray[np.float64]:
    r"""Probability of each degree of a draw.

    Parameters
    ----------
    terms : ndarray of shape (n_degrees,), float64
        a_n R^(2n).
    measure : {"kernel", "proper"}
        :math:`P_n \propto a_n R^{2n}`, or :math:`(p - 1) p^{-(n + 1)}`.
    p : float
        Above 1; without effect for "kernel".
    lowest : int
        Degrees below are never drawn.

    Returns
    -------
    weights : ndarray of shape (n_degrees,), float64
        Sums to 1 for "kernel"; for "proper" the rest is the probability of degrees beyond the series.
    """
    degrees = np.arange(len(terms))
    if measure == "kernel":
        weights = np.where(degrees >= lowest, terms, 0.0)
        return weights / weights.sum()
    weights = np.zeros(len(degrees))
    weight = (p - 1) / p
    for n in range(lowest, len(degrees)):
        weights[n] = weight
        weight /= p
    return weights
