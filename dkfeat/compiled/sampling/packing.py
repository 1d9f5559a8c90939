"""Packing of codes into bits, in component order, least significant bit first, without padding between codes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.simd.vector import LANES, load, store

f32, u64 = np.float32, np.uint64


@inlined
def _low_bits(t, bits):
    # t modulo 2**bits of a float32 whole number of any size: no conversion can overflow
    period = f32(1 << bits)
    return u64(t - np.floor(t / period) * period)


@kernel
def pack_tile(kept, levels, i_bits, t_bits, component, n_live, row_bytes, packed):
    """Pack the codes of up to 16 components.

    Parameters
    ----------
    kept : ndarray of shape (n_rows * 16,), uint8 or uint16
        Codes of the coordinates, of `i_bits` bits.
    levels : ndarray of shape (n_rows * 16,), float32
        Levels, finite integers; not read if `t_bits` is 0.
    i_bits, t_bits : int
        Their sum is at most 18.
    component, n_live : int
        First component of the tile, a multiple of 16, and number of components in it.
    row_bytes : int
    packed : ndarray of shape (n_rows * row_bytes,), uint8
        The bytes of these components are written.
    """
    bits = i_bits + t_bits
    first_byte = component * bits // 8
    for row in range(packed.shape[0] // row_bytes):
        at, byte = row * LANES, row * row_bytes + first_byte
        held, fill = u64(0), 0
        for j in range(n_live):
            code = u64(kept[at + j])
            if t_bits:
                code |= _low_bits(levels[at + j], t_bits) << u64(i_bits)
            held |= code << u64(fill)
            fill += bits
            while fill >= 8:
                packed[byte] = held & u64(255)
                held >>= u64(8)
                fill -= 8
                byte += 1
        if fill:
            packed[byte] = held & u64(255)


@inlined
def pack_row(codes, n_components, bits, byte, packed):
    """Pack the first codes, of `bits` bits each, 1 to 16, of a uint16 array into the bytes from ``packed[byte]`` on."""
    held, fill = u64(0), 0
    for j in range(n_components):
        held |= u64(codes[j]) << u64(fill)
        fill += bits
        while fill >= 8:
            packed[byte] = held & u64(255)
            held >>= u64(8)
            fill -= 8
            byte += 1
    if fill:
        packed[byte] = held & u64(255)


@kernel
def pack_bytes(kept, component, row_bytes, packed):
    """Copy 16 codes of 8 bits each, which writes the same bytes as `pack_tile`."""
    for row in range(packed.shape[0] // row_bytes):
        store(packed, row * row_bytes + component, load(kept, row * LANES))


@kernel
def one_hot_columns(
    packed: NDArray[np.uint8], empty: NDArray[np.bool_], n_components: int, bits: int, columns: NDArray[np.integer]
) -> None:
    """Fill `columns` with ``component * 2^bits + code``, row after row, without empty rows.

    Parameters
    ----------
    packed : ndarray of shape (n_samples, ceil(n_components * bits / 8)), uint8
        Codes in component order, least significant bit first, without padding between codes.
    empty : ndarray of shape (n_samples,), bool
    n_components, bits : int
        bits from 1 to 24.
    columns : ndarray of shape (n_components * number of rows that are not empty,), int32 or int64
    """
    at = 0
    for row in range(packed.shape[0]):
        if not empty[row]:
            unpack_row(packed, row, n_components, bits, columns, at)
            at += n_components


@inlined
def unpack_row(packed, row, n_components, bits, columns, at):
    """Write the columns of the first components of a row, as `one_hot_columns` does, from ``columns[at]`` on."""
    if bits == 8:  # a byte is a code: the compiler vectorizes this loop
        for component in range(n_components):
            columns[at + component] = (np.int32(component) << 8) | np.int32(packed[row, component])
        return
    mask = (1 << bits) - 1
    window = np.int64(0)  # bits read and not yet used, the next one is the lowest
    held = byte = 0
    for component in range(n_components):
        while held < bits:
            window |= np.int64(packed[row, byte]) << held
            byte += 1
            held += 8
        columns[at + component] = (component << bits) | (window & mask)
        window >>= bits
        held -= bits
