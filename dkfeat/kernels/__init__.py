"""Exact kernel functions k(x, y), which the feature maps approximate, and their lookup by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.errors import ConfigError
from dkfeat.kernels.dot_product import exponential_dot_product, maclaurin, polynomial, vovk_infinite, vovk_real
from dkfeat.kernels.minmax import egmm, gmm, resemblance
from dkfeat.kernels.rbf import exponential_semigroup, rbf, rbf_cosine, reciprocal_semigroup
from dkfeat.validation import check_choice, check_integer, check_real

__all__ = [  # noqa: RUF022 - in the order of messages
    "gmm",
    "egmm",
    "resemblance",
    "rbf",
    "rbf_cosine",
    "exponential_semigroup",
    "reciprocal_semigroup",
    "polynomial",
    "vovk_real",
    "vovk_infinite",
    "exponential_dot_product",
    "maclaurin",
]

KERNELS: dict[str, Callable[..., NDArray[np.float64]]] = {name: globals()[name] for name in __all__}
"""Every kernel function by its name."""


@dataclass(frozen=True, slots=True)
class NamedKernel:
    """Kernel with all its parameters; small and picklable."""

    name: str
    params: Mapping[str, int | float | list[float]]
    """Plain JSON values, defaults included."""

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block of two arrays of rows."""
        return KERNELS[self.name](X, Y, **self.params)


def named_kernel(kernel: object, params: object = None, *, name: str = "kernel") -> NamedKernel:
    """Look a kernel up and check its parameters.

    Parameters
    ----------
    kernel : str
        One of `KERNELS`.
    params : mapping or None
        Its parameters; missing ones take the kernel's defaults.
    name : str
        Name of the parameter `kernel` in messages.

    Returns
    -------
    found : NamedKernel

    Raises
    ------
    dkfeat.errors.ConfigError
        If the kernel or a parameter is unknown, or a value is out of range.

    Examples
    --------
    >>> named_kernel("egmm", {"gamma": 2}).params
    {'gamma': 2.0, 'p': 1.0}
    """
    chosen: str = check_choice(kernel, name, tuple(KERNELS))
    if not (params is None or isinstance(params, Mapping)):
        raise ConfigError(f"{name}_params={params!r:.100}, but it must be a mapping of parameters or None")
    signature = inspect.signature(KERNELS[chosen]).parameters.values()
    defaults = {item.name: item.default for item in signature if item.name not in ("X", "Y")}
    given = dict(params or {})
    unknown = sorted(set(given) - set(defaults), key=str)
    if unknown:
        known = ", ".join(defaults) or "none"
        raise ConfigError(f"the kernel {kernel!r} has no parameter {unknown[0]!r}; its parameters are: {known}")
    found = NamedKernel(chosen, {key: _plain(key, given.get(key, value), value) for key, value in defaults.items()})
    found(np.zeros((1, 1)))  # the kernel itself checks the ranges
    return found


def _plain(key: str, value: object, default: object) -> int | float | list[float]:
    if isinstance(default, tuple):
        if not isinstance(value, Iterable):
            raise ConfigError(f"{key}={value!r:.100}, but it must be a list of numbers")
        return [check_real(item, f"{key}[{i}]") for i, item in enumerate(value)]
    if isinstance(default, int):
        return check_integer(value, key, low=0)
    return check_real(value, key)
