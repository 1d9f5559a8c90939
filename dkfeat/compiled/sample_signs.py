"""Random signs of consistent weighted samples: equal samples share one, different samples have independent ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from dkfeat.compiled._jit import kernel
from dkfeat.compiled.philox import philox

__all__ = ["signs_of_samples"]

u64 = np.uint64
_WORD, _HALF_WORD, _LAST = u64(0xFFFFFFFF), u64(32), u64(31)


@kernel
def signs_of_samples(i_star: Any, t_star: Any, stream: Any, seed: Any, signs: Any) -> None:
    """Write the sign of each sample: the highest bit of a Philox word of it and its component, -1 where it is set.

    The key is the seed with the bits of t* turned over, so that the full sample (i*, t*) decides.

    Parameters
    ----------
    i_star, t_star : ndarray of shape (n_samples, n_components), int64
        As from ``GCWSFeatures.sample``.
    stream, seed : uint64
    signs : ndarray of shape (n_samples, n_components), float32
        0 where there is no sample, i* = -1.
    """
    for row in range(i_star.shape[0]):
        for component in range(i_star.shape[1]):
            coordinate = i_star[row, component]
            if coordinate < 0:
                signs[row, component] = np.float32(0)
                continue
            key = seed ^ u64(t_star[row, component])
            word = philox(
                u64(coordinate) & _WORD,
                u64(coordinate) >> _HALF_WORD,
                u64(component),
                stream,
                key & _WORD,
                key >> _HALF_WORD,
            )[0]
            signs[row, component] = np.float32(-1) if word >> _LAST else np.float32(1)
