"""Stochastic gradient descent of many linear models side by side, one row after another.

A *lane* is one linear model: one class against the rest, under one loss and one strength of the penalty. All lanes
process the same rows in the same order, and the weights of a column are adjacent, ``[column][lane]``: a row is read
once for all lanes. Lanes come in blocks of 16, a cache line of float32; a single lane has a loop of its own.

The weights of a lane are ``scale * coef``. The l2 penalty changes `scale` alone: each row multiplies it by
``1 / (1 + step_size * alpha)``. This is the proximal step, whose factor is positive for penalties of any strength.

The mean of the weights over a window of rows takes no time in columns that a row does not have. With S the sum of the
scales so far, the sum of the weights over the window is ``S * coef - lag``, if each change d of `coef` adds ``S * d``
to `lag`, before the row's own scale is added to S. `end_window` ends a window.

Steps are implicit: rows of any length and weight are safe. For a row x with score s, and with r the step size times the
row's weight, the step is the t that solves

    t = -r * slope(s + t * |x|²)

with the slope of the loss at the score after the step, not before it. This is the proximal step of Kulis and Bartlett
(2010), "Implicit Online Learning", and close to the step of Karampatziakis and Langford (2011), "Online Importance
Weight Aware Updates". An explicit step takes the slope at s: for squared losses it overshoots, and diverges, if
r * |x|² is above 2. For small r both steps are nearly equal. The curvature of the logistic loss is so small that an
explicit step is safe for r * |x|² up to 4, and learns faster. Up to this limit its slopes are taken at s, and beyond it
at ``s + t * (|x|² - 4 / r)``.

Arithmetic is strict, and sums over columns are float32 in a fixed order. Equal rows in equal order give equal bits.

Sums over the columns of a row: values are added to four partial sums in turn, or to sixteen for dense
rows of a single lane and for squared lengths.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.sampling.codes import unpack_row
from dkfeat.compiled.simd import LANES, broadcast, load, prefetch, splat, store

_LEAST, _MOST = 1e-30, 1e38
"""Limits within which a sum of squares in float32 loses no digits."""


class BatchRows(NamedTuple):
    """Features of a batch as arrays."""

    indptr: Any
    """Shape (n_rows + 1,), int64 or int32."""
    indices: Any
    """Columns of the stored values; empty for dense rows, which store all columns, and for codes, whose columns are
    computed in its type. Indices of an unsigned type need no check for negative ones, which takes as long as a sum."""
    values: Any
    """Stored values, float32; empty for codes, which stand for columns of `value`."""
    codes: Any
    """Packed codes, shape (n_rows, row_bytes), uint8; empty for other rows."""
    bits: Any
    """Bits of a code; 0 for other rows."""
    value: Any
    """Factor of all stored values, float64."""


@inlined
def first_columns(rows, start):
    """Make the arguments `columns` and `ahead` of `next_columns` for row `start`."""
    if rows.bits == 0:
        return rows.indices, rows.indices
    most, dtype = 8 * rows.codes.shape[1], rows.indices.dtype
    columns, ahead = np.zeros(most, dtype), np.zeros(most, dtype)
    unpack_row(rows.codes, start, rows.indptr[start + 1] - rows.indptr[start], rows.bits, ahead, 0)
    return columns, ahead


@inlined
def next_columns(rows, row, columns, ahead):
    """Return columns of a row, those of the next row if rows are codes, and the range of the row in its columns."""
    begin, end = np.int64(rows.indptr[row]), np.int64(rows.indptr[row + 1])
    if rows.bits == 0:
        return columns, ahead, begin, end
    if row + 2 < len(rows.indptr):
        unpack_row(rows.codes, row + 1, rows.indptr[row + 2] - end, rows.bits, columns, 0)
    return ahead, columns, np.int64(0), end - begin


@inlined
def squared_length(rows, begin, end, parts):
    """Compute the sum of the squares of a row's stored values; `parts` is a buffer of 16 float32."""
    values = rows.values
    if len(values) == 0:
        return (end - begin) * rows.value * rows.value
    whole = begin + (end - begin) // LANES * LANES
    sums, total = splat(np.float32(0.0)), np.float32(0.0)
    for j in range(begin, whole, LANES):
        found = load(values, j)
        sums = sums + found * found
    store(parts, 0, sums)
    for part in parts:
        total += part
    for j in range(whole, end):
        total += values[j] * values[j]
    exact = np.float64(total)
    if not _LEAST < exact < _MOST:
        exact = np.float64(0.0)
        for j in range(begin, end):
            exact += np.float64(values[j]) * np.float64(values[j])
    return exact * rows.value * rows.value


