"""Similarities of rows estimated from their codes alone."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["collision_rates", "without_chance"]


def collision_rates(left: sp.csr_matrix, right: sp.csr_matrix, n_components: int) -> NDArray[np.float64]:
    """Fraction of components in which one-hot rows agree, of shape (n_left, n_right); 0 for an empty row."""
    return (left @ right.T).toarray() / np.float64(n_components)


def without_chance(
    rates: NDArray[np.float64], left: sp.csr_matrix, right: sp.csr_matrix, *, i_bits: int, t_bits: int
) -> NDArray[np.float64]:
    r"""Collision rates less the collisions by chance of a mixed code.

    Different coordinates share the i_bits of a code with probability 2^-i_bits, independently of everything, and then
    its t_bits where their levels agree modulo 2^t_bits: as often as two levels drawn from the two rows' own, which is
    always for rows of zeros and ones, whose levels are all 0. Levels of components that differ are not quite those of
    all components: for rows that share something, a few hundredths of the chance remain. A rate r becomes
    (r - chance) / (1 - chance).

    Parameters
    ----------
    rates : ndarray of shape (n_left, n_right), float64
        From `collision_rates`.
    left, right : csr_matrix
        One-hot rows of the codes.
    i_bits, t_bits : int
        Bits of a code.

    Returns
    -------
    estimates : ndarray of shape (n_left, n_right), float64
        0 where either row is empty; may fall slightly below 0 elsewhere.
    """
    chance = 2.0**-i_bits * (_level_rates(left, i_bits, t_bits) @ _level_rates(right, i_bits, t_bits).T)
    empty_left, empty_right = (np.diff(rows.indptr) == 0 for rows in (left, right))
    return np.where(empty_left[:, None] | empty_right, 0.0, (rates - chance) / (1.0 - chance))


def _level_rates(rows: sp.csr_matrix, i_bits: int, t_bits: int) -> NDArray[np.float64]:
    """How often each remainder of a level occurs in a row, of shape (n_rows, 2^t_bits)."""
    remainders = (rows.indices >> i_bits) & ((1 << t_bits) - 1)
    ones = np.ones(len(remainders))
    counts = sp.csr_matrix((ones, remainders, rows.indptr), shape=(rows.shape[0], 1 << t_bits)).toarray()
    return counts / np.maximum(np.diff(rows.indptr), 1)[:, None]
