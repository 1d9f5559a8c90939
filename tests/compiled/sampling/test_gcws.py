import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numba
import numpy as np
import pytest

from dkfeat.compiled.sampling import gcws as cws
from dkfeat.compiled.sampling.feature_major import signed_logs
from tests.programs import AVX2
from tests.reference import gcws as oracle

DATA = Path(__file__).parents[2] / "data"
WIDTH = 2**40
compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="large input")


def csr(rows):
    """Rows given as (columns, values), as the arguments of sample and encode."""
    indptr = np.concatenate([[0], np.cumsum([len(columns) for columns, _ in rows])])
    columns = np.concatenate([np.asarray(columns, np.int64) for columns, _ in rows])
    logs, negative = signed_logs(np.concatenate([np.asarray(values, np.float64) for _, values in rows]))
    return indptr, columns, logs, negative


def random_rows(n_rows, n_features, nnz, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_rows):
        columns = np.unique(rng.integers(0, n_features, nnz))
        rows.append((columns, rng.normal(size=len(columns)) * np.exp(3 * rng.normal(size=len(columns)))))
    return rows


@pytest.mark.parametrize(("n_features", "nnz"), [(6, 5), (300, 8), (WIDTH, 5)])
def test_sample__equals_oracle(n_features, nnz):
    rows = random_rows(5, n_features, nnz)
    rows[2] = ([], [])
    i_star, t_star = cws.sample(*csr(rows), 19, seed=2**63 + 5)
    for i, row in enumerate(rows):
        expected = [oracle.sample_row(*row, 2**63 + 5, j) for j in range(19)]
        assert list(zip(i_star[i].tolist(), t_star[i].tolist(), strict=True)) == expected


@compiled
def test_sample__is_the_exact_algorithm_up_to_rounding():
    rows = random_rows(12, 1000, 40, seed=4)
    i_star, t_star = cws.sample(*csr(rows), 32, seed=9)
    differing = sum(
        oracle.sample_row(*row, 9, j, parameters=oracle.ideal_parameters, kind=float) != (i_star[i, j], t_star[i, j])
        for i, row in enumerate(rows)
        for j in range(32)
    )
    assert differing <= 1  # of 384; float32 changes a few in 100,000


@pytest.mark.parametrize("rows", [random_rows(1, WIDTH, 20, seed=5), random_rows(4, 30, 20, seed=6)])
def test_sample__of_coordinates_compared_first_equals_oracle(rows, monkeypatch):
    monkeypatch.setattr(cws, "_ENTRIES_A_USE", 1)
    i_star, t_star = cws.sample(*csr(rows), 16, seed=3)
    for i, row in enumerate(rows):
        expected = [oracle.sample_row(*row, 3, j) for j in range(16)]
        assert list(zip(i_star[i].tolist(), t_star[i].tolist(), strict=True)) == expected


@compiled
@pytest.mark.parametrize(("mode", "i_bits", "t_bits"), [("lowest", 8, 0), ("signed", 13, 1), ("mixed", 16, 2)])
@pytest.mark.parametrize(("n_rows", "n_features", "nnz"), [(1, WIDTH, 4000), (40, 5000, 1700), (300, 5000, 20)])
def test_encode__of_coordinates_compared_first(n_rows, n_features, nnz, mode, i_bits, t_bits, monkeypatch):
    entries = csr(random_rows(n_rows, n_features, nnz, seed=7))
    codes = {}
    for entries_a_use in (1, 5, 10**6):
        monkeypatch.setattr(cws, "_ENTRIES_A_USE", entries_a_use)
        codes[entries_a_use] = cws.encode(*entries, 40, 2, i_bits, t_bits, mode)[0]
    assert np.array_equal(codes[1], codes[10**6])
    assert np.array_equal(codes[5], codes[10**6])


def test_encode__logarithms_too_large_to_compare():
    values = np.exp(np.linspace(-300, 300, 500))
    logs, negative = signed_logs(values, power=100)
    i_star, _ = cws.sample(np.array([0, 500]), np.arange(500), logs, negative, 16, 3)
    assert set(i_star[0].tolist()) == {998}


