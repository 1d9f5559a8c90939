"""Consistent weighted sampling of sparse rows: GCWS, Algorithm 1 of "Linearized GMM Kernels and NRFF".

Each row draws, for each component, one of its coordinates i* and a level t*; two rows draw the same pair with a
probability that is their generalized min-max similarity. What follows is the specification: it fixes every bit of i*,
t* and the codes.

**Coordinates.** Column f holds two: ``2 f`` for its positive and ``2 f + 1`` for its negative part. They share no
draws.

**Draws.** Philox4x32-10 with key seed and counter (coordinate, component, stream 0) gives words x0 ... x3 for each
pair of coordinate and component. Five numbers b of 23 bits, ``x0 >> 9``, ..., ``x3 >> 9`` and ``(x0 & 511) << 14 |
(x1 & 511) << 5 | (x2 & 511) >> 4``, make uniforms ``u = (2 b + 1) * 2**-24`` inside (0, 1).

**Parameters**, float32, each operation rounded once, log as `dkfeat.compiled.elementary.log_normal_lanes` computes it:
``r = -log(u1 * u2)`` and ``c = -log(u3 * u4)`` are Gamma(2, 1), ``beta = u5``; ``q = 1 / r``, ``h = log(c) - r``.

**Evaluation**, float32: ``t = floor(l * q + beta)``, ``a = h - r * (t - beta)``, where l is the float64 logarithm of
the magnitude, times the power, rounded once. i* has the least a, the lowest coordinate among equals, and t* is its t.
(The paper's ``a = log c - r (t + 1 - beta)`` with r taken out of the product: it does not depend on the value.) An
explicit zero has ``l = -inf`` and ``a = inf``, which is never less: it counts as absent.

**Codes.** The low `i_bits` of a code depend on i* by the mode; above them stand `t_bits`, t* modulo ``2**t_bits``.

========= ==========================================================================================================
injective ``i*``, while all coordinates fit
lowest    the low bits of ``i*``
signed    ``f``, plus for the negative part a shift that is drawn for the component, modulo ``2**i_bits``
mixed     the top bits of ``(x3 & 511) << 7 | (x2 & 127)``: of the 16 bits, 13 are used by no uniform and 3 are the
          lowest of beta. Codes of two coordinates, and of one coordinate in two components, are independent
========= ==========================================================================================================

Component j has bits ``j * bits`` to ``(j + 1) * bits - 1`` of its row, least significant bit first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled._jit import kernel
from dkfeat.compiled.arrays import owned
from dkfeat.compiled.elementary import log_scalar
from dkfeat.compiled.feature_major import FeatureMajor, aligned, turn
from dkfeat.compiled.gcws_parameters import CODE_LOW, CODE_MIXED, CODE_RANK, CODE_SIGNED, TABLE_ROW
from dkfeat.compiled.gcws_sweep import CHUNK, sweep_tile
from dkfeat.compiled.packing import pack_bytes, pack_tile
from dkfeat.compiled.philox import draw_words
from dkfeat.compiled.simd import LANES
from dkfeat.compiled.streams import STREAM_CODE_SHIFT

__all__ = ["SWEPT_ROWS", "CodeMode", "encode", "sample", "signed_logs"]

CodeMode = Literal["injective", "signed", "mixed", "lowest"]
"""How the code of a coordinate is made; see the table above."""
SWEPT_ROWS = 20_480
"""Rows swept together: their accumulators, 80 bytes a row, fit a second-level cache of 2 MB."""

_MODES = {"injective": CODE_LOW, "lowest": CODE_LOW, "signed": CODE_SIGNED, "mixed": CODE_MIXED}
_SHIFT_STREAM = np.uint64(STREAM_CODE_SHIFT)

f32, u64 = np.float32, np.uint64


@kernel
def _signed_logs(values: Any, power: Any, logs: Any, negative: Any) -> None:
    for i in range(values.shape[0]):
        x = np.float64(values[i])
        logs[i] = f32(log_scalar(abs(x)) * power)
        negative[i] = x < 0.0


def signed_logs(values: NDArray, power: float = 1.0) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Logarithms of magnitudes, and signs.

    Parameters
    ----------
    values : ndarray of shape (nnz,), float32 or float64
        Finite.
    power : float, default=1.0
        Power p of the pGMM kernel: the logarithm of ``abs(value)**p`` is meant.

    Returns
    -------
    logs : ndarray of shape (nnz,), float32
        ``power * log(abs(value))`` computed in float64 and rounded once; -inf for a zero.
    negative : ndarray of shape (nnz,), bool

    Examples
    --------
    >>> logs, negative = signed_logs(np.array([1.0, -np.e**2, 0.0]))
    >>> logs.tolist(), negative.tolist()
    ([0.0, 2.0, -inf], [False, True, False])
    """
    values = owned(values, np.float32 if values.dtype == np.float32 else np.float64)
    logs, negative = np.empty(len(values), np.float32), np.empty(len(values), np.bool_)
    _signed_logs(values, float(power), logs, negative)
    return logs, negative


