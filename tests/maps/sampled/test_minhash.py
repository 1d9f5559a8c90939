"""MinHashFeatures: values that are no set's, the exact kernel, and estimates."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import dkfeat
from dkfeat import MinHashFeatures
from dkfeat.errors import ConfigError, InputError
from dkfeat.maps import _rows
from dkfeat.theory.minhash import sketch_variance
from tests.cli.test_commands import run


def some_sets(rng, n_rows=20, n_columns=300):
    return (rng.random((n_rows, n_columns)) < rng.uniform(0.05, 0.6, (n_rows, 1))).astype(np.float64)


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sp.csr_matrix, sp.coo_array, da.asarray])
@pytest.mark.parametrize("value", [2.0, -1.0, 0.5])
def test_values__other_than_0_and_1_are_an_error_with_a_remedy(kind, value, rng, monkeypatch):
    monkeypatch.setattr(_rows, "_CHECKED_CELLS", 1000)
    features, X = MinHashFeatures(8, random_state=0).fit_width(300), some_sets(rng)
    X[13, 7] = X[15, 2] = value
    calls = [lambda: np.asarray(features.transform(kind(X)))]
    if kind is not da.asarray:
        calls += [lambda: features.exact_kernel(X[:2], kind(X)), lambda: MinHashFeatures().fit(kind(X))]
    for call in calls:
        with pytest.raises(InputError, match=f"X holds {value:g} at row 13, column 7 .*use DartFeatures .map dart."):
            call()


def test_values__of_a_run_are_named_with_their_place(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:1\n0 2:1 3:1\n1 1:1 3:4\n")
    outcome = run("featurize", tmp_path / "rows.svm", "--map", "minhash", "--out", tmp_path / "out", status=2)
    assert "rows.svm:3:7: the map refuses '3:4': X holds 4, but a set has zeros and ones alone" in outcome.stderr


def test_exact_kernel__is_the_resemblance(rng):
    X = some_sets(rng)
    X[4] = 0
    sets = [set(np.flatnonzero(row)) for row in X]
    wanted = [[len(a & b) / max(1, len(a | b)) for b in sets] for a in sets]
    features = MinHashFeatures(random_state=0).fit(X)
    np.testing.assert_allclose(features.exact_kernel(X), wanted)
    pairs = np.arange(19)
    np.testing.assert_array_equal(features.exact_pairs(X, X, pairs, pairs + 1), np.diagonal(wanted, 1))


def test_kernel_pairs__errors_are_those_of_theory(rng):
    X = some_sets(rng, 60)
    features = MinHashFeatures(1000, bits=16, random_state=0).fit(X)
    pairs = features.kernel_pairs(X)
    assert (pairs.kernel, pairs.note) == ("resemblance", "")
    assert 0.7 < pairs.error / pairs.expected_error < 1.4
    bound = MinHashFeatures(1000, bits=16).expected_error_at(pairs.exact)
    np.testing.assert_allclose(bound**2, sketch_variance(pairs.exact, 1000, bits=16))
    assert (pairs.deviations < 0.8 * bound)[pairs.exact > 0].all()  # unions are below a third of k


def test_search__finds_near_sets_by_their_codes(rng, tmp_path):
    X = some_sets(rng, 40)
    X[20:] = X[:20]
    X[np.arange(20, 40), rng.integers(0, 300, 20)] = 1
    text = "".join(f"{i} " + " ".join(f"{c + 1}:1" for c in np.flatnonzero(row)) + "\n" for i, row in enumerate(X))
    (tmp_path / "rows.svm").write_text(text)
    features = MinHashFeatures(500, random_state=0)
    dkfeat.featurize(tmp_path / "rows.svm", tmp_path / "features", features, progress=False)
    found = dkfeat.neighbors.duplicates(tmp_path / "features", threshold=0.8, progress=False)
    assert found.pairs.tolist() == [[i, i + 20] for i in range(20)]
    with pytest.raises(ConfigError, match="use more components, or a higher threshold"):
        dkfeat.neighbors.duplicates(tmp_path / "features", threshold=0.001, progress=False)
