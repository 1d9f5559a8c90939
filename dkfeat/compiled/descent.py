"""Stochastic gradient descent of many linear models side by side, one row after another.

A *lane* is one linear model: one class against the rest, under one loss and one strength of the penalty. All lanes see
the same rows in the same order, and the weights of a column lie side by side, ``[column][lane]``: a row is gathered
once for all of them. Lanes come in blocks of 16, a cache line of float32; a single lane has a loop of its own.

The weights of a lane are ``scale * coef``. The l2 penalty changes `scale` alone, by the factor
``1 / (1 + step_size * alpha)`` a row: the proximal step, which stays positive for penalties of any strength.

The mean of the weights over a window of rows costs nothing in columns that a row does not hold. With S the sum of the
scales so far, the sum of the weights over the window is ``S * coef - lag``, if each change d of `coef` adds ``S * d``
to `lag`, before the row's own scale is added to S. `settle` ends a window.

Arithmetic is strict, and sums over columns are float32 in a fixed order: four partial sums in turn, sixteen for dense
rows of a single lane. Equal rows in equal order give equal bits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dkfeat.compiled._jit import inlined, kernel
from dkfeat.compiled.simd import LANES, broadcast, load, splat, store

__all__ = [
    "HINGE",
    "HUBER",
    "LANES",
    "LOG_LOSS",
    "SMALLEST_SCALE",
    "SQUARED_ERROR",
    "SQUARED_HINGE",
    "Lanes",
    "Rows",
    "Targets",
    "descend",
    "descend_one",
    "settle",
]

HINGE, SQUARED_HINGE, LOG_LOSS, SQUARED_ERROR, HUBER = range(5)
"""Losses that a lane can have."""

SMALLEST_SCALE = 1e-3
"""Below this the window must be settled: what `coef` and `lag` cancel would show in float32."""


class Rows(NamedTuple):
    """Features of a batch, flat."""

    indptr: Any
    """Shape (n_rows + 1,), int64 or int32."""
    indices: Any
    """Columns of the stored values, int32 or int64; of no length for dense rows, which store all columns."""
    values: Any
    """Stored values, float32; of no length where all are `value`."""
    value: Any
    """float64: multiplies all stored values."""


class Targets(NamedTuple):
    """What a batch's rows are to be given."""

    offsets: Any
    """Row i belongs to the outputs ``positives[offsets[i]:offsets[i + 1]]`` and to no other, int64."""
    positives: Any
    """Numbers of outputs, int64."""
    reals: Any
    """Targets of a regression, float64; of no length for classes."""
    weights: Any
    """Weight of each row, float64."""


class Lanes(NamedTuple):
    """State of all lanes, float64 of shape (n_lanes,) unless said otherwise; settled when windows end."""

    kinds: Any
    """Loss of each lane, int64."""
    step_sizes: Any
    """0 where a lane only fills up a block."""
    decays: Any
    """What the penalty multiplies scales by."""
    scales: Any
    sums: Any
    """Sum of the scales over the window."""
    intercepts: Any
    intercept_sums: Any
    """Sum of the intercepts over the window."""
    losses: Any
    """Sum of weighted losses over the window, each before its row changed the weights."""
    mean_intercepts: Any
    """Mean of the intercepts over all rows before the window."""
    mean_losses: Any


@inlined
def _slope_and_loss(kind: Any, score: Any, target: Any, epsilon: Any) -> Any:
    # derivative of a loss by the score, and the loss
    if kind >= SQUARED_ERROR:
        error = score - target
        if kind == SQUARED_ERROR or abs(error) <= epsilon:
            return error, 0.5 * error * error
        return math.copysign(epsilon, error), epsilon * (abs(error) - 0.5 * epsilon)
    margin = score * target
    if kind == LOG_LOSS:
        rest = math.exp(-abs(margin))
        share = rest / (1.0 + rest) if margin > 0.0 else 1.0 / (1.0 + rest)
        return -target * share, math.log1p(rest) - min(margin, 0.0)
    short = 1.0 - margin
    if short <= 0.0:
        return 0.0, 0.0
    if kind == HINGE:
        return -target, short
    return -2.0 * target * short, short * short


@inlined
def _move(lanes: Any, lane: Any, product: Any, target: Any, weight: Any, epsilon: Any, intercept_rate: Any) -> Any:
    # one row in one lane: all but the columns' weights; returns what they and their lag change by, for values of 1
    score = lanes.scales[lane] * product + lanes.intercepts[lane]
    slope, loss = _slope_and_loss(lanes.kinds[lane], score, target, epsilon)
    step = -lanes.step_sizes[lane] * weight * slope
    lanes.losses[lane] += weight * loss
    lanes.scales[lane] *= lanes.decays[lane]
    lanes.intercepts[lane] += intercept_rate * step
    change = step / lanes.scales[lane]
    lag = change * lanes.sums[lane]
    lanes.sums[lane] += lanes.scales[lane]
    lanes.intercept_sums[lane] += lanes.intercepts[lane]
    return change, lag


