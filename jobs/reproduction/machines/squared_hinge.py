"""Linear machines of all classes at once, trained to the optimum of squared hinge loss by Newton's method.

LIBLINEAR trains one class after the other on sparse rows. With dense features, or thousands of codes and many classes,
products of whole matrices take far less time. A step of Newton's method is a ridge regression on the rows of positive
loss. It is solved directly if these are few, and otherwise by conjugate gradients, with one product for all classes.
O. Chapelle, Training a support vector machine in the primal, Neural Computation 2007, describes the method, also with
inner products of the rows instead of features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import issparse

__all__ = ["Machines", "squared_hinge_accuracies"]

Columns = NDArray[np.float32]
"""Vectors of the classes, one a column."""
STEPS = 100
"""Maximum number of Newton steps, and of conjugate gradients in each."""
LEAST_DECREASE = 1e-4
"""Relative decrease of the objective below which a step of Newton is small; a class is done after two in a row.

One is not enough: a step whose direction is approximate, or that crosses many hinges, can gain little far from the
optimum.
"""
DIRECT = 10
"""Maximum work of a direct solution, in products of conjugate gradients."""
SOLVED = 0.1
"""Norm of a step's remaining gradient, relative to the first, at which conjugate gradients end."""


@dataclass(frozen=True, slots=True, eq=False)
class Machines:
    """Machines without a bias that minimize |w|^2 / 2 + C sum(max(0, 1 - y w.z)^2) for each of several signs y.

    Examples
    --------
    >>> rows, signs = np.array([[1, 0], [0, 2]], np.float32), np.array([[1], [-1]], np.float32)
    >>> machines = Machines(rows)
    >>> weights, values = machines.trained(signs, 0.5, *machines.zeros(1))
    >>> weights.ravel().round(3), values.ravel().round(3)
    (array([ 0.5, -0.4], dtype=float32), array([ 0.5, -0.8], dtype=float32))
    """

    rows: Any
    """Features z of the training rows, a float32 matrix, dense or sparse; or their inner products."""
    is_gram: bool = False
    """Whether `rows` holds inner products. Weights are then those of the training rows: w is their weighted sum."""

    def zeros(self, n_classes: int) -> tuple[Columns, Columns]:
        """Return weights of zero, and the machines' values of the training rows with them."""
        return np.zeros((self.rows.shape[1], n_classes), np.float32), np.zeros(
            (self.rows.shape[0], n_classes), np.float32
        )

    def trained(self, signs: Columns, C: float, weights: Columns, values: Columns) -> tuple[Columns, Columns]:
        """Return the weights of the optimum, and the values of the training rows; start from given ones."""
        weights, values = weights.copy(), values.copy()
        going = np.arange(signs.shape[1])
        was_small = np.zeros(len(going), dtype=bool)
        for _ in range(STEPS):
            y, w, f = signs[:, going], weights[:, going], values[:, going]
            before = self._objective(y, C, w, f)
            d, Zd = self._direction(y, C, w, f)
            length = self._length(y, C, (w, f), (d, Zd))
            w += length * d
            f += length * Zd
            weights[:, going], values[:, going] = w, f
            after = self._objective(y, C, w, f)
            is_small = before - after <= LEAST_DECREASE * after
            going, was_small = going[~(is_small & was_small)], is_small[~(is_small & was_small)]
            if not len(going):
                break
        return weights, values

    def _direction(self, y: Columns, C: float, w: Columns, f: Columns) -> tuple[Columns, Columns]:
        """Return a step of Newton's method, and how it changes the values of the training rows."""
        counts = (y * f < 1).sum(axis=0)
        size = self.rows.size * len(counts) * (1 if self.is_gram else 2)
        least = counts if self.is_gram else np.minimum(counts, self.rows.shape[1])
        work = least**3 / 3 + (0 if self.is_gram else counts * least * self.rows.shape[1])
        direct = not issparse(self.rows) and work.sum() < DIRECT * size
        return self._solved(y, C, w, f) if direct else self._approximated(y, C, w, f)

    def _solved(self, y: Columns, C: float, w: Columns, f: Columns) -> tuple[Columns, Columns]:
        """Compute the step from the ridge regressions of the classes, each on its rows of positive loss."""
        target = np.zeros_like(w)
        for column, signs in enumerate(y.T):
            at = np.flatnonzero(signs * f[:, column] < 1)
            signs, Z = signs[at], self.rows[np.ix_(at, at) if self.is_gram else at].astype(np.float64)
            if self.is_gram:
                target[at, column] = _ridge(Z, signs, C)
            elif len(at) <= Z.shape[1]:
                target[:, column] = Z.T @ _ridge(Z @ Z.T, signs, C)
            else:
                target[:, column] = _ridge(Z.T @ Z, Z.T @ signs, C)
        d = target - w
        return d, self.rows @ d

    def _approximated(self, y: Columns, C: float, w: Columns, f: Columns) -> tuple[Columns, Columns]:
        """Compute the step by conjugate gradients, for all classes at once."""
        loss = np.float32(2 * C) * (y * f < 1)
        r = self._back(loss * (y - f)) - w
        Zr = self.rows @ r
        p, Zp = r.copy(), Zr.copy()
        d, Zd = np.zeros_like(w), np.zeros_like(f)
        squared = self._inner(r, r, Zr)
        enough = SOLVED**2 * squared
        for _ in range(STEPS):
            unsolved = squared > enough
            if not unsolved.any():
                break
            curved = loss * Zp
            curvature = self._inner(p, p, Zp) + _sums(curved, Zp)
            step = np.where(unsolved, squared / np.maximum(curvature, 1e-30), 0).astype(np.float32)
            d += step * p
            Zd += step * Zp
            r -= step * (p + self._back(curved))
            Zr = self.rows @ r
            squared, last = self._inner(r, r, Zr), squared
            # where rounding leaves a squared norm below 0, further turns would grow without limit
            turn = np.where(squared > enough, squared / np.maximum(last, 1e-30), 0).astype(np.float32)
            p = r + turn * p
            Zp = Zr + turn * Zp
        return d, Zd

    def _length(self, y: Columns, C: float, at: tuple[Columns, Columns], along: tuple[Columns, Columns]) -> Columns:
        """Return the step, from 0 to 4, at which the objective along a direction is least, or a little less of it."""
        (w, f), (d, Zd) = at, along
        slope, bend = self._inner(d, w, f), self._inner(d, d, Zd)
        margin, change = 1 - y * f, y * Zd
        low = np.zeros(len(slope))
        for width in 4 * 0.5 ** np.arange(1, 13):
            left = np.maximum(margin - (low + width).astype(np.float32) * change, 0)
            low += width * (slope + (low + width) * bend < 2 * C * _sums(left, change))
        return low.astype(np.float32)

    def _objective(self, y: Columns, C: float, w: Columns, f: Columns) -> NDArray[np.float64]:
        loss = np.maximum(1 - y * f, 0)
        return self._inner(w, w, f) / 2 + C * _sums(loss, loss)

    def _back(self, on_rows: Columns) -> Columns:
        """Return weights: the sum of the rows, each times its number."""
        return on_rows if self.is_gram else self.rows.T @ on_rows

    def _inner(self, u: Columns, v: Columns, Zv: Columns) -> NDArray[np.float64]:
        return _sums(u, Zv if self.is_gram else v)