@inlined
def _four(columns, j):
    # columns of codes from position j on; an unsigned position is not checked for a negative value
    return columns[j], columns[np.uint64(j + 1)], columns[np.uint64(j + 2)], columns[np.uint64(j + 3)]


@inlined
def product(values, columns, begin, end, coef, lag, n_lanes, at):
    """Compute the products of the weights of 16 lanes with a row's stored values; prefetch what `add` changes."""
    sparse, constant = len(columns) > 0, len(values) == 0
    a = b = c = d = splat(np.float32(0.0))
    whole = begin + (end - begin) // 4 * 4
    if constant:  # codes, which begin at 0
        for j in range(0, whole, 4):
            first, second, third, fourth = _four(columns, j)
            prefetch(lag, first * n_lanes + at)
            prefetch(lag, second * n_lanes + at)
            prefetch(lag, third * n_lanes + at)
            prefetch(lag, fourth * n_lanes + at)
            a = a + load(coef, first * n_lanes + at)
            b = b + load(coef, second * n_lanes + at)
            c = c + load(coef, third * n_lanes + at)
            d = d + load(coef, fourth * n_lanes + at)
        for j in range(whole, end):
            a = a + load(coef, columns[j] * n_lanes + at)
    elif sparse:
        for j in range(begin, whole, 4):
            a = a + load(coef, columns[j] * n_lanes + at) * broadcast(values, j)
            b = b + load(coef, columns[j + 1] * n_lanes + at) * broadcast(values, j + 1)
            c = c + load(coef, columns[j + 2] * n_lanes + at) * broadcast(values, j + 2)
            d = d + load(coef, columns[j + 3] * n_lanes + at) * broadcast(values, j + 3)
        for j in range(whole, end):
            a = a + load(coef, columns[j] * n_lanes + at) * broadcast(values, j)
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
def add(values, columns, ahead, begin, end, coef, lag, n_lanes, at, change, delay):
    """Add changes of 16 lanes, multiplied by each stored value of a row, to its columns of `coef` and `lag`.

    `lag` may be empty. `ahead` has the columns of the next row of codes, whose weights are prefetched.
    """
    sparse, average = len(columns) > 0, len(lag) > 0
    if len(values) == 0:
        for j in range(end):
            to = columns[j] * n_lanes + at
            store(coef, to, load(coef, to) + change)
            if average:
                store(lag, to, load(lag, to) + delay)
            prefetch(coef, ahead[j] * n_lanes + at)
        return
    for j in range(begin, end):
        to = (columns[j] if sparse else j - begin) * n_lanes + at
        value = broadcast(values, j)
        store(coef, to, load(coef, to) + change * value)
        if average:
            store(lag, to, load(lag, to) + delay * value)


@inlined
def product_of_one(values, columns, begin, end, coef, lag, parts):
    """Compute `product` for a single lane; `parts` is a buffer of 16 float32."""
    sparse, constant = len(columns) > 0, len(values) == 0
    a = b = c = d = np.float32(0.0)
    if constant or sparse:
        whole = begin + (end - begin) // 4 * 4
        if constant:
            for j in range(0, whole, 4):
                first, second, third, fourth = _four(columns, j)
                prefetch(lag, first)
                prefetch(lag, second)
                prefetch(lag, third)
                prefetch(lag, fourth)
                a += coef[first]
                b += coef[second]
                c += coef[third]
                d += coef[fourth]
            for j in range(whole, end):
                a += coef[columns[j]]
        else:
            for j in range(begin, whole, 4):
                a += coef[columns[j]] * values[j]
                b += coef[columns[j + 1]] * values[j + 1]
                c += coef[columns[j + 2]] * values[j + 2]
                d += coef[columns[j + 3]] * values[j + 3]
            for j in range(whole, end):
                a += coef[columns[j]] * values[j]
        return (a + b) + (c + d)
    width = end - begin
    whole = width // LANES * LANES
    sums = splat(np.float32(0.0))
    for k in range(0, whole, LANES):
        sums = sums + load(coef, k) * load(values, begin + k)
    store(parts, 0, sums)
    for part in parts:
        a += part
    for k in range(whole, width):
        a += coef[k] * values[begin + k]
    return a


