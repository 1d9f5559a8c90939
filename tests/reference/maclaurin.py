"""Random Maclaurin features in plain NumPy and Python integers: an oracle that shares no code with the package."""

from __future__ import annotations

import math

import numpy as np

from tests.reference.gcws import draw

DEGREE, SIGN, INNER, SAMPLE = 32, 33, 34, 35  # streams


def sign(seed, coordinate, factor):
    """Random sign of a factor at a coordinate, by the specification of the packed table."""
    superblock, place = divmod(factor, 2048)
    x = draw(seed, coordinate, 16 * superblock + place % 512 // 32, SIGN)
    return -1.0 if x[place // 512] >> (place % 32) & 1 else 1.0


def degrees(seed, n_components, weights):
    """Drawn degree of each component; len(weights) for one beyond."""
    cumulative, drawn = np.cumsum(weights), []
    for component in range(n_components):
        x = draw(seed, 0, component, DEGREE)
        u = ((x[0] << 21 | x[1] >> 11) + 0.5) / 2**53
        drawn.append(int((cumulative <= u).sum()))
    return drawn


def features(X, coefficients, weights, n_components, seed):
    """Features of rows, components by falling degree, those without a term last."""
    drawn = degrees(seed, n_components, weights)
    effective = [n if n < len(coefficients) and coefficients[n] > 0 else 0 for n in drawn]
    order = sorted(range(n_components), key=lambda component: -effective[component])
    Z, start = np.zeros((len(X), n_components)), 0
    for first in range(0, n_components, 16):
        for lane, component in enumerate(order[first : first + 16]):
            n = drawn[component]
            if n >= len(coefficients) or coefficients[n] == 0:
                continue
            value = np.full(len(X), math.sqrt(coefficients[n] / (n_components * weights[n])))
            for level in range(n):
                factor = start + 16 * level + lane
                value *= X @ [sign(seed, column, factor) for column in range(X.shape[1])]
            Z[:, first + lane] = value
        start += 16 * effective[order[first]]
    return Z
