"""Matrices of projections, written entry by entry from their definitions and the numbers drawn for them."""

import numpy as np
import scipy.linalg

from dkfeat.compiled.random import TILE
from dkfeat.projections import (
    CirculantProjection,
    DenseProjection,
    FastfoodProjection,
    _fastfood_tables,
    _orthogonal_signs,
)


def matrix(projection):
    """W of shape (n_components, n_features), float64."""
    if isinstance(projection, DenseProjection):
        columns, n_tiles = np.arange(projection.n_features), -(-projection.n_components // TILE)
        tiles = [projection.draw(columns, TILE, projection.stream, projection.seed, i * TILE) for i in range(n_tiles)]
        blocks = [tile.T for tile in tiles]
    elif isinstance(projection, CirculantProjection):
        blocks = circulants(projection)
    elif isinstance(projection, FastfoodProjection):
        hadamard = scipy.linalg.hadamard(projection.length).astype(np.float64)
        blocks = [
            lengths[:, None] * (hadamard * gaussians) @ (hadamard * signs)[order]
            for signs, order, gaussians, lengths in zip(*_fastfood_tables(projection), strict=True)
        ]
    else:
        n = projection.length
        hadamard = scipy.linalg.hadamard(n) / np.sqrt(n)
        signs = zip(*_orthogonal_signs(projection), strict=True)
        blocks = [np.sqrt(n) * (hadamard * d1) @ (hadamard * d2) @ (hadamard * d3) for d1, d2, d3 in signs]
    return np.concatenate(blocks)[: projection.n_components, : projection.n_features].astype(np.float64)


def circulants(projection):
    """Blocks of which each column takes its weights from one of several circulants."""
    n, shape = projection.length, (projection.n_blocks, projection.n_features)
    at = (np.arange(n)[:, None] - np.arange(projection.n_features)) % n
    signs, choice = (np.broadcast_to(drawn, shape) for drawn in projection._signs_and_choice())
    return [sign * weights[of, at] for weights, sign, of in zip(projection._weights(), signs, choice, strict=True)]