@pytest.mark.parametrize("mode", ["lowest", "signed", "mixed"])
@pytest.mark.parametrize(("i_bits", "t_bits"), [(1, 0), (8, 0), (5, 2), (8, 1), (13, 0), (16, 2)])
def test_encode__packs_codes_of_the_sample(mode, i_bits, t_bits):
    n_features = min(60, 2**i_bits) if mode == "signed" else 60
    rows = [*random_rows(4, n_features, 6), ([], [])]
    n_components = 21
    packed, empty = cws.encode(*csr(rows), n_components, 11, i_bits, t_bits, mode)
    i_star, t_star = cws.sample(*csr(rows), n_components, 11)
    expected = [
        [
            oracle.code(int(i), int(t), 11, j, i_bits, t_bits, mode)
            for j, (i, t) in enumerate(zip(i_star[row], t_star[row], strict=True))
        ]
        for row in range(4)
    ]
    bits = i_bits + t_bits
    assert packed.shape == (5, -(-n_components * bits // 8))
    assert empty.tolist() == [False] * 4 + [True]
    assert oracle.unpack(packed[:4], n_components, bits).tolist() == expected
    assert not packed[4].any()
    assert not (packed[:, -1] >> ((n_components * bits - 1) % 8 + 1)).any()


def test_encode__injective_is_the_coordinate():
    rows = random_rows(6, 100, 9)
    packed, _ = cws.encode(*csr(rows), 32, 5, 8, 0, "injective")
    i_star, _ = cws.sample(*csr(rows), 32, 5)
    assert np.array_equal(packed, i_star)


@compiled
@pytest.mark.parametrize("n_features", [40, 3000, WIDTH])
def test_encode__any_partition_of_rows(n_features, monkeypatch):
    rows = random_rows(1500, n_features, 60)
    whole, empty = cws.encode(*csr(rows), 40, 1, 6, 1, "mixed")
    for cuts in ([0, 1, 2, 777, 1500], [0, 385, 1500]):
        parts = [cws.encode(*csr(rows[a:b]), 40, 1, 6, 1, "mixed") for a, b in pairwise(cuts)]
        assert np.array_equal(np.concatenate([part for part, _ in parts]), whole)
        assert np.array_equal(np.concatenate([part for _, part in parts]), empty)
    monkeypatch.setattr(cws, "SWEPT_ROWS", 400)
    assert np.array_equal(cws.encode(*csr(rows), 40, 1, 6, 1, "mixed")[0], whole)


@compiled
def test_encode__components_do_not_depend_on_their_number():
    rows = random_rows(30, 500, 20)
    many, _ = cws.encode(*csr(rows), 100, 1, 8, 0, "mixed")
    few, _ = cws.encode(*csr(rows), 23, 1, 8, 0, "mixed")
    assert np.array_equal(many[:, :23], few)


def test_encode__zeros_order_and_index_type_change_nothing():
    rows = random_rows(8, 90, 12)
    padded = [(np.append(columns, [95, 97]), np.append(values, [0.0, -0.0])) for columns, values in rows]
    reverse = [(columns[::-1], values[::-1]) for columns, values in rows]
    packed, empty = cws.encode(*csr(rows), 16, 1, 8, 0, "mixed")
    indptr, columns, logs, negative = csr(rows)
    logs.flags.writeable = False
    others = [csr(padded), csr(reverse), (indptr.astype(np.int32), columns.astype(np.int32), logs, negative)]
    for other in others:
        again, still_empty = cws.encode(*other, 16, 1, 8, 0, "mixed")
        assert np.array_equal(again, packed)
        assert np.array_equal(still_empty, empty)


def test_encode__row_of_explicit_zeros_is_empty():
    packed, empty = cws.encode(*csr([([3, 5], [0.0, 0.0]), ([3], [1.0])]), 16, 1, 4, 2, "mixed")
    assert empty.tolist() == [True, False]
    assert not packed[0].any()


@pytest.mark.parametrize("rows", [[], [([], [])], [([], []), ([], [])]])
def test_encode__nothing(rows):
    arrays = csr(rows) if rows else (np.zeros(1, int), np.zeros(0, int), np.zeros(0, np.float32), np.zeros(0, bool))
    packed, empty = cws.encode(*arrays, 16, 1, 8, 0, "mixed")
    assert packed.shape == (len(rows), 16)
    assert empty.all()
    assert cws.sample(*arrays, 16, 1)[0].tolist() == [[-1] * 16] * len(rows)


def test_ties__go_to_the_lowest_coordinate(monkeypatch):
    def alike(coordinates, first, places, begin, end, mode, i_bits, shift, table, codes):  # noqa: ARG001  # the signature of fill_parameters
        for i in range(begin, end):
            for lane in range(16):
                at = places[i] * 64 + lane
                table[at], table[at + 16], table[at + 32], table[at + 48] = 1.0, 1.0, 0.5, 0.25
                codes[places[i] * 16 + lane] = first + places[i]

    if not numba.config.DISABLE_JIT:
        alike = numba.njit(alike)
    sweep = getattr(cws.sweep_tile, "py_func", cws.sweep_tile)
    fresh = type(sweep)(sweep.__code__, {**sweep.__globals__, "fill_parameters": alike})
    monkeypatch.setattr(cws, "sweep_tile", fresh if numba.config.DISABLE_JIT else numba.njit(fresh))
    i_star, _ = cws.sample(*csr([([70, 4, 9], [2.0, 2.0, 2.0]), ([70, 4, 9], [2.0, 1.0, 2.0])]), 16, 1)
    assert set(i_star[0].tolist()) == {8}
    assert set(i_star[1].tolist()) == {18}


def test_levels__huge_ones_are_kept_modulo():
    # levels beyond 32 bits: modulo is exact and no conversion leaves its range
    values = np.array([1e300, 1e-300])
    logs, negative = signed_logs(values, power=1e6)
    arrays = np.array([0, 1, 2]), np.array([1, 1]), logs, negative
    i_star, t_star = cws.sample(*arrays, 512, 3)
    assert np.abs(t_star).max() > 2**31
    packed, _ = cws.encode(*arrays, 512, 3, 8, 2, "lowest")
    assert np.array_equal(oracle.unpack(packed, 512, 10), (i_star & 255) | (t_star % 4) << 8)


def known_codes():
    """Codes of a small input by mode, as hexadecimal rows."""
    rows = [
        ([0, 1, 7], [1.0, -1.0, 0.5]),
        ([0, 3, 7, 100], [1e-30, -2.5, 3.25, 1e30]),
        ([5, 2**20, 2**39], [-1e300, 1e-300, 5e-324]),
        (list(range(0, 120, 3)), [(-1) ** f * (f + 1) / 7 for f in range(40)]),
    ]
    settings = [("lowest", 8, 0), ("signed", 7, 0), ("mixed", 8, 0), ("mixed", 4, 2), ("mixed", 16, 1)]
    answers = {}
    for mode, i_bits, t_bits in settings:
        for seed in (0, 0x0123456789ABCDEF):
            packed, _ = cws.encode(*csr(rows), 24, seed, i_bits, t_bits, mode)
            answers[f"{mode} {i_bits}+{t_bits} bits, seed {seed}"] = [row.tobytes().hex() for row in packed]
    return answers


@pytest.mark.fault("D-11")
def test_known_answers__never_change():
    assert known_codes() == json.loads((DATA / "gcws_codes_v1.json").read_text())


def digest():
    """Hash of codes, samples and logarithms of larger input."""
    import hashlib

    result = hashlib.sha256()
    for rows in (random_rows(600, 5000, 60, seed=8), random_rows(9, 50_000, 2000, seed=9)):
        for array in (*csr(rows), *cws.encode(*csr(rows), 64, 3, 8, 2, "mixed"), *cws.sample(*csr(rows), 64, 3)):
            result.update(np.ascontiguousarray(array).tobytes())
    return result.hexdigest()


@pytest.mark.slow
@compiled
@pytest.mark.parametrize("cpu", ["generic", pytest.param("haswell", marks=pytest.mark.slow)])
def test_codes__same_bits_for_other_cpus(cpu, tmp_path):
    if cpu == "haswell" and "avx2" not in numba.core.codegen.get_host_cpu_features():
        pytest.skip("this CPU lacks AVX2")
    settings = {"NUMBA_CPU_NAME": "generic"} if cpu == "generic" else AVX2
    program = (
        "import json; from tests.compiled.sampling.test_gcws import *; import numba\n"
        f"assert numba.config.CPU_NAME == {cpu!r}\n"
        "print(json.dumps([digest(), known_codes()]))"
    )
    environment = {**os.environ, **settings, "NUMBA_CACHE_DIR": str(tmp_path)}
    root = Path(__file__).parents[3]
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=root, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [digest(), known_codes()]