@inlined
def _product(rows: Any, begin: Any, end: Any, coef: Any, n_lanes: Any, at: Any) -> Any:
    # weights of 16 lanes times the row's stored values
    indices, values = rows.indices, rows.values
    sparse, constant = len(indices) > 0, len(values) == 0
    a = b = c = d = splat(np.float32(0.0))
    whole = begin + (end - begin) // 4 * 4
    if constant:
        for j in range(begin, whole, 4):
            a = a + load(coef, indices[j] * n_lanes + at)
            b = b + load(coef, indices[j + 1] * n_lanes + at)
            c = c + load(coef, indices[j + 2] * n_lanes + at)
            d = d + load(coef, indices[j + 3] * n_lanes + at)
        for j in range(whole, end):
            a = a + load(coef, indices[j] * n_lanes + at)
    elif sparse:
        for j in range(begin, whole, 4):
            a = a + load(coef, indices[j] * n_lanes + at) * broadcast(values, j)
            b = b + load(coef, indices[j + 1] * n_lanes + at) * broadcast(values, j + 1)
            c = c + load(coef, indices[j + 2] * n_lanes + at) * broadcast(values, j + 2)
            d = d + load(coef, indices[j + 3] * n_lanes + at) * broadcast(values, j + 3)
        for j in range(whole, end):
            a = a + load(coef, indices[j] * n_lanes + at) * broadcast(values, j)
    else:
        for j in range(begin, whole, 4):
            to = (j - begin) * n_lanes + at
            a = a + load(coef, to) * broadcast(values, j)
            b = b + load(coef, to + n_lanes) * broadcast(values, j + 1)
            c = c + load(coef, to + 2 * n_lanes) * broadcast(values, j + 2)
            d = d + load(coef, to + 3 * n_lanes) * broadcast(values, j + 3)
        for j in range(whole, end):
            a = a + load(coef, (j - begin) * n_lanes + at) * broadcast(values, j)
    return (a + b) + (c + d)


@inlined
def _add(rows: Any, begin: Any, end: Any, table: Any, n_lanes: Any, at: Any, change: Any) -> None:
    # add a change of 16 lanes, times the row's stored values, to their columns
    indices, values = rows.indices, rows.values
    sparse, constant = len(indices) > 0, len(values) == 0
    if constant:
        for j in range(begin, end):
            to = indices[j] * n_lanes + at
            store(table, to, load(table, to) + change)
    elif sparse:
        for j in range(begin, end):
            to = indices[j] * n_lanes + at
            store(table, to, load(table, to) + change * broadcast(values, j))
    else:
        for j in range(begin, end):
            to = (j - begin) * n_lanes + at
            store(table, to, load(table, to) + change * broadcast(values, j))


@kernel
def descend(
    rows: Any,
    targets: Any,
    start: Any,
    lanes: Any,
    n_outputs: Any,
    epsilon: Any,
    intercept_rate: Any,
    coef: Any,
    lag: Any,
) -> Any:
    """Show rows of a batch to all lanes, until the batch or the window ends.

    Parameters
    ----------
    rows : Rows
    targets : Targets
    start : int
        Row to begin with.
    lanes : Lanes
        A multiple of 16; changed.
    n_outputs : int
        Lane ``v * n_outputs + o`` is output o of variant v.
    epsilon : float
        Error at which the Huber loss turns from square to absolute.
    intercept_rate : float
        Step of the intercept, as a share of the step of the weights.
    coef : ndarray of shape (n_columns * n_lanes,), float32
        Changed.
    lag : ndarray of the same shape or of none, float32
        Changed; without it, weights are not averaged.

    Returns
    -------
    stop : int
        Rows shown, with those before `start`; settle the window if it is not all of them.
    """
    n_lanes, n_rows = len(lanes.kinds), len(rows.indptr) - 1
    products, changes, lags = (
        np.empty(n_lanes, np.float32),
        np.empty(n_lanes, np.float32),
        np.empty(n_lanes, np.float32),
    )
    wanted = np.empty(n_lanes, np.float64)
    regression, average = len(targets.reals) > 0, len(lag) > 0
    for row in range(start, n_rows):
        begin, end = np.int64(rows.indptr[row]), np.int64(rows.indptr[row + 1])
        for at in range(0, n_lanes, LANES):
            store(products, at, _product(rows, begin, end, coef, n_lanes, at))
        if regression:
            wanted[:] = targets.reals[row]
        else:
            wanted[:] = -1.0
            for j in range(targets.offsets[row], targets.offsets[row + 1]):
                for lane in range(targets.positives[j], n_lanes, n_outputs):
                    wanted[lane] = 1.0
        smallest = 1.0
        for at in range(0, n_lanes, LANES):
            moved = False
            for lane in range(at, at + LANES):
                change, delay = _move(
                    lanes,
                    lane,
                    products[lane] * rows.value,
                    wanted[lane],
                    targets.weights[row],
                    epsilon,
                    intercept_rate,
                )
                moved |= change != 0.0
                changes[lane], lags[lane] = change * rows.value, delay * rows.value
                smallest = min(smallest, lanes.scales[lane])
            if moved:
                _add(rows, begin, end, coef, n_lanes, at, load(changes, at))
                if average:
                    _add(rows, begin, end, lag, n_lanes, at, load(lags, at))
        if smallest < SMALLEST_SCALE:
            return row + 1
    return n_rows


