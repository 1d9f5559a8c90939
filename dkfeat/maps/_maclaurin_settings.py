"""Parameters of random Maclaurin features: checked, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dkfeat.errors import ConfigError
from dkfeat.maps import _maclaurin_series as series_of
from dkfeat.maps._base import FeatureMap, checked_seed
from dkfeat.maps._maclaurin_draws import DegreeLaw, Draws, draw_degrees
from dkfeat.maps._maclaurin_inner import checked_inner, inner_mapping
from dkfeat.validation import check_choice, check_integer, check_real

__all__ = ["Settings", "settle"]

_KERNELS = ("polynomial", "vovk_real", "vovk_infinite", "exponential", "maclaurin")
_WIDEST_LINEAR = 2**24
"""Most columns that h01 appends as they are."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Settings:
    """The fitted map: parameters as they were in fit, and what follows from them."""

    params: dict[str, Any]
    law: DegreeLaw
    normalize: Literal["l1", "l2"] | None
    scale: float
    longest: float | None
    """l2 norm of a scaled row beyond which it is refused; None where any is fine."""
    constant: float
    """Value of the column that stands for degree 0 with h01; 0 without one."""
    linear: float
    """Multiplier of the columns that stand for degree 1 with h01; 0 without any."""
    n_linear: int
    inner: FeatureMap | None
    truncation_error: float
    """Bound on what the degrees left out add."""

    @property
    def draws(self) -> Draws:
        return draw_degrees(self.law)

    @property
    def n_exact(self) -> int:
        return (self.constant > 0) + self.n_linear


