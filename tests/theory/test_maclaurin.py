"""Bounds and variances of random Maclaurin features against draws of the features themselves."""

import numpy as np
import pytest
from reproduction.theory import maclaurin

CUBIC = np.array([1.0, 3.0, 3.0, 1.0])  # (1 + t)^3
X, Y = np.array([0.5, -0.3, 0.2]), np.array([0.4, 0.1, 0.45])
RADIUS = 1.0  # largest l1 norm


def cubic(t):
    return (1 + t) ** 3


def simulated(weights, probabilities, x, y, repeats, seed):
    """Estimates by one component each; `weights` divide, `probabilities` draw, the rest draws an estimate of 0."""
    rng = np.random.default_rng(seed)
    rest = max(1 - probabilities.sum(), 0.0)
    degree = rng.choice(len(CUBIC) + 1, repeats, p=np.append(probabilities, rest))
    estimate = np.append(CUBIC / weights, 0.0)[degree]
    for factor in range(len(CUBIC) - 1):
        signs = rng.choice([-1.0, 1.0], (repeats, len(x)))
        estimate = np.where(degree > factor, estimate * (signs @ x) * (signs @ y), estimate)
    return estimate


@pytest.mark.parametrize("measure", ["proper", "kernel"])
@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_component_variance__is_the_simulated_one(measure, p):
    weights = maclaurin.degree_probabilities(CUBIC, p, measure, RADIUS)
    estimate = simulated(weights, weights, X, Y, 300_000, 1)
    wanted = maclaurin.component_variance(CUBIC, weights, X, Y)
    squares = (estimate - estimate.mean()) ** 2
    # 7e-6 each
    assert abs(squares.mean() - wanted) < 4.5 * squares.std() / np.sqrt(len(squares))
    assert abs(estimate.mean() - cubic(X @ Y)) < 4.5 * estimate.std() / np.sqrt(len(estimate))


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("measure", ["paper", "proper", "kernel"])
def test_component_bound__holds_for_every_draw(measure, p):
    weights = maclaurin.degree_probabilities(CUBIC, p, measure, RADIUS)
    bound = maclaurin.component_bound(cubic, RADIUS, p, measure)
    # one coordinate holds the whole l1 norm: every draw reaches its largest value
    extreme = np.array([RADIUS, 0.0, 0.0])
    drawn = weights / weights.sum()
    reached = np.abs(simulated(weights, drawn, extreme, -extreme, 2_000, 2)).max()
    assert np.abs(simulated(weights, drawn, X, Y, 20_000, 3)).max() <= reached <= bound
    assert reached > (0.99 if measure == "kernel" else 0.3) * bound


def test_component_bound__needs_the_l1_radius():
    # p = 2, f = t^3, rows (1, 1): a draw gives 2^4 * 2^6, the bound at the l2 radius is 2 * (2 * 2)^3
    row = np.array([1.0, 1.0])
    largest = 2**4 * (np.ones(2) @ row) ** 6
    assert largest > maclaurin.component_bound(lambda t: t**3, float(np.linalg.norm(row)), 2.0)
    assert largest <= maclaurin.component_bound(lambda t: t**3, float(np.abs(row).sum()), 2.0)


def test_degree_probabilities__add_up_to_1_where_proper():
    for p in (1.5, 2.0, 7.0):
        assert maclaurin.degree_probabilities(np.ones(200), p).sum() == pytest.approx(1)
    assert maclaurin.degree_probabilities(np.ones(200), 3.0, "paper").sum() == pytest.approx(0.5)
    assert maclaurin.degree_probabilities([0.0, 2.0, 0.5], 3.0, "kernel", radius=2.0).tolist() == [0.0, 0.5, 0.5]


@pytest.mark.parametrize("coefficients", [[1.0, 3.0, 3.0, 1.0], [0.0, 0.5, 0.0, 2.0], [1 / 2**n for n in range(12)]])
def test_kernel_measure__has_the_smallest_worst_case(coefficients):
    radius = 1.3
    own = maclaurin.degree_probabilities(coefficients, measure="kernel", radius=radius)

    def second_moments(weights, lengths):
        # rows that share no column: M is the product of their squared lengths, and the kernel is a_0
        pairs = [([length, 0.0], [0.0, length]) for length in lengths]
        return (
            np.array([maclaurin.component_variance(coefficients, weights, *pair) for pair in pairs])
            + coefficients[0] ** 2
        )

    def f(t):
        return np.polyval(coefficients[::-1], t)

    lengths = np.linspace(0.0, radius, 5)
    moments = second_moments(own, lengths)
    assert moments == pytest.approx(f(radius**2) * f(lengths**4 / radius**2))
    fitting = [maclaurin.degree_probabilities(coefficients, 2.0, "kernel", length) for length in lengths[1:]]
    best = np.array([second_moments(w, [length])[0] for w, length in zip(fitting, lengths[1:], strict=True)])
    assert best == pytest.approx(f(lengths[1:] ** 2) ** 2)
    rng = np.random.default_rng(0)
    for _ in range(50):  # other measures on the degrees with a term
        other = np.where(own > 0, rng.exponential(size=len(own)), 0.0)
        others = second_moments(other / other.sum(), lengths)
        assert others[-1] == others.max() > moments.max()
        assert (others[1:] >= best * (1 - 1e-12)).all()