def _ridge(A: NDArray[np.float64], b: NDArray[Any], C: float) -> NDArray[np.float64]:
    A.flat[:: len(A) + 1] += 1 / (2 * C)
    solved: NDArray[np.float64] = cho_solve(cho_factor(A, lower=True, overwrite_a=True), b)
    return solved


def _sums(u: Columns, v: Columns) -> NDArray[np.float64]:
    return np.einsum("ij,ij->j", u, v, dtype=np.float64)


def squared_hinge_accuracies(
    train: Any,
    y: NDArray[Any],
    test: Any,
    y_test: NDArray[Any],
    C: Sequence[float],
    *,
    gram: NDArray[np.float32] | None = None,
) -> list[float]:
    """Compute test accuracy in percent at each C, one class against the rest.

    Parameters
    ----------
    train, test : arrays or sparse matrices of shape (n_train, n_features) and (n_test, n_features), float32
    y, y_test : ndarrays
    C : sequence of float
        Each optimum is the start for the next C.
    gram : ndarray of shape (n_train, n_train), float32, optional
        Inner products of the training rows; with many sparse features they take less time than the rows.
    """
    classes = np.unique(y)
    ones = y[:, None] == (classes[1:] if len(classes) == 2 else classes)
    signs = np.where(ones, np.float32(1), np.float32(-1))
    machines = Machines(train) if gram is None else Machines(gram, is_gram=True)
    state = machines.zeros(signs.shape[1])
    found = []
    for each in C:
        state = machines.trained(signs, each, *state)
        values = test @ (state[0] if gram is None else train.T @ state[0])
        at = values.argmax(axis=1) if len(classes) > 2 else (values[:, 0] > 0).astype(int)
        found.append(100 * float(np.mean(classes[at] == y_test)))
    return found
