"""Discrete Fourier transforms across vectors in registers, in float64.

They operate on groups of vectors f64x8. All transforms are forward. An inverse transform is a forward
transform of numbers with real and imaginary parts swapped, because i times a conjugate is the number with its parts
swapped. Each formula is written once: LLVM and NumPy run the same lines in the same order, so that both, on all CPUs,
give the same bits.

A group is the real parts of some vectors of complex numbers, then their imaginary parts. If the JIT is disabled, the
functions are plain NumPy, with equal results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numpy.typing import NDArray

from dkfeat.compiled.jit import aligned, inlined
from dkfeat.compiled.simd import I16, I32, I64, Code, Vector, register

WIDTH = 8
"""Lanes of a vector of float64."""
f64x8 = Vector("f64x8", ir.DoubleType(), WIDTH)
F64X8, F32X8, I16X8 = f64x8.backend, ir.VectorType(ir.FloatType(), WIDTH), ir.VectorType(I16, WIDTH)


def load_numbers(code: Code, array: Any, at: Any, step: Any, size: int, argument: int = 0) -> list:
    """Load the vectors of a group of complex numbers."""
    offsets = code.offsets(at, step, size)
    imaginary = [code.builder.add(at, I64(WIDTH)) for at in offsets]
    return code.load(argument, array, offsets + imaginary, F64X8)


def plus_mirrored(group, other):
    """Add to a group the conjugate of another group, with vectors and lanes in reverse order."""
    size = len(group) // 2
    return np.concatenate([group[:size] + other[:size][::-1, ::-1], group[size:] - other[size:][::-1, ::-1]])


def swapped(group):
    """Swap the real and imaginary parts of a group."""
    return np.roll(group, len(group) // 2, axis=0)


def transposed(group):
    """Transpose the vectors and lanes of a group of 8."""
    return group.reshape(2, WIDTH, WIDTH).swapaxes(1, 2).reshape(-1, WIDTH)


def _load_parts(array: Any, at: Any, step: Any, size: int) -> Any:
    return np.stack([array[at + i * step : at + i * step + WIDTH] for i in range(size)])


def load_group(array: Any, at: Any, step: Any, size: int) -> Any:
    """Load the group of vectors at ``array[at]``, ``array[at + step]``, ..., with the JIT disabled."""
    return np.concatenate([_load_parts(array, at, step, size), _load_parts(array, at + WIDTH, step, size)])


def _loader(size: int) -> Callable:
    def load(array, at, step):
        return load_group(array, at, step, size)

    load.__name__ = f"load_{size}"  # numba looks a function up by its name
    return load


load_3, load_4, load_5, load_8, load_9, load_16 = (_loader(size) for size in (3, 4, 5, 8, 9, 16))
"""Functions that load the group of float64 vectors at ``array[at]``, ``array[at + step]``, ... ."""


def _choosing_loader(size: int) -> Callable:
    def load_chosen(row, choice, at, step, first):
        values, chosen = _load_parts(row, at, step, size), _load_parts(choice, at, step, size)
        return np.concatenate([np.where(chosen == k, values, np.float32(0)) for k in (first, first + 1)]).astype(float)

    load_chosen.__name__ = f"load_chosen_{size}"
    return load_chosen


def _emit_load_chosen(code: Code, row: Any, choice: Any, at: Any, step: Any, first: Any, size: int) -> list:
    builder, offsets, parts = code.builder, code.offsets(at, step, size), []
    values, chosen = code.load(0, row, offsets, F32X8), code.load(1, choice, offsets, I16X8)
    zero = ir.Constant(F32X8, [0.0] * WIDTH)
    for k in (first, builder.add(first, first.type(1))):
        one = builder.insert_element(ir.Constant(I16X8, ir.Undefined), builder.trunc(k, I16), I32(0))
        all_k = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, WIDTH), None))
        parts += [
            builder.fpext(builder.select(builder.icmp_unsigned("==", c, all_k), v, zero), F64X8)
            for v, c in zip(values, chosen, strict=True)
        ]
    return parts


load_chosen_4, load_chosen_8, load_chosen_16 = (_choosing_loader(size) for size in (4, 8, 16))
"""Functions that load a float32 row as a group: real parts if `choice` is `first`, imaginary if `first + 1`, else 0."""


def store(array, at, step, group):
    """Write a group's vectors to ``array[at]``, ``array[at + step]``, ... ."""
    size = len(group) // 2
    for i in range(size):
        array[at + i * step : at + i * step + 2 * WIDTH] = group[[i, i + size]].reshape(-1)


