"""What theory knows of random Maclaurin features: the kernel of a series, and the variance of its estimate.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012, Alg. 1 and §5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial.polynomial import polyval
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.preprocessing import normalize

from dkfeat.kernels._rows import inner_products, paired_rows
from dkfeat.kernels.by_name import NamedKernel, named_kernel
from dkfeat.maps._kernel_facts import KernelFacts, parameters_shown
from dkfeat.maps.gcws import GCWSFeatures

if TYPE_CHECKING:
    from dkfeat.maps._base import FeatureMap
    from dkfeat.maps._maclaurin_settings import Settings

__all__ = ["facts_of_series"]

Values = NDArray[np.float64]
_NAMES = {"exponential": "exponential_dot_product"}


def facts_of_series(settings: Settings, n_features: int) -> KernelFacts:
    """Kernel and variance of a fitted `MaclaurinFeatures`.

    Parameters
    ----------
    settings : Settings
    n_features : int
        Columns that it was fitted to.
    """
    name = _NAMES.get(settings.params["kernel"], settings.params["kernel"])
    known = named_kernel(name).params
    kernel = named_kernel(name, {key: settings.params[key] for key in known})
    inner = None if settings.inner is None else _facts_of_factor(settings.inner, n_features)
    series = _Series(kernel=kernel, settings=settings, inner=inner)
    low, typical, high = series.of_products(np.array([0.0, series.square / 2, series.square])).tolist()
    shown = parameters_shown(kernel)
    return KernelFacts(
        name=shown if inner is None else f"{shown}, of {inner.name}",
        exact=lambda X, Y: series.of_products(series.products(X, Y)),
        variance_at=series.variance_at,
        variance=series.variance,
        bound="at most",
        note="for rows as long as the radius" if inner is None else "",
        low=low,
        high=high,
        typical=typical,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    """f(s^2 t) of inner products t, or of values t of an inner kernel; estimates of one factor have mean t."""

    kernel: NamedKernel
    settings: Settings
    inner: KernelFacts | None

    @property
    def square(self) -> float:
        """Largest t of rows as long as the radius."""
        return self.settings.law.radius**2

    def of_products(self, products: Values) -> Values:
        """Kernel by t: that of rows of one column."""
        flat = self.kernel((self.settings.scale**2 * products).reshape(-1, 1), np.ones((1, 1)))
        return flat.reshape(products.shape)

    def products(self, X: Any, Y: Any) -> Values:
        """T of all pairs of rows."""
        return self.inner.exact(X, Y) if self.inner is not None else inner_products(*self._paired(X, Y))

    def variance(self, X: Any, Y: Any, exact: Values) -> Values:  # noqa: ARG002 - t is needed, not the kernel
        """Variance of each pair's estimate; see `dkfeat.theory.maclaurin.component_variance`."""
        products = self.products(X, Y)
        if self.inner is not None:
            variances = self.inner.variances(X, Y, products)
            assert variances is not None, "theory knows the variance of single factors"
            return self._variance(products, products**2 + variances)
        x, y = (rows**2 if isinstance(rows, np.ndarray) else rows.power(2) for rows in self._paired(X, Y))
        lengths = np.outer(np.asarray(x.sum(axis=1)), np.asarray(y.sum(axis=1)))
        return self._variance(products, lengths + 2 * products**2 - 2 * inner_products(x, y))

    def variance_at(self, values: Values) -> Values:
        """Largest variance of pairs of rows as long as the radius, by the kernel's value."""
        products = self._inverse(values)
        if self.inner is not None:
            variances = self.inner.variance_at
            assert variances is not None, "theory knows the variance of single factors"
            return self._variance(products, products**2 + variances(products))
        # what common columns take off the second moment is left out
        return self._variance(products, self.square**2 + 2 * products**2)

    def _variance(self, products: Values, moments: Values) -> Values:
        """Variance for t and the second moments M of one factor's estimate of it."""
        law = self.settings.law
        terms, weights = np.array(law.terms), np.array(law.weights)
        drawn = weights > 0
        squares = np.divide(terms**2, weights, out=np.zeros_like(terms), where=drawn)
        with np.errstate(over="ignore", invalid="ignore"):  # beyond measure, where rows are longer than the radius
            second = polyval(moments / self.square**2, squares)
            mean = polyval(products / self.square, np.where(drawn, terms, 0.0))
            return np.maximum(second - mean**2, 0.0) / law.n_components

    def _inverse(self, values: Values) -> Values:
        """T in [0, R^2] where f has these values; its ends beyond them. f rises there, and is halved towards."""
        below, above = np.zeros_like(values), np.full_like(values, self.square)
        for _ in range(60):
            middle = (below + above) / 2
            is_low = self.of_products(middle) < values
            below, above = np.where(is_low, middle, below), np.where(is_low, above, middle)
        return above

    def _paired(self, X: Any, Y: Any) -> tuple[Any, Any]:
        norm = self.settings.normalize
        if norm is None:
            return paired_rows(X, Y)
        return paired_rows(normalize(X, norm), None if Y is None else normalize(Y, norm))


def _facts_of_factor(inner: FeatureMap, n_features: int) -> KernelFacts:
    """Kernel of an inner map, and variance of one factor: a single component, or a random sign of a sample."""
    single = clone(inner).set_params(n_components=1, random_state=0)
    if isinstance(single, GCWSFeatures):
        # the product of two signs is 1 or -1
        return replace(single.fit_width(n_features)._kernel_facts(), variance_at=lambda values: 1 - values**2, note="")
    # alone, a component does not care what others have to do with it
    return single.set_params(projection="dense").fit_width(n_features)._kernel_facts()
