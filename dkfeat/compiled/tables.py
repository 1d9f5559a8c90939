"""Loops over the columns of an Arrow batch: numbers, dates, categories and tags to rows of coordinates.

A batch is read where it lies, through the addresses of Arrow's C data interface, so that one call goes over all its
columns and copies none. Each column has a job, a row of integers: its role, the storage of its values, and the position
of its tables. Storage is resolved value by value, so dictionaries, views and plain arrays of equal values give equal
coordinates.

A coordinate is ``column << 32 | slot``. Slots 0 and 1 hold the rank of a number, from 0 to 1, and one minus it; or, of
a column that is mostly 0, the ranks of positive and of negative numbers. Slots 2 to 13 hold the time of day, the
weekday and the month, four each: marks on a circle, of which a date has the two nearest, with weights that sum to 1.
Slot 15 is a missing value, and others are categories: 16 + (XXH64 of the UTF-8 bytes, seed 0) mod (2^32 - 16).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba.core import types

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.simd import Code, register

# Storage of numbers, and of the indices of dictionaries (0 is none), is their width in bytes with these flags; others:
UNSIGNED, FLOAT = 16, 32
BOOLEAN, TEXT, LONG_TEXT, TEXT_VIEW = range(64, 68)
# Roles of columns.
NUMBER, DATE, CATEGORY, TAGS = range(4)
# Columns of the jobs: child of the batch; number of the column in coordinates; role; storage of the values and of
# dictionary indices; bytes of the offsets of lists; ticks in a second, or minus the seconds in a tick; first knot,
# number of knots and first place; parts of dates, a bit each.
CHILD, COLUMN, ROLE, STORAGE, INDEX, OFFSETS, UNIT, KNOTS, N_KNOTS, PLACES, PARTS = range(11)
N_FIELDS = 11
# First slots.
UP, DOWN, DAY, WEEKDAY, MONTH, MISSING, FIRST_CATEGORY = 0, 1, 2, 6, 10, 15, 16
_N_CATEGORIES = np.uint64((1 << 32) - FIRST_CATEGORY)
_FALSE, _TRUE = 2_495_207_354, 3_299_854_010  # of the texts "false" and "true"

# Bytes from the start of Arrow's struct ArrowArray to its fields.
_LENGTH, _OFFSET, _BUFFERS, _CHILDREN, _DICTIONARY = 0, 16, 40, 48, 56
# Rows encoded at a time, and at least; so many that they have about this many entries, to stay in the caches.
_STEP, _LEAST_STEP, _ENTRIES = 128, 16, 1 << 13

_SECONDS = 86_400.0
f32, f64, i8, i16, i32, i64 = np.float32, np.float64, np.int8, np.int16, np.int32, np.int64
u8, u32, u64 = np.uint8, np.uint32, np.uint64
# Primes of XXH64.
_P1, _P2, _P3 = u64(0x9E3779B185EBCA87), u64(0xC2B2AE3D27D4EB4F), u64(0x165667B19E3779F9)
_P4, _P5 = u64(0x85EBCA77C2B2AE63), u64(0x27D4EB2F165667C5)


def value_at(kind: Any, address: int) -> Any:
    """Read a number of a type from an address, which need not be aligned."""
    return np.frombuffer(ctypes.string_at(int(address), np.dtype(kind).itemsize), kind)[0]


def _emit_value(code: Code, _: Any, address: Any) -> Any:
    kind = code.context.get_value_type(code.result)
    return code.builder.load(code.builder.inttoptr(address, kind.as_pointer()), align=1)


register(value_at, (types.NumberClass, types.intp), _emit_value, lambda kind, _: kind.instance_type)


@inlined
def _buffers(array):
    """Offset of an array, and the addresses of its validity bits, of its values and of its list of buffers."""
    buffers = value_at(i64, array + _BUFFERS)
    return value_at(i64, array + _OFFSET), value_at(i64, buffers), value_at(i64, buffers + 8), buffers


@inlined
def _is_null(held, at):
    return held[1] != 0 and not value_at(u8, held[1] + (at >> 3)) >> (at & 7) & 1


@inlined
def _integer(storage, data, at):
    width = storage & 15
    data += width * at
    if width == 8:
        return value_at(i64, data)
    value = i64(value_at(i8, data) if width == 1 else value_at(i16, data) if width == 2 else value_at(i32, data))
    return value & (1 << 8 * width) - 1 if storage & UNSIGNED else value


@inlined
def _number(storage, unit, data, at):
    if storage & FLOAT:
        return value_at(f64, data + 8 * at) if storage & 8 else f64(value_at(f32, data + 4 * at))
    ticks = _integer(storage, data, at)
    if unit < 0:
        return f64(ticks) * f64(-unit)
    if unit > 1:
        whole = ticks // unit
        return f64(whole) + f64(ticks - whole * unit) / f64(unit)  # equal for equal times in other units
    return f64(u64(ticks)) if storage & UNSIGNED else f64(ticks)


@inlined
def _array(batch, child):
    return value_at(i64, value_at(i64, batch + _CHILDREN) + 8 * child)


@inlined
def _values(array, index):
    """Buffers of an array's values, which are those of its dictionary if it has one."""
    return _buffers(value_at(i64, array + _DICTIONARY) if index else array)


