import json
import math
from decimal import Decimal, localcontext
from functools import partial
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dkfeat.compiled.sampling import darts
from dkfeat.compiled.sampling.darts import ABSENT, signed_octaves
from tests.compiled.sampling import rows as of_rows
from tests.compiled.sampling.rows import KNOWN, random_rows
from tests.reference import darts as oracle
from tests.reference.gcws import unpack

DATA = Path(__file__).parents[2] / "data"
compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="large input")
csr = partial(of_rows.csr, prepare=signed_octaves)
# Lanes beyond the end of a list hold anything, of which NumPy warns if loops run as plain Python.
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")


def oracle_row(columns, values, n_components, seed, **options):
    """Samples of the oracle: coordinates, darts and code words."""
    entries = zip(columns, values, strict=True)
    held = [(2 * int(column) + int(value < 0), *oracle.octave_of(value)) for column, value in entries if value]
    return oracle.sample_row(*zip(*held, strict=True), n_components, seed, **options)


@st.composite
def drawn_rows(draw):
    """Rows of one scale: signed, up to 40 nonzeros, zeros and equal values among them, columns up to 2^40."""
    width, scale = draw(
        st.sampled_from([(64, 1.0), (32, 1e30), (32, 1e-30), (64, 1e300), (64, 1e-300), (64, 2.0**-1060)])
    )
    spread = st.sampled_from([0.5, 0.75, 1.0]) | st.floats(0.001, 1) | st.integers(-300, 0).map(lambda e: 2.0**e)
    value = st.tuples(spread | st.just(0.0), st.sampled_from([-scale, scale])).map(math.prod)
    column = st.integers(0, 9) | st.integers(0, 2**40 - 1)
    rows = draw(st.lists(st.dictionaries(column, value, max_size=40), min_size=1, max_size=3))
    return [(list(row), np.array(list(row.values()), f"f{width // 8}")) for row in rows]


@compiled
@given(drawn_rows(), st.sampled_from([1, 63, 512, 513, 600, 1030]), st.integers(0, 2**64 - 1))
def test_sample__equals_oracle(rows, n_components, seed):
    i_star, dart = darts.sample(*csr(rows), n_components, seed)
    for row, i, d in zip(rows, i_star, dart, strict=True):
        if any(row[1]):
            coordinates, numbers, _ = oracle_row(*row, n_components, seed)
            np.testing.assert_array_equal(i, coordinates)
            np.testing.assert_array_equal(d, numbers)
        else:
            assert i.tolist() == [-1] * n_components
            assert d.tolist() == [0] * n_components


def test_sample__equals_oracle_also_as_plain_python():
    rows = random_rows(2, 2**40, 5)
    i_star, dart = darts.sample(*csr(rows), 7, seed=2**63 + 5)
    for i, row in enumerate(rows):
        coordinates, numbers, _ = oracle_row(*row, 7, 2**63 + 5)
        assert (i_star[i].tolist(), dart[i].tolist()) == (coordinates.tolist(), numbers.tolist())


@compiled
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_sample__equals_oracle_for_long_rows(spread):
    rng = np.random.default_rng(1)
    row = (rng.choice(2**40, 5000, replace=False), np.exp(spread * rng.normal(size=5000)))
    i_star, dart = darts.sample(*csr([row]), 600, 3)
    coordinates, numbers, _ = oracle_row(*row, 600, 3)
    np.testing.assert_array_equal(i_star[0], coordinates)
    np.testing.assert_array_equal(dart[0], numbers)


@compiled
def test_sample__is_the_exact_process_up_to_rounding():
    rows = random_rows(20, 1000, 40, seed=4)
    i_star, dart = darts.sample(*csr(rows), 512, seed=9)
    differing = 0
    for row, i, d in zip(rows, i_star, dart, strict=True):
        coordinates, numbers, _ = oracle_row(*row, 512, 9, gap=oracle.ideal_gap)
        differing += ((i != coordinates) | (d != numbers)).sum()
    assert differing <= 1  # of 10,240; ranks of float32 change one in about 10^6


