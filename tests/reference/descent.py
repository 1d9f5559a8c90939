"""Gradient descent of one linear model, row by row in float64: what the compiled loops are held to."""

import numpy as np
from scipy.special import expit


def slope(loss, score, target, epsilon):
    """Derivative of a loss by the score."""
    if loss == "hinge":
        return -target if target * score < 1 else 0.0
    if loss == "squared_hinge":
        return -2 * target * max(0.0, 1 - target * score)
    if loss == "log_loss":
        return -target * expit(-target * score)
    if loss == "squared_error":
        return score - target
    if loss == "huber":
        return float(np.clip(score - target, -epsilon, epsilon))
    raise ValueError(loss)


def implicit_step(loss, score, target, epsilon, size, length):
    """The t of t = -size * slope(score + t * length), by halving: slopes never fall, so there is one."""
    if loss == "log_loss":
        length = max(0.0, length - 4 / size) if size else 0.0
    far = -size * slope(loss, score, target, epsilon)
    low, high = min(far, 0.0), max(far, 0.0)
    for _ in range(200):
        middle = (low + high) / 2
        if middle + size * slope(loss, score + middle * length, target, epsilon) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def value(loss, score, target, epsilon):
    """A loss."""
    error = abs(score - target)
    return {
        "hinge": max(0.0, 1 - target * score),
        "squared_hinge": max(0.0, 1 - target * score) ** 2,
        "log_loss": np.logaddexp(0, -target * score),
        "squared_error": error**2 / 2,
        "huber": error**2 / 2 if error <= epsilon else epsilon * (error - epsilon / 2),
    }[loss]


def fit(X, targets, weights, *, loss, alpha, step_size, intercept_rate, epsilon=0.1):
    """Weights, intercept, their means over all steps, and the mean loss."""
    w, b = np.zeros(X.shape[1]), 0.0
    mean_w, mean_b, total = np.zeros(X.shape[1]), 0.0, 0.0
    for x, target, weight in zip(X, targets, weights, strict=True):
        score = w @ x + b
        step = implicit_step(loss, score, target, epsilon, step_size * weight, x @ x + intercept_rate)
        total += weight * value(loss, score, target, epsilon)
        # the penalty's proximal step, then the loss's
        w = w / (1 + step_size * alpha) + step * x
        b += intercept_rate * step
        mean_w += w / len(X)
        mean_b += b / len(X)
    return w, b, mean_w, mean_b, total / len(X)