@inlined
def add_to_one(values, columns, ahead, begin, end, coef, lag, change, delay):
    """Apply `add` to a single lane."""
    sparse, average = len(columns) > 0, len(lag) > 0
    if len(values) == 0:
        for j in range(end):
            column = columns[j]
            coef[column] += change
            if average:
                lag[column] += delay
            prefetch(coef, ahead[j])
        return
    for j in range(begin, end):
        to = columns[j] if sparse else j - begin
        coef[to] += change * values[j]
        if average:
            lag[to] += delay * values[j]


HINGE, SQUARED_HINGE, LOG_LOSS, SQUARED_ERROR, HUBER = range(5)
"""Numbers of the losses."""

_TOLERANCE = 1e-3
"""Relative size of the last correction, for step and score; Newton's method doubles the correct digits with it."""
_MAX_CORRECTIONS = 100
"""Maximum number of corrections; a few are usually enough."""
_SAFE = 4.0
"""Inverse of the logistic loss's greatest curvature."""


@inlined
def _log_step(margin, size, length):
    if size * length <= _SAFE:
        rest = math.exp(-abs(margin))
        return size * (rest / (1.0 + rest) if margin > 0.0 else 1.0 / (1.0 + rest))
    length -= _SAFE / size
    # t = size / (1 + exp(margin + t * length)), by Newton's method from a start where it never overshoots: for a margin
    # below 0 the step to margin 0, or the longest step if that is shorter; else 0
    step = 0.0
    if margin < 0.0:
        step = size if size * length <= -margin else -margin / length
    for _ in range(_MAX_CORRECTIONS):
        reached = margin + step * length
        rest = math.exp(-abs(reached))
        share = rest / (1.0 + rest) if reached > 0.0 else 1.0 / (1.0 + rest)
        correction = (step - size * share) / (1.0 + size * length * share * (1.0 - share))
        step -= correction
        if not abs(correction) * max(1.0, step * length) > _TOLERANCE * step:
            break
    return step


@inlined
def step_and_loss(kind, score, target, epsilon, size, length):
    """Compute the step for a row, and the loss of the row before the step.

    Parameters
    ----------
    kind : int
        Loss.
    score, target : float
        Targets of classes are -1 and 1.
    epsilon : float
        Absolute error at which the Huber loss changes from quadratic to linear.
    size : float
        Step size times the row's weight, at least 0.
    length : float
        Increase of the score for a step of 1, the squared length of the row with its intercept; at least 0.

    Returns
    -------
    step, loss : float
        Factor with which the row is added to the weights, and the loss.
    """
    if kind >= SQUARED_ERROR:
        error = target - score
        left = error / (1.0 + size * length)
        square = kind == SQUARED_ERROR
        step = size * left if square or abs(left) <= epsilon else math.copysign(size * epsilon, error)
        if square or abs(error) <= epsilon:
            return step, 0.5 * error * error
        return step, epsilon * (abs(error) - 0.5 * epsilon)
    margin = score * target
    if kind == LOG_LOSS:
        return target * _log_step(margin, size, length), math.log1p(math.exp(-abs(margin))) - min(margin, 0.0)
    short = 1.0 - margin
    if short <= 0.0:
        return 0.0, 0.0
    if kind == HINGE:
        return target * (size if size * length <= short else short / length), short
    return target * (2.0 * size * short / (1.0 + 2.0 * size * length)), short * short


SMALLEST_SCALE = 1e-3
"""Scale below which the window must end, because cancellation of `coef` and `lag` would lose digits of float32."""


class Targets(NamedTuple):
    """Targets and weights of a batch's rows."""

    offsets: Any
    """Row i is positive for exactly the outputs ``positives[offsets[i]:offsets[i + 1]]``, int64."""
    positives: Any
    """Numbers of outputs, int64."""
    reals: Any
    """Targets of a regression, float64; empty for classes."""
    weights: Any
    """Weight of each row, float64."""


class Lanes(NamedTuple):
    """State of all lanes, float64 of shape (n_lanes,) unless noted; `end_window` resets scales and sums."""

    kinds: Any
    """Loss of each lane, int64."""
    step_sizes: Any
    """Step size of each lane; 0 for padding lanes of a block."""
    decays: Any
    """Factors by which the penalty multiplies scales."""
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
def _move(lanes, lane, product, length, target, weight, epsilon, intercept_rate):
    # process a row in a lane, except the weights of columns; return the changes of weight and lag for a value of 1
    score = lanes.scales[lane] * product + lanes.intercepts[lane]
    size = lanes.step_sizes[lane] * weight
    step, loss = step_and_loss(lanes.kinds[lane], score, target, epsilon, size, length + intercept_rate)
    lanes.losses[lane] += weight * loss
    lanes.scales[lane] *= lanes.decays[lane]
    lanes.intercepts[lane] += intercept_rate * step
    change = step / lanes.scales[lane]
    lag = change * lanes.sums[lane]
    lanes.sums[lane] += lanes.scales[lane]
    lanes.intercept_sums[lane] += lanes.intercepts[lane]
    return change, lag