@compiled
@pytest.mark.parametrize("bits", range(1, 17))
@pytest.mark.parametrize("n_components", [1, 21, 515])
def test_encode__packs_the_top_bits_of_code_words(bits, n_components):
    rows = [*random_rows(3, 60, 6, seed=bits), ([], [])]
    packed, empty = darts.encode(*csr(rows), n_components, 11, bits)
    assert packed.shape == (4, -(-n_components * bits // 8))
    assert empty.tolist() == [False] * 3 + [True]
    expected = [oracle_row(*row, n_components, 11)[2] >> (32 - bits) for row in rows[:3]]
    np.testing.assert_array_equal(unpack(packed[:3], n_components, bits), expected)
    assert not packed[3].any()
    assert not (packed[:, -1] >> ((n_components * bits - 1) % 8 + 1)).any()


@compiled
@pytest.mark.parametrize(
    ("margin", "growth"), [(0.01, 1.05), (20.0, 1.4), pytest.param(0.5, 8.0, marks=pytest.mark.slow)]
)
def test_sample__does_not_depend_on_where_the_list_stops(margin, growth, monkeypatch):
    # rows from one nonzero to some thousands; with a margin of 0.01 hardly a tile is filled at the first rank
    lengths = [1] * 100 + [2] * 100 + [20] * 100 + [300] * 10 + [3000] * 2
    rows = csr([row for i, nnz in enumerate(lengths) for row in random_rows(1, 2**40, nnz, seed=i)])
    few, many = darts.sample(*rows, 40, 3), darts.sample(*rows, 600, 3)
    monkeypatch.setattr(darts, "MARGIN", margin)
    monkeypatch.setattr(darts, "GROWTH", growth)
    for before, n_components in ((few, 40), (many, 600)):
        for one, other in zip(before, darts.sample(*rows, n_components, 3), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("column", "octave"), [(493_268_157, -26), (357_105_734, -25), (370_322_037, -28)])
def test_octaves__far_below_a_weight_win_with_the_least_gaps(column, octave):
    # found by search; the gaps of the last two are 2**-31, the least there is
    i_star, dart = darts.sample(*csr([([column], [1.0])]), 1, 0)
    assert (i_star[0, 0], dart[0, 0]) == (2 * column, octave * 2**32)
    assert oracle_row([column], [1.0], 1, 0)[1] == octave * 2**32


def test_places__of_31_bits_below_the_fraction_are_owned():
    # rows of one coordinate each; dart 0 is the first arrival of octave 0, which is the coordinate's own
    n = 60
    coordinates, octaves = 2 * np.arange(n), np.zeros(n, np.int64)
    _, place, *_ = oracle.arrival_words(coordinates, octaves, octaves, oracle.tile_key(0, 0))
    owned = []
    for fractions in (
        place & ~np.uint64(1),
        place | np.uint64(1),
        np.minimum(place + np.uint64(2), np.uint64(2**32 - 1)),
    ):
        arrays = octaves.astype(np.int32), fractions.astype(np.uint32), np.zeros(n, bool)
        owned.append((darts.sample(np.arange(n + 1), np.arange(n), *arrays, 1, 0)[1] == 0).sum())
    assert owned[:2] == [0, 0]
    assert owned[2] > n / 4


def tied_rows(n_coordinates=2**19):
    """Pairs of coordinates whose first arrivals in octave -1 have equal gaps, both before most others."""
    octave = np.full(n_coordinates // 2, -1)
    g, *_, code = oracle.arrival_words(2 * np.arange(len(octave)), octave, 0 * octave, oracle.tile_key(0, 0))
    order = np.argsort(g >> 1 | 1, kind="stable")
    ties = np.flatnonzero(np.diff(g[order] >> 1 | 1) == 0)
    pairs = np.stack([order[ties], order[ties + 1]], axis=1)
    return pairs[g[pairs[:, 0]] < 2**30], code


@compiled
def test_ties__go_to_the_lower_code_word():
    pairs, code = tied_rows()
    lower = np.where(code[pairs[:, 0]] < code[pairs[:, 1]], pairs[:, 0], pairs[:, 1])
    for row in (pairs, pairs[:, ::-1]):
        arrays = np.arange(0, row.size + 1, 2), row.ravel(), *signed_octaves(np.ones(row.size))
        i_star, dart = darts.sample(*arrays, 1, 0)
        codes = darts.encode(*arrays, 1, 0, 16)[0].view("<u2")
        of_tie = dart[:, 0] == -1 << 32
        assert of_tie.sum() >= 10
        assert np.array_equal(i_star[of_tie, 0], 2 * lower[of_tie])
        assert np.array_equal(codes[of_tie, 0], code[lower[of_tie]] >> np.uint64(16))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e-308, 1e-308)), st.sampled_from("fd"))
def test_signed_octaves__are_exact(values, dtype):
    with np.errstate(over="ignore"):
        values = np.array(values, dtype)
    values = values[np.isfinite(values)]
    exponents, fractions, negative = signed_octaves(values)
    expected = [oracle.octave_of(value) if value else (ABSENT, 0) for value in values.tolist()]
    assert list(zip(exponents.tolist(), fractions.tolist(), strict=True)) == expected
    assert negative.tolist() == (values < 0).tolist()


@given(
    st.lists(st.floats(5e-324, 1.7e308), min_size=1),
    st.sampled_from([0.1, 0.5, 2.0, 3.0, 1000.0]) | st.floats(1e-3, 1e3),
)
@example([1 - 2.0**-53], 0.1)  # a level of nearly 0, whose fraction rounds to 1
def test_signed_octaves__of_powers(values, power):
    exponents, fractions, _ = signed_octaves(np.array(values), power)
    with localcontext(prec=60):
        for x, e, f in zip(values, exponents.tolist(), fractions.tolist(), strict=True):
            level = Decimal(power) * Decimal(x).ln() / Decimal(2).ln()
            written = e + (1 + Decimal(f) / 2**32).log10() / Decimal(2).log10()
            # f is cut by up to 2^-32; the level is a product of float64 numbers, each off by a few ulp
            assert abs(written - level) < Decimal(2) ** -31 + abs(level) * Decimal(2) ** -50


def known_codes():
    """Codes and samples of a small input, as hexadecimal rows and lists."""
    answers = {}
    for power, n_components, bits, seed in [
        (1.0, 24, 8, 0),
        (0.5, 24, 16, 2**64 - 1),
        (3.0, 530, 1, 0x0123456789ABCDEF),
    ]:
        arrays = csr(KNOWN, power=power)
        name = f"{n_components} components, {bits} bits, p = {power}, seed {seed}"
        answers[name] = [row.tobytes().hex() for row in darts.encode(*arrays, n_components, seed, bits)[0]]
        answers[f"samples: {name}"] = [sample[:, :6].tolist() for sample in darts.sample(*arrays, n_components, seed)]
    return answers


@compiled
@pytest.mark.fault("D-11")
def test_known_answers__never_change():
    assert known_codes() == json.loads((DATA / "dart_codes_v1.json").read_text())
