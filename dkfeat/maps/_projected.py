"""Base class of maps by projection, with one component for each row of an operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dkfeat.errors import ConfigError
from dkfeat.maps._base import FeatureMap
from dkfeat.projections import Projection
from dkfeat.validation import check_integer


@dataclass(frozen=True, slots=True)
class FittedProjection:
    """State of a fitted map."""

    params: dict[str, Any]
    """Parameters as they were in fit."""
    operator: Projection


class ProjectedMap(FeatureMap):
    """Base class of maps with one component for each row of an operator; `_resolve` sets a `FittedProjection`."""

    layout = "dense"

    @property
    def n_features_out(self) -> int:
        """Number of columns of `transform`: n_components."""
        return self._fitted.operator.n_components

    @property
    def working_bytes(self) -> int:
        """Bytes of the tables that one call draws."""
        return self._fitted.operator.table_bytes

    def _spec_part(self) -> dict[str, Any]:
        return {"params": dict(self._fitted.params)}


def checked_mixtures(n_mixtures: Any) -> int | Literal["log2"]:
    """Return an estimator's parameter if it is "log2" or an integer from 1 to 65,536, or raise ConfigError."""
    if isinstance(n_mixtures, str):
        if n_mixtures != "log2":
            raise ConfigError(f"n_mixtures={n_mixtures!r}, but it must be 'log2' or an integer from 1 to 65,536")
        return "log2"
    return check_integer(n_mixtures, "n_mixtures", low=1, high=2**16)


def mixtures_of(n_mixtures: int | Literal["log2"], n_features: int) -> int:
    """Return the number of circulant matrices that a projection mixes.

    It is n_mixtures itself; for "log2" the base-2 logarithm of n_features, rounded up, and at least 2.

    Examples
    --------
    >>> mixtures_of("log2", 1000), mixtures_of("log2", 1), mixtures_of(5, 1000)
    (10, 2, 5)
    """
    return max(2, (n_features - 1).bit_length()) if n_mixtures == "log2" else n_mixtures
