"""What every feature map can say of the kernel that it estimates: exact values, estimates, and their errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from dkfeat.errors import InputError
from dkfeat.maps._kernel_facts import KernelFacts
from dkfeat.maps._kernel_pairs import KernelPairs
from dkfeat.validation import check_integer

__all__ = ["KernelEstimates", "facts_of", "settled_copy"]

_ANY_WIDTH = 1 << 20
"""Columns for which parameters are settled that no data has been seen for: as many as hash codes are made for."""


class KernelEstimates(ABC):
    """Part of `FeatureMap` that compares it with its kernel."""

    @abstractmethod
    def _encode_rows(self, X: Any) -> Any:
        """Encode checked rows in memory."""

    @abstractmethod
    def _check_rows(self, X: Any) -> Any:
        """Array or CSR of the fitted width."""

    @abstractmethod
    def _kernel_facts(self) -> KernelFacts:
        """Give the kernel of the fitted map; of one that needs rows, of its parameters."""

    @property
    def kernel_range(self) -> tuple[float, float]:
        """Kernel values that `expected_error_at` knows of: from 0 to 1 but for dot-product kernels."""
        facts = facts_of(self)
        return facts.low, facts.high

    def exact_kernel(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Values of the kernel that inner products of the features estimate.

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
        facts = facts_of(self, fitted=True)
        return facts.exact(self._check_rows(X), None if Y is None else self._check_rows(Y))

    def estimate_kernel(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Estimate the kernel from encoded rows alone: their inner products.

        Parameters
        ----------
        X : ndarray of shape (n_x, n_features_out)
            Rows that `encode` made, or that a shard holds.
        Y : like X, of shape (n_y, n_features_out), default=X

        Returns
        -------
        similarities : ndarray of shape (n_x, n_y), float64
        """
        check_is_fitted(self)
        left = np.asarray(X, dtype=np.float64)
        right = left if Y is None else np.asarray(Y, dtype=np.float64)
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
            message = f"features of shapes {left.shape} and {right.shape} came; pass what encode(X) gives for rows"
            raise InputError(message)
        return left @ right.T

    def expected_error(self, X: Any, Y: Any = None) -> NDArray[np.float64] | None:
        """Tell the standard error of the estimates of pairs of rows, by theory.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_x, n_features)
        Y : like X, of shape (n_y, n_features), default=X

        Returns
        -------
        errors : ndarray of shape (n_x, n_y), float64, or None
            None where theory has no more than a bound: for Nyström features, which depend on the data, and for
            circulant Laplace features, whose components covary. For structured projections of `FourierFeatures` it is
            the error of independent directions, from which theirs differ by up to a fifth (measured on digits).
        """
        facts = facts_of(self, fitted=True)
        left, right = self._check_rows(X), None if Y is None else self._check_rows(Y)
        variances = facts.variances(left, right, facts.exact(left, right))
        return None if variances is None else np.sqrt(variances)

    def expected_error_at(self, similarity: ArrayLike) -> NDArray[np.float64] | None:
        """Tell the standard error of an estimate from the kernel's value alone, by theory; of an unfitted map too.

        Parameters
        ----------
        similarity : float or array
            Values of the kernel, within `kernel_range`.

        Returns
        -------
        error : ndarray of the same shape, float64, or None
            Exact for `GCWSFeatures` but for the levels that it drops, for `FourierFeatures` (normalized ones up to
            terms of 1 / k^2) and for the exponential semigroup kernel, all of dense projections. For other projections
            of `LaplaceFeatures` the least; for its reciprocal kernel the most, over all rows, and for
            `MaclaurinFeatures` the most of rows as long as the radius. None for `NystroemFeatures`, where it depends
            on the data.

        Raises
        ------
        dkfeat.errors.InputError
            A value lies outside `kernel_range`.
        dkfeat.errors.ConfigError
            A parameter of an unfitted map is out of range.

        Examples
        --------
        >>> import dkfeat
        >>> float(dkfeat.FourierFeatures(1024).expected_error_at(0.5).round(4))
        0.0242
        """
        facts = facts_of(self)
        values = np.asarray(similarity, dtype=np.float64)
        slack = 1e-9 * (facts.high - facts.low)  # of values that were computed
        outside = ~((values >= facts.low - slack) & (values <= facts.high + slack))
        if outside.any():
            message = (
                f"similarity={float(values[outside].flat[0])!r}, but the kernel {facts.name} has values from "
                f"{facts.low:g} to {facts.high:g} here; give values in that range"
            )
            raise InputError(message)
        if facts.variance_at is None:
            return None
        errors: NDArray[np.float64] = np.sqrt(facts.variance_at(np.clip(values, facts.low, facts.high)))
        return errors

    def kernel_pairs(self, X: Any, *, n_rows: int = 64, random_state: int = 0) -> KernelPairs:
        """Compare estimates with exact values, for all pairs of rows that are drawn at random.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        n_rows : int, default=64
            Rows that are drawn, all where there are fewer: 64 make 2,016 pairs. At least 2.
        random_state : int, default=0
            Seed of the draw.

        Returns
        -------
        pairs : KernelPairs
            Exact values, estimates and the errors that theory expects; `dkfeat.plot.kernel_estimates` draws them.

        Raises
        ------
        dkfeat.errors.InputError
            Fewer than two rows came, or rows that the map refuses.
        """
        facts = facts_of(self, fitted=True)
        most = check_integer(n_rows, "n_rows", low=2, high=1 << 14)
        rows = self._check_rows(X)
        if rows.shape[0] < 2:
            message = f"{rows.shape[0]:,} rows came, but a pair takes two; pass two rows or more"
            raise InputError(message)
        drawn = np.random.default_rng(random_state).permutation(rows.shape[0])[:most]
        drawn.sort()
        some = rows[drawn]
        left, right = np.triu_indices(len(drawn), k=1)
        estimates = self.estimate_kernel(self._encode_rows(some))
        exact = facts.exact(some, None)
        variances = facts.variances(some, None, exact)
        return KernelPairs(
            kernel=facts.name,
            left=drawn[left],
            right=drawn[right],
            exact=exact[left, right],
            estimates=estimates[left, right],
            deviations=None if variances is None else np.sqrt(variances[left, right]),
            note=facts.note if variances is not None else "theory has no error for this map",
        )


def facts_of(features: Any, *, fitted: bool = False) -> KernelFacts:
    """Kernel of a map as it was fitted, or else of its parameters.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        It must be fitted and is not.
    dkfeat.errors.ConfigError
        A parameter of an unfitted map is out of range.
    """
    if fitted:
        check_is_fitted(features)
    return settled_copy(features)._kernel_facts()


def settled_copy(features: Any) -> Any:
    """Return a fitted map itself, of an unfitted one a copy that is fitted to some width; one that needs rows as is."""
    if features.needs_rows or features.__sklearn_is_fitted__():
        return features
    center = getattr(features, "center", None)
    width = _ANY_WIDTH if center is None or np.ndim(center) == 0 else len(center)
    return clone(features).set_params(random_state=0).fit_width(width)
