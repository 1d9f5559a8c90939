import mpmath
import numba
import numpy as np
import pytest
from scipy.special import ndtr

from dkfeat.compiled.jit import kernel
from dkfeat.compiled.random import (
    cosine_of_turns,
    draw_words,
    exponentials,
    levy,
    log_normal_lanes,
    log_scalar,
    normals,
    packed_signs,
    philox,
    philox_lanes,
    signs_of_samples,
    transposed_signs,
)
from dkfeat.compiled.simd import LANES, load, store, store_four
from tests.reference import gcws as oracle
from tests.reference.gcws import draw
from tests.reference.laplace import exponential_weight, levy_weight
from tests.reference.maclaurin import SAMPLE, SIGN, sign

u64 = np.uint64

# Random123, kat_vectors: philox4x32 with 10 rounds, (counter, key, output)
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@kernel
def _one(c, k, out):
    out[0], out[1], out[2], out[3] = philox(c[0], c[1], c[2], c[3], k[0], k[1])


@kernel
def _lanes(c, k, out):
    coordinate, seed = c[0] | c[1] << u64(32), k[0] | k[1] << u64(32)
    x0, x1, x2, x3 = philox_lanes(coordinate, c[2], c[3], seed)
    store_four(out, 0, x0, x1, x2, x3)


@pytest.mark.fault("D-11")
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers__scalar_lanes_and_oracle(counter, key, words):
    c, k = np.array(counter, u64), np.array(key, u64)
    one, lanes = np.zeros(4, u64), np.zeros(4 * LANES, np.uint32)
    _one(c, k, one)
    _lanes(c, k, lanes)
    assert one.tolist() == words
    assert lanes[::LANES].tolist() == words
    assert oracle.words(counter, key) == words


def test_lanes__are_components_in_a_row():
    rng = np.random.default_rng(3)
    for _ in range(20):
        c, k = rng.integers(0, 2**32 - LANES, 4, u64), rng.integers(0, 2**32, 2, u64)
        lanes = np.zeros(4 * LANES, np.uint32)
        _lanes(c, k, lanes)
        for lane in range(LANES):
            one = np.zeros(4, u64)
            _one(c + np.array([0, 0, lane, 0], u64), k, one)
            assert lanes[lane::LANES].tolist() == one.tolist()


def test_draw_words__counter_is_coordinate_component_stream():
    words = np.zeros((3, 4), np.uint32)
    draw_words(u64(5 << 32 | 9), u64(2), u64(7 << 32 | 4), words)
    assert words.tolist() == [oracle.words((9, 5, j, 2), (4, 7)) for j in range(3)]


truth = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="dense samples need compiled loops")


@kernel
def log_float32(values, logs):
    for at in range(0, values.shape[0], LANES):
        store(logs, at, log_normal_lanes(load(values, at)))


@kernel
def log_float64(values, logs):
    for i in range(values.shape[0]):
        logs[i] = log_scalar(values[i])


def log32(values):
    values = np.asarray(values, np.float32)
    padded = np.ones(-(-len(values) // LANES) * LANES, np.float32)
    padded[: len(values)] = values
    logs = np.empty_like(padded)
    with np.errstate(all="ignore"):
        log_float32(padded, logs)
    return logs[: len(values)]


def log64(values):
    logs = np.empty(len(values))
    with np.errstate(all="ignore"):
        log_float64(np.asarray(values, np.float64), logs)
    return logs


def ulps32(values):
    # float64 logarithms are exact to 2**-29 of a float32 ulp
    true = np.log(values.astype(np.float64))
    return np.abs(log32(values) - true) / np.spacing(np.abs(true).astype(np.float32)).astype(np.float64)


def from_bits(first, last, step, word=np.uint32, kind=np.float32):
    return np.arange(first, last, step, dtype=np.uint64).astype(word).view(kind)


@truth
def test_log32__within_two_ulp_at_every_exponent():
    # 8,192 mantissas in each of the 254 exponents
    values = from_bits(0x00800000, 0x7F800000, 1021)
    assert ulps32(values).max() < 1.1
    near_one = log32(from_bits(0x3F000000, 0x40000000, 3))
    assert (np.diff(near_one) >= 0).all()


@truth
@pytest.mark.slow
def test_log32__every_normal_positive_number():
    for first in range(0x00800000, 0x7F800000, 1 << 24):
        values = from_bits(first, min(first + (1 << 24), 0x7F800000), 1)
        assert ulps32(values[values != 1]).max() < 1.1


def ulps64(values):
    true = np.log(values.astype(np.longdouble))
    return np.abs(log64(values) - true) / np.spacing(np.abs(true.astype(np.float64)))


@truth
@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="needs an extended longdouble")
def test_log64__within_two_ulp_over_the_range():
    rng = np.random.default_rng(0)
    anywhere = rng.integers(1, 0x7FF << 52, 1_000_000).view(np.float64)
    subnormal = rng.integers(1, 1 << 52, 100_000).view(np.float64)
    nearby = 1 + rng.normal(size=500_000) * 0.3 * 10.0 ** rng.integers(-15, 0, 500_000)
    for values in (anywhere, subnormal, nearby[(nearby > 0) & (nearby != 1)]):
        assert ulps64(values).max() < 1.0


def test_log64__against_mpmath():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.integers(1, 0x7FF << 52, 300).view(np.float64), 1 + rng.normal(size=300) * 1e-5])
    with mpmath.workprec(200):
        for value, log in zip(values.tolist(), log64(values).tolist(), strict=True):
            true = mpmath.log(mpmath.mpf(value))
            assert abs(mpmath.mpf(log) - true) < np.spacing(abs(float(true)))


