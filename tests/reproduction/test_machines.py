"""Machines of the papers' tables, compared with LIBLINEAR and LIBSVM."""

import numpy as np
import pytest
from reproduction.machines import accuracies, best
from reproduction.machines.accuracies import kernel_accuracies, linear_accuracies, optimal_linear_accuracies
from reproduction.machines.interior import kernel_factor, optimum
from scipy.sparse import csr_matrix
from sklearn.svm import SVC, LinearSVC


@pytest.fixture(scope="module")
def rows():
    """Training and test rows of three classes that overlap, and their RBF kernel values."""
    random = np.random.default_rng(3)
    X, y = random.normal(size=(240, 4)), random.integers(3, size=240)
    X[np.arange(240), y] += 1.5
    values = np.exp(-0.3 * ((X[:, np.newaxis] - X) ** 2).sum(axis=2))
    return X, y, values


def losses(y, decisions):
    return np.maximum(0, 1 - y * decisions).sum()


@pytest.mark.parametrize("C", [0.1, 10.0, 300.0])
def test_optimum__linear_objective_is_liblinears_at_most(rows, C):
    X, y = rows[0], np.where(rows[1] == 0, 1.0, -1.0)
    found = optimum(X, y, C, bias=False)
    peer = LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-9, max_iter=300_000, random_state=0).fit(X, y)
    ours, theirs = (w @ w / 2 + C * losses(y, X @ w) for w in (X.T @ found.weights, peer.coef_[0]))
    assert ours <= theirs * (1 + 1e-6)
    assert found.gap < 1e-6
    assert found.bias == 0


@pytest.mark.parametrize("C", [0.1, 10.0, 1000.0])
def test_optimum__kernel_objective_is_libsvms_at_most(rows, C):
    values, y = rows[2], np.where(rows[1] == 0, 1.0, -1.0)
    found = optimum(kernel_factor(values), y, C, bias=True)
    peer = SVC(kernel="precomputed", C=C, tol=1e-7).fit(values, y)
    weights = np.zeros(len(y))
    weights[peer.support_] = peer.dual_coef_[0]
    ours, theirs = (
        w @ values @ w / 2 + C * losses(y, values @ w + b)
        for w, b in ((found.weights, found.bias), (weights, peer.intercept_[0]))
    )
    assert ours <= theirs * (1 + 1e-6)
    assert abs(found.weights.sum()) < 1e-6 * C
    assert np.abs(found.weights).max() <= C


@pytest.mark.parametrize("few", [1, 2, 4])
def test_optimum__of_few_rows_against_many(rows, few):
    values, y, C = rows[2][:80, :80], np.where(np.arange(80) < few, 1.0, -1.0), 0.17783
    found = optimum(kernel_factor(values), y, C, bias=True)
    peer = SVC(kernel="precomputed", C=C, tol=1e-7).fit(values, y)
    least = C * losses(y, peer.decision_function(values)) + peer.dual_coef_[0] @ (
        values[np.ix_(peer.support_, peer.support_)] @ peer.dual_coef_[0] / 2
    )
    objective = found.weights @ values @ found.weights / 2 + C * losses(y, values @ found.weights + found.bias)
    assert objective == pytest.approx(least, rel=1e-5)
    assert abs(found.weights.sum()) < 1e-6 * C
    assert 0 <= found.gap < 1e-6


def test_optimum__separates_rows_at_a_huge_c(rows):
    X = rows[0][:40]
    y = np.where(X[:, 0] + 1e-3 > 0, 1.0, -1.0)
    found = optimum(X, y, 1e7, bias=False)
    assert (y * (X @ X.T @ found.weights) > 0.99).all()


def test_kernel_factor__has_the_rank_of_the_kernel(rows):
    values = (1 + rows[0] @ rows[0].T) ** 2
    factor = kernel_factor(values)
    assert factor.shape == (240, 15)  # monomials of degree 2 in four variables and a constant
    np.testing.assert_allclose(factor @ factor.T, values, atol=1e-8)
    smooth = kernel_factor(rows[2] ** 0.1)
    assert smooth.shape[1] < 240
    np.testing.assert_allclose(smooth @ smooth.T, rows[2] ** 0.1, rtol=0, atol=1e-8)


