import mpmath
import numba
import numpy as np
import pytest

from dkfeat.compiled.jit import kernel
from dkfeat.compiled.random import log_normal_lanes, log_scalar
from dkfeat.compiled.simd import LANES, load, store
from tests.compiled.simd.inspection import assembly

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


@truth
def test_log32__a_third_of_mantissas_around_one():
    values = from_bits(0x3F000000, 0x40000000, 3)
    assert ulps32(values[values != 1]).max() < 1.1
    assert (np.diff(log32(values)) >= 0).all()


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


@truth
def test_logs__no_fused_operations():
    log32([2.0])
    log64([2.0])
    for log in (log_float32, log_float64):
        code = assembly(log)
        assert "mulp" in code or "fmul" in code
        assert not any(fused in code for fused in ("fmadd", "fmsub", "fnmadd", "fmla"))
