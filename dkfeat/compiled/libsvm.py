"""Parser of LIBSVM text into the arrays of a CSR block, in one pass.

The grammar, bytes of whole lines that end in LF or CR LF::

    line     = blanks? comment? | labels (blanks "qid:" digits)? (blanks index ":" value)* blanks? comment?
    labels   = number ("," number)*      several, or none before a leading blank, with `multilabel` only
    blanks   = (space | tab)+            comment = "#" anything but NUL and lone CR
    index    = digits                    number, value: see `dkfeat.compiled.decimals`

Indices ascend strictly within a row. A value that rounds to zero in the dtype of the values is not kept. Labels and
values are finite. A label of digits only, with or without a sign, is an integer, which is never rounded; any other
label is a float64 number. Everything else is an error, returned as a status and the position of the token.
"""
# ruff: noqa: SIM109  # comparisons spelled out compile to half the code of a search in a tuple

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dkfeat.compiled.decimals import (
    MALFORMED,
    POWERS_OF_TEN,
    UNDECIDED,
    byte_at,
    count_digits,
    eight_digits,
    nearest_float,
    read_number,
    word_at,
)
from dkfeat.compiled.jit import inlined, kernel

PADDING = 16
"""Bytes that must be allocated after the last line end; their content does not matter."""

# Statuses of parse_lines: three after which parsing can continue, then the errors.
DONE, FULL, NEED_FLOAT = 0, 1, 2
BAD_LABEL, INFINITE_LABEL, NO_LABEL, BAD_QID, MISSING_QID, UNEXPECTED_QID = 3, 4, 5, 6, 7, 8
BAD_FEATURE, HUGE_INDEX, INDEX_ZERO, INDEX_RANGE, DUPLICATE_INDEX, UNSORTED_INDEX = 9, 10, 11, 12, 13, 14
BAD_VALUE, INFINITE_VALUE, LONE_CR, NUL_BYTE, NOT_INT64, INEXACT_LABEL = 15, 16, 17, 18, 19, 20

# Slots of the cursor.
POSITION, ROWS, NNZ, LABELS, EMPTY_ROWS, LOWEST, HIGHEST = 0, 1, 2, 3, 4, 5, 6
PHASE, LINE, LAST, ROW_NNZ, ERROR_AT, HINT_AT = 7, 8, 9, 10, 11, 12
N_NOT_INT64, N_INEXACT, EXACT_AT, ROUNDED_AT = 13, 14, 15, 16
CURSOR_SIZE = 17

# Types of labels in the rules: one of them, or their sum before the type of the source is known.
FLOAT64, INT64 = 1, 2

