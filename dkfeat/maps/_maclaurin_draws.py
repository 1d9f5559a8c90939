"""Degrees of the components of random Maclaurin features, and where their factors lie.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012, Alg. 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.philox import draw_words
from dkfeat.compiled.simd import LANES
from dkfeat.errors import ConfigError
from dkfeat.random_streams import STREAM_MACLAURIN_DEGREE

__all__ = ["DegreeLaw", "Draws", "draw_degrees"]

_MOST_FACTORS = 2**31


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Draws:
    """Degree and weight of each component, of falling degree, in blocks of 16."""

    degrees: NDArray[np.int64]
    """Shape (n_components,): factors of each component; 0 for one whose degree has no term, too."""
    scales: NDArray[np.float32]
    """Shape (16 * n_blocks,): what a component multiplies each of its factors by; 0 beyond the last component."""
    constants: NDArray[np.float32]
    """Shape (16 * n_blocks,): what its factors multiply: 1, or the value of a component without factors."""

    @property
    def depths(self) -> NDArray[np.int64]:
        """Largest degree of each block, of shape (n_blocks,)."""
        return np.ascontiguousarray(self.degrees[::LANES])

    @property
    def starts(self) -> NDArray[np.int64]:
        """First factor of each block and, last, the number of all factors, of shape (n_blocks + 1,)."""
        return np.concatenate([[0], np.cumsum(LANES * self.depths)])


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeLaw:
    """What decides all draws: a small value, which travels in their place."""

    weights: tuple[float, ...]
    """Probability P_n of each degree; beyond, the kernel has no terms."""
    terms: tuple[float, ...]
    """a_n R^(2n)."""
    radius: float
    """R, of rows before they are scaled."""
    n_components: int
    seed: int


@lru_cache(maxsize=8)
def draw_degrees(law: DegreeLaw) -> Draws:
    r"""Draw a degree for each component and weigh it.

    Parameters
    ----------
    law : DegreeLaw

    Returns
    -------
    draws : Draws
        A component of degree N is :math:`\sqrt{a_N / (k P_N)}` times its factors. The weight is dealt to them in equal
        shares, so that no product overflows where the feature does not.
    """
    terms, weights, n_components = law.terms, law.weights, law.n_components
    words = np.empty((n_components, 4), np.uint32)
    draw_words(np.uint64(0), np.uint64(STREAM_MACLAURIN_DEGREE), np.uint64(law.seed), words)
    uniform = ((words[:, 0].astype(np.uint64) << np.uint64(21) | words[:, 1] >> np.uint32(11)) + 0.5) * 2.0**-53
    cumulative = np.cumsum(weights)
    drawn = np.searchsorted(cumulative, uniform, side="right")
    certain = np.flatnonzero(weights)[-1]
    if abs(cumulative[-1] - 1) < 1e-9:  # a sum rounded below 1 leaves nothing beyond
        drawn = np.minimum(drawn, certain)
    shares, constants = np.zeros(len(terms) + 1), np.zeros(len(terms) + 1)
    for n in np.unique(drawn[drawn < len(terms)]).tolist():
        if terms[n] > 0:
            root = (math.log(terms[n]) - math.log(weights[n]) - math.log(n_components)) / 2
            shares[n] = math.exp(root / n) / law.radius if n else 0.0
            constants[n] = 1.0 if n else math.exp(root)
    drawn = np.minimum(drawn, len(terms))
    degrees = np.where(constants[drawn] > 0, drawn, 0)
    order = np.argsort(-degrees, kind="stable")
    if int(degrees.sum()) > _MOST_FACTORS:
        message = (
            f"the drawn degrees have {int(degrees.sum()):,} factors in all, but at most {_MOST_FACTORS:,} are taken; "
            "choose a smaller n_components, degree or radius"
        )
        raise ConfigError(message)
    padding = np.zeros(-n_components % LANES, np.float32)
    return Draws(
        degrees=degrees[order].astype(np.int64),
        scales=np.append(shares[drawn[order]].astype(np.float32), padding),
        constants=np.append(constants[drawn[order]].astype(np.float32), padding),
    )
