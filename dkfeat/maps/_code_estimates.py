"""Estimates of row similarities from codes of consistent weighted sampling."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.blocks import PackedCodes
from dkfeat.errors import ConfigError
from dkfeat.maps._base import FeatureMap
from dkfeat.theory.gmm import rho_from_gmm


class EstimatesFromCodes(FeatureMap):
    """Feature map by consistent weighted sampling, with similarity estimates from its codes."""

    def estimate_kernel(self, X: PackedCodes, Y: PackedCodes | None = None) -> NDArray[np.float64]:
        """Estimate the (p)GMM kernel from codes alone.

        The estimate is the fraction of equal codes, corrected for chance collisions where possible. If `code_mode_` is
        "mixed", different coordinates share a code with probability 2^-i_bits, times the rate at which the levels of
        the two rows agree in their t_bits. With this correction chance adds no bias, and the estimate may fall slightly
        below 0. There is no correction if the code is "injective", "signed" (lossless except between coordinates of
        opposite sign) or "lowest" (the chance depends on the data). With ``t_bits=0`` the 0-bit bias remains: dropped
        levels let slightly more pairs agree. Each bit of the level removes a part of it.

        Parameters
        ----------
        X : PackedCodes
            Codes of n_x rows, from this map or one of equal fingerprint.
        Y : PackedCodes, default=X
            Codes of n_y rows.

        Returns
        -------
        similarities : ndarray of shape (n_x, n_y), float64
            Estimates; 0 if either row is empty.

        See Also
        --------
        dkfeat.kernels.gmm : Exact values of the kernel.

        Examples
        --------
        >>> import numpy as np
        >>> from dkfeat import GCWSFeatures
        >>> from dkfeat.kernels import gmm
        >>> X = np.random.default_rng(0).lognormal(size=(2, 100))
        >>> features = GCWSFeatures(n_components=4096, random_state=0).fit(X)
        >>> bool(abs(features.estimate_kernel(features.encode(X)) - gmm(X)).max() < 0.05)
        True
        """
        s = self._fitted
        left = self.decode(X)
        right = left if Y is None else self.decode(Y)
        rates = _collision_rates(left, right, s.n_components)
        return rates if s.mode != "mixed" else _without_chance(rates, left, right, i_bits=s.i_bits, t_bits=s.t_bits)

    def estimate_correlation(
        self, X: PackedCodes, Y: PackedCodes | None = None, *, sigma: float = 1.0
    ) -> NDArray[np.float64]:
        r"""Estimate correlations :math:`\hat\rho_g` of rows from codes alone.

        The estimate applies to rows whose columns are independent pairs from an elliptical distribution centred at 0,
        such as long rows of heavy-tailed noise, for which the cosine converges slowly or not at all. It is the GMM
        estimate, clipped to [0, 1] and converted by `dkfeat.theory.gmm.rho_from_gmm`, so it has the same biases.

        Parameters
        ----------
        X, Y
            Codes, as for `estimate_kernel`.
        sigma : float, default=1.0
            Scale of a row of Y divided by the scale of a row of X, above 0. ``normalize="l1"`` makes it 1.

        Returns
        -------
        correlations : ndarray of shape (n_x, n_y), float64
            Estimates, at most 1. Values below -1 mean that rows are less similar than any correlation explains. Values
            of empty rows have no meaning.

        Raises
        ------
        dkfeat.errors.ConfigError
            If the map has a power p other than 1, for which the relation is unknown.

        References
        ----------
        .. [1] P. Li, C.-H. Zhang, "Theory of the GMM Kernel", WWW 2017, Thm 3.

        Examples
        --------
        >>> import numpy as np
        >>> from dkfeat import GCWSFeatures
        >>> X = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=5000).T
        >>> features = GCWSFeatures(n_components=4096, t_bits=2, random_state=0).fit(X)
        >>> bool(abs(features.estimate_correlation(features.encode(X))[0, 1] - 0.8) < 0.05)
        True
        """
        if self._fitted.p != 1.0:
            raise ConfigError(
                f"p={self._fitted.p}, but correlations follow from the GMM kernel of p=1 only; fit a map of p=1"
            )
        return rho_from_gmm(np.clip(self.estimate_kernel(X, Y), 0.0, 1.0), sigma)


def _collision_rates(left: sp.csr_matrix, right: sp.csr_matrix, n_components: int) -> NDArray[np.float64]:
    """Fraction of components in which one-hot rows agree, shape (n_left, n_right); 0 for an empty row."""
    return (left @ right.T).toarray() / np.float64(n_components)


def _without_chance(
    rates: NDArray[np.float64], left: sp.csr_matrix, right: sp.csr_matrix, *, i_bits: int, t_bits: int
) -> NDArray[np.float64]:
    r"""Collision rates corrected for chance collisions of a mixed code.

    Different coordinates share the i_bits of a code with probability 2^-i_bits, independently of everything else. Their
    t_bits then agree if their levels agree modulo 2^t_bits. This happens as often as for two levels drawn from the two
    rows, and always for rows of zeros and ones, whose levels are all 0. The levels of components that differ are not
    distributed exactly like those of all components, so for similar rows a few hundredths of the chance remain. A rate
    r becomes (r - chance) / (1 - chance).

    Parameters
    ----------
    rates : ndarray of shape (n_left, n_right), float64
        Result of `_collision_rates`.
    left, right : csr_matrix
        One-hot rows of the codes.
    i_bits, t_bits : int
        Bits of a code.

    Returns
    -------
    estimates : ndarray of shape (n_left, n_right), float64
        Corrected rates; 0 if either row is empty, elsewhere possibly slightly below 0.
    """
    chance = 2.0**-i_bits * (_level_rates(left, i_bits, t_bits) @ _level_rates(right, i_bits, t_bits).T)
    empty_left, empty_right = (np.diff(rows.indptr) == 0 for rows in (left, right))
    return np.where(empty_left[:, None] | empty_right, 0.0, (rates - chance) / (1.0 - chance))


def _level_rates(rows: sp.csr_matrix, i_bits: int, t_bits: int) -> NDArray[np.float64]:
    """Frequency of each remainder of a level in a row, shape (n_rows, 2^t_bits)."""
    remainders = (rows.indices >> i_bits) & ((1 << t_bits) - 1)
    ones = np.ones(len(remainders))
    counts = sp.csr_matrix((ones, remainders, rows.indptr), shape=(rows.shape[0], 1 << t_bits)).toarray()
    return counts / np.maximum(np.diff(rows.indptr), 1)[:, None]
