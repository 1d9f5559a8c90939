"""Coordinates of a chunk that a row may sample, found by a bound that needs neither logarithm nor division.

A coordinate of magnitude e^l has ``a = log c - r (t + 1 - beta)`` with ``t <= l / r + beta``, so a >= log c - r - l.
By definition r = -log P and c = -log Q, where P = u1 u2 and Q = u3 u4; and -log Q >= 1 - Q. Hence

    a >= log(P (1 - Q)) - l.

For a float V = 2**e (1 + f), log V >= (e + f) log 2, which is its bit pattern as an integer, less that of 1.0, times
log(2) / 2**23. Where this bound less l is not below the smallest a so far of the row, for each of the 16 components and
each row with the coordinate, the sweep would change nothing: later on the smallest a can only decrease.

The bound must hold for a as the sweep rounds it. With u = 2**-24 and all logarithms within 2 ulp, thus 4 u relative:

* ``l q + beta`` with q = 1 / r, its floor, the difference from beta and the product by r are at most l + 5.01 u |l| +
  3.01 u r; the difference from h = log c - r, itself rounded, adds u (|l| + r + 2 |h|). As r <= 33.3, |log c| <= 16 and
  |h| <= 49.3 this is below 6.1 u |l| + 240 u.
* The logarithms in r, c and log c: 4 u r + 4 u + 64 u < 202 u.
* V is a product of two rounded numbers, above 2**-72. The integer, the factor log(2) / 2**23, their product, the
  difference below, and the sum of the smallest a and l where it is near the bound, are rounded by less than 50 u each.

For |l| <= LARGEST_LOG = 1,024, all this is below 7,000 u, and 8,192 u = 2**-11 are subtracted from the bound.
"""

from __future__ import annotations

import numpy as np

from dkfeat.compiled.jit import inlined
from dkfeat.compiled.sampling.parameters import load_words, product_of_uniforms
from dkfeat.compiled.simd.vector import any_of, bits_of, broadcast, load, maximum, prefetch, splat, to_float

LARGEST_LOG = 1024.0
"""Largest magnitude of a logarithm for which the bound holds."""
MOST_USES = 4
"""Largest number of entries of a coordinate that is compared; `list_candidates` loads as many without branches."""

f32, u32, u64 = np.float32, np.uint32, np.uint64
_MARGIN, _LOG_2, _BITS_OF_ONE = f32(2.0**-11), f32(np.log(2) * 2.0**-23), u32(0x3F800000)
_INFINITY = f32(np.inf)
_PAGE = 1024  # numbers of four bytes in a page of memory, at whose end processors stop to read ahead
_ONE, _TWO = u64(1), u64(2)


@inlined
def least_a(table, place):
    """Compute lower bounds of a + l of a coordinate, in 16 components, from its words in a table."""
    x0, x1, x2, x3 = load_words(table, place)
    v = product_of_uniforms(x0, x1) * (splat(f32(1)) - product_of_uniforms(x2, x3))
    return to_float(bits_of(v) - splat(_BITS_OF_ONE)) * splat(_LOG_2) - splat(_MARGIN)


@inlined
def list_candidates(begin, end, first, starts, offsets, logs, best, rare_uses, table, places, n_listed):
    """Append to a list the coordinates that may be sampled.

    Parameters
    ----------
    begin, end, first : int
        Coordinates begin to end - 1 are examined; the table begins with coordinate `first`.
    starts, offsets, logs
        Fields of a `FeatureMajor` of one block, with all logarithms within LARGEST_LOG.
    best : ndarray of shape (n_rows * 16,), float32
        Smallest a of each row so far.
    rare_uses : int
        Coordinates with more entries are all listed; at most MOST_USES.
    table : ndarray of float32
        Words of the coordinates.
    places : ndarray of int64
        The list: places of coordinates in the table. Needs space for all, and for one more.
    n_listed : int

    Returns
    -------
    n_listed : int
    """
    for q in range(begin, end):
        places[n_listed] = q - first
        low, high = starts[0, q], starts[0, q + 1] - 1
        prefetch(offsets, 2 * low + _PAGE)
        # the same four entries for one to four: the processor would often guess a branch wrongly
        reach = splat(_INFINITY if high - low >= rare_uses else -_INFINITY)
        for entry in (low, min(low + 1, high), max(high - 1, low), high):
            p = u64(entry)
            a = load(best, np.intp(offsets[_TWO * p]))
            reach = maximum(reach, a + broadcast(logs, np.intp(_TWO * p + _ONE)))
        n_listed += any_of(least_a(table, q - first) < reach)
    return n_listed
