import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import numba
import numpy as np
import pytest

from dkfeat.compiled.sampling import gcws as cws
from dkfeat.compiled.sampling.feature_major import signed_logs
from tests.compiled.sampling import rows as of_rows
from tests.compiled.sampling.rows import KNOWN, random_rows
from tests.reference import gcws as oracle

DATA = Path(__file__).parents[2] / "data"
WIDTH = 2**40
compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="large input")
csr = partial(of_rows.csr, prepare=signed_logs)


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


def test_ties__go_to_the_lowest_coordinate(monkeypatch):
    def alike(coordinates, first, places, begin, end, mode, i_bits, shift, table, codes, traced):  # noqa: ARG001  # the signature
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
    settings = [("lowest", 8, 0), ("signed", 7, 0), ("mixed", 8, 0), ("mixed", 4, 2), ("mixed", 16, 1)]
    answers = {}
    for mode, i_bits, t_bits in settings:
        for seed in (0, 0x0123456789ABCDEF):
            packed, _ = cws.encode(*csr(KNOWN), 24, seed, i_bits, t_bits, mode)
            answers[f"{mode} {i_bits}+{t_bits} bits, seed {seed}"] = [row.tobytes().hex() for row in packed]
    return answers


@pytest.mark.fault("D-11")
def test_known_answers__never_change():
    assert known_codes() == json.loads((DATA / "gcws_codes_v1.json").read_text())
