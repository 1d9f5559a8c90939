"""Losses of linear models, and the step that a row asks for: implicit, so that no row is carried beyond its target.

The step of a row x with score s and step size r, which its weight multiplies, is the t of

    t = -r * slope(s + t * |x|²)

with the slope of the loss where the row ends up, not where it was: the proximal step, as in Kulis and Bartlett (2010),
"Implicit Online Learning", and near to that of Karampatziakis and Langford (2011), "Online Importance Weight Aware
Updates". An explicit step takes the slope at s: for squared losses it overshoots, and diverges, where r * |x|² is above
2. For small r both are the same.

The logistic loss bends so little that an explicit step is safe for r * |x|² up to 4, and learns faster: there, slopes
are taken at s, and beyond at ``s + t * (|x|² - 4 / r)``.
"""

from __future__ import annotations

import math
from typing import Any

from dkfeat.compiled._jit import inlined

__all__ = ["HINGE", "HUBER", "LOG_LOSS", "SQUARED_ERROR", "SQUARED_HINGE", "step_and_loss"]

HINGE, SQUARED_HINGE, LOG_LOSS, SQUARED_ERROR, HUBER = range(5)
"""Losses that a model can have."""

_ENOUGH = 1e-3
"""A last correction, as a share of the step and of a unit of the score: Newton's method doubles the digits with it."""
_MOST = 100
"""Corrections, of which a few are enough."""
_SAFE = 4.0
"""Inverse of the logistic loss's greatest curvature."""


@inlined
def _log_step(margin: Any, size: Any, length: Any) -> Any:
    if size * length <= _SAFE:
        rest = math.exp(-abs(margin))
        return size * (rest / (1.0 + rest) if margin > 0.0 else 1.0 / (1.0 + rest))
    length -= _SAFE / size
    # t = size / (1 + exp(margin + t * length)): Newton's method, from the side on which it never overshoots, that is
    # from where the margin is 0 or, if the step cannot reach that, from the longest step; from 0 for margins above 0
    step = 0.0
    if margin < 0.0:
        step = size if size * length <= -margin else -margin / length
    for _ in range(_MOST):
        reached = margin + step * length
        rest = math.exp(-abs(reached))
        share = rest / (1.0 + rest) if reached > 0.0 else 1.0 / (1.0 + rest)
        correction = (step - size * share) / (1.0 + size * length * share * (1.0 - share))
        step -= correction
        if not abs(correction) * max(1.0, step * length) > _ENOUGH * step:
            break
    return step


@inlined
def step_and_loss(kind: Any, score: Any, target: Any, epsilon: Any, size: Any, length: Any) -> Any:
    """Step that a row asks for, and its loss before it.

    Parameters
    ----------
    kind : int
        Loss.
    score, target : float
        -1 or 1 is the target of a class.
    epsilon : float
        Error at which the Huber loss turns from square to absolute.
    size : float
        Step size times the row's weight, at least 0.
    length : float
        What the score grows by for a step of 1: the squared length of the row, its intercept included; at least 0.

    Returns
    -------
    step, loss : float
        What the row is multiplied by before it is added to the weights.
    """
    if kind >= SQUARED_ERROR:
        error = target - score
        left = error / (1.0 + size * length)
        square = kind == SQUARED_ERROR
        step = size * left if square or abs(left) <= epsilon else math.copysign(size * epsilon, error)
        if square or abs(error) <= epsilon:
            return step, 0.5 * error * error
        return step, epsilon * (abs(error) - 0.5 * epsilon)
    margin = score * target
    if kind == LOG_LOSS:
        return target * _log_step(margin, size, length), math.log1p(math.exp(-abs(margin))) - min(margin, 0.0)
    short = 1.0 - margin
    if short <= 0.0:
        return 0.0, 0.0
    if kind == HINGE:
        return target * (size if size * length <= short else short / length), short
    return target * (2.0 * size * short / (1.0 + 2.0 * size * length)), short * short