_AT_LINE, _IN_LABELS, _AFTER_LABELS, _IN_FEATURES = 0, 1, 2, 3
_TAB, _LF, _CR, _BLANK, _HASH, _PLUS, _COMMA, _MINUS, _POINT, _COLON = 9, 10, 13, 32, 35, 43, 44, 45, 46, 58
_TWO_53 = np.uint64(2**53)
_EXACT, _TWO_63 = 2.0**53, 2.0**63
_BYTE, _U0, _U8 = np.uint64(0xFF), np.uint64(0), np.uint64(8)
_TENS = (10 ** np.arange(9)).astype(np.uint64)
_MOST, _HUGE, _HUGE_TENTH = np.uint64(2**63 - 1), np.uint64(2**63 + 1), np.uint64((2**63 + 1) // 10)


class Tables(NamedTuple):
    """Output arrays for rows; each is long enough for any text of the given size, see `parse_lines`."""

    indices: Any
    """int32 or int64: column of each stored value, from 0."""
    values: Any
    """float32 or float64."""
    indptr: Any
    """int32, one more than there are rows; ``indptr[0]`` is set by the caller."""
    labels: Any
    """float64, if this is among the types of labels."""
    integers: Any
    """int64: the labels as integers, if this is among the types of labels; if both types are, other numbers are 0."""
    label_offsets: Any
    """int64, one more than there are rows, if rows have several labels; the first is set by the caller."""
    qids: Any
    """int64, if rows have query ids."""


class Rules(NamedTuple):
    """Rules for the text, and limits of a call."""

    base: int
    """Lowest allowed index, 0 or 1, which becomes column 0."""
    highest: int
    """Highest allowed index."""
    max_rows: int
    """Stop after this many rows."""
    stop: int
    """Stop before a row whose line begins at this byte or later, unless it is the first."""
    multilabel: bool
    query_id: bool
    label_types: int
    """`FLOAT64` or `INT64`; with both, labels that are not exact in one of them are counted, not errors."""
    exact: float
    """Bound of the magnitude below which the type of the values has every integer, at least 10**7."""


@inlined
def _is_end(c):
    return c == _BLANK or c == _LF or c == _TAB or c == _CR or c == _HASH


@kernel
def _read_magnitude(text, i):
    """Read the digits at byte `i`; return their integer, at most 2**63 + 1, and the byte after them."""
    value, c = _U0, byte_at(text, i)
    while 48 <= c <= 57:
        value = min(value * np.uint64(10) + np.uint64(c - 48), _HUGE) if value <= _HUGE_TENTH else _HUGE
        i += 1
        c = byte_at(text, i)
    return value, i


@kernel
def _read_digits(text, i):
    """Read the integer at byte `i`; return it, or -1 above 2**63 - 1, and the byte after it, or `i` without digits."""
    value, stop = _read_magnitude(text, i)
    return (np.int64(value) if value <= _MOST else -1), stop


@kernel
def _read_integer(text, i):
    """Read the integer at byte `i`, with an optional sign; return it, the byte after it, and whether it is int64."""
    negative = byte_at(text, i) == _MINUS
    value, stop = _read_magnitude(text, i + (negative or byte_at(text, i) == _PLUS))
    integer, fits = np.int64(value), value <= _MOST + np.uint64(negative)
    return (-integer if negative and value <= _MOST else integer), stop, fits


@kernel
def _read_wide_integer(text, at, stop, value):
    """Read the number from `at` to `stop` whose nearest float, `value`, is so large that it may not be exact.

    Return the number as integer; whether it is int64; and whether `value` is exact, or the number is not an integer.
    For an integer beyond int64 the last is False, because it is unknown.
    """
    integer, end, fits = _read_integer(text, at)
    if end != stop:
        return 0, False, True
    if not fits:
        return 0, False, False
    return integer, True, value < _TWO_63 and np.int64(value) == integer


@kernel
def _skip_comment(text, i):
    """Return the first byte after the line of a comment and no error, or an error and its position."""
    c = byte_at(text, i)
    while c != _LF:
        if c == 0:
            return i, NUL_BYTE
        if c == _CR and byte_at(text, i + 1) != _LF:
            return i, LONE_CR
        i += 1
        c = byte_at(text, i)
    return i + 1, DONE


@kernel
def parse_lines(text: Any, end: int, tables: Tables, rules: Rules, cursor: Any, hint: Any) -> int:
    """Parse lines from the cursor on, up to the end of the text, a limit of the rules or an invalid line.

    Parameters
    ----------
    text : ndarray of uint8
        ``text[end - 1]`` is LF, and at least `PADDING` bytes follow it.
    end : int
        End of the last whole line.
    tables : Tables
        Lengths are not checked: n bytes of text have at most n / 4 features, n / 2 rows and n / 2 labels, and one more
        value, which is not kept, may be written.
    rules : Rules
    cursor : ndarray of int64, shape (CURSOR_SIZE,)
        Position and counts; updated. `POSITION`, `ROWS`, `NNZ` and `LABELS` are the positions of the next byte, row,
        value and label; `EMPTY_ROWS` counts rows without values, and `LOWEST` and `HIGHEST` are the smallest and the
        largest index in the file, also of zeros. `N_NOT_INT64` counts labels that are not integers of int64, and
        `N_INEXACT` integers that float64 may not represent. If `ROUNDED_AT` is below 0, it is set to the first feature
        whose value is an integer that the type of the values may not represent.
    hint : ndarray of float64, shape (1,)
        Value of the number at ``cursor[HINT_AT]``, which the caller sets after `NEED_FLOAT`. After `INEXACT_LABEL` it
        may set ``cursor[EXACT_AT]`` to the label's position if the label is exact.

    Returns
    -------
    status : int
        `DONE`; `FULL` before a row beyond the limits of the rules; `NEED_FLOAT` for a number at ``cursor[ERROR_AT]``
        that the caller must round; or an error in the token at ``cursor[ERROR_AT]`` of the line at ``cursor[LINE]``.
    """
    i, rows, nnz, n_labels = cursor[POSITION], cursor[ROWS], cursor[NNZ], cursor[LABELS]
    phase, line, last, row_nnz = cursor[PHASE], cursor[LINE], cursor[LAST], cursor[ROW_NNZ]
    lowest, highest, empty_rows = cursor[LOWEST], cursor[HIGHEST], cursor[EMPTY_ROWS]
    not_int64, inexact = cursor[N_NOT_INT64], cursor[N_INEXACT]
    base, top = rules.base, rules.highest
    is_float64, is_int64 = rules.label_types & FLOAT64 != 0, rules.label_types & INT64 != 0
    status, at = DONE, i
    while True:
        if phase == _AT_LINE:
            if i >= end:
                break
            line = i
            c = byte_at(text, i)
            while c == _BLANK or c == _TAB:
                i += 1
                c = byte_at(text, i)
            if c == _LF:
                i += 1
                continue
            if c == _CR:
                if byte_at(text, i + 1) != _LF:
                    status, at = LONE_CR, i
                    break
                i += 2
                continue
            if c == _HASH:
                i, status = _skip_comment(text, i)
                if status != DONE:
                    at = i
                    break
                continue
            if rows >= rules.max_rows or (line >= rules.stop and rows > 0):
                status, i = FULL, line
                break
            row_nnz, last, at = nnz, base - 1, i
            phase = _IN_LABELS
            if i > line:
                phase = _AFTER_LABELS
                if not rules.multilabel:
                    status = NO_LABEL
                    break

        if phase == _IN_LABELS:
            value, i, how = read_number(text, i)
            if how == UNDECIDED:
                if cursor[HINT_AT] != at:
                    status, i = NEED_FLOAT, at
                    break
                value = hint[0]
            c = byte_at(text, i)
            if how == MALFORMED or not (_is_end(c) or (c == _COMMA and rules.multilabel)):
                status = BAD_LABEL
                break
            if abs(value) == np.inf:
                status = INFINITE_LABEL
                break
            if abs(value) < _EXACT:
                label, is_exact = np.int64(value), True
                is_integer = label == value
            else:
                label, is_integer, is_exact = _read_wide_integer(text, at, i, value)
            if is_int64:
                if not (is_integer or is_float64):
                    status = NOT_INT64
                    break
                tables.integers[n_labels] = label
            if is_float64:
                if not (is_exact or is_int64 or cursor[EXACT_AT] == at):
                    status, i = INEXACT_LABEL, at
                    break
                tables.labels[n_labels] = value + 0.0  # -0.0 becomes 0.0
            not_int64 += not is_integer
            inexact += not is_exact
            n_labels += 1
            if c == _COMMA:
                i += 1
                at = i
                continue
            phase = _AFTER_LABELS

        if phase == _AFTER_LABELS:
            c = byte_at(text, i)
            while c == _BLANK or c == _TAB:
                i += 1
                c = byte_at(text, i)
            at = i
            if (
                c == 113
                and byte_at(text, i + 1) == 105
                and byte_at(text, i + 2) == 100
                and byte_at(text, i + 3) == _COLON
            ):
                if not rules.query_id:
                    status = UNEXPECTED_QID
                    break
                qid, i = _read_digits(text, i + 4)
                if qid < 0 or i == at + 4 or not _is_end(byte_at(text, i)):
                    status = BAD_QID
                    break
                tables.qids[rows] = qid
            elif rules.query_id:
                status = MISSING_QID
                break
            phase = _IN_FEATURES

        # One iteration per feature, starting at the end of a token. The usual forms are distinguished by predictable
        # branches, so that the CPU loads the next word before the current one is processed.
        while True:
            n, digits = count_digits(word_at(text, i + 1))
            if byte_at(text, i) == _BLANK and 0 < n < 8 and byte_at(text, i + 1 + n) == _COLON:
                at = i + 1
                index = np.int64(eight_digits(digits, n))
                i += n + 2
            else:
                c = byte_at(text, i)
                while c == _BLANK or c == _TAB:
                    i += 1
                    c = byte_at(text, i)
                if c == _LF or c == _CR or c == _HASH:
                    break
                at = i
                index, i = _read_digits(text, i)
                if i == at or byte_at(text, i) != _COLON:
                    status = BAD_FEATURE
                    break
                if index < 0:
                    status = HUGE_INDEX
                    break
                i += 1
            if index <= last:
                status = INDEX_ZERO if index < base else DUPLICATE_INDEX if index == last else UNSORTED_INDEX
                break
            if index > top:
                status = INDEX_RANGE
                break

            start = i
            word = word_at(text, i)
            first, second = np.int64(word & _BYTE) - 48, np.int64(word >> _U8 & _BYTE)
            negative, fast, decimals = False, True, 0
            if 0 <= first <= 9 and (second == _POINT or second == _BLANK):
                integer = np.uint64(first)
                i += 1
            else:
                negative = first == _MINUS - 48
                if negative:
                    i += 1
                n, digits = count_digits(word_at(text, i))
                fast = 0 < n < 8
                integer = eight_digits(digits, max(n, 1))
                i += n
            if fast and byte_at(text, i) == _POINT:
                i += 1
                # Both words are loaded at once; the second is used if the first has only digits.
                decimals, digits = count_digits(word_at(text, i))
                n, more = count_digits(word_at(text, i + 8))
                n = n if decimals == 8 else 0
                integer = integer * _TENS[decimals] + (eight_digits(digits, decimals) if decimals > 0 else _U0)
                integer = integer * _TENS[n] + (eight_digits(more, n) if n > 0 else _U0)
                decimals += n
                i += decimals
                if n == 8:
                    n, digits = count_digits(word_at(text, i))
                    fast = n < 8 and i + n - start <= 20  # a point and no more than 19 digits
                    if fast and n > 0:
                        integer = integer * _TENS[n] + eight_digits(digits, n)
                        decimals += n
                        i += n
                else:
                    fast = i - start <= 20
            c = byte_at(text, i)
            if fast and (c == _BLANK or c == _LF):
                if integer <= _TWO_53:
                    value = np.float64(integer) / POWERS_OF_TEN[decimals]
                else:
                    value = nearest_float(integer, -decimals)
                value = -value if negative else value
            else:
                value, i, how = read_number(text, start)
                if how == UNDECIDED:
                    if cursor[HINT_AT] != start:
                        status, i, at = NEED_FLOAT, at - 1, start
                        break
                    value = hint[0]
                if how == MALFORMED or not _is_end(byte_at(text, i)):
                    status = BAD_VALUE
                    break
                if abs(value) >= rules.exact and cursor[ROUNDED_AT] < 0:
                    tables.values[np.uint64(nnz)] = value  # rounds it
                    if not _read_wide_integer(text, start, i, np.float64(tables.values[np.uint64(nnz)]))[2]:
                        cursor[ROUNDED_AT] = at
            slot = np.uint64(nnz)  # an unsigned index needs no check for negative values
            tables.indices[slot] = index - base
            tables.values[slot] = value
            kept = tables.values[slot]  # as rounded
            if abs(kept) == np.inf:
                status = INFINITE_VALUE
                break
            nnz += kept != 0
            lowest = min(lowest, index)
            last = index
        if status != DONE:
            break

        if c == _HASH:
            i, status = _skip_comment(text, i)
        elif c == _CR:
            if byte_at(text, i + 1) == _LF:
                i += 2
            else:
                status = LONE_CR
        else:
            i += 1
        if status != DONE:
            at = i
            break
        highest = max(highest, last)
        empty_rows += nnz == row_nnz
        rows += 1
        tables.indptr[rows] = nnz
        if rules.multilabel:
            tables.label_offsets[rows] = n_labels
        phase = _AT_LINE

    cursor[POSITION], cursor[ROWS], cursor[NNZ], cursor[LABELS] = i, rows, nnz, n_labels
    cursor[PHASE], cursor[LINE], cursor[LAST], cursor[ROW_NNZ] = phase, line, last, row_nnz
    cursor[LOWEST], cursor[HIGHEST], cursor[EMPTY_ROWS] = lowest, highest, empty_rows
    cursor[N_NOT_INT64], cursor[N_INEXACT] = not_int64, inexact
    cursor[ERROR_AT] = at
    return status