def store_single(array, at, step, vectors):
    """Write vectors of real numbers, rounded to float32, to ``array[at]``, ``array[at + step]``, ... ."""
    for i, vector in enumerate(vectors):
        array[at + i * step : at + i * step + WIDTH] = vector


def _emit_transposed(code: Code, group: list) -> list:
    vectors, lanes = list(group), range(WIDTH)
    for step in (1, 2, 4):
        low = [lane if not lane & step else WIDTH + (lane ^ step) for lane in lanes]
        high = [lane ^ step if not lane & step else WIDTH + lane for lane in lanes]
        for i in range(2 * WIDTH):
            if not i & step:
                pair = vectors[i], vectors[i + step]
                for to, mask in ((i, low), (i + step, high)):
                    mask = ir.Constant(ir.VectorType(I32, WIDTH), mask)
                    vectors[to] = code.builder.shuffle_vector(*pair, mask)
    return vectors


def _emit_store(code: Code, array: Any, at: Any, step: Any, group: list) -> None:
    size = len(group) // 2
    for real, imaginary, offset in zip(group[:size], group[size:], code.offsets(at, step, size), strict=True):
        code.store(array, [offset, code.builder.add(offset, I64(WIDTH))], [real, imaginary])


def _emit_store_single(code: Code, array: Any, at: Any, step: Any, vectors: list) -> None:
    singles = [code.builder.fptrunc(vector, F32X8) for vector in vectors]
    code.store(array, code.offsets(at, step, len(vectors)), singles)


def _emit_plus_mirrored(code: Code, group: list, other: list) -> list:
    size, builder = len(group) // 2, code.builder
    backwards = ir.Constant(ir.VectorType(I32, WIDTH), list(range(WIDTH))[::-1])
    mirrored = [builder.shuffle_vector(x, x, backwards) for x in other[:size][::-1] + other[size:][::-1]]
    pairs = list(zip(group, mirrored, strict=True))
    return [builder.fadd(*pair) for pair in pairs[:size]] + [builder.fsub(*pair) for pair in pairs[size:]]


def _emit_swapped(_: Code, group: list) -> list:
    half = len(group) // 2
    return group[half:] + group[:half]


_DIAGONAL = math.sqrt(0.5)


class _Emitted(NamedTuple):
    """LLVM vector with the operators of an array."""

    builder: Any
    value: Any

    def __add__(self, other):
        return _Emitted(self.builder, self.builder.fadd(self.value, other.value))

    def __sub__(self, other):
        return _Emitted(self.builder, self.builder.fsub(self.value, other.value))

    def __mul__(self, other):
        factor = ir.Constant(f64x8.backend, [other] * WIDTH) if isinstance(other, float) else other.value
        return _Emitted(self.builder, self.builder.fmul(self.value, factor))


# Complex numbers below are pairs of vectors, or a zero that is skipped.
_NOTHING = (None, None)


def _sum(x, y):
    return x if y is _NOTHING else (x[0] + y[0], x[1] + y[1])


def _difference(x, y):
    return x if y is _NOTHING else (x[0] - y[0], x[1] - y[1])


def _product(x, y):
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _turn(x: Any, sixteenths: int) -> Any:
    """Rotate a complex number clockwise by a number of sixteenths of a turn."""
    if sixteenths == 0:
        return x
    if sixteenths == 2:
        return (x[0] + x[1]) * _DIAGONAL, (x[1] - x[0]) * _DIAGONAL
    if sixteenths == 4:
        return x[1], x[0] * -1.0
    if sixteenths == 6:
        return (x[1] - x[0]) * _DIAGONAL, (x[0] + x[1]) * -_DIAGONAL
    angle = math.pi * sixteenths / 8
    c, s = math.cos(angle), -math.sin(angle)
    return x[0] * c - x[1] * s, x[0] * s + x[1] * c


def _across(numbers: list) -> list:
    """Transform 1, 2 or 4 numbers."""
    if len(numbers) == 1:
        return numbers
    if len(numbers) == 2:
        return [_sum(*numbers), _difference(*numbers)]
    a, b, c, d = numbers
    e, f, g, h = _sum(a, c), _difference(a, c), _sum(b, d), _difference(b, d)
    return [_sum(e, g), (f[0] + h[1], f[1] - h[0]), _difference(e, g), (f[0] - h[1], f[1] + h[0])]


