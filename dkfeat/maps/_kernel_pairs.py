"""Estimates of a kernel beside its exact values, for pairs of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.html import card

__all__ = ["KernelPairs", "error_band"]

_PARTS = 40
"""Points of a band's edge; pairs of rows between two of them are averaged."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KernelPairs:
    """What ``features.kernel_pairs(X)`` gives, an entry for each pair of rows; `dkfeat.plot.kernel_estimates` draws it.

    Examples
    --------
    >>> import dkfeat, numpy as np
    >>> X = np.random.default_rng(0).lognormal(size=(10, 100))
    >>> pairs = dkfeat.GCWSFeatures(1024, random_state=0).fit(X).kernel_pairs(X)
    >>> pairs.kernel, len(pairs), bool(pairs.error < 2 * pairs.expected_error)
    ('GMM', 45, True)
    """

    kernel: str
    """Its name, with its parameters."""
    left: NDArray[np.int64]
    """Number of the first row, shape (n_pairs,)."""
    right: NDArray[np.int64]
    """Number of the second row, shape (n_pairs,)."""
    exact: NDArray[np.float64]
    """The kernel's values, shape (n_pairs,)."""
    estimates: NDArray[np.float64]
    """What the features say, shape (n_pairs,)."""
    deviations: NDArray[np.float64] | None
    """Standard error of each estimate by theory, shape (n_pairs,); None where theory has none."""
    note: str = ""
    """What theory leaves out, or takes for granted."""

    def __len__(self) -> int:
        return len(self.exact)

    @property
    def error(self) -> float:
        """Root of the mean squared error."""
        return float(np.sqrt(np.mean((self.estimates - self.exact) ** 2)))

    @property
    def expected_error(self) -> float | None:
        """Root of the mean squared error that theory expects; None where it has none."""
        return None if self.deviations is None else float(np.sqrt(np.mean(self.deviations**2)))

    @property
    def share_within(self) -> float | None:
        """Share of the pairs within two standard errors, about 0.95 if all is well; None without theory.

        All estimates come from the same random features and go astray together: the share varies from seed to seed more
        than that of independent pairs would.
        """
        if self.deviations is None:
            return None
        slack = 1e-6 * max(1.0, float(np.abs(self.exact).max()))  # of float32 features, where no error is expected
        return float(np.mean(np.abs(self.estimates - self.exact) <= 2 * self.deviations + slack))

    def describe(self) -> str:
        """One line for people."""
        told = f"{self.kernel}: {len(self):,} pairs of rows, root mean squared error {self.error:.3g}"
        if self.expected_error is None:
            return told
        theory = f"{self.expected_error:.3g}{', ' if self.note else ''}{self.note}"
        return f"{told}, by theory {theory}; {self.share_within:.0%} within 2 standard errors"

    def __str__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        facts: dict[str, Any] = {
            "kernel": self.kernel,
            "pairs of rows": f"{len(self):,}",
            "root mean squared error": self.error,
        }
        if self.expected_error is not None:
            facts["by theory"] = f"{self.expected_error:.4f}{', ' if self.note else ''}{self.note}"
            facts["within 2 standard errors"] = f"{self.share_within:.1%}"
        return card("KernelPairs", facts, note="" if self.expected_error is not None else self.note)


def error_band(
    exact: NDArray[np.float64], deviations: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average standard errors along the kernel's values, for a band in a picture.

    Parameters
    ----------
    exact, deviations : ndarray of shape (n_pairs,)
        Kernel values of pairs of rows, and the standard errors of their estimates.

    Returns
    -------
    at, errors : ndarray of shape (n_points,)
        Kernel values that rise from the least to the largest, and the root mean square of the errors there.

    Examples
    --------
    >>> at, errors = error_band(np.array([0.5, 0.2]), np.array([0.04, 0.03]))
    >>> at.tolist(), errors.tolist()
    ([0.2, 0.2, 0.5, 0.5], [0.03, 0.03, 0.04, 0.04])
    """
    order = np.argsort(exact, kind="stable")
    parts = [order[:1], *np.array_split(order, min(_PARTS, len(order))), order[-1:]]  # from end to end
    at = np.array([exact[part].mean() for part in parts])
    return at, np.array([np.sqrt(np.mean(deviations[part] ** 2)) for part in parts])
