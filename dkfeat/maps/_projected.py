"""What maps share that project rows by a random operator and then apply a function to each component."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, Literal, TypeVar

from sklearn.utils.validation import check_is_fitted

from dkfeat.errors import ConfigError
from dkfeat.maps._base import FeatureMap
from dkfeat.projections import Projection
from dkfeat.validation import check_integer

__all__ = ["ProjectedMap", "ProjectedSettings", "checked_mixtures", "mixtures_of"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedSettings:
    """The fitted map: a subclass adds its parameters as they were in fit, in the order of the spec."""

    operator: Projection


_Settings = TypeVar("_Settings", bound=ProjectedSettings)


class ProjectedMap(FeatureMap, Generic[_Settings]):
    """Base of maps with one component for each row of an operator; `_settle` keeps `_settings`."""

    layout = "dense"

    _settings: _Settings

    @property
    def n_features_out(self) -> int:
        """Columns of `transform`: n_components."""
        return self._fitted.operator.n_components

    @property
    def encoded_row_bytes(self) -> int:
        """Bytes of a row in float32: 4 * n_components."""
        return 4 * self.n_features_out

    @property
    def working_bytes(self) -> int:
        """Bytes of the tables that a call draws."""
        return self._fitted.operator.table_bytes

    @property
    def _fitted(self) -> _Settings:
        check_is_fitted(self)
        return self._settings

    def _settled(self) -> dict[str, Any]:
        s = self._fitted
        own = {field.name: getattr(s, field.name) for field in dataclasses.fields(s) if field.name != "operator"}
        return {"params": {"n_components": s.operator.n_components, **own}}


def checked_mixtures(n_mixtures: Any) -> int | Literal["log2"]:
    """Return an estimator's parameter if it is "log2" or an integer from 1 to 65,536, or raise ConfigError."""
    if isinstance(n_mixtures, str):
        if n_mixtures != "log2":
            message = f"n_mixtures={n_mixtures!r}, but it must be 'log2' or an integer from 1 to 65,536"
            raise ConfigError(message)
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
