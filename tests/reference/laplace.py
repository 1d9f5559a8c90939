"""Random Laplace features from their specification, in float64 with plain loops: an oracle of its own.

Only Philox in Python integers comes from the oracle beside it.
"""

from __future__ import annotations

import math

import numpy as np

from tests.reference.gcws import draw

DENSE, CIRCULANT, MIXTURE = 40, 41, 42


def exponential_weight(seed, coordinate, component, stream):
    """Exponential weight of mean 1."""
    q, i, lane = component // 64, component % 64 // 16, component % 16
    x = draw(seed, coordinate, 16 * q + lane, stream)
    return -math.log1p(-(x[i] >> 1 | 1) * 2.0**-31)


def levy_weight(seed, coordinate, component, stream):
    """Lévy weight of scale 1/2: 1 / (2 Z^2) for a Gaussian Z by Box and Muller."""
    q, i, lane = component // 64, component % 64 // 16, component % 16
    x = draw(seed, coordinate, 16 * q + lane, stream)
    radius_squared = -2 * math.log1p(-(x[i // 2 * 2] >> 1 | 1) * 2.0**-31)
    part = (x[i // 2 * 2 + 1] >> 1 | 1) if i % 2 == 0 else 2**31 - (x[i // 2 * 2 + 1] >> 1 | 1)
    return 1 / (2 * radius_squared * math.sin(math.pi / 2 * part * 2.0**-31) ** 2)


WEIGHTS = {"exponential": levy_weight, "reciprocal": exponential_weight}


def dense_matrix(kernel, seed, n_components, n_features):
    """W of independent weights."""
    return np.array([[WEIGHTS[kernel](seed, j, i, DENSE) for j in range(n_features)] for i in range(n_components)])


def circulant_matrix(kernel, seed, n_components, n_features, n_mixtures, length):
    """W of blocks whose column j takes its weights from one of n_mixtures circulants of this length."""
    matrix = np.empty((n_components, n_features))
    for i in range(n_components):
        block = i // length
        for j in range(n_features):
            chosen = draw(seed, block, j, MIXTURE)[0] * n_mixtures >> 32
            matrix[i, j] = WEIGHTS[kernel](seed, block * n_mixtures + chosen, (i - j) % length, CIRCULANT)
    return matrix


def features(X, matrix, scale):
    """e^{-scale W x} / sqrt(D)."""
    return np.exp(-scale * np.asarray(X, np.float64) @ matrix.T) / math.sqrt(len(matrix))