@truth
def test_log64__monotone_near_one():
    values = np.float64(1).view(np.int64) + np.arange(-200_000, 200_000)
    assert (np.diff(log64(values.view(np.float64))) >= 0).all()


def test_log64__special_values():
    values = np.array([0.0, -0.0, np.inf, 1.0, -1.0, -np.inf, np.nan, -1e-40])
    assert log64(values)[:4].tolist() == [-np.inf, -np.inf, np.inf, 0.0]
    assert np.isnan(log64(values)[4:]).all()


@pytest.mark.parametrize(("log", "least"), [(log32, 2.0**-126), (log64, 2.0**-1074)])
def test_logs__powers_of_two(log, least):
    exponents = np.arange(int(np.log2(least)), 128)
    values = 2.0**exponents
    assert np.allclose(log(values), exponents * np.log(2), rtol=2e-7, atol=0)


def expected_normal(seed, coordinate, component, stream):
    """The specification in float64 with NumPy's functions."""
    q, i, lane = component // 64, component % 64 // 16, component % 16
    x = draw(seed, coordinate, 16 * q + lane, stream)
    u, turns = (x[i // 2 * 2] >> 1 | 1) * 2.0**-31, x[i // 2 * 2 + 1] * 2.0**-32
    return np.sqrt(-2 * np.log(u)) * (np.sin if i % 2 else np.cos)(2 * np.pi * turns)


@kernel
def _cosines(turns, out):
    for at in range(0, turns.shape[0], LANES):
        store(out, at, cosine_of_turns(load(turns, at)))


def test_cosine__of_turns():
    turns = np.concatenate([np.linspace(-3, 3, 3201)[:3200], np.geomspace(1e-20, 1e6, 1600)]).astype(np.float32)
    out = np.empty_like(turns)
    _cosines(turns, out)
    assert np.abs(out - np.cos(2 * np.pi * np.float64(turns))).max() < 2e-7
    assert np.abs(out).max() <= 1 + 2.0**-23
    exact = np.array([0, 0.25, 0.5, 0.75] * 4, np.float32)
    out = np.empty_like(exact)
    _cosines(exact, out)
    assert out.tolist() == [1.0, 0.0, -1.0, 0.0] * 4


LAWS = {
    "normal": (normals, expected_normal, ndtr),
    "exponential": (exponentials, exponential_weight, lambda w: -np.expm1(-w)),
    "levy": (levy, levy_weight, lambda w: 2 * ndtr(-np.sqrt(0.5 / w))),
}
of_each_law = pytest.mark.parametrize(("table_of", "weight", "distribution"), LAWS.values(), ids=LAWS)


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
@of_each_law
def test_weights__follow_the_specification(table_of, weight, distribution, seed):  # noqa: ARG001
    coordinates = np.array([0, 7, 2**40 + 1])
    table = table_of(coordinates, 100, 41, seed)
    expected = [[weight(seed, int(c), j, 41) for j in range(100)] for c in coordinates]
    assert table.dtype == np.float32
    assert np.allclose(table, expected, rtol=2e-6, atol=2e-6 if table_of is normals else 0)


@pytest.mark.parametrize("table_of", [normals, exponentials, levy])
def test_weights__a_tile_is_a_part_of_the_table(table_of):
    coordinates = np.array([5, 2, 9])
    tile = np.empty((3, 64), np.float32)
    table_of(coordinates, 64, 40, 1, first=64, out=tile)
    assert np.array_equal(table_of(coordinates, 128, 40, 1)[:, 64:], tile)


@of_each_law
def test_weights__have_their_law(table_of, weight, distribution):  # noqa: ARG001
    u = np.sort(distribution(table_of(np.arange(1000), 64, 41, 5).ravel().astype(np.float64)))
    # Kolmogorov's distance beyond 2.7 / sqrt(n): 9e-7
    steps = np.arange(len(u) + 1) / len(u)
    assert max((u - steps[:-1]).max(), (steps[1:] - u).max()) < 2.7 / np.sqrt(len(u))


@of_each_law
def test_weights__neighbours_are_independent(table_of, weight, distribution):  # noqa: ARG001
    # ranks as uniform numbers of variance 1/12, and their squares of variance 1/180: |z| > 5, 6e-7 each
    uniform, other = (distribution(table_of(np.arange(200), 128, stream, 3).astype(np.float64)) for stream in (41, 42))
    pairs = {
        "sine and cosine": (uniform[:, :16], uniform[:, 16:32]),
        "words": (uniform[:, :32], uniform[:, 32:64]),
        "components": (uniform[:, :127], uniform[:, 1:]),
        "coordinates": (uniform[:-1], uniform[1:]),
        "streams": (uniform, other),
    }
    for x, y in pairs.values():
        x, y = x - 0.5, y - 0.5
        assert abs((x * y).sum()) < 5 * np.sqrt(x.size) / 12
        assert abs(((x**2 - 1 / 12) * (y**2 - 1 / 12)).sum()) < 5 * np.sqrt(x.size) / 180


def test_weights__are_between_their_bounds():
    weights = levy(np.arange(3000), 1024, 41, 0)
    assert np.isfinite(weights).all()
    assert 0.011 < weights.min() < 0.03
    assert weights.max() > 1e10
    weights = exponentials(np.arange(3000), 1024, 41, 0)
    assert 4e-10 < weights.min() < 1e-5
    assert 12 < weights.max() < 21.5


@pytest.mark.parametrize("kernel", ["exponential", "reciprocal"])
def test_weights__their_transforms_are_the_kernels_factors(kernel):
    # mean of e^{-w t} over 640,000 weights, t over ten decades: |z| < 5, 6e-7 each
    w = (levy if kernel == "exponential" else exponentials)(np.arange(10_000), 64, 40, 9).astype(np.float64).ravel()
    for t in 10.0 ** np.arange(-6, 4):
        expected = np.exp(-np.sqrt(t)) if kernel == "exponential" else 1 / (1 + t)
        values = np.exp(-w * t)
        assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(len(w)) + 1e-9


def unpacked(table):
    return 1 - 2 * np.unpackbits(table.view(np.uint8), axis=1, bitorder="little").astype(int)


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_packed_signs__follow_the_specification(seed):
    coordinates = np.array([0, 7, 2**40 + 1])
    signs = unpacked(packed_signs(coordinates, 1, 2, SIGN, seed))
    assert signs.shape == (3, 4096)
    for factor in (0, 1, 31, 32, 511, 512, 513, 1700, 2047, 2048, 4095):
        assert signs[:, factor].tolist() == [sign(seed, int(c), 2048 + factor) for c in coordinates]


def test_packed_signs__superblocks_are_parts_of_the_table():
    coordinates = np.array([5, 2])
    table = packed_signs(coordinates, 0, 3, SIGN, 9)
    assert np.array_equal(packed_signs(coordinates, 1, 2, SIGN, 9), table[:, 64:])


def test_packed_signs__are_fair_and_uncorrelated():
    signs = unpacked(packed_signs(np.arange(256), 0, 1, SIGN, 3))
    n = signs.size
    # each sum of n signs has the standard deviation sqrt(n): |z| < 5 fails with chance 6e-7
    assert abs(signs.sum()) < 5 * np.sqrt(n)
    for shifted in (np.roll(signs, 1, axis=0), np.roll(signs, 1, axis=1), np.roll(signs, 32, axis=1)):
        assert abs((signs * shifted).sum()) < 5 * np.sqrt(n)


@pytest.mark.parametrize("n_columns", [1, 63, 64, 130])
def test_turned_signs__hold_the_same_bits(n_columns):
    table = packed_signs(np.arange(n_columns), 0, 1, SIGN, 1)
    turned = transposed_signs(table)
    assert turned.shape == (-(-n_columns // 64), 2048)
    bits = np.unpackbits(np.ascontiguousarray(turned.T).view(np.uint8), axis=1, bitorder="little")  # factor, column
    assert np.array_equal(1 - 2 * bits[:, :n_columns].T.astype(int), unpacked(table))
    assert not bits[:, n_columns:].any()


def test_signs_of_samples__follow_the_specification():
    i_star = np.array([[3, 3, -1], [2**41, 0, 5]])
    t_star = np.array([[0, -2, 0], [7, 2**40, -1]])
    signs = np.empty((2, 3), np.float32)
    seed = 2**63 + 11
    signs_of_samples(i_star, t_star, np.uint64(SAMPLE), np.uint64(seed), signs)
    for row, component in np.ndindex(2, 3):
        i, t = int(i_star[row, component]), int(t_star[row, component])
        if i < 0:
            assert signs[row, component] == 0
        else:
            word = draw((seed ^ t) % 2**64, i, component, SAMPLE)[0]
            assert signs[row, component] == (-1 if word >> 31 else 1)
    t_star = np.arange(-5000, 5000)[:, None]  # signs differ where only the level does
    signs = np.empty(t_star.shape, np.float32)
    signs_of_samples(np.full_like(t_star, 4), t_star, np.uint64(SAMPLE), np.uint64(1), signs)
    assert abs(signs.sum()) < 500  # five standard deviations of 10,000 signs: 6e-7
    assert abs((signs[1:] * signs[:-1]).sum()) < 500
