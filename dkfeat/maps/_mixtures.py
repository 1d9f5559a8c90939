"""How many circulant matrices an alternating circulant projection mixes."""

from __future__ import annotations

from typing import Any, Literal

from dkfeat.errors import ConfigError
from dkfeat.validation import check_integer

__all__ = ["checked_mixtures", "mixtures_of"]


def checked_mixtures(n_mixtures: Any) -> int | Literal["log2"]:
    """Return an estimator's parameter if it is "log2" or an integer from 1 to 65,536, or raise ConfigError."""
    if isinstance(n_mixtures, str):
        if n_mixtures != "log2":
            message = f"n_mixtures={n_mixtures!r}, but it must be 'log2' or an integer from 1 to 65,536"
            raise ConfigError(message)
        return "log2"
    return check_integer(n_mixtures, "n_mixtures", low=1, high=2**16)


def mixtures_of(n_mixtures: int | Literal["log2"], n_features: int) -> int:
    """Return the number itself; for "log2" the base-2 logarithm of n_features, rounded up, and at least 2.

    Examples
    --------
    >>> mixtures_of("log2", 1000), mixtures_of("log2", 1), mixtures_of(5, 1000)
    (10, 2, 5)
    """
    return max(2, (n_features - 1).bit_length()) if n_mixtures == "log2" else n_mixtures