def sample(
    indptr: NDArray,
    columns: NDArray,
    logs: NDArray[np.float32],
    negative: NDArray[np.bool_],
    n_components: int,
    seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sample a coordinate and a level of each row in each component.

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,), int
        Row i has entries ``indptr[i]`` to ``indptr[i + 1] - 1``, as in a CSR matrix.
    columns : ndarray of shape (nnz,), int
        In [0, 2**40), each at most once in a row, in any order.
    logs, negative : ndarrays of shape (nnz,), float32 and bool
        From `signed_logs`. An entry whose logarithm is -inf counts as absent.
    n_components : int
        At least 1.
    seed : int
        In [0, 2**64).

    Returns
    -------
    i_star : ndarray of shape (n_rows, n_components), int64
        ``2 * column + negative`` of the sampled entry; -1 for a row without entries.
    t_star : ndarray of shape (n_rows, n_components), int64
        Its level; 0 for a row without entries.

    Examples
    --------
    >>> logs, negative = signed_logs(np.array([3.0, -1.0]))
    >>> i_star, t_star = sample(np.array([0, 2, 2]), np.array([4, 9]), logs, negative, 6, seed=0)
    >>> sorted(set(i_star[0].tolist()) - {8, 19}), i_star[1].tolist()
    ([], [-1, -1, -1, -1, -1, -1])
    """
    n_rows = len(indptr) - 1
    i_star, t_star = np.full((n_rows, n_components), -1, np.int64), np.zeros((n_rows, n_components), np.int64)
    for rows, entries in _groups(indptr, columns, logs, negative):
        n = rows.stop - rows.start
        ranks, levels = aligned(n * LANES, np.uint32), aligned(n * LANES, np.float32)
        for component, best in _sweeps(entries, n, n_components, seed, CODE_RANK, 1, True, ranks, levels):
            live = slice(component, min(component + LANES, n_components))
            shape = (slice(None), slice(live.stop - component))
            found = (best != np.inf).reshape(n, LANES)[shape]
            i_star[rows, live][found] = entries.coordinates[ranks.reshape(n, LANES)[shape][found]]
            t_star[rows, live][found] = levels.reshape(n, LANES)[shape][found]
    return i_star, t_star


def encode(
    indptr: NDArray,
    columns: NDArray,
    logs: NDArray[np.float32],
    negative: NDArray[np.bool_],
    n_components: int,
    seed: int,
    i_bits: int,
    t_bits: int,
    mode: CodeMode,
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Packed codes of rows.

    Parameters
    ----------
    indptr, columns, logs, negative, n_components, seed
        As in `sample`.
    i_bits, t_bits : int
        Bits kept of the coordinate, 1 to 16, and of the level, 0 to 2.
    mode : {"injective", "signed", "mixed", "lowest"}
        How a coordinate becomes a code.

    Returns
    -------
    packed : ndarray of shape (n_rows, ceil(n_components * (i_bits + t_bits) / 8)), uint8
        Codes in component order, least significant bit first; zeros for a row without entries.
    empty : ndarray of shape (n_rows,), bool
        Rows without entries.

    Examples
    --------
    >>> logs, negative = signed_logs(np.array([3.0, -1.0]))
    >>> packed, empty = encode(np.array([0, 2, 2]), np.array([4, 9]), logs, negative, 6, 0, 8, 0, "injective")
    >>> packed.shape, sorted(set(packed[0].tolist()) - {8, 19}), empty.tolist()
    ((2, 6), [], [False, True])
    """
    n_rows, bits = len(indptr) - 1, i_bits + t_bits
    row_bytes = -(-n_components * bits // 8)
    packed, empty = np.empty((n_rows, row_bytes), np.uint8), np.empty(n_rows, np.bool_)
    dtype = np.uint8 if i_bits <= 8 else np.uint16
    for rows, entries in _groups(indptr, columns, logs, negative):
        n = rows.stop - rows.start
        kept, levels = aligned(n * LANES, dtype), aligned(n * LANES if t_bits else 0, np.float32)
        out = packed[rows].reshape(-1)
        sweeps = _sweeps(entries, n, n_components, seed, _MODES[mode], i_bits, t_bits > 0, kept, levels)
        for component, best in sweeps:
            n_live = min(LANES, n_components - component)
            if i_bits == 8 and t_bits == 0 and n_live == LANES:
                pack_bytes(kept, component, row_bytes, out)
            else:
                pack_tile(kept, levels, i_bits, t_bits, component, n_live, row_bytes, out)
            if component == 0:
                empty[rows] = best[::LANES] == np.inf
    return packed, empty


def _groups(
    indptr: NDArray, columns: NDArray, logs: NDArray[np.float32], negative: NDArray[np.bool_]
) -> Iterator[tuple[slice, FeatureMajor]]:
    # rows in equal groups of at most SWEPT_ROWS, feature-major
    indptr, columns = owned(indptr, np.int64), owned(columns, np.int32 if columns.dtype == np.int32 else np.int64)
    logs, negative = owned(logs, np.float32), owned(negative, np.bool_)
    n_rows = len(indptr) - 1
    n_groups = -(-n_rows // SWEPT_ROWS)
    for g in range(n_groups):
        rows = slice(n_rows * g // n_groups, n_rows * (g + 1) // n_groups)
        part = indptr[rows.start : rows.stop + 1]
        entries = slice(part[0], part[-1])
        yield rows, turn(part, columns[entries], negative[entries], logs[entries])


def _sweeps(
    entries: FeatureMajor,
    n_rows: int,
    n_components: int,
    seed: int,
    mode: int,
    i_bits: int,
    with_levels: bool,
    kept: NDArray,
    levels: NDArray[np.float32],
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    # sweep each tile of 16 components into kept and levels; yields its first component and the least a
    key = np.uint64(seed)
    words = np.zeros((-(-n_components // LANES) * LANES, 4), np.uint32)
    if mode == CODE_SIGNED:
        draw_words(u64(0), _SHIFT_STREAM, key, words)
    shifts = words[:, 0] >> np.uint32(32 - i_bits)
    best = aligned(n_rows * LANES, np.float32)
    size = min(CHUNK, len(entries.coordinates))
    table, codes = aligned(size * TABLE_ROW, np.float32), aligned(size * LANES, kept.dtype)
    for component in range(0, n_components, LANES):
        sweep_tile(*entries, component, key, mode, i_bits, with_levels, shifts, table, codes, best, kept, levels)
        yield component, best
