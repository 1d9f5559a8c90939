r"""Bands of codes: the probability that similar rows share one, and the choice of bands for a threshold.

The codes of a row are cut into bands. Two rows are candidates if all codes of one band are equal, which happens by the
"S-curve": nearly always for similar rows, nearly never for others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkfeat.theory.gmm import collision_rate
from dkfeat.validation import check_integer, check_range

MOST_BANDS = 64
"""Maximum number of bands: a row has a record for each of them."""
LEAST_RECALL = 0.5
"""Probability below which too few of the pairs at the threshold are candidates."""
_GRID = 256  # similarities at which candidates are counted


class Bands(NamedTuple):
    """Division of the codes of a row into bands; the codes that are left over belong to none."""

    n_bands: int
    """Number of bands."""
    n_codes: int
    """Number of codes in a band."""


def sharing_probability(similarity: ArrayLike, n_bands: int, n_codes: int, chance: float = 0.0) -> NDArray[np.float64]:
    r"""Probability that two rows have equal codes in at least one band.

    Parameters
    ----------
    similarity : float or array
        GMM of two rows, g, in [0, 1].
    n_bands, n_codes : int
        Number of bands, and of codes in each, at least 1.
    chance : float, default=0
        As in `dkfeat.theory.gmm.collision_rate`.

    Returns
    -------
    probability : float or ndarray
        Exact if the components are independent.

    Notes
    -----
    With the rate r of `dkfeat.theory.gmm.collision_rate`, it is :math:`1 - (1 - r^{codes})^{bands}`.

    References
    ----------
    .. [1] "Mining of Massive Datasets", J. Leskovec, A. Rajaraman, J. Ullman, section 3.4.

    Examples
    --------
    >>> sharing_probability([0.2, 0.5, 0.8], n_bands=16, n_codes=8).round(3).tolist()
    [0.0, 0.061, 0.947]
    """
    bands, codes = check_integer(n_bands, "n_bands", low=1), check_integer(n_codes, "n_codes", low=1)
    with np.errstate(divide="ignore"):  # the logarithm of 0, for a rate of 1
        return -np.expm1(bands * np.log1p(-(collision_rate(similarity, chance) ** codes)))


def choose_bands(threshold: float, n_components: int, chance: float = 0.0, recall: float = 0.95) -> Bands:
    r"""Choose bands that make most pairs of at least a similarity candidates, and few others.

    Of all bands with the recall, those with the fewest candidates are chosen, for pairs whose similarities are uniform
    below the threshold.

    Parameters
    ----------
    threshold : float
        Similarity, above 0 and at most 1.
    n_components : int
        Number of codes of a row.
    chance : float, default=0
        As in `dkfeat.theory.gmm.collision_rate`.
    recall : float, default=0.95
        Wanted probability that two rows whose similarity is the threshold are candidates.

    Returns
    -------
    bands : Bands
        At most 64. If no bands reach the recall, those with the highest one.

    Raises
    ------
    ValueError
        If a value is out of range, or the recall is below 0.5 with all bands.

    Examples
    --------
    >>> choose_bands(0.8, n_components=512, chance=2**-8)
    Bands(n_bands=42, n_codes=12)
    >>> choose_bands(0.8, n_components=128, chance=2**-8)
    Bands(n_bands=13, n_codes=7)
    """
    similarity = float(check_range(threshold, "threshold", 0, 1, open_low=True))
    n = check_integer(n_components, "n_components", low=1)
    wanted = float(check_range(recall, "recall", LEAST_RECALL, 1))
    codes = np.arange(1, n + 1)
    available = np.minimum(n // codes, MOST_BANDS)
    shared = collision_rate(similarity, chance) ** codes  # probability of one band
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        needed = np.ceil(np.log1p(-wanted) / np.log1p(-shared))
    needed = np.where(shared >= wanted, 1, needed)
    enough = np.flatnonzero(needed <= available)
    if not len(enough):
        pairs = zip(available.tolist(), codes.tolist(), strict=True)
        reached = [float(sharing_probability(similarity, *pair, chance)) for pair in pairs]
        best = int(np.argmax(reached))
        if reached[best] < LEAST_RECALL:
            raise ValueError(
                f"threshold={similarity:g} and n_components={n:,}, but then only {reached[best]:.0%} of the pairs at "
                f"the threshold share a band, and {LEAST_RECALL:.0%} must; use more components, or a higher threshold"
            )
        return Bands(int(available[best]), int(codes[best]))
    below = (np.arange(_GRID) + 0.5) / _GRID * similarity
    candidates = [sharing_probability(below, int(needed[at]), int(codes[at]), chance).sum() for at in enough]
    chosen = enough[int(np.argmin(candidates))]
    return Bands(int(needed[chosen]), int(codes[chosen]))