def settle(given: Mapping[str, Any], n_features: int) -> Settings:
    """Check the parameters of an estimator, and derive the fitted map from them.

    Parameters
    ----------
    given : mapping
        Parameters of `MaclaurinFeatures` by name, as the user set them.
    n_features : int

    Raises
    ------
    dkfeat.errors.ConfigError
        One is out of range, or they do not go together.
    """
    params = _checked(given)
    coefficients = given["coefficients"]
    inner = None if given["inner"] is None else checked_inner(given["inner"], n_features)
    if inner is not None:
        _refuse_with_inner(params)
        params["inner"] = inner_mapping(inner, n_features)
    radius = _radius(params)
    square = radius * radius
    series = _series(coefficients, params, square)
    is_infinite = params["kernel"] in ("vovk_infinite", "exponential") or callable(coefficients)
    longest = radius if is_infinite or params["radius"] is not None else None
    if callable(coefficients) and inner is None:
        params["radius"] = radius  # the list that a spec keeps is good up to here
    lowest = _lowest_degree(series, n_features) if params["h01"] else 0
    seed = checked_seed(given["random_state"])
    weights = series_of.degree_weights(series.terms, params["measure"], params["p"], lowest)
    reach = radius / params["scale"]  # of rows before they are scaled
    law = DegreeLaw(
        weights=tuple(weights.tolist()),
        terms=tuple(series.terms.tolist()),
        radius=reach,
        n_components=params["n_components"],
        seed=seed,
    )
    draw_degrees(law)  # refuses too many factors
    exact = np.sqrt(np.append(series.terms, [0.0, 0.0])[:2]) * (lowest > 0)
    return Settings(
        params=params,
        law=law,
        normalize=params["normalize"],
        scale=params["scale"],
        longest=longest if params["normalize"] is None and inner is None else None,
        constant=float(exact[0]),
        linear=float(exact[1]) / reach,
        n_linear=n_features if exact[1] > 0 else 0,
        inner=inner,
        truncation_error=series.left_out,
    )


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters in range and as plain JSON, but for coefficients and inner."""
    if not isinstance(given["h01"], bool | np.bool_):
        message = f"h01={given['h01']!r}, but it must be True (degrees 0 and 1 exact) or False"
        raise ConfigError(message)
    kernel = check_choice(given["kernel"], "kernel", _KERNELS)
    if (given["coefficients"] is None) == (kernel == "maclaurin"):
        message = (
            "kernel='maclaurin' needs coefficients; set them to a list a_0, a_1, ... or a function of n"
            if kernel == "maclaurin"
            else f"coefficients are given, but kernel={kernel!r} has its own; set kernel='maclaurin'"
        )
        raise ConfigError(message)
    if check_real(given["coef0"], "coef0", high=1e12) < 0:
        message = f"coef0={given['coef0']!r}, but it must be from 0 to 1e12; set coef0 in that range"
        raise ConfigError(message)
    if check_real(given["tolerance"], "tolerance", above=0, high=0.5) < 1e-15:
        message = f"tolerance={given['tolerance']!r}, but it must be from 1e-15 to 0.5; set tolerance in that range"
        raise ConfigError(message)
    return {
        "n_components": check_integer(given["n_components"], "n_components", low=1, high=2**24),
        "kernel": kernel,
        "degree": check_integer(given["degree"], "degree", low=1, high=series_of.MAX_DEGREE),
        "coef0": float(given["coef0"]),
        "gamma": check_real(given["gamma"], "gamma", above=0, high=1e12),
        "alpha": check_real(given["alpha"], "alpha", above=0, high=1000),
        "coefficients": None,
        "measure": check_choice(given["measure"], "measure", ("kernel", "proper")),
        "p": check_real(given["p"], "p", above=1, high=1e6),
        "normalize": check_choice(given["normalize"], "normalize", (None, "l1", "l2")),
        "scale": check_real(given["scale"], "scale", above=0, high=1e12),
        "radius": None if given["radius"] is None else check_real(given["radius"], "radius", above=0, high=1e12),
        "tolerance": float(given["tolerance"]),
        "h01": bool(given["h01"]),
        "inner": None,
    }


def _refuse_with_inner(params: dict[str, Any]) -> None:
    for name, default, reason in (
        ("normalize", None, "the inner map sees to its rows itself"),
        ("radius", None, "the kernel of the inner map is at most 1, and scale alone sets the radius"),
        ("h01", False, "the linear term is the inner kernel, which is itself an estimate"),
    ):
        if params[name] != default:
            message = f"{name}={params[name]!r} with inner, but {reason}; leave {name}={default!r}"
            raise ConfigError(message)


def _radius(params: dict[str, Any]) -> float:
    """R: the largest l2 norm of a scaled row, or the root of the largest value of a scaled inner kernel."""
    bounded = params["normalize"] is not None or params["inner"] is not None
    radius: float | None = params["radius"]
    if radius is None:
        return params["scale"] if bounded else 1.0
    if bounded and radius < params["scale"]:
        message = (
            f"radius={radius:g}, but rows that are normalised and multiplied by scale are as long as "
            f"scale={params['scale']:g}; set radius to that or leave it None"
        )
        raise ConfigError(message)
    return radius


def _series(coefficients: Any, params: dict[str, Any], square: float) -> series_of.Series:
    kernel, tolerance = params["kernel"], params["tolerance"]
    if kernel == "polynomial":
        return series_of.polynomial(params["degree"], params["coef0"], square)
    if kernel == "exponential":
        return series_of.exponential(params["gamma"], square, tolerance)
    if kernel == "vovk_infinite":
        return series_of.vovk(params["alpha"], square, tolerance)
    if kernel == "vovk_real":
        return series_of.listed([1.0] * params["degree"], square, tolerance)
    series = series_of.listed(coefficients, square, tolerance)
    params["coefficients"] = list(series.coefficients or ())
    return series


def _lowest_degree(series: series_of.Series, n_features: int) -> int:
    if len(series.terms) <= 2:
        message = (
            "h01=True leaves nothing to draw: the kernel has no degree above 1; take the rows themselves as features"
        )
        raise ConfigError(message)
    if series.terms[1] > 0 and n_features > _WIDEST_LINEAR:
        message = (
            f"h01=True appends all of the {n_features:,} columns to dense features, but at most {_WIDEST_LINEAR:,} are "
            "appended; set h01=False"
        )
        raise ConfigError(message)
    return 2