@inlined
def _position(held, index, values, row):
    """Position of the value of a row among the values, or -1 if it is null."""
    at = held[0] + row
    if index:
        at = -1 if _is_null(held, at) else values[0] + _integer(index, held[2], at)
    return -1 if at < 0 or _is_null(values, at) else at


@inlined
def _turned(word, bits):
    return word << u64(bits) | word >> u64(64 - bits)


@inlined
def _mixed(total, word):
    return _turned(total + word * _P2, 31) * _P1


@kernel
def hash_bytes(at, length):
    """XXH64, with seed 0, of the bytes at an address."""
    stop = at + length
    if length >= 32:
        a, b, c, d = _P1 + _P2, _P2, u64(0), u64(0) - _P1
        while at + 32 <= stop:
            a, b = _mixed(a, value_at(u64, at)), _mixed(b, value_at(u64, at + 8))
            c, d = _mixed(c, value_at(u64, at + 16)), _mixed(d, value_at(u64, at + 24))
            at += 32
        total = _turned(a, 1) + _turned(b, 7) + _turned(c, 12) + _turned(d, 18)
        for word in (a, b, c, d):
            total = (total ^ _mixed(u64(0), word)) * _P1 + _P4
    else:
        total = _P5
    total += u64(length)
    while at + 8 <= stop:
        total = _turned(total ^ _mixed(u64(0), value_at(u64, at)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= stop:
        total = _turned(total ^ u64(value_at(u32, at)) * _P1, 23) * _P2 + _P3
        at += 4
    while at < stop:
        total = _turned(total ^ u64(value_at(u8, at)) * _P5, 11) * _P1
        at += 1
    total = (total ^ total >> u64(33)) * _P2
    total = (total ^ total >> u64(29)) * _P3
    return total ^ total >> u64(32)


def category_slot(text: str) -> int:
    """Slot of a category.

    Examples
    --------
    >>> category_slot("true"), category_slot("false")
    (3299854010, 2495207354)
    """
    data = np.frombuffer(text.encode() + b"\0", np.uint8)
    return int(hash_bytes(data.ctypes.data, len(data) - 1) % _N_CATEGORIES) + FIRST_CATEGORY


@inlined
def _text(storage, values, at):
    """Address and number of bytes of the text at a position of the values."""
    data, buffers = values[2], values[3]
    if storage == TEXT:
        start = i64(value_at(i32, data + 4 * at))
        length = i64(value_at(i32, data + 4 * at + 4)) - start
        start += value_at(i64, buffers + 16)
    elif storage == LONG_TEXT:
        start = value_at(i64, data + 8 * at)
        length = value_at(i64, data + 8 * at + 8) - start
        start += value_at(i64, buffers + 16)
    else:
        view = data + 16 * at
        length = i64(value_at(i32, view))
        if length <= 12:
            start = view + 4
        else:
            start = value_at(i64, buffers + 16 + 8 * i64(value_at(i32, view + 8))) + i64(value_at(i32, view + 12))
    return start, length


@inlined
def _slot(storage, values, at):
    """Slot of the category at a position of the values."""
    if storage == BOOLEAN:
        return _TRUE if value_at(u8, values[2] + (at >> 3)) >> (at & 7) & 1 else _FALSE
    start, length = _text(storage, values, at)
    return i64(hash_bytes(start, length) % _N_CATEGORIES) + FIRST_CATEGORY


@inlined
def _put(rows, i, coordinate, weight):
    """Add an entry to the row at place `i` of a block, unless its weight is 0."""
    indices, values, ends = rows
    end = u64(ends[u64(i)])  # numba does not check unsigned indices for being negative
    indices[end], values[end] = coordinate, weight
    ends[u64(i)] = i64(end) + (weight > f32(0))


@kernel
def _read(array, job, numbers, x):
    """Read the numbers of some rows as float64; NaN for null."""
    held, values = _buffers(array), _values(array, job[INDEX])
    storage, index, unit = job[STORAGE], job[INDEX], job[UNIT]
    for i in range(len(numbers)):
        at = _position(held, index, values, numbers[i])
        x[i] = _number(storage, unit, values[2], at) if at >= 0 else np.nan


@kernel
def _find(knots, x, lower):
    """Count the knots below each number, less 1 above all of them; without branches, which nothing could predict."""
    lower[:] = 0
    left = len(knots)
    while left > 1:
        half = left >> 1
        for i in range(len(x)):
            at = lower[u64(i)]
            lower[u64(i)] = at + (half & -i64(knots[u64(at + half - 1)] < x[u64(i)]))
        left -= half


@kernel
def _put_numbers(rows, job, x, lower, knots, weights, missing, odd):
    base = job[COLUMN] << 32
    knots = knots[job[KNOTS] : job[KNOTS] + job[N_KNOTS]]
    weights = weights[2 * job[PLACES] : 2 * (job[PLACES] + 2 * len(knots) + 1)]
    _find(knots, x, lower)
    nulls = clipped = 0
    for i in range(len(x)):
        if x[i] != x[i]:
            _put(rows, i, base | MISSING, missing)
            nulls += 1
            continue
        at = u64(lower[i])
        place = u64(4) * at + u64(4 * (knots[at] < x[i]) + 2 * (knots[at] == x[i]))
        _put(rows, i, base | UP, weights[place])
        _put(rows, i, base | DOWN, weights[place + u64(1)])
        clipped += (place == 0) | (place == 4 * len(knots))
        if job[ROLE] == DATE:
            _put_parts(rows, i, base, job[PARTS], x[i])
    odd[0] += nulls
    odd[1] += clipped


@inlined
def _put_marks(rows, i, coordinate, turn):
    """Add the two nearest of four marks on a circle; `turn` is from 0 to 4."""
    mark = i64(turn) & 3
    after = f32(turn - np.floor(turn))
    if mark == 3:
        _put(rows, i, coordinate, after)
        _put(rows, i, coordinate + 3, f32(1) - after)
    else:
        _put(rows, i, coordinate + mark, f32(1) - after)
        _put(rows, i, coordinate + mark + 1, after)


@kernel
def _put_parts(rows, i, base, parts, x):
    """Add the parts of a date, in seconds since 1970."""
    days = np.floor(x / _SECONDS)
    if parts & 1:
        _put_marks(rows, i, base | DAY, (x - days * _SECONDS) / _SECONDS * 4)
    if parts & 2:
        _put_marks(rows, i, base | WEEKDAY, f64((i64(days) + 3) % 7) / 7 * 4)  # 0 is Monday
    if parts & 4:
        # years of the Gregorian calendar that begin in March, in eras of 400
        day = (i64(days) + 719_468) % 146_097
        year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
        month = (5 * (day - (365 * year + year // 4 - year // 100)) + 2) // 153
        _put_marks(rows, i, base | MONTH, f64((month + 2) % 12) / 3)  # 0 is January


@kernel
def _put_categories(rows, numbers, job, array, slots, missing, odd):
    storage, index, base = job[STORAGE], job[INDEX], job[COLUMN] << 32
    held, values = _buffers(array), _values(array, index)
    for i in range(len(numbers)):
        at = _position(held, index, values, numbers[i])
        if at < 0:
            _put(rows, i, base | MISSING, missing)
            odd[0] += 1
        else:
            slot = slots[at - values[0]] if len(slots) else _slot(storage, values, at)
            _put(rows, i, base | slot, f32(1))


@inlined
def _list(held, width, row):
    """First and last element of the list in a row; none if it is null."""
    at = held[0] + row
    if _is_null(held, at):
        return i64(0), i64(0)
    return _integer(width, held[2], at), _integer(width, held[2], at + 1)


@kernel
def _put_tags(rows, numbers, job, array, slots, missing, odd):
    storage, index, base = job[STORAGE], job[INDEX], job[COLUMN] << 32
    held, elements = _buffers(array), _array(array, 0)
    inner, values = _buffers(elements), _values(elements, index)
    indices, _, ends = rows
    for i in range(len(numbers)):
        row = numbers[i]
        if _is_null(held, held[0] + row):
            _put(rows, i, base | MISSING, missing)
            odd[0] += 1
        start = ends[i]
        for element in range(*_list(held, job[OFFSETS], row)):
            at = _position(inner, index, values, element)
            if at >= 0:
                slot = slots[at - values[0]] if len(slots) else _slot(storage, values, at)
                _put(rows, i, base | slot, f32(1))
        indices[start : ends[i]].sort()
        stop, ends[i] = ends[i], start
        for k in range(start, stop):
            if k == start or indices[k] != indices[ends[i] - 1]:
                indices[ends[i]] = indices[k]
                ends[i] += 1


@kernel
def _slots_of(array, job, n_rows):
    """Slots of the entries of a dictionary, -1 for null; none if there is no dictionary or it is larger than needed."""
    if job[ROLE] == TAGS:
        array = _array(array, 0)
    dictionary = value_at(i64, array + _DICTIONARY)
    if job[ROLE] < CATEGORY or job[INDEX] == 0 or value_at(i64, dictionary + _LENGTH) > n_rows:
        return np.empty(0, i64)
    values, slots = _buffers(dictionary), np.empty(value_at(i64, dictionary + _LENGTH), i64)
    for entry in range(len(slots)):
        at = values[0] + entry
        slots[entry] = -1 if _is_null(values, at) else _slot(job[STORAGE], values, at)
    return slots


@kernel
def room(batch, numbers, jobs):
    """Bounds of the entries that `encode_rows` writes for rows: for each, and at the end, the sum of those before."""
    sizes = np.zeros(len(numbers) + 1, i64)
    for job in jobs:
        sizes[1:] += 8 if job[ROLE] == DATE else 2 if job[ROLE] == NUMBER else 1
        if job[ROLE] == TAGS:
            held = _buffers(_array(batch, job[CHILD]))
            for i in range(len(numbers)):
                start, stop = _list(held, job[OFFSETS], numbers[i])
                sizes[i + 1] += stop - start
    return np.cumsum(sizes)


@kernel
def encode_rows(batch, numbers, jobs, knots, weights, missing, bounds, indptr, indices, values, odd):
    """Encode some rows of a batch.

    Parameters
    ----------
    batch : int64
        Address of an ArrowArray.
    numbers : ndarray of shape (n_rows,), int64
        Rows of the batch.
    jobs : ndarray of shape (n_jobs, N_FIELDS), int64
        In ascending order of columns.
    knots : ndarray, float64
        Distinct knots of each column, ascending.
    weights : ndarray, float32
        Of each column, for x below the first knot, at it, between it and the next, ...: weights of slots 0 and 1.
    missing : float32
        Weight of a missing value.
    bounds : ndarray of shape (n_rows + 1,), int64
        From `room`.
    indptr : ndarray of shape (n_rows + 1,), int64
        ``indptr[0]`` is set by the caller.
    indices, values : ndarray, int64 and float32
        Of at least ``indptr[0] + bounds[-1]`` elements.
    odd : ndarray of shape (n_columns, 2), int64
        For each column, the missing values and those beyond the knots are added to it.
    """
    step = max(_LEAST_STEP, min(_STEP, _ENTRIES * len(numbers) // max(bounds[-1], 1)))
    starts, ends, lower, x = np.empty(step, i64), np.empty(step, i64), np.empty(step, i64), np.empty(step)
    rows, done = (indices, values, ends), indptr[0]
    slots = [_slots_of(_array(batch, job[CHILD]), job, len(numbers)) for job in jobs]
    for first in range(0, len(numbers), step):
        n = min(step, len(numbers) - first)
        block = numbers[first : first + n]
        starts[:n] = ends[:n] = bounds[first : first + n] - bounds[first] + done
        for j in range(len(jobs)):
            job = jobs[j]
            array = _array(batch, job[CHILD])
            if job[ROLE] == CATEGORY:
                _put_categories(rows, block, job, array, slots[j], missing, odd[job[COLUMN]])
            elif job[ROLE] == TAGS:
                _put_tags(rows, block, job, array, slots[j], missing, odd[job[COLUMN]])
            else:
                _read(array, job, block, x)
                _put_numbers(rows, job, x[:n], lower[:n], knots, weights, missing, odd[job[COLUMN]])
        for i in range(n):
            for k in range(u64(starts[i]), u64(ends[i])):
                indices[u64(done)], values[u64(done)] = indices[k], values[k]
                done += 1
            indptr[first + i + 1] = done


@kernel
def read_numbers(batch, numbers, job, x):
    """Read the numbers of some rows of a column as float64; NaN for null. Dates are seconds since 1970."""
    _read(_array(batch, job[CHILD]), job, numbers, x)


@kernel
def find_texts(batch, numbers, job, starts, sizes):
    """Find the addresses of the texts of some rows of a column, and their numbers of bytes; -1 for null."""
    array = _array(batch, job[CHILD])
    held, values = _buffers(array), _values(array, job[INDEX])
    for i in range(len(numbers)):
        at = _position(held, job[INDEX], values, numbers[i])
        starts[i], sizes[i] = _text(job[STORAGE], values, at) if at >= 0 else (i64(0), i64(-1))


@kernel
def rank_entries(positions, values, bounds, knots, ranks):
    """Compute signed ranks among the ascending magnitudes `knots` of a column and sign, of at least one knot's share.

    Parameters
    ----------
    positions : ndarray of shape (n,), int32
        Column of each value among `bounds`; -1 if it has no knots: its rank is 1.
    values : ndarray of shape (n,), float32 or float64
        Not 0.
    bounds : ndarray of shape (n_columns + 1,), int64
        First knot of each column.
    knots : ndarray, float64
    ranks : ndarray of shape (n,)
    """
    for i in range(len(values)):
        share, size = 1.0, abs(f64(values[i]))
        if positions[i] >= 0:
            start = bounds[positions[i]]
            at, left = start, bounds[positions[i] + 1] - start
            n_knots = left
            while left > 1:
                half = left >> 1
                at += half & -i64(knots[u64(at + half - 1)] <= size)
                left -= half
            share = max(at - start + (knots[u64(at)] <= size), 1) / n_knots
        ranks[i] = share if values[i] > 0 else -share