@pytest.mark.parametrize("classes", [2, 3])
def test_kernel_accuracies__do_not_depend_on_the_solver(rows, monkeypatch, classes):
    _, y, values = rows
    kept = np.flatnonzero(y < classes)
    train, test = kept[:100], kept[100:]
    gram, block = values[np.ix_(train, train)], values[np.ix_(test, train)]
    C = [0.1, 1.0, 10.0]
    peer = [100 * SVC(kernel="precomputed", C=each).fit(gram, y[train]).score(block, y[test]) for each in C]
    assert kernel_accuracies(gram, y[train], block, y[test], C) == pytest.approx(peer)
    monkeypatch.setattr(accuracies, "ITERATIONS", 1)
    for wide in (0.0, 1.0):
        monkeypatch.setattr(accuracies, "WIDE_FACTOR", wide)
        assert kernel_accuracies(gram, y[train], block, y[test], C) == pytest.approx(peer, abs=100 / len(test))


def test_kernel_accuracies__end_where_no_solver_gets_there(rows, monkeypatch):
    _, y, values = rows
    C = [0.01, 0.1, 1.0, 1e4, 1e5]
    monkeypatch.setattr(accuracies, "PATIENCE", 1e9)
    whole = kernel_accuracies(values, y, values, y, C)
    monkeypatch.setattr(accuracies, "ITERATIONS", 1000)
    monkeypatch.setattr(accuracies, "MOST_ITERATIONS", 1000)
    monkeypatch.setattr(accuracies, "WIDE_FACTOR", 0.0)
    found = kernel_accuracies(values, y, values, y, C)
    assert 1 <= len(found) < len(C)
    assert found == whole[: len(found)]
    monkeypatch.setattr(accuracies, "WIDE_FACTOR", 1.0)
    assert kernel_accuracies(values, y, values, y, C)[: len(found)] == found
    monkeypatch.setattr(accuracies, "MOST_GAP", -1.0)  # of the interior-point method, which gets there
    assert kernel_accuracies(values, y, values, y, C) == found


def test_kernel_accuracies__go_on_while_only_the_largest_class_is_predicted():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 1))
    y = np.where(X[:, 0] > -0.5, 1, 0)
    gram = np.exp(-1e-6 * (X - X.T) ** 2)
    found = kernel_accuracies(gram, y, gram, y, [10.0**power for power in range(9)])
    assert found[0] == found[3] == pytest.approx(100 * y.mean())
    assert max(found) > 95


@pytest.mark.parametrize("classes", [2, 3])
def test_optimal_linear_accuracies__are_liblinears_where_it_gets_there(rows, monkeypatch, classes):
    X, y, _ = rows
    kept = np.flatnonzero(y < classes)
    train, test = kept[:100], kept[100:]
    arguments = csr_matrix(X[train]), y[train], csr_matrix(X[test]), y[test], [0.01, 0.1, 1.0]
    peer = linear_accuracies(*arguments, tol=1e-6, passes=100_000)
    assert optimal_linear_accuracies(*arguments) == pytest.approx(peer, abs=100 / len(test))
    monkeypatch.setattr(accuracies, "WIDEST", 3)
    assert optimal_linear_accuracies(*arguments) == pytest.approx(peer, abs=100 / len(test))


def test_gammas__are_the_papers_58():
    assert len(best.GAMMAS) == len(set(best.GAMMAS)) == 58
    assert list(best.GAMMAS) == sorted(best.GAMMAS)
    assert (best.GAMMAS[0], best.GAMMAS[-1]) == (0.001, 1000.0)


def test_rbf_best__finds_the_best_gamma_without_trying_all(monkeypatch, rows):
    tried = []

    def of_one_peak(gram, *arguments):
        gamma = round(float(np.log(gram[0, 1]) / np.log(rows[2][0, 1])), 6)
        tried.append(gamma)
        return [90.0 - abs(gamma - 37) - abs(np.log10(each) - 1.5) for each in arguments[-1]]

    monkeypatch.setattr(best, "load_rows", lambda *_: Drawn(rows))
    monkeypatch.setattr(best.kernels, "rbf_cosine", lambda *_, **__: rows[2])
    monkeypatch.setattr(best, "kernel_accuracies", of_one_peak)
    gammas = [float(gamma) for gamma in range(1, 59)]
    found = best.rbf_best("", name="", rows=None, grid=[1.0, 10.0, 100.0], gammas=gammas, seed=0)
    assert (found["gamma"], found["C"]) == (37.0, pytest.approx(31.6228))
    assert len(tried) < 20


class Drawn:
    """Rows that any drawing leaves as they are."""

    def __init__(self, rows):
        self.X, self.y, _ = rows
        self.X_test, self.y_test = self.X, self.y

    def sample(self, *_):
        return self
