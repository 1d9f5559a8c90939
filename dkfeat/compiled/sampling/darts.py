"""Darts: samples of rows for the min-max kernel, from lists of the points that can win.

Each coordinate has a Poisson process of points (weight, rank, component), and a row owns the points below its weights.
The sample of a component is the owned point of least rank. Decision 0034 defines every number.

A tile of up to 512 components of a row is sampled by two steps that take turns. The *scan* passes over the octaves of
weights below the row's largest one, sixteen octaves and sixteen nonzeros at a time, and lists the octaves whose first
arrival may have a rank below tau. The *draw* takes the next arrivals of sixteen listed octaves at a time, improves the
samples of their components, and keeps in the list the octaves whose next arrival may still count. If a component then
has no sample, both are repeated with a larger tau.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel, owned
from dkfeat.compiled.random.elementary import exponential_lanes, log_scalar
from dkfeat.compiled.random.philox import STREAM_DART, draw_words, half_of_lanes
from dkfeat.compiled.sampling.packing import pack_row
from dkfeat.compiled.simd.vector import (
    LANES,
    bits_of,
    bytes_at_most,
    float_of,
    joined,
    load,
    load64,
    lowest_bit,
    select,
    splat,
    splat64,
    store,
    to_float,
)

TILE = 512
"""Largest number of components of a tile."""
ABSENT = -(2**31)
"""Exponent of a zero."""
MARGIN, GROWTH = 2.25, 1.4
"""Rules of tau, on which no sample depends: first (log(components) + MARGIN) / (sum of weights), then GROWTH times more."""

_LISTED = 1024  # octaves in the list, for a first-level cache
_MOST_NEW = 16 * LANES  # octaves that one step of the scan may append
_DEEPEST = 64  # octaves below the largest one of a row that may count, with room: tau is at most 2^32

f32, f64, i32, i64, u32, u64 = np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64
_WORD, _HALF, _ONE, _HEAD = u64(0xFFFFFFFF), u64(32), u64(1), u64(24)
_NEXT, _ALL_PLACES = u64(1 << 32), u32(1 << 31)
_NO_SAMPLE = u64(0x7F800000 << 32)  # a rank of infinity, with the lowest code

_LN2, _ONE_OVER_LN2 = float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.71547652b82fep+0")
_MAGNITUDE, _SMALLEST_NORMAL = i64(0x7FFFFFFFFFFFFFFF), i64(0x0010000000000000)
_TERMS = 16  # of the series of exp on [0, log 2): the first one left out is below 2^-53


@inlined
def _exact_octave(x):
    # exponent and 32 bits of fraction of |x|, not 0
    magnitude = f64(x).view(i64) & _MAGNITUDE
    offset = i64(1023)
    if magnitude < _SMALLEST_NORMAL:
        magnitude = f64(magnitude).view(i64)  # as an integer, times 2^-1074
        offset = i64(1023 + 1074)
    return i32((magnitude >> i64(52)) - offset), u32((magnitude >> i64(20)) & i64(0xFFFFFFFF))


@inlined
def _octave_of_power(x, power):
    level = power * (log_scalar(abs(f64(x))) * _ONE_OVER_LN2)
    exponent = np.floor(level)
    y = (level - exponent) * _LN2
    series = 1.0
    for term in range(_TERMS, 1, -1):
        series = 1.0 + series * (y / term)
    return i32(exponent), u32(min(y * series * 4294967296.0, 4294967295.0))


@kernel
def _signed_octaves(values, power, exponents, fractions, negative):
    for i in range(values.shape[0]):
        x = f64(values[i])
        negative[i] = x < 0.0
        if x == 0.0:
            exponents[i], fractions[i] = ABSENT, u32(0)
        elif power == 1.0:
            exponents[i], fractions[i] = _exact_octave(x)
        else:
            exponents[i], fractions[i] = _octave_of_power(x, power)


def signed_octaves(
    values: NDArray, power: float = 1.0
) -> tuple[NDArray[np.int32], NDArray[np.uint32], NDArray[np.bool_]]:
    """Write magnitudes as 2^e (1 + f), and find the signs.

    Parameters
    ----------
    values : ndarray of shape (nnz,), float32 or float64
        Finite.
    power : float, default=1.0
        Power p of the pGMM kernel; magnitudes are those of ``abs(value)**p``.

    Returns
    -------
    exponents : ndarray of shape (nnz,), int32
        e; ABSENT for a zero.
    fractions : ndarray of shape (nnz,), uint32
        f in units of 2^-32, rounded down. Exact for float32 values and a power of 1.
    negative : ndarray of shape (nnz,), bool

    Examples
    --------
    >>> exponents, fractions, negative = signed_octaves(np.array([1.0, -12.0]))
    >>> exponents.tolist(), (fractions / 2**32).tolist(), negative.tolist()
    ([0, 3], [0.0, 0.5], [False, True])
    """
    values = owned(values, np.float32 if values.dtype == np.float32 else np.float64)
    n = len(values)
    exponents, fractions, negative = np.empty(n, np.int32), np.empty(n, np.uint32), np.empty(n, np.bool_)
    _signed_octaves(values, float(power), exponents, fractions, negative)
    return exponents, fractions, negative


@inlined
def _limit_of_word(limits, depth, d):
    # limits of the bytes of a word, whose lowest one is d octaves below the largest octave
    word = u64(0)
    for j in range(4):
        if 0 <= d - j < depth:
            word |= u64(limits[d - j]) << u64(8 * j)
    return u32(word)


@inlined
def _scan(
    coordinates, octaves, row_fractions, base, block, largest, depth, limits, k0, k1, words, hits, waiting, count
):
    # append to the list the octaves of a block of 16, of 16 nonzeros, whose first arrival may count
    listed_coordinates, listed_octaves, sums, heads, places = waiting
    first, last = load64(coordinates, base), load64(coordinates, base + LANES // 2)
    half, zero, at_block = splat64(_HALF), splat64(u64(0)), splat64(u64(i64(block)))
    a0, a1, a2, a3 = half_of_lanes(first, first >> half, at_block, zero, k0, k1)
    b0, b1, b2, b3 = half_of_lanes(last, last >> half, at_block, zero, k0, k1)
    x0, x1, x2, x3 = joined(a0, b0), joined(a1, b1), joined(a2, b2), joined(a3, b3)
    below = largest - 16 * block
    hits[0] = bytes_at_most(x0, splat(_limit_of_word(limits, depth, below)))
    hits[1] = bytes_at_most(x1, splat(_limit_of_word(limits, depth, below - 4)))
    hits[2] = bytes_at_most(x2, splat(_limit_of_word(limits, depth, below - 8)))
    hits[3] = bytes_at_most(x3, splat(_limit_of_word(limits, depth, below - 12)))
    store(words, 0, x0)
    store(words, LANES, x1)
    store(words, 2 * LANES, x2)
    store(words, 3 * LANES, x3)
    for i in range(4):
        left = hits[i]
        while left:
            bit = lowest_bit(left)
            left &= left - _ONE
            lane, j = bit >> 2, bit & 3
            octave, at = 16 * block + 4 * i + j, base + lane
            own = i64(octaves[at])
            if octave <= own and largest - octave < depth:
                listed_coordinates[count] = coordinates[at]
                listed_octaves[count] = (u64(i64(octave)) & _WORD) | _NEXT
                sums[count] = f32(0)
                heads[count] = u32(u64(words[LANES * i + lane]) >> u64(8 * j) << _HEAD)
                places[count] = u32(u64(row_fractions[at]) >> _ONE) if octave == own else _ALL_PLACES
                count += 1
    return count


@inlined
def _draw(waiting, count, final, largest, tau, size, k0, k1, lanes, best, full, sampled, darts):
    # improve samples by the arrivals of listed octaves, until fewer than 16 octaves are left, or none if `final`
    listed_coordinates, listed_octaves, sums, heads, places = waiting
    ranks, next_sums, next_ranks, components, codes = lanes
    half, infinite = splat64(_HALF), splat(f32(np.inf))
    limit, one_exponent = splat(tau), splat(u32(i64(largest + 127) & i64(0xFFFFFFFF)))
    least = 1 if final else LANES
    while count >= least:
        kept = 0
        for at in range(0, count if final else count - LANES + 1, LANES):
            first_c, last_c = load64(listed_coordinates, at), load64(listed_coordinates, at + LANES // 2)
            first_o, last_o = load64(listed_octaves, at), load64(listed_octaves, at + LANES // 2)
            a0, a1, a2, a3 = half_of_lanes(first_c, first_c >> half, first_o, first_o >> half, k0, k1)
            b0, b1, b2, b3 = half_of_lanes(last_c, last_c >> half, last_o, last_o >> half, k0, k1)
            total = load(sums, at) + exponential_lanes(load(heads, at) | (joined(a0, b0) >> splat(u32(8))))
            scale = float_of((one_exponent - joined(first_o, last_o)) << splat(u32(23)))
            rank = total * scale
            counted = select(rank < limit, rank, infinite)
            component = joined(a2, b2)
            # the next gap is -log(1 - u), more than u + u^2 / 2 for the u below it with its top byte
            u = to_float(component & splat(u32(0xFF))) * splat(f32(2.0**-8))
            next_rank = (total + (u + u * u * splat(f32(0.5)))) * scale
            store(next_sums, 0, total)
            store(next_ranks, 0, next_rank)
            store(ranks, 0, bits_of(select(joined(a1, b1) >> splat(u32(1)) < load(places, at), counted, infinite)))
            store(components, 0, component)
            store(codes, 0, joined(a3, b3))
            for lane in range(min(LANES, count - at)):
                component = (u64(components[lane]) * u64(size)) >> _HALF
                key = (u64(ranks[lane]) << _HALF) | u64(codes[lane])
                coordinate, octave = listed_coordinates[at + lane], listed_octaves[at + lane]
                if full and (
                    key < best[component]
                    or (
                        key == best[component]
                        and (
                            coordinate < sampled[component]
                            or (coordinate == sampled[component] and octave < darts[component])
                        )
                    )
                ):
                    sampled[component], darts[component] = coordinate, octave
                best[component] = min(best[component], key)
                listed_coordinates[kept] = coordinate
                listed_octaves[kept] = octave + _NEXT
                sums[kept] = next_sums[lane]
                places[kept] = places[at + lane]
                heads[kept] = u32(u64(components[lane]) << _HEAD)
                kept += next_ranks[lane] < tau
        done = count if final else count - count % LANES
        for at in range(done, count):
            listed_coordinates[kept] = listed_coordinates[at]
            listed_octaves[kept] = listed_octaves[at]
            sums[kept] = sums[at]
            places[kept] = places[at]
            heads[kept] = heads[at]
            kept += 1
        count = kept
    return count


@inlined
def _sample_tile(row, n, largest, weight, size, live, key, margin, growth, scratch, best, full, sampled, darts):
    # fill `best` with the (rank, code) of each of the first `live` components of a tile of `size`
    coordinates, octaves, row_fractions = row
    limits, words, hits, waiting, lanes = scratch
    k0, k1 = key & _WORD, key >> _HALF
    best[:size] = _NO_SAMPLE
    tau = size * (np.log(f64(live)) + margin) / weight
    while True:
        depth = 0
        x = tau * (1.0 + 2.0**-20)
        while x >= 2.0**-31:
            limits[depth] = i64(min(-256.0 * np.expm1(-x) + 2.0**-10, 255.0))
            depth += 1
            x *= 0.5
        top_block, n_groups = largest >> 4, (n + LANES - 1) // LANES
        n_steps = (top_block - ((largest - depth + 1) >> 4) + 1) * n_groups
        count = 0
        for step in range(n_steps + 1):
            if step < n_steps:
                block, base = top_block - step // n_groups, step % n_groups * LANES
                count = _scan(
                    coordinates,
                    octaves,
                    row_fractions,
                    base,
                    block,
                    largest,
                    depth,
                    limits,
                    k0,
                    k1,
                    words,
                    hits,
                    waiting,
                    count,
                )
            if step == n_steps or count > _LISTED - _MOST_NEW:
                count = _draw(
                    waiting, count, step == n_steps, largest, f32(tau), size, k0, k1, lanes, best, full, sampled, darts
                )
        missing = 0
        for component in range(live):
            missing += best[component] == _NO_SAMPLE
        if missing == 0:
            return
        tau *= growth


@kernel
def _sample_rows(
    indptr,
    columns,
    exponents,
    fractions,
    negative,
    n_components,
    bits,
    margin,
    growth,
    keys,
    packed,
    empty,
    i_star,
    t_star,
):
    full = i_star.shape[0] > 0
    n_rows, row_bytes = indptr.shape[0] - 1, packed.shape[0] // max(indptr.shape[0] - 1, 1)
    n_tiles = keys.shape[0]
    size = -(-n_components // n_tiles)
    longest = 0
    for i in range(n_rows):
        longest = max(longest, indptr[i + 1] - indptr[i])
    coordinates = np.empty(longest + LANES, np.uint64)
    octaves = np.empty(longest + LANES, np.int32)
    row_fractions = np.empty(longest + LANES, np.uint32)
    waiting = (
        np.zeros(_LISTED + LANES, np.uint64),
        np.zeros(_LISTED + LANES, np.uint64),
        np.zeros(_LISTED + LANES, np.float32),
        np.zeros(_LISTED + LANES, np.uint32),
        np.zeros(_LISTED + LANES, np.uint32),
    )
    lanes = (
        np.empty(LANES, np.uint32),
        np.empty(LANES, np.float32),
        np.empty(LANES, np.float32),
        np.empty(LANES, np.uint32),
        np.empty(LANES, np.uint32),
    )
    scratch = (np.empty(_DEEPEST, np.uint32), np.empty(4 * LANES, np.uint32), np.empty(4, np.uint64), waiting, lanes)
    best, codes = np.empty(size, np.uint64), np.empty(size * n_tiles, np.uint16)
    sampled = np.zeros(size if full else 0, np.uint64)
    darts = np.zeros(size if full else 0, np.uint64)
    for i in range(n_rows):
        n, largest = 0, i64(ABSENT)
        for p in range(indptr[i], indptr[i + 1]):
            if exponents[p] != ABSENT:
                coordinates[n] = u64(2 * i64(columns[p]) + negative[p])
                octaves[n] = exponents[p]
                row_fractions[n] = fractions[p]
                largest = max(largest, i64(exponents[p]))
                n += 1
        empty[i] = n == 0
        if n == 0:
            codes[:] = 0
        weight = 0.0
        for p in range(n):
            if largest - octaves[p] < 1000:
                weight += np.ldexp(1.0 + row_fractions[p] * 2.0**-32, octaves[p] - largest)
        for p in range(n, n + LANES):
            coordinates[p], octaves[p] = u64(0), i32(ABSENT)
        for tile in range(n_tiles if n else 0):
            first = tile * size
            live = min(size, n_components - first)
            _sample_tile(
                (coordinates, octaves, row_fractions),
                n,
                largest,
                weight,
                size,
                live,
                keys[tile],
                margin,
                growth,
                scratch,
                best,
                full,
                sampled,
                darts,
            )
            for component in range(live):
                codes[first + component] = (best[component] & _WORD) >> u64(32 - bits)
                if full:
                    at = i * n_components + first + component
                    i_star[at] = i64(sampled[component])
                    # the octave, a signed number of 32 bits, and the arrival counted from 0
                    octave = i64(i32(u32(darts[component] & _WORD)))
                    t_star[at] = (octave << i64(32)) + i64(darts[component] >> _HALF) - 1
        pack_row(codes, n_components, bits, i * row_bytes, packed)


def encode(
    indptr: NDArray,
    columns: NDArray,
    exponents: NDArray[np.int32],
    fractions: NDArray[np.uint32],
    negative: NDArray[np.bool_],
    n_components: int,
    seed: int,
    bits: int,
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Compute the packed codes of rows.

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,), int
        Row i has entries ``indptr[i]`` to ``indptr[i + 1] - 1``, as in a CSR matrix.
    columns : ndarray of shape (nnz,), int
        In [0, 2**40), each at most once in a row, in any order.
    exponents, fractions, negative : ndarrays of shape (nnz,), int32, uint32 and bool
        From `signed_octaves`. A zero counts as absent.
    n_components : int
        At least 1.
    seed : int
        In [0, 2**64).
    bits : int
        Bits of a code, 1 to 16.

    Returns
    -------
    packed : ndarray of shape (n_rows, ceil(n_components * bits / 8)), uint8
        Codes in component order, least significant bit first; zeros for a row without entries.
    empty : ndarray of shape (n_rows,), bool
        Rows without entries.

    Examples
    --------
    >>> octaves = signed_octaves(np.array([3.0, -1.0]))
    >>> packed, empty = encode(np.array([0, 2, 2]), np.array([4, 9]), *octaves, 6, seed=0, bits=8)
    >>> packed.shape, len(set(packed[0].tolist())) > 2, empty.tolist()
    ((2, 6), True, [False, True])
    """
    packed = np.empty((len(indptr) - 1, -(-n_components * bits // 8)), np.uint8)
    nothing = np.empty(0, np.int64)
    return packed, _run(
        indptr, columns, exponents, fractions, negative, n_components, seed, bits, packed, nothing, nothing
    )


def sample(
    indptr: NDArray,
    columns: NDArray,
    exponents: NDArray[np.int32],
    fractions: NDArray[np.uint32],
    negative: NDArray[np.bool_],
    n_components: int,
    seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the sampled point of each row in each component.

    Parameters
    ----------
    indptr, columns, exponents, fractions, negative, n_components, seed
        As in `encode`.

    Returns
    -------
    i_star : ndarray of shape (n_rows, n_components), int64
        ``2 * column + negative`` of the sampled entry; -1 for a row without entries.
    dart : ndarray of shape (n_rows, n_components), int64
        Its point: 2^32 times the octave, plus the number of the arrival; 0 for a row without entries.

    Examples
    --------
    >>> octaves = signed_octaves(np.array([3.0, -1.0]))
    >>> i_star, dart = sample(np.array([0, 2, 2]), np.array([4, 9]), *octaves, 6, seed=0)
    >>> sorted(set(i_star[0].tolist()) - {8, 19}), i_star[1].tolist()
    ([], [-1, -1, -1, -1, -1, -1])
    """
    n_rows = len(indptr) - 1
    i_star, dart = np.full((n_rows, n_components), -1, np.int64), np.zeros((n_rows, n_components), np.int64)
    packed = np.empty((n_rows, -(-n_components // 8)), np.uint8)
    _run(indptr, columns, exponents, fractions, negative, n_components, seed, 1, packed, i_star, dart)
    return i_star, dart


def _run(
    indptr: NDArray,
    columns: NDArray,
    exponents: NDArray[np.int32],
    fractions: NDArray[np.uint32],
    negative: NDArray[np.bool_],
    n_components: int,
    seed: int,
    bits: int,
    packed: NDArray[np.uint8],
    i_star: NDArray[np.int64],
    dart: NDArray[np.int64],
) -> NDArray[np.bool_]:
    # fill `packed`, and `i_star` and `dart` unless they are empty; returns which rows have no entries
    n_tiles = -(-n_components // TILE)
    keys = np.empty(n_tiles, np.uint64)
    for tile in range(n_tiles):
        words = np.empty((1, 4), np.uint32)
        draw_words(u64(tile), u64(STREAM_DART), u64(seed), words)
        keys[tile] = int(words[0, 0]) | int(words[0, 1]) << 32
    indptr, columns = owned(indptr, np.int64), owned(columns, np.int32 if columns.dtype == np.int32 else np.int64)
    empty = np.empty(len(indptr) - 1, np.bool_)
    entries = owned(exponents, np.int32), owned(fractions, np.uint32), owned(negative, np.bool_)
    out = packed.reshape(-1), empty, i_star.reshape(-1), dart.reshape(-1)
    _sample_rows(indptr, columns, *entries, n_components, bits, MARGIN, GROWTH, keys, *out)
    return empty
