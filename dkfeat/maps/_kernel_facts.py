"""Which kernel a map's inner products estimate, and what theory knows of the estimates' errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dkfeat.kernels import exponential_semigroup, gmm, rbf, rbf_cosine, reciprocal_semigroup
from dkfeat.kernels.by_name import NamedKernel
from dkfeat.theory import fourier

__all__ = ["KernelFacts", "gmm_facts", "named_facts", "parameters_shown", "rbf_facts", "semigroup_facts"]

Values = NDArray[np.float64]
_NAMES = {"gmm": "GMM", "egmm": "eGMM", "rbf": "RBF", "rbf_cosine": "RBF of the cosine"}
_SYMBOLS = {"gamma": "γ", "alpha": "α", "beta": "β", "rate": "λ", "coef0": "c"}  # noqa: RUF001 - as in the papers
_GAMMA = 700.0
"""Factor of 1 - cosine at which cosines in [-1, 1] give every kernel value that a float64 holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """The kernel of a map with its parameters, and the variance of its estimate from all components of two rows."""

    name: str
    """For people, with the parameters that shape it."""
    exact: Callable[[Any, Any], Values]
    """Gram block of rows, an array or CSR, and other rows or None."""
    variance_at: Callable[[Values], Values] | None = None
    """Variance by the kernel's value; None where theory has none."""
    variance: Callable[[Any, Any, Values], Values] | None = None
    """Variance of each pair of rows, given their exact values; None: that of the value alone, if it is exact."""
    bound: Literal["", "at most", "at least"] = ""
    """How far the value alone decides the variance."""
    note: str = ""
    """What theory leaves out, or takes for granted."""
    low: float = 0.0
    high: float = 1.0
    """Range of kernel values over which `variance_at` is known."""
    typical: float = field(default=0.5)
    """Kernel value at which an error is told, where a single one must do."""

    def variances(self, X: Any, Y: Any, exact: Values) -> Values | None:
        """Variance of the estimate of each pair of rows, or None where only a bound is known, or nothing."""
        if self.variance is not None:
            return self.variance(X, Y, exact)
        return None if self.bound or self.variance_at is None else self.variance_at(exact)


def gmm_facts(
    prepared: Callable[[Any], Any], p: float, n_components: int, mode: str, i_bits: int, t_bits: int
) -> KernelFacts:
    """GMM and pGMM of prepared rows, estimated from codes."""
    kept = i_bits if mode == "mixed" else None

    def exact(X: Any, Y: Any) -> Values:
        return gmm(prepared(X), None if Y is None else prepared(Y), p=p)

    def variance_at(values: Values) -> Values:
        return fourier.gcws_variance(np.clip(values, 0.0, 1.0), i_bits=kept) / n_components

    note = (
        ""
        if t_bits
        else "and more for the levels that are dropped, much more on rows of few columns: t_bits=1 or 2 keeps them"
    )
    return KernelFacts(name="GMM" if p == 1 else f"pGMM, p = {p:g}", exact=exact, variance_at=variance_at, note=note)


def rbf_facts(kernel: str, gamma: float, n_components: int, projection: str, *, normalize: bool) -> KernelFacts:
    """Gaussian kernels of rows or of their directions, by random Fourier features."""
    function = rbf_cosine if kernel == "rbf_cosine" else rbf
    formula = fourier.nrff_variance if normalize else fourier.rff_variance

    def variance_at(values: Values) -> Values:
        cosines = 1.0 + np.log(np.clip(values, 1e-300, 1.0)) / _GAMMA  # both variances depend on the kernel alone
        return np.maximum(formula(cosines, _GAMMA), 0.0) / n_components

    note = "" if projection == "dense" else "by the theory of independent directions"
    return KernelFacts(
        name=f"{_NAMES[kernel]}, γ = {gamma:g}",  # noqa: RUF001 - the papers' name of it
        exact=lambda X, Y: function(X, Y, gamma=gamma),
        variance_at=variance_at,
        note=note,
    )


def semigroup_facts(kernel: str, parameter: float, n_components: int, projection: str) -> KernelFacts:
    """Semigroup kernels of non-negative rows, by random Laplace features (Mukuta et al., Theorem 1)."""

    def exact(X: Any, Y: Any) -> Values:
        if kernel == "exponential":
            return exponential_semigroup(X, Y, beta=parameter)
        return reciprocal_semigroup(X, Y, rate=parameter)

    def variance_at(values: Values) -> Values:
        # the kernel of twice the sum of two rows of one column; the exponential one does not ask how many they are
        twice = values ** math.sqrt(2) if kernel == "exponential" else values / (2 - values)
        return np.maximum(twice - values**2, 0.0) / n_components

    def variance(X: Any, Y: Any, values: Values) -> Values:
        twice = exact(2 * X, None if Y is None else 2 * Y)
        return np.maximum(twice - values**2, 0.0) / n_components

    is_dense = projection == "dense"
    at_most: Literal["", "at most"] = "" if kernel == "exponential" else "at most"
    symbol = "β" if kernel == "exponential" else "λ"
    return KernelFacts(
        name=f"{kernel} semigroup, {symbol} = {parameter:g}",
        exact=exact,
        variance_at=variance_at,
        variance=variance if is_dense else None,
        bound=at_most if is_dense else "at least",
        note="" if is_dense else "by the theory of independent weights; circulant ones covary",
    )


def named_facts(kernel: NamedKernel) -> KernelFacts:
    """Any kernel, by landmarks: the error depends on the data."""
    return KernelFacts(name=parameters_shown(kernel), exact=kernel)


def parameters_shown(kernel: NamedKernel) -> str:
    """Name of a kernel with its parameters, for people.

    Examples
    --------
    >>> from dkfeat.kernels.by_name import named_kernel
    >>> parameters_shown(named_kernel("gmm")), parameters_shown(named_kernel("vovk_real"))
    ('GMM', 'vovk real, degree = 3')
    """
    name = _NAMES.get(kernel.name, kernel.name.replace("_", " "))
    params = {key: item for key, item in kernel.params.items() if (key, item) != ("p", 1.0)}
    return name + "".join(f", {_SYMBOLS.get(key, key)} = {_short(item)}" for key, item in params.items())


def _short(value: object) -> str:
    if isinstance(value, list):
        shown = ", ".join(f"{item:g}" for item in value[:4])
        return f"[{shown}{', …' if len(value) > 4 else ''}]"
    return f"{value:g}"
