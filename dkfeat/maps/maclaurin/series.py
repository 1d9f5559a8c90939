"""Power series of the kernels of random Maclaurin features, and the random degrees of their components.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012, §3, Alg. 1 and §4.2.

A series is finite, with non-negative terms ``a_n R^(2n)``: the value of degree n at the largest inner product of rows
of length R. Terms are moderate even if coefficients or powers of R alone would overflow.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.products.signs import Components
from dkfeat.compiled.random import STREAM_MACLAURIN_DEGREE, SUPERBLOCK, draw_words
from dkfeat.compiled.simd import LANES
from dkfeat.errors import ConfigError
from dkfeat.validation import check_real

MAX_DEGREE = 10_000
"""Largest degree of a series."""
_LARGEST_COUNT = int(sys.float_info.max)
"""Largest binomial coefficient that fits a float."""
_PATIENCE = 16
"""Minimum number of small terms at the end of a series whose coefficients come from a callable."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Series:
    """A kernel ``sum_n terms[n] (t / R^2)^n`` for inner products t."""

    terms: NDArray[np.float64]
    """Shape (n_degrees,): a_n R^(2n), at least 0; the last is above 0."""
    omitted: float
    """Largest sum of the omitted degrees, over inner products up to R^2; 0 for a finite series."""
    coefficients: tuple[float, ...] | None = None
    """a_n, if the user gave them."""


def series_of(params: dict[str, Any], coefficients: Any, square: float) -> Series:
    """Return the series of checked parameters, for R^2 = `square`, or raise ConfigError."""
    kernel, tolerance = params["kernel"], params["tolerance"]
    if kernel == "polynomial":
        return _polynomial(params["degree"], params["coef0"], square)
    if kernel == "exponential":
        return _exponential(params["gamma"], square, tolerance)
    if kernel == "vovk_infinite":
        return _vovk(params["alpha"], square, tolerance)
    if callable(coefficients):
        return _series_of_function(coefficients, square, tolerance)
    return _series_of_list([1.0] * params["degree"] if kernel == "vovk_real" else coefficients, square)


def _polynomial(degree: int, coef0: float, square: float) -> Series:
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


def _exponential(gamma: float, square: float, tolerance: float) -> Series:
    """exp(gamma t), truncated."""
    rate = gamma * square
    if rate > 700:
        raise ConfigError(
            f"gamma times the squared radius is {rate:g}, but e^700 is about the largest float; choose gamma below "
            f"{700 / square:g}, or a smaller radius and scale"
        )
    return _truncated(1.0, lambda n: rate / (n + 1), 0.0, tolerance)


def _vovk(alpha: float, square: float, tolerance: float) -> Series:
    """(1 - t)^-alpha, truncated."""
    if not square < 1:
        raise ConfigError(
            f"Vovk's infinite polynomial converges for inner products below 1, but rows of length "
            f"{math.sqrt(square):g} have larger ones; choose a radius below 1, and scale the rows accordingly, "
            "for example by normalize='l2' with scale=0.9"
        )
    return _truncated(1.0, lambda n: square * (alpha + n) / (n + 1), square, tolerance)


def _series_of_list(coefficients: Any, square: float) -> Series:
    """``sum_n a_n t^n`` of a sequence."""
    given = list(coefficients) if isinstance(coefficients, Iterable) and not isinstance(coefficients, str) else []
    if not 1 <= len(given) <= MAX_DEGREE + 1:
        raise ConfigError(
            f"coefficients={coefficients!r}, but the kernel 'maclaurin' needs a_0, a_1, ...: a list of 1 to "
            f"{MAX_DEGREE + 1:,} numbers, or a callable that gives a_n for a degree n"
        )
    a = [_coefficient(value, n) for n, value in enumerate(given)]
    while len(a) > 1 and a[-1] == 0:
        a.pop()
    series = _finite([_term(value, square, n) for n, value in enumerate(a)], "smaller coefficients, radius or scale")
    return Series(terms=series.terms, omitted=0.0, coefficients=tuple(a))


def _series_of_function(coefficient: Callable[[int], float], square: float, tolerance: float) -> Series:
    """Truncate when the later half of the degrees adds little, assuming that later terms decrease at least as fast."""
    a: list[float] = []
    terms: list[float] = []
    total = 0.0
    for n in range(MAX_DEGREE + 1):
        try:
            value = coefficient(n)
        except ArithmeticError as error:
            raise ConfigError(
                f"coefficients({n}) raises {error!r}; give 0 where a coefficient is too small for a float"
            ) from error
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
                return Series(terms=np.array(terms), omitted=late, coefficients=tuple(a))
    raise ConfigError(
        f"the series of coefficients does not converge to a relative error of {tolerance:g} within {MAX_DEGREE:,} "
        f"degrees for rows of length {math.sqrt(square):g}; choose a smaller radius and scale, or a larger tolerance"
    )


def _coefficient(value: object, n: int) -> float:
    number = check_real(value, f"coefficients[{n}]")
    if number < 0:
        raise ConfigError(
            f"coefficients[{n}]={value!r}, but a dot-product kernel needs every coefficient at least 0: else it is not "
            "positive definite in every dimension"
        )
    return number


