"""Support vector machines at their optimum, by an interior-point method on the dual problem.

If C is large and rows lie close together, LIBLINEAR and LIBSVM need more steps than anyone waits for. The matrix of
the dual problem then has a low rank: its factor is the rows themselves, or few columns of a pivoted Cholesky
factorization. A Newton step takes time in proportion to the rows and to the square of the factor's columns, and a few
dozen steps reach the optimum for any C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpstrf

__all__ = ["Optimum", "kernel_factor", "optimum"]

Floats = NDArray[np.float64]
TOLERANCE = 1e-6
"""Relative duality gap at which the method stops."""
STEPS = 100
STALLED = 5
"""Number of consecutive steps without a smaller gap, near the optimum, after which rounding must be the reason."""
RESIDUE = 1e-8
"""Maximum error of a kernel value that is computed from a factor."""


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """A machine of two classes: its decision values are kernel values with the training rows @ weights + bias."""

    weights: Floats
    bias: float
    gap: float
    """Relative duality gap: the objective is at most this share above the optimum."""


def kernel_factor(gram: Floats) -> Floats:
    """Compute a factor of kernel values, gram ≈ factor @ factor.T, with as few columns as `RESIDUE` allows.

    Examples
    --------
    >>> kernel_factor(np.ones((3, 3)))
    array([[1.],
           [1.],
           [1.]])
    """
    lower, pivots, rank, _ = dpstrf(gram, lower=1, tol=RESIDUE)
    factor = np.empty((len(gram), rank))
    factor[pivots - 1] = np.tril(lower[:, :rank])
    return factor


def optimum(factor: Floats, signs: Floats, C: float, *, bias: bool) -> Optimum:
    """Find the machine of least C · hinge losses + squared length / 2, by Mehrotra's predictor and corrector.

    Parameters
    ----------
    factor : ndarray of shape (n_rows, n_columns)
        Training rows, or a factor of their kernel values.
    signs : ndarray of shape (n_rows,)
        1.0 for rows of the first class, -1.0 for the others.
    C : float
    bias : bool
        Whether decision values have a bias, as LIBSVM's, which is not penalised.

    Returns
    -------
    machine : Optimum

    Examples
    --------
    Two rows at distance 2 are separated by the line in the middle; both have the weight 1/2:

    >>> machine = optimum(np.array([[3.0], [1.0]]), np.array([1.0, -1.0]), C=10, bias=True)
    >>> machine.weights.round(3), round(machine.bias, 3)
    (array([ 0.5, -0.5]), -2.0)
    """
    Z = factor * signs[:, np.newaxis]
    sides = signs if bias else np.zeros(len(Z))
    # 0 <= alpha <= C; low and high are the multipliers of these bounds, b is that of alpha @ sides = 0, which holds at
    # the start already, because otherwise the gap may be negative far from the optimum;
    # room, C - alpha, has its own rounding errors, because C may be 1e16 times as large
    counts = np.where(signs > 0, *(np.count_nonzero(signs == side) for side in (1, -1)))
    alpha = C / 2 * (counts.min() / counts if bias else np.ones(len(Z)))
    room, b = C - alpha, 0.0
    slopes = Z @ (Z.T @ alpha) - 1
    low, high = 1 + np.maximum(slopes, 0), 1 + np.maximum(-slopes, 0)
    best, stalled = Optimum(alpha, b, math.inf), 0
    for _ in range(STEPS):
        w = Z.T @ alpha
        margins = Z @ w + b * sides
        above = w @ w / 2 + C * np.maximum(0, 1 - margins).sum()
        gap = float((above - (alpha.sum() - w @ w / 2)) / above)
        best, stalled = (Optimum(alpha * signs, b, gap), 0) if gap < best.gap else (best, stalled + 1)
        if best.gap <= TOLERANCE or (best.gap < 0.5 and stalled >= STALLED):
            break
        newton = _Newton(Z, sides, 1 - margins + low - high, (alpha, room, low, high))
        x, dlow, dhigh, _ = newton.step(-alpha * low, -room * high)
        length = _length((alpha, x), (room, -x), (low, dlow), (high, dhigh))
        aimed = (alpha + length * x) @ (low + length * dlow) + (room - length * x) @ (high + length * dhigh)
        center = aimed**3 / (alpha @ low + room @ high) ** 2 / (2 * len(Z))
        x, dlow, dhigh, db = newton.step(center - alpha * low - x * dlow, center - room * high + x * dhigh)
        length = 0.99 * _length((alpha, x), (room, -x), (low, dlow), (high, dhigh))
        alpha, room, b = alpha + length * x, room - length * x, b + length * db
        low, high = low + length * dlow, high + length * dhigh
    return best


class _Newton:
    """Newton steps from a point; their system, Z Zᵀ + a diagonal, is as wide as Z by Woodbury's identity."""

    def __init__(self, Z: Floats, sides: Floats, rest: Floats, point: tuple[Floats, Floats, Floats, Floats]) -> None:
        self.Z, self.sides, self.rest, self.point = Z, sides, rest, point
        alpha, room, low, high = point
        self.diagonal = low / alpha + high / room
        scaled = Z / np.sqrt(self.diagonal)[:, np.newaxis]
        inner = scaled.T @ scaled
        inner.flat[:: len(inner) + 1] += 1
        self.scale = 1 / np.sqrt(inner.diagonal())
        inner *= self.scale
        inner *= self.scale[:, np.newaxis]
        inner.flat[:: len(inner) + 1] += 1e-14  # keeps rounding from making it indefinite
        self.inner = cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)

    def step(self, to_low: Floats, to_high: Floats) -> tuple[Floats, Floats, Floats, float]:
        """Return the changes of alpha, low, high and b that change alpha · low and room · high as asked."""
        alpha, room, low, high = self.point
        x, b = self._solve(self.rest + to_low / alpha - to_high / room), 0.0
        if self.sides.any():
            of_sides = self._solve(self.sides)
            b = float(self.sides @ (alpha + x) / (self.sides @ of_sides))
            x = x - b * of_sides
        return x, (to_low - low * x) / alpha, (to_high + high * x) / room, b

    def _solve(self, right: Floats) -> Floats:
        x = self._woodbury(right)
        return x + self._woodbury(right - self.diagonal * x - self.Z @ (self.Z.T @ x))

    def _woodbury(self, right: Floats) -> Floats:
        inner = self.scale * cho_solve(self.inner, self.scale * (self.Z.T @ (right / self.diagonal)))
        solution: Floats = (right - self.Z @ inner) / self.diagonal
        return solution


def _length(*steps: tuple[Floats, Floats]) -> float:
    """Return the largest share, at most 1, of steps after which all values are still at least 0."""
    return 1 / max(1.0, *(float((-change / value).max()) for value, change in steps))
