"""GCWSFeatures: parameters, codes, preparation of rows, and use in a pipeline."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dkfeat import GCWSFeatures
from dkfeat.kernels import gmm
from dkfeat.theory.gmm import rho_from_gmm
from tests.maps.test_sampled import same, some_rows
from tests.reference.gcws import unpack


@pytest.mark.parametrize(
    ("n_features", "i_bits", "mode"),
    [
        (128, 8, "injective"),
        (129, 8, "signed"),
        (256, 8, "signed"),
        (257, 8, "mixed"),
        (1, 1, "injective"),
        (3, 1, "mixed"),
    ],
)
def test_code_mode__follows_width_and_bits(n_features, i_bits, mode):
    assert GCWSFeatures(i_bits=i_bits).fit_width(n_features).code_mode_ == mode
    assert GCWSFeatures(i_bits=i_bits, code="lowest").fit_width(n_features).code_mode_ == "lowest"


@given(
    n_components=st.integers(1, 40),
    i_bits=st.integers(1, 16),
    t_bits=st.integers(0, 2),
    n_features=st.sampled_from([1, 5, 40, 300, 70_000]),
    code=st.sampled_from(["auto", "lowest"]),
)
def test_transform__is_decode_of_encode(n_components, i_bits, t_bits, n_features, code):
    features = GCWSFeatures(n_components, i_bits=i_bits, t_bits=t_bits, code=code, random_state=1).fit_width(n_features)
    X = sp.csr_matrix(some_rows(6, min(n_features, 9)))
    X = sp.csr_matrix((X.data, X.indices, X.indptr), shape=(6, n_features))
    Z, encoded = features.transform(X), features.encode(X)
    bits = i_bits + t_bits
    assert same(features.decode(encoded), Z)
    assert encoded.codes.shape == (6, features.encoded_row_bytes)
    assert features.encoded_row_bytes == -(-n_components * bits // 8)
    codes = unpack(encoded.codes, n_components, bits)
    held = ~encoded.empty
    wanted = codes + np.arange(n_components) * 2**bits
    assert Z.shape == (6, n_components * 2**bits)
    assert Z.indices.tolist() == wanted[held].ravel().tolist()
    assert np.diff(Z.indptr).tolist() == (held * n_components).tolist()


def test_sample__codes_keep_the_low_bits_of_an_injective_sample():
    features = GCWSFeatures(64, i_bits=5, t_bits=2, random_state=0).fit_width(9)
    X = some_rows() * 1e3
    i_star, t_star = features.sample(X)
    codes = unpack(features.encode(X).codes, 64, 7)
    assert features.code_mode_ == "injective"
    assert np.array_equal(codes & 31, i_star)
    assert np.array_equal(codes >> 5, t_star % 4)
    assert len(np.unique(t_star % 4)) == 4


def test_sample__lowest_code_is_the_papers():
    features = GCWSFeatures(64, i_bits=3, code="lowest", random_state=0).fit_width(9)
    X = some_rows()
    assert np.array_equal(unpack(features.encode(X).codes, 64, 3), features.sample(X)[0] % 8)


def test_sample__signed_code_is_lossless_on_each_sign():
    features = GCWSFeatures(64, i_bits=4, random_state=0).fit_width(9)
    assert features.code_mode_ == "signed"
    for sign in (1, -1):
        X = sign * np.abs(some_rows())
        i_star, codes = features.sample(X)[0], unpack(features.encode(X).codes, 64, 4)
        for component in range(64):
            pairs = set(zip(i_star[:, component], codes[:, component], strict=True))
            assert len({i for i, _ in pairs}) == len({c for _, c in pairs}) == len(pairs)


@pytest.mark.parametrize(("n_features", "i_bits"), [(40, 8), (200, 8), (2000, 8), (2000, 4)])
def test_estimate_kernel__corrects_by_the_code_in_force(n_features, i_bits):
    rng = np.random.default_rng(3)
    X = rng.lognormal(size=(12, n_features))
    features = GCWSFeatures(4096, i_bits=i_bits, random_state=0).fit(X)
    estimate = features.estimate_kernel(features.encode(X[:5]), features.encode(X))
    exact = gmm(X[:5], X)
    # standard error at most 1/128, with 4 bits 16/15 of that; 60 values within 5 of them: fails once in 30,000 seeds
    assert np.abs(estimate - exact).max() < 5 / 128 * 16 / 15 + 0.01  # 0.01: the 0-bit bias
    assert np.allclose(np.diag(estimate), 1)


@pytest.mark.slow
@pytest.mark.parametrize("t_bits", [0, 1, 2])
@pytest.mark.parametrize("binary", [False, True])
def test_estimate_kernel__takes_levels_into_account(t_bits, binary):
    X = np.kron(np.eye(2), np.random.default_rng(4).lognormal(size=(1, 1000)))
    X = (X > 0).astype(float) if binary else X
    features = GCWSFeatures(2**17, i_bits=2, t_bits=t_bits, random_state=0).fit(X)
    estimate = features.estimate_kernel(features.encode(X))[0, 1]
    # standard error at most sqrt(3)/4 / 2^8.5 * 4/3 = 0.0016; within 4 of them: each case fails once in 16,000 seeds.
    # The chance of 1/4 alone, whatever the levels, would be off by 0.1 for real values, 1/16 by 0.2 for binary ones
    assert abs(estimate) < 4 * 0.0016


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "sigma"), [(0.9, 1.0), (-0.6, 1.0), (0.5, 3.0)])
def test_estimate_kernel__gives_correlations_of_heavy_tails(rho, sigma):
    rng = np.random.default_rng(5)
    normal = rng.multivariate_normal([0, 0], [[1, rho * sigma], [rho * sigma, sigma**2]], size=5_000)
    X = (normal / np.sqrt(rng.chisquare(3, size=(5_000, 1)) / 3)).T  # t-distribution, 3 degrees of freedom
    features = GCWSFeatures(2**14, t_bits=2, random_state=0).fit(X)
    found = rho_from_gmm(features.estimate_kernel(features.encode(X)).clip(0, 1), sigma)
    # 4 standard errors of g: 4 * 0.5 / 2^7 = 0.016 from codes, 0.04 from columns; slope of rho in g at most 4 here
    assert abs(found[0, 1] - rho) < 4 * (0.016 + 0.04)
