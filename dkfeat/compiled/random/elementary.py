"""Logarithm, sine and cosine in strict IEEE arithmetic: the same bits on every CPU and with every compiler.

The mathematics libraries of systems differ in the last bit, so a feature map whose codes must agree between machines
cannot use them. Both logarithms write ``x = 2**e * (1 + f)`` with ``1 + f`` in [0.707, 1.415) by integer operations
on the bit pattern, then evaluate a minimax polynomial with separate products and sums. Errors stay below 1 ulp
(measured, see the tests; 2 ulp is guaranteed); log(1) is 0. In float64 log(0) is -inf, the log of a negative number is
NaN, and subnormals are decomposed as integers, so that the results do not depend on whether a CPU flushes them to zero.
"""

from __future__ import annotations

import numpy as np

from dkfeat.compiled.jit import inlined
from dkfeat.compiled.simd.vector import bits_of, float_of, floor, select, splat, to_float

f32, f64, i64, u32 = np.float32, np.float64, np.int64, np.uint32

# float32: log(1 + f) = f + f**2 Q(f) with relative error 2**-27.3; even and odd powers of Q are summed separately.
_C0, _C1, _C2 = f32(-0.5), f32(0.3333333134651184), f32(-0.2500082552433014)
_C3, _C4, _C5 = f32(0.20001237094402313), f32(-0.16623146831989288), f32(0.1420135349035263)
_C6, _C7, _C8 = f32(-0.13161973655223846), f32(0.12765531241893768), f32(-0.07634587585926056)
_ONE, _QUARTER = f32(1), f32(0.25)
# The exponent stays multiplied by 2**23, as in the bit pattern; log(2) is in two parts, and e times the first is exact.
_LN2_HIGH, _LN2_LOW = f32(0.693145751953125 * 2.0**-23), f32(1.428606765330187e-06 * 2.0**-23)
_TWO_31 = u32(1 << 31)
_OFFSET, _EXPONENT = u32(0x3F3504F3), u32(0xFF800000)


@inlined
def _log_of_parts(f, e):
    # log(1 + f) + (e / 2**23) * log(2), with 1 + f in [0.707, 1.415)
    z = f * f
    even = splat(_C0) + z * (splat(_C2) + z * (splat(_C4) + z * (splat(_C6) + z * splat(_C8))))
    odd = splat(_C1) + z * (splat(_C3) + z * (splat(_C5) + z * splat(_C7)))
    tail = z * (even + f * odd) + e * splat(_LN2_LOW)
    return (f + tail) + e * splat(_LN2_HIGH)


@inlined
def log_normal_lanes(x):
    """Compute the logarithms of a f32x16 of normal, positive, finite numbers."""
    bits = bits_of(x)
    shifted = (bits - splat(_OFFSET)) & splat(_EXPONENT)
    return _log_of_parts(float_of(bits - shifted) - splat(_ONE), to_float(shifted))


@inlined
def minus_log_complement_lanes(u, complement):
    """Compute -log(1 - u) to float32's relative precision, also near 0.

    Parameters
    ----------
    u, complement : f32x16
        Normal numbers in (0, 1), and 1 - u rounded from its exact value.
    """
    bits = bits_of(complement)
    shifted = (bits - splat(_OFFSET)) & splat(_EXPONENT)
    small = u < splat(_QUARTER)
    f = select(small, splat(f32(0)) - u, float_of(bits - shifted) - splat(_ONE))
    return splat(f32(0)) - _log_of_parts(f, select(small, splat(f32(0)), to_float(shifted)))


@inlined
def odd_of_31_bits(x):
    """Compute odd numbers below 2**31 from the top 31 bits of a u32x16."""
    return (x >> splat(u32(1))) | splat(u32(1))


@inlined
def exponential_lanes(x):
    """Compute exponential numbers of mean 1, from 2**-31 to 21.5, from the random words of a u32x16."""
    k = odd_of_31_bits(x)
    step = splat(f32(2.0**-31))
    return minus_log_complement_lanes(to_float(k) * step, to_float(splat(_TWO_31) - k) * step)


# float64: log(1 + f) = 2 s + s**3 P(s**2), s = f / (2 + f), with relative error 2**-59.5.
_P0, _P1, _P2, _P3 = 0.6666666666666735, 0.399999999994111, 0.285714287432611, 0.2222219847613049
_P4, _P5, _P6 = 0.1818356973286965, 0.15313903414252622, 0.1479750610850075
_LN2_HIGH_64, _LN2_LOW_64 = float.fromhex("0x1.62e42fefa3000p-1"), float.fromhex("0x1.3de6af278ece6p-42")
_OFFSET_64 = i64(0x3FE6A09E667F3BCD)
_INFINITY_64, _SMALLEST_NORMAL_64 = i64(0x7FF0000000000000), i64(0x0010000000000000)
_MAGNITUDE_64 = i64(0x7FFFFFFFFFFFFFFF)


@inlined
def log_scalar(x):
    """Compute the logarithm of any float64."""
    bits = f64(x).view(i64)
    magnitude = bits & _MAGNITUDE_64
    subnormal = magnitude < _SMALLEST_NORMAL_64
    normal = f64(magnitude).view(i64) if subnormal else magnitude
    shifted = normal - _OFFSET_64
    exponent = shifted >> i64(52)
    f = i64(normal - (exponent << i64(52))).view(f64) - 1.0
    e = f64(np.int32(exponent)) - (1074.0 if subnormal else 0.0)
    s = f / (2.0 + f)
    z = s * s
    half = 0.5 * f * f
    series = z * (_P0 + z * (_P1 + z * (_P2 + z * (_P3 + z * (_P4 + z * (_P5 + z * _P6))))))
    y = e * _LN2_HIGH_64 - ((half - (s * (half + series) + e * _LN2_LOW_64)) - f)
    y = y if magnitude < _INFINITY_64 else x
    y = y if bits >= i64(0) else f64(np.nan)
    return y if magnitude > i64(0) else f64(-np.inf)


# sin(2 pi s) / s as a polynomial in s**2 for s in [-1/4, 1/4], relative error 1.1e-10
_S0, _S1, _S2 = f32(6.2831854820251465), f32(-41.34170150756836), f32(81.605224609375)
_S3, _S4, _S5 = f32(-76.70427703857422), f32(42.00978088378906), f32(-14.393966674804688)


@inlined
def sine_of_quarter(s):
    """Compute sin(2 pi s) of a f32x16 in [-1/4, 1/4], to float32's relative precision."""
    z = s * s
    even = splat(_S0) + (z * z) * (splat(_S2) + (z * z) * splat(_S4))
    odd = splat(_S1) + (z * z) * (splat(_S3) + (z * z) * splat(_S5))
    return s * (even + z * odd)


@inlined
def magnitude(x):
    """Compute the absolute values of a f32x16."""
    return float_of(bits_of(x) & splat(u32(0x7FFFFFFF)))


@inlined
def cosine_of_turns(t):
    """Compute cos(2 pi t) of a f32x16, with an absolute error below 2e-7."""
    r = t - floor(t + splat(f32(0.5)))
    return sine_of_quarter(splat(f32(0.25)) - magnitude(r))