@kernel
def descend(rows, targets, start, lanes, n_outputs, epsilon, intercept_rate, coef, lag):
    """Run the descent of all lanes over rows of a batch, until the batch or the window ends.

    Parameters
    ----------
    rows : BatchRows
    targets : Targets
    start : int
        Row to begin with.
    lanes : Lanes
        Their number is a multiple of 16; changed.
    n_outputs : int
        Lane ``v * n_outputs + o`` is output o of variant v.
    epsilon : float
        Absolute error at which the Huber loss changes from quadratic to linear.
    intercept_rate : float
        Step of the intercept, as a share of the step of the weights.
    coef : ndarray of shape (n_columns * n_lanes,), float32
        Changed.
    lag : ndarray of the same shape, or empty, float32
        Changed; if it is empty, weights are not averaged.

    Returns
    -------
    stop : int
        Row after the last one processed; if it is not the end of the batch, the window must end.
    """
    n_lanes, n_rows = len(lanes.kinds), len(rows.indptr) - 1
    products, changes, lags = (
        np.empty(n_lanes, np.float32),
        np.empty(n_lanes, np.float32),
        np.empty(n_lanes, np.float32),
    )
    wanted, parts = np.empty(n_lanes, np.float64), np.empty(LANES, np.float32)
    regression = len(targets.reals) > 0
    columns, ahead = first_columns(rows, start)
    for row in range(start, n_rows):
        columns, ahead, begin, end = next_columns(rows, row, columns, ahead)
        length = squared_length(rows, begin, end, parts)
        for at in range(0, n_lanes, LANES):
            store(products, at, product(rows.values, columns, begin, end, coef, lag, n_lanes, at))
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
                score, weight = products[lane] * rows.value, targets.weights[row]
                step, late = _move(lanes, lane, score, length, wanted[lane], weight, epsilon, intercept_rate)
                moved |= step != 0.0
                changes[lane], lags[lane] = step * rows.value, late * rows.value
                smallest = min(smallest, lanes.scales[lane])
            if moved:
                change, delay = load(changes, at), load(lags, at)
                add(rows.values, columns, ahead, begin, end, coef, lag, n_lanes, at, change, delay)
        if smallest < SMALLEST_SCALE:
            return row + 1
    return n_rows


@kernel
def descend_one(rows, targets, start, lanes, epsilon, intercept_rate, coef, lag):
    """Run `descend` for a single lane, whose tables have shape (n_columns,)."""
    n_rows, parts = len(rows.indptr) - 1, np.empty(LANES, np.float32)
    columns, ahead = first_columns(rows, start)
    for row in range(start, n_rows):
        columns, ahead, begin, end = next_columns(rows, row, columns, ahead)
        if len(targets.reals) > 0:
            wanted = targets.reals[row]
        else:
            wanted = 1.0 if targets.offsets[row + 1] > targets.offsets[row] else -1.0
        length = squared_length(rows, begin, end, parts)
        score = product_of_one(rows.values, columns, begin, end, coef, lag, parts)
        change, delay = _move(
            lanes, 0, score * rows.value, length, wanted, targets.weights[row], epsilon, intercept_rate
        )
        if change != 0.0:
            change, delay = np.float32(change * rows.value), np.float32(delay * rows.value)
            add_to_one(rows.values, columns, ahead, begin, end, coef, lag, change, delay)
        if lanes.scales[0] < SMALLEST_SCALE:
            return row + 1
    return n_rows


@kernel
def end_window(lanes, n_window, n_before, coef, lag, mean):
    """End a window: multiply the weights by their scales, and add the window's weights to the mean.

    Parameters
    ----------
    lanes : Lanes
        `scales` become 1, sums 0, and means include the window.
    n_window, n_before : int
        Rows of the window, at least 1, and rows before it.
    coef : ndarray of shape (n_columns * n_lanes,), float32
    lag, mean : ndarrays of the same shape, or empty, float32
        On entry the mean is over all rows before the window; on return it includes the window.
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