def _term(coefficient: float, square: float, n: int) -> float:
    """Compute a_n R^(2n), also if the power alone would overflow."""
    if coefficient == 0:
        return 0.0
    try:
        return coefficient * square ** (n // 2) * square ** (n - n // 2)
    except OverflowError:
        return math.inf


def _finite(terms: list[float], remedy: str) -> Series:
    if not math.isfinite(sum(terms)):
        raise ConfigError(f"the kernel of the longest rows overflows a float; choose {remedy}")
    if not any(terms):
        raise ConfigError("the kernel is 0 because every coefficient is 0; give one above 0")
    while terms[-1] == 0:
        terms.pop()
    return Series(terms=np.array(terms), omitted=0.0)


def _truncated(first: float, ratio: Callable[[int], float], limit: float, tolerance: float) -> Series:
    """Truncate a series so that the omitted share is at most `tolerance` (§4.2).

    ``ratio(n)`` is term n + 1 over term n. It is monotonic with limit `limit`, so a geometric series bounds the rest.
    """
    terms, total = [first], first
    for n in range(MAX_DEGREE):
        following = terms[-1] * ratio(n)
        bound = max(ratio(n + 1), limit)
        if bound < 1 and following <= tolerance * total * (1 - bound):
            return Series(terms=np.array(terms), omitted=following / (1 - bound))
        terms.append(following)
        total += following
    raise ConfigError(
        f"the series needs more than {MAX_DEGREE:,} degrees to be within tolerance={tolerance:g}; choose a smaller "
        "radius and scale, or a larger tolerance"
    )


def degree_weights(
    terms: NDArray[np.float64], measure: Literal["kernel", "proper"], p: float, lowest: int
) -> NDArray[np.float64]:
    r"""Compute the probability of each degree in a draw.

    Parameters
    ----------
    terms : ndarray of shape (n_degrees,), float64
        a_n R^(2n).
    measure : {"kernel", "proper"}
        :math:`P_n \propto a_n R^{2n}`, or :math:`(p - 1) p^{-(n + 1)}`.
    p : float
        Above 1; without effect for "kernel".
    lowest : int
        Lower degrees are never drawn.

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


_MOST_FACTORS = 2**31


@dataclass(frozen=True, slots=True)
class Tile:
    """Blocks of components that are computed at a time, and the superblocks of signs that they need."""

    first_block: int
    last_block: int
    """End of the blocks, exclusive."""
    first_superblock: int
    n_superblocks: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Draws:
    """Degree and weight of each component, in descending order of degree, in blocks of 16."""

    degrees: NDArray[np.int64]
    """Number of factors of each component, shape (n_components,); also 0 if the drawn degree has no term."""
    scales: NDArray[np.float32]
    """Multiplier of each factor of a component, shape (16 * n_blocks,); 0 beyond the last component."""
    constants: NDArray[np.float32]
    """Initial value of each product, shape (16 * n_blocks,): 1, or the value of a component without factors."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """First factor of each block, and the total number of factors at the end, shape (n_blocks + 1,)."""
        return np.concatenate([[0], np.cumsum(LANES * self.degrees[::LANES])])

    def components(self, tile: Tile) -> Components:
        """Return the arguments of the compiled loops for a tile."""
        degrees = np.zeros(len(self.scales), np.float32)
        degrees[: len(self.degrees)] = self.degrees
        n_factors, origin = tile.n_superblocks * SUPERBLOCK, tile.first_superblock * SUPERBLOCK
        blocks = tile.first_block, tile.last_block
        return Components(self.starts, degrees, self.scales, self.constants, *blocks, n_factors, origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeLaw:
    """Law of the degrees, with size and seed of the draw: a small value, sent to workers instead of the draws."""

    weights: tuple[float, ...]
    """Probability P_n of each degree of the series."""
    terms: tuple[float, ...]
    """a_n R^(2n)."""
    radius: float
    """Radius R of the rows before they are multiplied by `scale`."""
    n_components: int
    seed: int


@lru_cache(maxsize=8)
def draw_degrees(law: DegreeLaw) -> Draws:
    r"""Draw a degree for each component and compute its weight.

    Parameters
    ----------
    law : DegreeLaw

    Returns
    -------
    draws : Draws
        A component of degree N is :math:`\sqrt{a_N / (k P_N)}` times its factors. Each factor is multiplied by the N-th
        root of this weight, so that no product overflows unless the feature does.
    """
    terms, weights, n_components = law.terms, law.weights, law.n_components
    words = np.empty((n_components, 4), np.uint32)
    draw_words(np.uint64(0), np.uint64(STREAM_MACLAURIN_DEGREE), np.uint64(law.seed), words)
    uniform = ((words[:, 0].astype(np.uint64) << np.uint64(21) | words[:, 1] >> np.uint32(11)) + 0.5) * 2.0**-53
    cumulative = np.cumsum(weights)
    drawn = np.searchsorted(cumulative, uniform, side="right")
    highest = np.flatnonzero(weights)[-1]
    if abs(cumulative[-1] - 1) < 1e-9:  # a sum slightly below 1 is due to rounding
        drawn = np.minimum(drawn, highest)
    shares, constants = np.zeros(len(terms) + 1), np.zeros(len(terms) + 1)
    for n in np.unique(drawn[drawn < len(terms)]).tolist():
        if terms[n] > 0:
            root = (math.log(terms[n]) - math.log(weights[n]) - math.log(n_components)) / 2
            shares[n] = math.exp(root / n) / law.radius if n else 0.0
            constants[n] = 1.0 if n else math.exp(root)
    drawn = np.minimum(drawn, len(terms))
    degrees = np.where(constants[drawn] > 0, drawn, 0)
    order = np.argsort(-degrees, kind="stable")
    if int(degrees.sum()) > _MOST_FACTORS:
        raise ConfigError(
            f"the drawn degrees have {int(degrees.sum()):,} factors in all, but at most {_MOST_FACTORS:,} are allowed; "
            "choose a smaller n_components, degree or radius"
        )
    padding = np.zeros(-n_components % LANES, np.float32)
    return Draws(
        degrees=degrees[order].astype(np.int64),
        scales=np.append(shares[drawn[order]].astype(np.float32), padding),
        constants=np.append(constants[drawn[order]].astype(np.float32), padding),
    )
