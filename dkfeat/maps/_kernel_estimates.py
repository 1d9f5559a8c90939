"""Comparison of a map with its kernel: exact values, estimates and expected errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from dkfeat.errors import InputError
from dkfeat.html import card
from dkfeat.kernels import NamedKernel
from dkfeat.validation import check_integer

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
    typical: float = field(default=0.5)
    """Kernel value used where a single expected error is shown."""

    def variances(self, X: Any, Y: Any, exact: Values) -> Values | None:
        """Compute the variance of the estimate of each pair of rows; None if it is unknown or only bounded."""
        if self.variance is not None:
            return self.variance(X, Y, exact)
        return None if self.bound or self.variance_at is None else self.variance_at(exact)

    def describe_error(self) -> str:
        """Describe the expected error of one estimate, at the typical kernel value."""
        if self.variance_at is None:
            return "depends on the rows: kernel_pairs(X) measures it"
        error = float(np.sqrt(self.variance_at(np.array([self.typical]))[0]))
        bound, note = f"{self.bound} " if self.bound else "", f", {self.note}" if self.note else ""
        return f"{bound}{error:.3g} (one standard error) where the kernel is {self.typical:.3g}{note}"


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


_ANY_WIDTH = 1 << 20
"""Number of columns assumed for the parameters of an unfitted map."""


class KernelEstimates(ABC):
    """Part of `FeatureMap` that compares estimates with exact kernel values."""

    @abstractmethod
    def _encode_rows(self, X: Any) -> Any:
        """Encode checked rows in memory."""

    @abstractmethod
    def _check_rows(self, X: Any) -> Any:
        """Check rows; return an array or CSR of the fitted width."""

    @abstractmethod
    def _estimated_kernel(self) -> EstimatedKernel:
        """Describe the kernel of the fitted map; for a map that learns from rows, the kernel of its parameters."""

    @property
    def kernel_range(self) -> tuple[float, float]:
        """Kernel values that `expected_error_at` accepts: 0 to 1, except for dot-product kernels."""
        kernel = estimated_kernel_of(self)
        return kernel.low, kernel.high

    def exact_kernel(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Compute the kernel that inner products of the features estimate.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_x, n_features)
        Y : like X, of shape (n_y, n_features), default=X

        Returns
        -------
        similarities : ndarray of shape (n_x, n_y), float64

        Examples
        --------
        >>> import dkfeat, numpy as np
        >>> X = np.array([[1.0, -2.0], [1.0, 2.0]])
        >>> dkfeat.GCWSFeatures(normalize="l1").fit(X).exact_kernel(X)
        array([[1. , 0.2],
               [0.2, 1. ]])
        """
        kernel = estimated_kernel_of(self, fitted=True)
        return kernel.exact(self._check_rows(X), None if Y is None else self._check_rows(Y))

    def estimate_kernel(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Estimate the kernel from encoded rows alone, by their inner products.

        Parameters
        ----------
        X : ndarray of shape (n_x, n_features_out)
            Rows as `encode` returns them or a shard stores them.
        Y : like X, of shape (n_y, n_features_out), default=X

        Returns
        -------
        similarities : ndarray of shape (n_x, n_y), float64
        """
        check_is_fitted(self)
        left = np.asarray(X, dtype=np.float64)
        right = left if Y is None else np.asarray(Y, dtype=np.float64)
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
            raise InputError(
                f"features have the shapes {left.shape} and {right.shape}; pass results of encode(X) of this map"
            )
        return left @ right.T

    def expected_error(self, X: Any, Y: Any = None) -> NDArray[np.float64] | None:
        """Compute the theoretical standard errors of the estimates for pairs of rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_x, n_features)
        Y : like X, of shape (n_y, n_features), default=X

        Returns
        -------
        errors : ndarray of shape (n_x, n_y), float64, or None
            Standard errors. None for Nyström features, whose error depends on the data, and for circulant Laplace
            features, whose components are correlated, so that theory gives only a bound. For structured projections of
            `FourierFeatures` the values are for independent directions; the actual errors differ from them by up to a
            fifth (measured on digits).
        """
        kernel = estimated_kernel_of(self, fitted=True)
        left, right = self._check_rows(X), None if Y is None else self._check_rows(Y)
        variances = kernel.variances(left, right, kernel.exact(left, right))
        return None if variances is None else np.sqrt(variances)

    def expected_error_at(self, similarity: ArrayLike) -> NDArray[np.float64] | None:
        """Compute the theoretical standard error of an estimate from the kernel's value; the map may be unfitted.

        Parameters
        ----------
        similarity : float or array
            Values of the kernel, within `kernel_range`.

        Returns
        -------
        error : ndarray of the same shape, float64, or None
            For dense projections, exact for `DartFeatures`, for `GCWSFeatures` except for the levels that it drops, for
            `FourierFeatures` (if normalized, up to terms of 1 / k^2) and for the exponential semigroup kernel. A lower
            bound for other projections of `LaplaceFeatures`. An upper bound for its reciprocal kernel, over all rows,
            and for `MaclaurinFeatures`, over rows as long as the radius. None for `NystroemFeatures`, whose error
            depends on the data.

        Raises
        ------
        dkfeat.errors.InputError
            If a value lies outside `kernel_range`.
        dkfeat.errors.ConfigError
            If a parameter of an unfitted map is out of range.

        Examples
        --------
        >>> import dkfeat
        >>> float(dkfeat.FourierFeatures(1024).expected_error_at(0.5).round(4))
        0.0242
        """
        kernel = estimated_kernel_of(self)
        values = np.asarray(similarity, dtype=np.float64)
        slack = 1e-9 * (kernel.high - kernel.low)  # for rounding errors in computed values
        outside = ~((values >= kernel.low - slack) & (values <= kernel.high + slack))
        if outside.any():
            raise InputError(
                f"similarity={float(values[outside].flat[0])!r}, but the kernel {kernel.name} has values from "
                f"{kernel.low:g} to {kernel.high:g} here; give values in that range"
            )
        if kernel.variance_at is None:
            return None
        errors: NDArray[np.float64] = np.sqrt(kernel.variance_at(np.clip(values, kernel.low, kernel.high)))
        return errors

    def kernel_pairs(self, X: Any, *, n_rows: int = 64, random_state: int = 0) -> KernelPairs:
        """Compare estimates with exact values, for all pairs among randomly drawn rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        n_rows : int, default=64
            Number of rows to draw, at least 2; all rows if there are fewer. 64 rows make 2,016 pairs.
        random_state : int, default=0
            Seed of the draw.

        Returns
        -------
        pairs : KernelPairs
            Exact values, estimates and their theoretical errors; `dkfeat.plot.kernel_estimates` plots them.

        Raises
        ------
        dkfeat.errors.InputError
            If there are fewer than two rows, or the map rejects rows.
        """
        kernel = estimated_kernel_of(self, fitted=True)
        most = check_integer(n_rows, "n_rows", low=2, high=1 << 14)
        rows = self._check_rows(X)
        if rows.shape[0] < 2:
            raise InputError(f"X has {rows.shape[0]:,} rows, but a pair needs two; pass two rows or more")
        drawn = np.random.default_rng(random_state).permutation(rows.shape[0])[:most]
        drawn.sort()
        some = rows[drawn]
        left, right = np.triu_indices(len(drawn), k=1)
        estimates = self.estimate_kernel(self._encode_rows(some))
        exact = kernel.exact(some, None)
        variances = kernel.variances(some, None, exact)
        return KernelPairs(
            kernel=kernel.name,
            left=drawn[left],
            right=drawn[right],
            exact=exact[left, right],
            estimates=estimates[left, right],
            deviations=None if variances is None else np.sqrt(variances[left, right]),
            note=kernel.note if variances is not None else "the theoretical error of this map is unknown",
        )


def estimated_kernel_of(features: Any, *, fitted: bool = False) -> EstimatedKernel:
    """Describe the kernel of a fitted map, or of the parameters of an unfitted one.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the map must be fitted and is not.
    dkfeat.errors.ConfigError
        If a parameter of an unfitted map is out of range.
    """
    if fitted:
        check_is_fitted(features)
    return fitted_copy(features)._estimated_kernel()


def fitted_copy(features: Any) -> Any:
    """Return a fitted map unchanged; else a copy fitted to an assumed width, unless the map must be fitted to rows."""
    if features._needs_rows or features.__sklearn_is_fitted__():
        return features
    center = getattr(features, "center", None)
    width = _ANY_WIDTH if center is None or np.ndim(center) == 0 else len(center)
    seed = {"random_state": 0} if features._is_random() else {}  # the caller's generator does not advance
    return clone(features).set_params(**seed).fit_width(width)


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
        measured = f"{self.kernel}: {len(self):,} pairs of rows, root mean squared error {self.error:.3g}"
        if self.expected_error is None:
            return measured
        theory = f"{self.expected_error:.3g}{', ' if self.note else ''}{self.note}"
        return f"{measured}, by theory {theory}; {self.share_within:.0%} within 2 standard errors"

    def __str__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        errors: dict[str, Any] = {
            "kernel": self.kernel,
            "pairs of rows": f"{len(self):,}",
            "root mean squared error": self.error,
        }
        if self.expected_error is not None:
            errors["by theory"] = f"{self.expected_error:.4f}{', ' if self.note else ''}{self.note}"
            errors["within 2 standard errors"] = f"{self.share_within:.1%}"
        return card("KernelPairs", errors, note="" if self.expected_error is not None else self.note)


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
