"""GCWS in plain NumPy and Python integers: an oracle that shares no code with the package.

`words` draws Philox with Python integers, `parameters` follows the specification operation by operation in float32, and
`sample_row` takes the minimum in a Python loop. `ideal_parameters` is the same mathematics in float64 with NumPy's
logarithm.
"""

from __future__ import annotations

import numpy as np

f32 = np.float32


def words(counter, key):
    """Philox4x32-10: four random words of a counter of four words and a key of two."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def draw(seed, coordinate, component, stream):
    """Random words of a (coordinate, component) in a stream."""
    return words((coordinate & 0xFFFFFFFF, coordinate >> 32, component, stream), (seed & 0xFFFFFFFF, seed >> 32))


def uniforms(x):
    """Five numbers of 23 bits from four words, as odd multiples of 2**-24."""
    b = [word >> 9 for word in x]
    b.append((x[0] & 511) << 14 | (x[1] & 511) << 5 | (x[2] & 511) >> 4)
    return [(2 * value + 1) * 2.0**-24 for value in b]


def log32(x):
    """Float32 logarithm of a normal positive number, one rounded operation at a time."""
    m, e = np.frexp(f32(x))
    if m.view(np.uint32) < 0x3F3504F3:
        m, e = f32(m * f32(2)), e - 1
    f, e = f32(m - f32(1)), f32(e)
    z = f32(f * f)
    p = [
        f32(c)
        for c in (
            0.3333333134651184, -0.2500082552433014, 0.20001237094402313, -0.16623146831989288,
            0.1420135349035263, -0.13161973655223846, 0.12765531241893768, -0.07634587585926056,
        )
    ]  # fmt: skip
    even = f32(f32(-0.5) + f32(z * f32(p[1] + f32(z * f32(p[3] + f32(z * f32(p[5] + f32(z * p[7]))))))))
    odd = f32(p[0] + f32(z * f32(p[2] + f32(z * f32(p[4] + f32(z * p[6]))))))
    tail = f32(f32(z * f32(even + f32(f * odd))) + f32(e * f32(1.428606765330187e-06)))
    return f32(f32(f + tail) + f32(e * f32(0.693145751953125)))


def parameters(seed, coordinate, component):
    """The specification's q, r, beta and h, in float32."""
    u = [f32(value) for value in uniforms(draw(seed, coordinate, component, 0))]
    r, c = f32(-log32(u[0] * u[1])), f32(-log32(u[2] * u[3]))
    return f32(f32(1) / r), r, u[4], f32(log32(c) - r)


def ideal_parameters(seed, coordinate, component):
    """The same in float64."""
    u = uniforms(draw(seed, coordinate, component, 0))
    r, c = -np.log(u[0]) - np.log(u[1]), -np.log(u[2]) - np.log(u[3])
    return 1 / r, r, u[4], np.log(c) - r


def sample_row(columns, values, seed, component, power=1.0, parameters=parameters, kind=f32):
    """Sampled coordinate and level of a row given by columns, in any order, and values; (-1, 0) for an empty one."""
    best = (np.inf, -1, 0)
    for column, value in zip(columns, values, strict=True):
        if value == 0:
            continue
        coordinate = 2 * int(column) + int(value < 0)
        q, r, beta, h = parameters(seed, coordinate, component)
        level = np.floor(kind(kind(np.log(abs(np.float64(value))) * power) * q) + beta)
        best = min(best, (h - kind(r * kind(level - beta)), coordinate, int(level)))
    return best[1], best[2]


def code(coordinate, level, seed, component, i_bits, t_bits, mode):
    """Code of a sampled pair."""
    if mode == "mixed":
        x = draw(seed, coordinate, component, 0)
        i = ((x[3] & 511) << 7 | (x[2] & 127)) >> (16 - i_bits)
    elif mode == "signed":
        shift = draw(seed, 0, component, 1)[0] >> (32 - i_bits)
        i = (coordinate >> 1) + (coordinate & 1) * shift
    else:
        i = coordinate
    return i % 2**i_bits | level % 2**t_bits << i_bits


def unpack(packed, n_components, bits):
    """Codes of packed rows, shape (n_rows, n_components)."""
    rows = [int.from_bytes(row.tobytes(), "little") for row in np.asarray(packed)]
    return np.array([[row >> j * bits & (1 << bits) - 1 for j in range(n_components)] for row in rows], np.int64)


def gmm(u, v):
    """Generalized min-max similarity of two dense rows."""
    u, v = (np.concatenate([np.maximum(w, 0), np.maximum(-w, 0)]) for w in map(np.float64, (u, v)))
    scale = max(u.max(), v.max())
    return float(np.minimum(u / scale, v / scale).sum() / np.maximum(u / scale, v / scale).sum())
