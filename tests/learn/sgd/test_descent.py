"""The compiled descent against a plain one, and what makes it a pure function."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies
from scipy import sparse

from dkfeat import GCWSFeatures
from dkfeat.compiled import descent as steps
from dkfeat.config.train import CLASS_LOSSES
from dkfeat.learn.sgd import descent
from dkfeat.learn.sgd.descent import LOSSES, Descent, DescentConfig, Variant, Weights
from tests.learn.fakes import run_epoch
from tests.reference import descent as reference

N_COLUMNS = 37


def some_rows(n_rows=200, *, seed=0, density=0.4):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, N_COLUMNS)) * (rng.random((n_rows, N_COLUMNS)) < density)
    X[3] = 0
    return (X / np.maximum(1e-9, np.linalg.norm(X, axis=1, keepdims=True))).astype(np.float32)


def layout(X, kind):
    return {"dense": X, "sparse": sparse.csr_matrix(X)}[kind]


def of(task, losses=("hinge",), alphas=(1e-4,), **changes):
    classes = {"binary": [3, 4], "multiclass": [3, 4, 7], "multilabel": [3, 4, 7], "regression": []}[task]
    variants = tuple(Variant(loss, alpha) for loss in losses for alpha in alphas)
    return DescentConfig(task=task, classes=np.array(classes), variants=variants, **changes)


def labels(task, n_rows, seed=1):
    rng = np.random.default_rng(seed)
    if task == "regression":
        return rng.standard_normal(n_rows)
    if task == "multilabel":
        return sparse.csr_matrix((rng.random((n_rows, 3)) < 0.4).astype(np.uint8))
    return rng.choice([3, 4] if task == "binary" else [3, 4, 7], n_rows)


def wanted(task, y):
    """Targets of each output, shape (n_rows, n_outputs)."""
    if task == "regression":
        return y[:, None]
    if task == "multilabel":
        return np.where(y.toarray() > 0, 1.0, -1.0)
    return np.where(y[:, None] == np.array([4] if task == "binary" else [3, 4, 7]), 1.0, -1.0)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("task", "losses"),
    [
        ("binary", ["hinge"]),
        ("binary", ["squared_hinge"]),
        ("binary", ["log_loss"]),
        ("multiclass", ["hinge", "squared_hinge", "log_loss"]),
        ("multilabel", ["log_loss"]),
        ("regression", ["squared_error"]),
        ("regression", ["huber"]),
        ("regression", ["squared_error", "huber"]),
    ],
)
def test_run_epoch__does_what_a_plain_loop_does(task, losses, kind):
    alphas = (1e-4,) if len(losses) == 1 and task in ("binary", "regression") else (1e-4, 0.3)  # the first: one lane
    given_settings = of(task, losses, alphas)
    X, y = some_rows(), labels(task, 200)
    weight = np.random.default_rng(2).uniform(0, 2, 200)
    rows = layout(X, kind)
    batches = [(rows[start : start + 70], y[start : start + 70], weight[start : start + 70]) for start in (0, 70, 140)]
    found = run_epoch(Weights.zeros(given_settings, N_COLUMNS), batches, given_settings)
    assert found.steps == 200
    lane = 0
    for variant in given_settings.variants:
        for target in wanted(task, y).T:
            expected = reference.fit(
                X.astype(np.float64),
                target,
                weight,
                loss=variant.loss,
                alpha=variant.alpha,
                step_size=LOSSES[variant.loss][1],
                intercept_rate=descent.INTERCEPT_RATE,
            )
            lanes = (found.coef, found.intercept, found.mean_coef, found.mean_intercept, found.loss)
            for array, value in zip(lanes, expected, strict=True):
                np.testing.assert_allclose(array[..., lane], value, rtol=2e-4, atol=2e-5)
            lane += 1
    assert not found.coef[:, lane:].any()  # lanes that fill up a block


@pytest.mark.parametrize(("task", "alphas"), [("binary", (1e-4,)), ("multiclass", (1e-4, 1e-2))])
@pytest.mark.parametrize(("average", "bits"), [(True, 3), (False, 1), (True, 8)])
def test_run_epoch__codes_are_the_ones_that_they_stand_for(task, alphas, average, bits):
    gcws = GCWSFeatures(n_components=7, i_bits=bits, random_state=0).fit_width(N_COLUMNS)
    X, y = sparse.csr_matrix(some_rows()), labels(task, 200)
    codes, width = gcws.encode(X), gcws.n_features_out
    assert codes.empty.any()
    packed = of(task, alphas=alphas, average=average, code_bits=bits, scale=0.25)
    ones = of(task, alphas=alphas, average=average, scale=0.25)
    first = run_epoch(Weights.zeros(packed, width), [(codes, y, None)], packed)
    second = run_epoch(Weights.zeros(ones, width), [(gcws.transform(X), y, None)], ones)
    np.testing.assert_allclose(first.averaged[0], second.averaged[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first.model(packed, 0)[0], 0.25 * first.averaged[0][:, : ones.n_outputs].T, rtol=1e-6)


def test_rows__columns_of_codes_have_64_bits_if_there_are_more_than_31():
    codes = GCWSFeatures(n_components=1, random_state=0).fit_width(N_COLUMNS).encode(some_rows())
    kinds = [descent._rows(codes, of("binary", code_bits=8), width).indices.dtype for width in (2**31, 2**31 + 256)]
    assert kinds == [np.uint32, np.int64]


@given(cuts=strategies.lists(strategies.integers(1, 199), max_size=4, unique=True), average=strategies.booleans())
def test_run_epoch__weights_do_not_depend_on_where_batches_are_cut(cuts, average):
    chosen = of("multiclass", average=average)
    X, y = some_rows(), labels("multiclass", 200)
    edges = [0, *sorted(cuts), 200]
    parts = [(X[start:stop], y[start:stop], None) for start, stop in pairwise(edges)]
    whole, cut = (run_epoch(Weights.zeros(chosen, N_COLUMNS), batches, chosen) for batches in ([(X, y, None)], parts))
    assert whole.coef.tobytes() == cut.coef.tobytes()
    assert (whole.mean_coef is None) is not average
    if average:
        assert whole.mean_coef.tobytes() == cut.mean_coef.tobytes()


def test_run_epoch__a_weight_of_two_counts_as_a_step_twice_as_long_if_that_is_short(monkeypatch):
    monkeypatch.setattr(descent, "INTERCEPT_RATE", 0.0)
    X, y = np.eye(N_COLUMNS, dtype=np.float32), np.full(N_COLUMNS, 4)
    chosen = of("binary", ("hinge",))
    quarter, half, four = (
        run_epoch(Weights.zeros(chosen, N_COLUMNS), [(X, y, np.full(N_COLUMNS, weight))], chosen)
        for weight in (0.25, 0.5, 4.0)
    )
    np.testing.assert_allclose(half.coef, 2 * quarter.coef, rtol=1e-6)
    np.testing.assert_allclose(four.coef, 2 * half.coef, rtol=1e-6)  # 1, where no loss is left
    assert not half.intercept.any()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("loss", LOSSES)
def test_run_epoch__rows_of_any_length_and_weight_do_what_a_plain_loop_does(loss, kind):
    # lengths over six decades and weights over eight: explicit steps would be up to 1e14 times too long
    rng = np.random.default_rng(3)
    X = some_rows(60) * 10 ** rng.uniform(-3, 3, (60, 1)).astype(np.float32)
    task = "binary" if loss in CLASS_LOSSES else "regression"
    weight, y = 10 ** rng.uniform(-4, 4, 60), labels(task, 60)
    chosen = of(task, (loss,))
    found = run_epoch(Weights.zeros(chosen, N_COLUMNS), [(layout(X, kind), y, weight)], chosen)
    coef, intercept, *_ = reference.fit(
        X.astype(np.float64),
        wanted(task, y)[:, 0],
        weight,
        loss=loss,
        alpha=1e-4,
        step_size=LOSSES[loss][1],
        intercept_rate=descent.INTERCEPT_RATE,
    )
    np.testing.assert_allclose(found.coef[:, 0], coef, rtol=1e-3, atol=1e-4 * np.abs(coef).max())
    np.testing.assert_allclose(found.intercept[0], intercept, rtol=1e-3, atol=1e-4)


def test_step_size__falls_by_the_root_of_the_typical_weight():
    length = LOSSES["hinge"][1]
    assert of("binary").step_size("hinge") == length
    assert of("binary", typical_weight=9.0).step_size("hinge") == length / 3
    assert of("binary", typical_weight=0.25).step_size("hinge") == length


@pytest.mark.filterwarnings("ignore:overflow")  # of loops that run as plain Python
@pytest.mark.parametrize("unit", [2.0**-110, 2.0**110], ids=["small", "large"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_run_epoch__rows_whose_squares_float32_does_not_hold_are_learnt_like_others(task, kind, unit):
    X, y = some_rows(), labels(task, 200)
    plain, scaled = of(task, ("squared_hinge",)), of(task, ("squared_hinge",), scale=1 / unit)
    expected = run_epoch(Weights.zeros(plain, N_COLUMNS), [(layout(X, kind), y, None)], plain)
    found = run_epoch(Weights.zeros(scaled, N_COLUMNS), [(layout(X * np.float32(unit), kind), y, None)], scaled)
    np.testing.assert_allclose(found.coef, expected.coef, rtol=1e-4, atol=1e-6)
    assert np.abs(expected.coef).max() > 0.1


@given(
    loss=strategies.sampled_from(sorted(LOSSES)),
    target=strategies.sampled_from([-1.0, 1.0]),
    score=strategies.floats(-1e6, 1e6),
    size=strategies.floats(0, 1e9),
    length=strategies.floats(0, 1e9),
)
def test_step_and_loss__is_exact_and_goes_no_further_than_the_target(loss, target, score, size, length):
    kind = LOSSES[loss][0]
    step, value = steps.step_and_loss(kind, score, target, 0.1, size, length)
    assert value == pytest.approx(reference.value(loss, score, target, 0.1), rel=1e-9, abs=1e-12)
    exact = reference.implicit_step(loss, score, target, 0.1, size, length)
    assert step == pytest.approx(exact, rel=1e-5, abs=1e-12)
    if loss != "log_loss":  # whose target is beyond all scores
        before, after = score - target, score + step * length - target
        assert before * after >= -1e-9 * before**2


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_run_epoch__windows_end_when_penalties_have_shrunk_weights_far(task):
    # a penalty of 2 divides all weights by 3 each row: thousands of windows, and means that stay exact
    X, y = some_rows(), labels(task, 200)
    chosen = of(task, alphas=(2.0,))
    found = run_epoch(Weights.zeros(chosen, N_COLUMNS), [(X, y, None)], chosen)
    expected = reference.fit(
        X, wanted(task, y)[:, 0], np.ones(200), loss="hinge", alpha=2.0, step_size=1.0, intercept_rate=0.01
    )
    np.testing.assert_allclose(found.coef[:, 0], expected[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.mean_coef[:, 0], expected[2], rtol=1e-4, atol=1e-6)


def test_descent__goes_on_from_the_weights_of_any_window_bit_by_bit(monkeypatch):
    monkeypatch.setattr(descent, "WINDOW_ROWS", 50)
    chosen = of("multiclass", alphas=(1e-4, 1e-2))
    X, y = some_rows(), labels("multiclass", 200)
    batches = [(X[start : start + 25], y[start : start + 25], None) for start in range(0, 200, 25)]
    whole = run_epoch(Weights.zeros(chosen, N_COLUMNS), batches, chosen)
    for stop in range(1, 8):
        first = Descent(Weights.zeros(chosen, N_COLUMNS), chosen)
        for batch in batches[:stop]:
            first.run_batch(*batch)
        if not first.is_at_window_end:
            continue
        again = run_epoch(first.weights(), batches[stop:], chosen)
        for name in ("coef", "intercept", "mean_coef", "mean_intercept", "loss"):
            assert getattr(again, name).tobytes() == getattr(whole, name).tobytes()


def test_class_weights__count_as_weights_of_rows():
    X, y = some_rows(), labels("multiclass", 200)
    plain, weighted = of("multiclass"), of("multiclass", class_weights=np.array([1.0, 2.5, 0.5]))
    by_row = np.array([1.0, 2.5, 0.5])[np.searchsorted([3, 4, 7], y)]
    first = run_epoch(Weights.zeros(plain, N_COLUMNS), [(X, y, by_row)], plain)
    second = run_epoch(Weights.zeros(weighted, N_COLUMNS), [(X, y, None)], weighted)
    assert first.coef.tobytes() == second.coef.tobytes()
