"""Magnitudes as 2^e (1 + f), of octave e and fraction f, with the same bits on every CPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel, owned
from dkfeat.compiled.random.elementary import log_scalar

ABSENT = -(2**31)
"""Exponent of a zero."""

f64, i32, i64, u32 = np.float64, np.int32, np.int64, np.uint32
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
def _octaves(values, exponents, fractions, negative):
    for i in range(values.shape[0]):
        negative[i] = values[i] < 0.0
        exponents[i], fractions[i] = ABSENT, u32(0)
        if values[i] != 0.0:
            exponents[i], fractions[i] = _exact_octave(values[i])


@kernel
def _octaves_of_powers(values, power, exponents, fractions, negative):
    for i in range(values.shape[0]):
        negative[i] = values[i] < 0.0
        exponents[i], fractions[i] = ABSENT, u32(0)
        if values[i] != 0.0:
            exponents[i], fractions[i] = _octave_of_power(values[i], power)


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
        Octaves e; ABSENT for a zero.
    fractions : ndarray of shape (nnz,), uint32
        Fractions f in units of 2^-32, rounded down. Exact for float32 values and a power of 1.
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
    if power == 1.0:
        _octaves(values, exponents, fractions, negative)
    else:
        _octaves_of_powers(values, float(power), exponents, fractions, negative)
    return exponents, fractions, negative
