"""Discrete Fourier transforms across vectors in registers, in float64.

They take groups of `dkfeat.compiled.complex_groups`. All transforms are forward. One back is that of numbers whose
parts are swapped, because i times a conjugate is the number with its parts swapped. Each formula stands here once: LLVM
and NumPy run the same lines in the same order, so that both, and all CPUs, give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types

from dkfeat.compiled.complex_groups import load_group
from dkfeat.compiled.group_lowering import WIDTH, Code, f64x8, register

__all__ = ["fourier", "fourier_half", "plus", "times", "turned"]

_DIAGONAL = math.sqrt(0.5)


class _Emitted(NamedTuple):
    """A vector of LLVM with an array's operators."""

    builder: Any
    value: Any

    def __add__(self, other: Any) -> Any:
        return _Emitted(self.builder, self.builder.fadd(self.value, other.value))

    def __sub__(self, other: Any) -> Any:
        return _Emitted(self.builder, self.builder.fsub(self.value, other.value))

    def __mul__(self, other: Any) -> Any:
        factor = ir.Constant(f64x8.backend, [other] * WIDTH) if isinstance(other, float) else other.value
        return _Emitted(self.builder, self.builder.fmul(self.value, factor))


# Complex numbers below are pairs of vectors, or a zero that takes no part.
_NOTHING = (None, None)


def _sum(x: Any, y: Any) -> Any:
    return x if y is _NOTHING else (x[0] + y[0], x[1] + y[1])


def _difference(x: Any, y: Any) -> Any:
    return x if y is _NOTHING else (x[0] - y[0], x[1] - y[1])


def _product(x: Any, y: Any) -> Any:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _turn(x: Any, sixteenths: int) -> Any:
    """Turn a number backwards by so many sixteenths."""
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
    """Transform of 1, 2 or 4 numbers."""
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
    """Imaginary parts of the transform of numbers of which all but the first half and one are 0."""
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


def fourier(group: Any) -> Any:
    """Forward transform of each lane's column of a group; lanes do not meet."""
    return np.stack(_transform(list(group)))


def fourier_half(group: Any) -> Any:
    """Imaginary parts, of shape (2 * size - 2, 8), of the transform of 3, 5 or 9 vectors, and 0 up to a power of 2."""
    return np.stack(_transform_half(list(group)))


def times(group: Any, other: Any) -> Any:
    """Complex products of two groups, number by number."""
    return np.stack(_each(_product, list(group), list(other)))


def plus(group: Any, other: Any) -> Any:
    """Sum of two groups."""
    return group + other


def turned(group: Any, roots: Any, at: Any) -> Any:
    """All vectors but a group's first times those at ``roots[at]``, ``roots[at + 16]``, ... ."""
    others = load_group(roots, at, 2 * WIDTH, len(group) // 2 - 1)
    return np.stack(_each(_product, list(group), list(others)))


def _run(formula: Callable) -> Callable:
    """Instructions of a formula on groups."""

    def emit(code: Code, *groups: list) -> list:
        return [x.value for x in formula(*([_Emitted(code.builder, x) for x in group] for group in groups))]

    return emit


def _emit_turned(code: Code, group: list, roots: Any, at: Any) -> list:
    others = code.numbers(1, roots, at, ir.IntType(64)(2 * WIDTH), len(group) // 2 - 1)
    return _run(partial(_each, _product))(code, group, others)


def _register_all() -> None:
    group, array, index = types.UniTuple, types.Array, types.intp
    register(fourier, (group,), _run(_transform), lambda x: x)
    register(fourier_half, (group,), _run(_transform_half), lambda x: types.UniTuple(f64x8, x.count - 2))
    register(times, (group, group), _run(partial(_each, _product)), lambda x, _: x)
    register(plus, (group, group), _run(partial(_each, _sum)), lambda x, _: x)
    register(turned, (group, array, index), _emit_turned, lambda x, *_: x)


_register_all()