def _transform(parts: list) -> list:
    """Transform the numbers of a group's vectors, in ascending order of frequencies."""
    return _flat(_frequencies(_numbers(parts)))


def _transform_half(parts: list) -> list:
    """Compute the imaginary parts of the transform of numbers that are 0 except for the first half plus one."""
    numbers = _numbers(parts)
    return [x[1] for x in _frequencies(numbers + [_NOTHING] * (len(numbers) - 2))]


def _numbers(parts: list) -> list:
    half = len(parts) // 2
    return list(zip(parts[:half], parts[half:], strict=True))


def _frequencies(numbers: list) -> list:
    n = len(numbers) // 4
    fours = [_across(numbers[j::n]) for j in range(n)]
    rest = [_across([_turn(fours[j][q], j * q * 4 // n) for j in range(n)]) for q in range(4)]
    return [rest[q][k] for k in range(n) for q in range(4)]


def _flat(numbers: list) -> list:
    return [x[0] for x in numbers] + [x[1] for x in numbers]


def _each(function: Callable, parts: list, others: list) -> list:
    size, rest = len(parts) // 2, len(others) // 2
    pairs = zip(parts[size - rest : size], parts[2 * size - rest :], others[:rest], others[rest:], strict=True)
    done = [function((a, b), (c, d)) for a, b, c, d in pairs]
    first = list(zip(parts[: size - rest], parts[size : 2 * size - rest], strict=True))
    return _flat(first + done)


def fourier(group):
    """Compute the forward transform of each lane across the vectors of a group."""
    return np.stack(_transform(list(group)))


def fourier_half(group):
    """Compute the imaginary parts of the transform of 3, 5 or 9 vectors padded with zeros; shape (2 * size - 2, 8)."""
    return np.stack(_transform_half(list(group)))


def times(group, other):
    """Multiply the complex numbers of two groups."""
    return np.stack(_each(_product, list(group), list(other)))


def plus(group, other):
    """Add two groups."""
    return group + other


def turned(group, roots, at):
    """Multiply all vectors of a group except the first by those at ``roots[at]``, ``roots[at + 16]``, ... ."""
    others = load_group(roots, at, 2 * WIDTH, len(group) // 2 - 1)
    return np.stack(_each(_product, list(group), list(others)))


def _emitter(formula: Callable) -> Callable:
    """Return a function that emits the instructions of a formula on groups."""

    def emit(code: Code, *groups: list) -> list:
        return [x.value for x in formula(*([_Emitted(code.builder, x) for x in group] for group in groups))]

    return emit


def _emit_turned(code: Code, group: list, roots: Any, at: Any) -> list:
    others = load_numbers(code, roots, at, I64(2 * WIDTH), len(group) // 2 - 1, argument=1)
    return _emitter(partial(_each, _product))(code, group, others)


def _register_all() -> None:
    group, array, index = types.UniTuple, types.Array, types.intp
    for size, load in zip((3, 4, 5, 8, 9, 16), (load_3, load_4, load_5, load_8, load_9, load_16), strict=True):
        kind = types.UniTuple(f64x8, 2 * size)
        register(load, (array, index, index), partial(load_numbers, size=size), kind)
    for size, load_chosen in zip((4, 8, 16), (load_chosen_4, load_chosen_8, load_chosen_16), strict=True):
        kind = types.UniTuple(f64x8, 2 * size)
        emit = partial(_emit_load_chosen, size=size)
        register(load_chosen, (array, array, index, index, index), emit, kind)
    register(swapped, (group,), _emit_swapped, lambda x: x)
    register(transposed, (group,), _emit_transposed, lambda x: x)
    register(plus_mirrored, (group, group), _emit_plus_mirrored, lambda x, _: x)
    for function, emit_store in ((store, _emit_store), (store_single, _emit_store_single)):
        register(function, (array, index, index, group), emit_store, types.none)
    register(fourier, (group,), _emitter(_transform), lambda x: x)
    register(fourier_half, (group,), _emitter(_transform_half), lambda x: types.UniTuple(f64x8, x.count - 2))
    register(times, (group, group), _emitter(partial(_each, _product)), lambda x, _: x)
    register(plus, (group, group), _emitter(partial(_each, _sum)), lambda x, _: x)
    register(turned, (group, array, index), _emit_turned, lambda x, *_: x)


_register_all()


PAIR = 2 * WIDTH
"""Number of float64 of a vector of complex numbers in memory."""
LAST = WIDTH * WIDTH
"""Length of the blocks that are transformed in registers."""


class Splits(NamedTuple):
    """Splits of a period, with their roots of unity."""

    radices: NDArray[np.int64]
    starts: NDArray[np.int64]
    """Position of the first root of each split, and of the last block."""
    roots: NDArray[np.float64]


@lru_cache(maxsize=4)
def splits_of(n: int) -> Splits:
    """Return the splits of a period n, the widest first and as few as possible."""
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
    return Splits(np.array(radices), np.cumsum([0, *map(len, tables)])[:-1], roots)


@inlined
def split(work, at, step, count, radix, roots, root):
    """Split a block in place by `radix` into blocks of `count` vectors, `step` apart."""
    for t in range(count):
        offset, turn = at + t * PAIR, root + t * (radix - 1) * PAIR
        if radix == 16:
            store(work, offset, step, turned(fourier(load_16(work, offset, step)), roots, turn))
        elif radix == 8:
            store(work, offset, step, turned(fourier(load_8(work, offset, step)), roots, turn))
        else:
            store(work, offset, step, turned(fourier(load_4(work, offset, step)), roots, turn))


@inlined
def _join(work, at, step, count, radix, roots, root):
    """Invert `split`, on numbers with swapped parts."""
    for t in range(count):
        offset, turn = at + t * PAIR, root + t * (radix - 1) * PAIR
        if radix == 16:
            store(work, offset, step, fourier(turned(load_16(work, offset, step), roots, turn)))
        elif radix == 8:
            store(work, offset, step, fourier(turned(load_8(work, offset, step), roots, turn)))
        else:
            store(work, offset, step, fourier(turned(load_4(work, offset, step), roots, turn)))


@inlined
def split_chosen(row, choice, first, work, stride, count, radix, roots):
    """Do the first split of a row, whose columns are distributed to circulants `first` and `first + 1`."""
    step = count * WIDTH
    for t in range(count):
        offset, at, turn = t * PAIR, t * WIDTH, t * (radix - 1) * PAIR
        if radix == 16:
            store(work, offset, stride, turned(fourier(load_chosen_16(row, choice, at, step, first)), roots, turn))
        elif radix == 8:
            store(work, offset, stride, turned(fourier(load_chosen_8(row, choice, at, step, first)), roots, turn))
        else:
            store(work, offset, stride, turned(fourier(load_chosen_4(row, choice, at, step, first)), roots, turn))


@inlined
def join_half(work, stride, count, radix, roots, result):
    """Do the last step of the inverse on swapped numbers: real parts, from the first half of the blocks plus one."""
    step = count * WIDTH
    for t in range(count):
        offset, at, turn = t * PAIR, t * WIDTH, t * (radix - 1) * PAIR
        if radix == 16:
            store_single(result, at, step, fourier_half(turned(load_9(work, offset, stride), roots, turn)))
        elif radix == 8:
            store_single(result, at, step, fourier_half(turned(load_5(work, offset, stride), roots, turn)))
        else:
            store_single(result, at, step, fourier_half(turned(load_3(work, offset, stride), roots, turn)))


@inlined
def split_block(work, at, size, splits):
    """Split a block of the first split into blocks of 64."""
    radices, left = splits.radices, size
    for p in range(1, len(radices)):
        step = left // radices[p]
        for block in range(0, size, left):
            split(work, at + 2 * block, 2 * step, step // WIDTH, radices[p], splits.roots, splits.starts[p])
        left = step


@inlined
def join_block(work, at, size, splits):
    """Invert `split_block`, on numbers with swapped parts."""
    radices, step = splits.radices, LAST
    for p in range(len(radices) - 1, 0, -1):
        left = step * radices[p]
        for block in range(0, size, left):
            _join(work, at + 2 * block, 2 * step, step // WIDTH, radices[p], splits.roots, splits.starts[p])
        step = left


@inlined
def split_last(work, at, roots, root):
    """Transform 64 numbers: across vectors, then across lanes."""
    return fourier(transposed(turned(fourier(load_8(work, at, PAIR)), roots, root)))


@inlined
def join_last(group, roots, root):
    """Invert `split_last`, on numbers with swapped parts."""
    return fourier(turned(transposed(fourier(group)), roots, root))
