"""Checks of the parameters of random Maclaurin features, and the power series of their kernel.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012, §3, Alg. 1 and §4.2.

A series is finite, with non-negative terms ``a_n R^(2n)``: the value of degree n at the largest inner product of rows
of length R. Terms are moderate even if coefficients or powers of R alone would overflow.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dkfeat.errors import ConfigError
from dkfeat.maps._base import FeatureMap, checked_seed
from dkfeat.maps.maclaurin.factors import DegreeLaw, Draws, checked_inner, draw_degrees, inner_mapping
from dkfeat.validation import check_choice, check_integer, check_real

_MAX_DEGREE = 10_000
"""Largest degree of a series."""
_LARGEST_COUNT = int(sys.float_info.max)
"""Largest binomial coefficient that fits a float."""
_PATIENCE = 16
"""Minimum number of small terms at the end of a series whose coefficients come from a callable."""

_Measure = Literal["kernel", "proper"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Series:
    """A kernel ``sum_n terms[n] (t / R^2)^n`` for inner products t."""

    terms: NDArray[np.float64]
    """Shape (n_degrees,): a_n R^(2n), at least 0; the last is above 0."""
    omitted: float
    """Largest sum of the omitted degrees, over inner products up to R^2; 0 for a finite series."""
    coefficients: tuple[float, ...] | None = None
    """a_n, if the user gave them."""


def _polynomial(degree: int, coef0: float, square: float) -> _Series:
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


def _exponential(gamma: float, square: float, tolerance: float) -> _Series:
    """exp(gamma t), truncated."""
    rate = gamma * square
    if rate > 700:
        raise ConfigError(
            f"gamma times the squared radius is {rate:g}, but e^700 is about the largest float; choose gamma below "
            f"{700 / square:g}, or a smaller radius and scale"
        )
    return _truncated(1.0, lambda n: rate / (n + 1), 0.0, tolerance)


def _vovk(alpha: float, square: float, tolerance: float) -> _Series:
    """(1 - t)^-alpha, truncated."""
    if not square < 1:
        raise ConfigError(
            f"Vovk's infinite polynomial converges for inner products below 1, but rows of length "
            f"{math.sqrt(square):g} have larger ones; choose a radius below 1, and scale the rows accordingly, "
            "for example by normalize='l2' with scale=0.9"
        )
    return _truncated(1.0, lambda n: square * (alpha + n) / (n + 1), square, tolerance)


def _series_of_list(coefficients: Any, square: float, tolerance: float) -> _Series:
    """``sum_n a_n t^n`` of a sequence, or, truncated, of a callable that returns a_n."""
    if callable(coefficients):
        return _series_of_function(coefficients, square, tolerance)
    given = list(coefficients) if isinstance(coefficients, Iterable) and not isinstance(coefficients, str) else []
    if not 1 <= len(given) <= _MAX_DEGREE + 1:
        raise ConfigError(
            f"coefficients={coefficients!r}, but the kernel 'maclaurin' needs a_0, a_1, ...: a list of 1 to "
            f"{_MAX_DEGREE + 1:,} numbers, or a callable that gives a_n for a degree n"
        )
    a = [_coefficient(value, n) for n, value in enumerate(given)]
    while len(a) > 1 and a[-1] == 0:
        a.pop()
    series = _finite([_term(value, square, n) for n, value in enumerate(a)], "smaller coefficients, radius or scale")
    return _Series(terms=series.terms, omitted=0.0, coefficients=tuple(a))


def _series_of_function(coefficient: Callable[[int], float], square: float, tolerance: float) -> _Series:
    """Truncate when the later half of the degrees adds little, assuming that later terms decrease at least as fast."""
    a: list[float] = []
    terms: list[float] = []
    total = 0.0
    for n in range(_MAX_DEGREE + 1):
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
                return _Series(terms=np.array(terms), omitted=late, coefficients=tuple(a))
    raise ConfigError(
        f"the series of coefficients does not converge to a relative error of {tolerance:g} within {_MAX_DEGREE:,} "
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


def _finite(terms: list[float], remedy: str) -> _Series:
    if not math.isfinite(sum(terms)):
        raise ConfigError(f"the kernel of the longest rows overflows a float; choose {remedy}")
    if not any(terms):
        raise ConfigError("the kernel is 0 because every coefficient is 0; give one above 0")
    while terms[-1] == 0:
        terms.pop()
    return _Series(terms=np.array(terms), omitted=0.0)


def _truncated(first: float, ratio: Callable[[int], float], limit: float, tolerance: float) -> _Series:
    """Truncate a series so that the omitted share is at most `tolerance` (§4.2).

    ``ratio(n)`` is term n + 1 over term n. It is monotonic with limit `limit`, so a geometric series bounds the rest.
    """
    terms, total = [first], first
    for n in range(_MAX_DEGREE):
        following = terms[-1] * ratio(n)
        bound = max(ratio(n + 1), limit)
        if bound < 1 and following <= tolerance * total * (1 - bound):
            return _Series(terms=np.array(terms), omitted=following / (1 - bound))
        terms.append(following)
        total += following
    raise ConfigError(
        f"the series needs more than {_MAX_DEGREE:,} degrees to be within tolerance={tolerance:g}; choose a smaller "
        "radius and scale, or a larger tolerance"
    )


def _degree_weights(terms: NDArray[np.float64], measure: _Measure, p: float, lowest: int) -> NDArray[np.float64]:
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


_KERNELS = ("polynomial", "vovk_real", "vovk_infinite", "exponential", "maclaurin")
_WIDEST_LINEAR = 2**24
"""Maximum number of input columns that h01 appends."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedMaclaurin:
    """State of a fitted map: parameters as they were in fit, and values derived from them."""

    params: dict[str, Any]
    law: DegreeLaw
    longest: float | None
    """Largest allowed l2 norm of a scaled row; None if there is no limit."""
    constant: float
    """Value of the column of degree 0 with h01; 0 without such a column."""
    linear: float
    """Multiplier of the columns of degree 1 with h01; 0 without such columns."""
    n_linear: int
    inner: FeatureMap | None
    truncation_error: float
    """Upper bound on the sum of the omitted degrees."""

    @property
    def draws(self) -> Draws:
        """Degrees and weights of the components."""
        return draw_degrees(self.law)

    @property
    def n_exact(self) -> int:
        """Number of columns of the exact degrees."""
        return (self.constant > 0) + self.n_linear


