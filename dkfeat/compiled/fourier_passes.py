"""Passes of a long Fourier transform over memory, from a row to blocks of 64 frequencies and back, in float64.

A transform splits the period by 4, 8 or 16 at a time, down to blocks of 64 numbers that stay in registers to their end.
Frequencies stay in the order in which they come out. The way back undoes each split on numbers whose parts are swapped.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled._jit import inlined
from dkfeat.compiled.arrays import aligned
from dkfeat.compiled.complex_groups import (
    deal_4,
    deal_8,
    deal_16,
    load_3,
    load_4,
    load_5,
    load_8,
    load_9,
    load_16,
    store,
    store_single,
    transposed,
)
from dkfeat.compiled.fourier import fourier, fourier_half, turned
from dkfeat.compiled.group_lowering import WIDTH

__all__ = [
    "LAST",
    "PAIR",
    "Plan",
    "join_block",
    "join_half",
    "join_last",
    "plan_of",
    "split",
    "split_block",
    "split_dealt",
    "split_last",
]

PAIR = 2 * WIDTH
"""Float64 that a vector takes in memory."""
LAST = WIDTH * WIDTH
"""Numbers of a block that is transformed in registers."""


class Plan(NamedTuple):
    """How a period is split, and the roots of unity between the splits."""

    radices: NDArray[np.int64]
    starts: NDArray[np.int64]
    """Where each split's roots begin, and those of the last block."""
    roots: NDArray[np.float64]


@lru_cache(maxsize=4)
def plan_of(n: int) -> Plan:
    """Few splits, the widest first."""
    bits = (n // LAST).bit_length() - 1
    count = -(-bits // 4)
    radices = [2 ** ((bits + i) // count) for i in range(count)][::-1]
    tables, size = [], n
    for radix in [*radices, WIDTH]:
        step = size // radix
        turns = np.arange(1, radix)[:, None] * np.arange(step).reshape(-1, 1, WIDTH) / size
        tables.append(np.stack([np.cos(2 * np.pi * turns), -np.sin(2 * np.pi * turns)], axis=2).ravel())
        size = step
    roots = aligned(sum(map(len, tables)), np.float64)
    np.concatenate(tables, out=roots)
    return Plan(np.array(radices), np.cumsum([0, *map(len, tables)])[:-1], roots)


@inlined
def split(work: Any, at: Any, step: Any, count: Any, radix: Any, roots: Any, root: Any) -> None:
    """Split a block by `radix` into blocks of `count` vectors that lie `step` apart, in place."""
    for t in range(count):
        place, turn = at + t * PAIR, root + t * (radix - 1) * PAIR
        if radix == 16:
            store(work, place, step, turned(fourier(load_16(work, place, step)), roots, turn))
        elif radix == 8:
            store(work, place, step, turned(fourier(load_8(work, place, step)), roots, turn))
        else:
            store(work, place, step, turned(fourier(load_4(work, place, step)), roots, turn))


@inlined
def _join(work: Any, at: Any, step: Any, count: Any, radix: Any, roots: Any, root: Any) -> None:
    """Undo `split` on swapped numbers."""
    for t in range(count):
        place, turn = at + t * PAIR, root + t * (radix - 1) * PAIR
        if radix == 16:
            store(work, place, step, fourier(turned(load_16(work, place, step), roots, turn)))
        elif radix == 8:
            store(work, place, step, fourier(turned(load_8(work, place, step), roots, turn)))
        else:
            store(work, place, step, fourier(turned(load_4(work, place, step), roots, turn)))


@inlined
def split_dealt(row: Any, choice: Any, first: Any, work: Any, stride: Any, count: Any, radix: Any, roots: Any) -> None:
    """Split a row's numbers for the first time, dealt to circulants `first` and the next."""
    step = count * WIDTH
    for t in range(count):
        place, at, turn = t * PAIR, t * WIDTH, t * (radix - 1) * PAIR
        if radix == 16:
            store(work, place, stride, turned(fourier(deal_16(row, choice, at, step, first)), roots, turn))
        elif radix == 8:
            store(work, place, stride, turned(fourier(deal_8(row, choice, at, step, first)), roots, turn))
        else:
            store(work, place, stride, turned(fourier(deal_4(row, choice, at, step, first)), roots, turn))


@inlined
def join_half(work: Any, stride: Any, count: Any, radix: Any, roots: Any, result: Any) -> None:
    """Join swapped numbers for the last time: the real parts of the first half of the blocks and one."""
    step = count * WIDTH
    for t in range(count):
        place, at, turn = t * PAIR, t * WIDTH, t * (radix - 1) * PAIR
        if radix == 16:
            store_single(result, at, step, fourier_half(turned(load_9(work, place, stride), roots, turn)))
        elif radix == 8:
            store_single(result, at, step, fourier_half(turned(load_5(work, place, stride), roots, turn)))
        else:
            store_single(result, at, step, fourier_half(turned(load_3(work, place, stride), roots, turn)))


@inlined
def split_block(work: Any, at: Any, size: Any, radices: Any, starts: Any, roots: Any) -> None:
    """Take a block of the first split down to blocks of 64."""
    left = size
    for p in range(1, len(radices)):
        step = left // radices[p]
        for block in range(0, size, left):
            split(work, at + 2 * block, 2 * step, step // WIDTH, radices[p], roots, starts[p])
        left = step


@inlined
def join_block(work: Any, at: Any, size: Any, radices: Any, starts: Any, roots: Any) -> None:
    """Undo `split_block` on swapped numbers."""
    step = LAST
    for p in range(len(radices) - 1, 0, -1):
        left = step * radices[p]
        for block in range(0, size, left):
            _join(work, at + 2 * block, 2 * step, step // WIDTH, radices[p], roots, starts[p])
        step = left


@inlined
def split_last(work: Any, at: Any, roots: Any, root: Any) -> Any:
    """Transform 64 numbers: across vectors, then across lanes."""
    return fourier(transposed(turned(fourier(load_8(work, at, PAIR)), roots, root)))


@inlined
def join_last(group: Any, roots: Any, root: Any) -> Any:
    """Undo `split_last` on swapped numbers."""
    return fourier(turned(transposed(fourier(group)), roots, root))
