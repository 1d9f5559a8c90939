"""Comparison of a map with its kernel: exact values, estimates and expected errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dkfeat.kernels import NamedKernel
from dkfeat.messages import counted

Values = NDArray[np.float64]
_NAMES = {"gmm": "GMM", "egmm": "eGMM", "rbf": "RBF", "rbf_cosine": "RBF of the cosine"}
_SYMBOLS = {"gamma": "γ", "alpha": "α", "beta": "β", "rate": "λ", "coef0": "c"}  # noqa: RUF001 - as in the papers


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedKernel:
    """Kernel of a map, and the variance of the map's estimate of it for a pair of rows."""

    name: str
    """Name for display, with the parameters that determine the kernel."""
    exact: Callable[[Any, Any], Values]
    """Function that computes the Gram block of X and Y, arrays or CSR; Y may be None."""
    variance_at: Callable[[Values], Values] | None = None
    """Variance as a function of the kernel's value; None if it is not known."""
    variance: Callable[[Any, Any, Values], Values] | None = None
    """Variances for all pairs of rows of X and Y, given the exact values; None: use `variance_at`, if it is exact."""
    bound: Literal["", "at most", "at least"] = ""
    """Kind of bound that `variance_at` is; empty if it is exact."""
    note: str = ""
    """Limits of the theory, as text for display."""
    low: float = 0.0
    high: float = 1.0
    """Range of kernel values for which `variance_at` is known."""

    def variances(self, X: Any, Y: Any, exact: Values) -> Values | None:
        """Compute the variance of the estimate of each pair of rows; None if it is unknown or only bounded."""
        if self.variance is not None:
            return self.variance(X, Y, exact)
        return None if self.bound or self.variance_at is None else self.variance_at(exact)


def parameters_shown(kernel: NamedKernel) -> str:
    """Format the name of a kernel with its parameters, for display.

    Examples
    --------
    >>> from dkfeat.kernels import named_kernel
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


_PARTS = 40
"""Maximum number of groups of neighbouring pairs; the errors of a group are averaged to one point of the band."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KernelPairs:
    """Exact values and estimates of a kernel, one entry per pair of rows; `dkfeat.plot.kernel_estimates` plots it.

    Examples
    --------
    >>> import dkfeat, numpy as np
    >>> X = np.random.default_rng(0).lognormal(size=(10, 100))
    >>> pairs = dkfeat.GCWSFeatures(1024, random_state=0).fit(X).kernel_pairs(X)
    >>> pairs.kernel, len(pairs), bool(pairs.error < 2 * pairs.expected_error)
    ('GMM', 45, True)
    """

    kernel: str
    """Name of the kernel, with its parameters."""
    left: NDArray[np.int64]
    """Number of the first row, shape (n_pairs,)."""
    right: NDArray[np.int64]
    """Number of the second row, shape (n_pairs,)."""
    exact: NDArray[np.float64]
    """Kernel values, shape (n_pairs,)."""
    estimates: NDArray[np.float64]
    """Inner products of the features, shape (n_pairs,)."""
    deviations: NDArray[np.float64] | None
    """Theoretical standard error of each estimate, shape (n_pairs,); None if it is not known."""
    note: str = ""
    """Limits of the theory, as text for display."""

    def __len__(self) -> int:
        return len(self.exact)

    @property
    def error(self) -> float:
        """Root of the mean squared error."""
        return float(np.sqrt(np.mean((self.estimates - self.exact) ** 2)))

    @property
    def expected_error(self) -> float | None:
        """Root of the theoretical mean squared error; None if it is not known."""
        return None if self.deviations is None else float(np.sqrt(np.mean(self.deviations**2)))

    @property
    def share_within(self) -> float | None:
        """Share of the pairs within two standard errors, about 0.95 if theory holds; None without a theoretical error.

        All estimates use the same random features, so their errors are correlated, and the share varies more from seed
        to seed than for independent pairs.
        """
        if self.deviations is None:
            return None
        slack = 1e-6 * max(1.0, float(np.abs(self.exact).max()))  # rounding of float32 where no error is expected
        return float(np.mean(np.abs(self.estimates - self.exact) <= 2 * self.deviations + slack))

    def describe(self) -> str:
        """Describe the errors in one line of text."""
        measured = f"{self.kernel}: {counted(len(self), 'pair')} of rows, root mean squared error {self.error:.3g}"
        if self.expected_error is None:
            return measured
        theory = f"{self.expected_error:.3g}{', ' if self.note else ''}{self.note}"
        return f"{measured}, by theory {theory}; {self.share_within:.0%} within 2 standard errors"

    __str__ = describe


def error_band(
    exact: NDArray[np.float64], deviations: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average standard errors along the kernel's values, for a band in a plot.

    Parameters
    ----------
    exact, deviations : ndarray of shape (n_pairs,)
        Kernel values of pairs of rows, and the standard errors of their estimates.

    Returns
    -------
    at, errors : ndarray of shape (n_points,)
        Ascending kernel values from the smallest to the largest, and the root mean square of the errors there.

    Examples
    --------
    >>> at, errors = error_band(np.array([0.5, 0.2]), np.array([0.04, 0.03]))
    >>> at.tolist(), errors.tolist()
    ([0.2, 0.2, 0.5, 0.5], [0.03, 0.03, 0.04, 0.04])
    """
    order = np.argsort(exact, kind="stable")
    parts = [order[:1], *np.array_split(order, min(_PARTS, len(order))), order[-1:]]  # includes both ends
    at = np.array([exact[part].mean() for part in parts])
    return at, np.array([np.sqrt(np.mean(deviations[part] ** 2)) for part in parts])


@dataclass(frozen=True, slots=True)
class Codes:
    """What the codes of a map tell of its kernel; found in the map's spec, without loading scikit-learn."""

    n_components: int
    bits: int
    chance: float
    """Probability that the codes of different samples are equal, at most."""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Self:
        """Return the codes of the map of a spec: 2^-b for b bits by chance, but none for a code that is not mixed.

        Examples
        --------
        >>> import dkfeat
        >>> Codes.of(dkfeat.GCWSFeatures(16, random_state=0).fit_width(4).to_spec())
        Codes(n_components=16, bits=8, chance=0.0)
        """
        params = spec["params"]
        bits, level_bits = params.get("i_bits", params.get("bits")), params.get("t_bits", 0)
        chance = 2.0**-bits if spec.get("code_mode", "mixed") == "mixed" else 0.0
        return cls(params["n_components"], bits + level_bits, chance)

    def similarity_of_counts(self, counts: NDArray[np.integer]) -> NDArray[np.float64]:
        """Estimate the kernel from counts of equal codes; a count of 0 or less gives 0.

        If codes hold levels (``t_bits``), chance is corrected as if the levels agreed always: estimates are then up to
        2^-i_bits too small.
        """
        rates = np.maximum(counts, 0) / self.n_components
        estimates: NDArray[np.float64] = np.where(counts > 0, (rates - self.chance) / (1.0 - self.chance), 0.0)
        return estimates