def resolve_parameters(given: Mapping[str, Any], n_features: int) -> FittedMaclaurin:
    """Check the parameters of an estimator, and derive the fitted map from them.

    Parameters
    ----------
    given : mapping
        Parameters of `MaclaurinFeatures` by name, as the user set them.
    n_features : int

    Raises
    ------
    dkfeat.errors.ConfigError
        If a parameter is out of range, or parameters contradict each other.
    """
    params = _checked(given)
    coefficients = given["coefficients"]
    inner = None if given["inner"] is None else checked_inner(given["inner"], n_features)
    if inner is not None:
        _check_with_inner(params)
        params["inner"] = inner_mapping(inner, n_features)
    radius = _radius(params)
    square = radius * radius
    series = _series(coefficients, params, square)
    is_infinite = params["kernel"] in ("vovk_infinite", "exponential") or callable(coefficients)
    longest = radius if is_infinite or params["radius"] is not None else None
    if callable(coefficients) and inner is None:
        params["radius"] = radius  # the spec's list of coefficients is truncated for this radius
    lowest = 0
    if params["h01"]:
        _check_exact_terms(series, n_features)
        lowest = 2
    seed = checked_seed(given["random_state"])
    weights = _degree_weights(series.terms, params["measure"], params["p"], lowest)
    unscaled_radius = radius / params["scale"]  # of rows before they are scaled
    law = DegreeLaw(
        weights=tuple(weights.tolist()),
        terms=tuple(series.terms.tolist()),
        radius=unscaled_radius,
        n_components=params["n_components"],
        seed=seed,
    )
    draw_degrees(law)  # raises for too many factors
    exact = np.sqrt(np.append(series.terms, [0.0, 0.0])[:2]) * (lowest > 0)
    return FittedMaclaurin(
        params=params,
        law=law,
        longest=longest if params["normalize"] is None and inner is None else None,
        constant=float(exact[0]),
        linear=float(exact[1]) / unscaled_radius,
        n_linear=n_features if exact[1] > 0 else 0,
        inner=inner,
        truncation_error=series.omitted,
    )


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check ranges and return the parameters as plain JSON values, except coefficients and inner."""
    if not isinstance(given["h01"], bool | np.bool_):
        raise ConfigError(f"h01={given['h01']!r}, but it must be True (degrees 0 and 1 exact) or False")
    kernel = check_choice(given["kernel"], "kernel", _KERNELS)
    if (given["coefficients"] is None) == (kernel == "maclaurin"):
        raise ConfigError(
            "kernel='maclaurin' needs coefficients; set them to a list a_0, a_1, ... or a function of n"
            if kernel == "maclaurin"
            else f"coefficients are given, but kernel={kernel!r} has its own; set kernel='maclaurin'"
        )
    return {
        "n_components": check_integer(given["n_components"], "n_components", low=1, high=2**24),
        "kernel": kernel,
        "degree": check_integer(given["degree"], "degree", low=1, high=_MAX_DEGREE),
        "coef0": check_real(given["coef0"], "coef0", low=0, high=1e12),
        "gamma": check_real(given["gamma"], "gamma", above=0, high=1e12),
        "alpha": check_real(given["alpha"], "alpha", above=0, high=1000),
        "coefficients": None,
        "measure": check_choice(given["measure"], "measure", ("kernel", "proper")),
        "p": check_real(given["p"], "p", above=1, high=1e6),
        "normalize": check_choice(given["normalize"], "normalize", (None, "l1", "l2")),
        "scale": check_real(given["scale"], "scale", above=0, high=1e12),
        "radius": None if given["radius"] is None else check_real(given["radius"], "radius", above=0, high=1e12),
        "tolerance": check_real(given["tolerance"], "tolerance", low=1e-15, high=0.5),
        "h01": bool(given["h01"]),
        "inner": None,
    }


def _check_with_inner(params: dict[str, Any]) -> None:
    for name, default, reason in (
        ("normalize", None, "the inner map prepares its rows itself"),
        ("radius", None, "the kernel of the inner map is at most 1, and scale alone sets the radius"),
        ("h01", False, "the linear term is the inner kernel, which is itself an estimate"),
    ):
        if params[name] != default:
            raise ConfigError(f"{name}={params[name]!r} with inner, but {reason}; leave {name}={default!r}")


def _radius(params: dict[str, Any]) -> float:
    """Return R: the largest l2 norm of a scaled row, or the root of the largest value of a scaled inner kernel."""
    bounded = params["normalize"] is not None or params["inner"] is not None
    radius: float | None = params["radius"]
    if radius is None:
        return params["scale"] if bounded else 1.0
    if bounded and radius < params["scale"]:
        raise ConfigError(
            f"radius={radius:g}, but rows that are normalised and multiplied by scale are as long as "
            f"scale={params['scale']:g}; set radius to that or leave it None"
        )
    return radius


def _series(coefficients: Any, params: dict[str, Any], square: float) -> _Series:
    kernel, tolerance = params["kernel"], params["tolerance"]
    if kernel == "polynomial":
        return _polynomial(params["degree"], params["coef0"], square)
    if kernel == "exponential":
        return _exponential(params["gamma"], square, tolerance)
    if kernel == "vovk_infinite":
        return _vovk(params["alpha"], square, tolerance)
    if kernel == "vovk_real":
        return _series_of_list([1.0] * params["degree"], square, tolerance)
    series = _series_of_list(coefficients, square, tolerance)
    params["coefficients"] = list(series.coefficients or ())
    return series


def _check_exact_terms(series: _Series, n_features: int) -> None:
    if len(series.terms) <= 2:
        raise ConfigError(
            "h01=True leaves nothing to draw: the kernel has no degree above 1; take the rows themselves as features"
        )
    if series.terms[1] > 0 and n_features > _WIDEST_LINEAR:
        raise ConfigError(
            f"h01=True appends all of the {n_features:,} columns to dense features, but at most {_WIDEST_LINEAR:,} are "
            "appended; set h01=False"
        )