@inlined
def _product_of_one(rows: Any, begin: Any, end: Any, coef: Any) -> Any:
    indices, values = rows.indices, rows.values
    sparse, constant = len(indices) > 0, len(values) == 0
    a = b = c = d = np.float32(0.0)
    if constant or sparse:
        whole = begin + (end - begin) // 4 * 4
        if constant:
            for j in range(begin, whole, 4):
                a += coef[indices[j]]
                b += coef[indices[j + 1]]
                c += coef[indices[j + 2]]
                d += coef[indices[j + 3]]
            for j in range(whole, end):
                a += coef[indices[j]]
        else:
            for j in range(begin, whole, 4):
                a += coef[indices[j]] * values[j]
                b += coef[indices[j + 1]] * values[j + 1]
                c += coef[indices[j + 2]] * values[j + 2]
                d += coef[indices[j + 3]] * values[j + 3]
            for j in range(whole, end):
                a += coef[indices[j]] * values[j]
        return (a + b) + (c + d)
    width = end - begin
    whole = width // LANES * LANES
    sums = splat(np.float32(0.0))
    for k in range(0, whole, LANES):
        sums = sums + load(coef, k) * load(values, begin + k)
    parts = np.empty(LANES, np.float32)
    store(parts, 0, sums)
    for part in parts:
        a += part
    for k in range(whole, width):
        a += coef[k] * values[begin + k]
    return a


@inlined
def _add_to_one(rows: Any, begin: Any, end: Any, table: Any, change: Any) -> None:
    indices, values = rows.indices, rows.values
    if len(values) == 0:
        for j in range(begin, end):
            table[indices[j]] += change
    elif len(indices) > 0:
        for j in range(begin, end):
            table[indices[j]] += change * values[j]
    else:
        for k in range(end - begin):
            table[k] += change * values[begin + k]


@kernel
def descend_one(
    rows: Any,
    targets: Any,
    start: Any,
    lanes: Any,
    epsilon: Any,
    intercept_rate: Any,
    coef: Any,
    lag: Any,
) -> Any:
    """Do what `descend` does for a single lane, whose tables have shape (n_columns,)."""
    n_rows = len(rows.indptr) - 1
    for row in range(start, n_rows):
        begin, end = np.int64(rows.indptr[row]), np.int64(rows.indptr[row + 1])
        if len(targets.reals) > 0:
            wanted = targets.reals[row]
        else:
            wanted = 1.0 if targets.offsets[row + 1] > targets.offsets[row] else -1.0
        product = _product_of_one(rows, begin, end, coef) * rows.value
        change, delay = _move(lanes, 0, product, wanted, targets.weights[row], epsilon, intercept_rate)
        if change != 0.0:
            _add_to_one(rows, begin, end, coef, np.float32(change * rows.value))
            if len(lag) > 0:
                _add_to_one(rows, begin, end, lag, np.float32(delay * rows.value))
        if lanes.scales[0] < SMALLEST_SCALE:
            return row + 1
    return n_rows


@kernel
def settle(lanes: Any, n_window: Any, n_before: Any, coef: Any, lag: Any, mean: Any) -> None:
    """End a window: put scales into the weights, and the window's weights into their mean.

    Parameters
    ----------
    lanes : Lanes
        `scales` become 1, sums 0, and means take the window in.
    n_window, n_before : int
        Rows of the window, at least 1, and rows before it.
    coef : ndarray of shape (n_columns * n_lanes,), float32
    lag, mean : ndarrays of the same shape, or of none, float32
        The mean is over all rows before the window, and then with it.
    """
    n_lanes = len(lanes.kinds)
    total = np.float64(n_window + n_before)
    old = n_before / total
    scales, shares = np.empty(n_lanes, np.float64), np.empty(n_lanes, np.float64)
    for lane in range(n_lanes):
        scales[lane], shares[lane] = lanes.scales[lane], lanes.sums[lane] / total
    average = len(lag) > 0
    for begin in range(0, len(coef), n_lanes):
        for lane in range(n_lanes):
            weight = np.float64(coef[begin + lane])
            if average:
                window = weight * shares[lane] - np.float64(lag[begin + lane]) / total
                mean[begin + lane] = np.float32(mean[begin + lane] * old + window)
                lag[begin + lane] = 0.0
            coef[begin + lane] = np.float32(weight * scales[lane])
    for lane in range(n_lanes):
        lanes.scales[lane], lanes.sums[lane] = 1.0, 0.0
        lanes.mean_intercepts[lane] = lanes.mean_intercepts[lane] * old + lanes.intercept_sums[lane] / total
        lanes.mean_losses[lane] = lanes.mean_losses[lane] * old + lanes.losses[lane] / total
        lanes.intercept_sums[lane] = lanes.losses[lane] = 0.0
