"""Darts in plain NumPy: an oracle written from docs/decisions/gcws-and-darts.md, which shares no code with the package.

It lists *all* arrivals up to a rank, of every octave that can have one, and quadruples that rank until each component
owns one: it knows neither a scan by bytes nor a stopping rule. `gap` follows the specification in float32, operation by
operation; `ideal_gap` is the same mathematics in float64 with NumPy's logarithm.
"""

from __future__ import annotations

import math

import numpy as np

STREAM = 2
WORD = np.uint64(0xFFFFFFFF)
f32, u64 = np.float32, np.uint64


def philox(counter, key):
    """Philox4x32-10: four arrays of random words from a counter of four words or arrays of words, and a key of two."""
    c = [np.asarray(word).astype(u64) & WORD for word in counter]
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c[0] * u64(0xD2511F53), c[2] * u64(0xCD9E8D57)
        c = [(p1 >> u64(32)) ^ c[1] ^ u64(k0), p1 & WORD, (p0 >> u64(32)) ^ c[3] ^ u64(k1), p0 & WORD]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def tile_key(seed, tile):
    """Two words that key the random words of a tile."""
    x = philox((tile, 0, 0, STREAM), (seed & 0xFFFFFFFF, seed >> 32))
    return int(x[0]), int(x[1])


def arrival_words(coordinate, octave, number, key):
    """The words g, place, component and code of arrivals given by three arrays of int64."""
    low, high, is_first = coordinate & 0xFFFFFFFF, coordinate >> 32, number == 0
    x, place, component, code = philox((low, high, octave, number + 1), key)
    # the block of 16 octaves in front of a first arrival, else the arrival before
    before = np.stack(philox((low, high, np.where(is_first, octave // 16, octave), number), key), axis=-1)
    bytes_before = before.astype("<u4").view(np.uint8)
    shared = np.take_along_axis(bytes_before, np.where(is_first, octave % 16, 8)[..., None], axis=-1)[..., 0]
    return shared.astype(u64) << u64(24) | x >> u64(8), place, component, code


def gap(g):
    """The specification's gaps of some words, in float32: -log(1 - u), one rounded operation at a time."""
    k = (g >> u64(1) | u64(1)).astype(np.int64)
    u, complement = (number.astype(f32) * f32(2.0**-31) for number in (k, 2**31 - k))
    m, e = np.frexp(complement)
    halved = m.view(np.uint32) < 0x3F3504F3
    m, e = np.where(halved, m * f32(2), m), np.where(halved, e - 1, e)
    f, e = np.where(u < 0.25, -u, m - f32(1)), np.where(u < 0.25, 0, e).astype(f32)
    p = [
        f32(c)
        for c in (
            0.3333333134651184, -0.2500082552433014, 0.20001237094402313, -0.16623146831989288,
            0.1420135349035263, -0.13161973655223846, 0.12765531241893768, -0.07634587585926056,
        )
    ]  # fmt: skip
    z = f * f
    even = f32(-0.5) + z * (p[1] + z * (p[3] + z * (p[5] + z * p[7])))
    odd = p[0] + z * (p[2] + z * (p[4] + z * p[6]))
    tail = z * (even + f * odd) + e * f32(1.428606765330187e-06)
    return -((f + tail) + e * f32(0.693145751953125))


def ideal_gap(g):
    """The same in float64."""
    return -np.log1p(-((g >> u64(1)) | u64(1)).astype(np.float64) * 2.0**-31)


def octave_of(value):
    """The octave e and the fraction f * 2**32 of the weight of a nonzero value, for p = 1."""
    m, e = math.frexp(abs(float(value)))
    return e - 1, math.floor((2 * m - 1) * 2**32)


def arrivals(coordinate, octave, top, limit, key, gap):
    """All arrivals of some (coordinate, octave) up to a rank, in units of octave `top`.

    Returns arrays of: place in the lists of octaves, number of the arrival, rank, place, component word, code.
    """
    pair, total, first, found = np.arange(len(octave)), np.zeros(len(octave), f32), 0, []
    while len(pair):
        number = np.arange(first, 2 * first + 1) + np.zeros((len(pair), 1), np.int64)
        words = arrival_words(*np.broadcast_arrays(coordinate[pair, None], octave[pair, None], number), key)
        gaps = gap(words[0])
        gaps[:, 0] += total
        total = np.add.accumulate(gaps, axis=1)  # in order
        rank = np.ldexp(total, (top - octave[pair])[:, None])
        near = rank <= limit
        row, _ = np.nonzero(near)
        found.append([pair[row], number[near], rank[near], *(word[near].astype(np.int64) for word in words[1:])])
        pair, total, first = pair[near[:, -1]], total[near[:, -1], -1], 2 * first + 1
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def sample_tile(coordinate, octave, fraction, size, key, gap):
    """Coordinates, darts and code words of the samples of one tile."""
    top, limit = octave.max(), 1.0
    while True:
        deepest = int(top - 31 - math.log2(limit))  # no gap is below 2**-31
        own = [i for i, e in enumerate(octave.tolist()) for _ in range(deepest, e + 1)]
        octaves = np.array([b for e in octave.tolist() for b in range(deepest, e + 1)], np.int64)
        at, number, rank, place, component, code = arrivals(coordinate[own], octaves, top, limit, key, gap)
        i, e = np.array(own)[at], octaves[at]
        owned = (e < octave[i]) | ((place >> 1) < (fraction[i] >> 1))
        i, dart, rank, code = (array[owned] for array in (i, e * 2**32 + number, rank, code))
        component = (component[owned] * size) >> 32
        order = np.lexsort((coordinate[i], code, rank, component))
        found, first = np.unique(component[order], return_index=True)
        if len(found) == size:
            best = order[first]
            return coordinate[i[best]], dart[best], code[best]
        limit *= 4


def sample_row(coordinate, octave, fraction, n_components, seed, gap=gap):
    """Coordinate, dart and code word of each component of a row with at least one nonzero.

    Parameters
    ----------
    coordinate, octave, fraction : sequences of int
        Of the nonzeros, in any order: ``2 * column + (value < 0)``, and e and f * 2**32 of the weight.
    n_components, seed : int
    gap : callable, default=gap
        `gap` or `ideal_gap`.
    """
    row = [np.asarray(part, np.int64) for part in (coordinate, octave, fraction)]
    n_tiles = -(-n_components // 512)
    size = -(-n_components // n_tiles)
    tiles = [sample_tile(*row, size, tile_key(seed, t), gap) for t in range(n_tiles)]
    return [np.concatenate(parts)[:n_components] for parts in zip(*tiles, strict=True)]
