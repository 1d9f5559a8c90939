"""Loops over UTF-8 text: words or characters to the hashes of their n-grams, sorted and counted in each row.

The hash of a word is that of its bytes, padded with zeros to eight, sixteen, ... bytes, which no word contains. A gram
of n tokens has the mixed sum of their hashes, the last token first, so that grams of all lengths that end at a token
cost one multiplication a length; its coordinate is the top 40 bits of the sum, mixed with n. Hashes are uniform, so a
row is sorted by one distribution to about as many buckets as it has grams; repeats meet there and are counted.

Texts are given by their addresses. Those that are not ASCII must be valid UTF-8.
"""

from __future__ import annotations

import numpy as np

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.random import log_scalar
from dkfeat.compiled.simd import lowest_bit
from dkfeat.compiled.tables import value_at

WORD, CHAR = range(2)
BINARY, COUNT, LOG, SQRT = range(4)
GRAM_BITS = 40
MOST_LENGTH = 16

f32, f64, i64, u8, u32, u64 = np.float32, np.float64, np.int64, np.uint8, np.uint32, np.uint64
_M, _N = u64(0x9E3779B97F4A7C15), u64(0xD6E8FEB86659FD93)
_ONES, _HIGH = u64(0x0101010101010101), u64(0x8080808080808080)


@inlined
def _at_least(word, limit):
    """Set the high bits of the bytes, each below 128, that have this value or more."""
    return word + _ONES * u64(128 - limit)


@inlined
def _step(total, token):
    total = (total + token) * _M
    return total ^ total >> u64(32)


@inlined
def _load(at, stop):
    """Read eight bytes; those from `stop` on are 0."""
    if at + 8 <= stop:
        return value_at(u64, at)
    word = u64(0)
    for k in range(stop - at):
        word |= u64(value_at(u8, at + k)) << u64(8 * k)
    return word


@inlined
def _code_point(at):
    """Decode the bytes of a character that is not ASCII; return it and their number."""
    first = value_at(u8, at)
    size = 2 + (first >= 0xE0) + (first >= 0xF0)
    code = u32(first & (0x7F >> size))
    for k in range(1, size):
        code = code << u32(6) | u32(value_at(u8, at + k) & 0x3F)
    return code, size


@inlined
def _lowered(byte, lower):
    return byte | u8(0x20) if lower and u8(0x41) <= byte <= u8(0x5A) else byte


@inlined
def _is_word(byte):
    folded = byte | u8(0x20)
    return u8(0x61) <= folded <= u8(0x7A) or u8(0x30) <= byte <= u8(0x39) or byte == u8(0x5F)


@kernel
def _hash_rest(at, stop, lower, classes, total, word, n_bytes):
    """Hash the rest of a word from a character that is not ASCII, after bytes `word` that are not in `total`.

    Returns the address after the word, and its hash, which is 0 if there is no word.
    """
    while at < stop:
        size, byte = 1, _lowered(value_at(u8, at), lower)
        if byte < 128:
            if not _is_word(byte):
                break
        else:
            code, size = _code_point(at)
            if classes[code] != 1:
                break
        for k in range(size):
            word |= u64(byte if k == 0 else value_at(u8, at + k)) << u64(8 * (n_bytes & 7))
            n_bytes += 1
            if n_bytes & 7 == 0:
                total, word = _step(total, word), u64(0)
        at += size
    return at, _step(total, word) if word else total


@kernel
def _hash_words(at, stop, lower, classes, tokens):
    """Hash the words of a text, and return their number."""
    n = 0
    total = u64(0)
    while at < stop:
        word = _load(at, stop)
        plain, high = word & ~_HIGH, word & _HIGH
        folded = plain | _ONES * u64(0x20)
        letters = _at_least(folded, 0x61) & ~_at_least(folded, 0x7B) & _HIGH
        others = _at_least(plain, 0x30) & ~_at_least(plain, 0x3A) | _HIGH - (plain ^ _ONES * u64(0x5F))
        found = (letters | others) & _HIGH & ~high
        end = found ^ _HIGH
        end &= ~end + u64(1)  # the first byte that is no word in ASCII
        if lower:
            word |= letters >> u64(2)
        if end == 0:
            total = _step(total, word)
            at += 8
            continue
        word &= (end >> u64(7)) - u64(1)
        if not high & end:
            if word or total:
                tokens[u64(n)] = _step(total, word) if word else total
                n += 1
                total = u64(0)
            later = (found | high) & ~((end << u64(1)) - u64(1))
            at += lowest_bit(later) >> 3 if later else 8
            continue
        n_bytes = lowest_bit(end) >> 3
        at, total = _hash_rest(at + n_bytes, stop, lower, classes, total, word, n_bytes)
        if total:
            tokens[u64(n)] = total
            n += 1
            total = u64(0)
        if at < stop and value_at(u8, at) >= 128:
            code, size = _code_point(at)
            if classes[code] == 2:
                tokens[u64(n)] = _step(u64(code), _N)
                n += 1
            at += size
    if total:
        tokens[u64(n)] = total
        n += 1
    return n


@kernel
def _hash_characters(at, stop, lower, tokens):
    """Hash the characters of a text, and return their number."""
    n = 0
    while at < stop:
        byte, size = value_at(u8, at), 1
        code = u32(_lowered(byte, lower))
        if byte >= 128:
            code, size = _code_point(at)
        tokens[u64(n)] = _step(u64(code), _N)
        at += size
        n += 1
    return n


@kernel
def _hash_grams(tokens, low, high, totals, grams):
    """Hash the grams of `low` to `high` tokens; all tokens are one if they are fewer. Return their number."""
    n, done = len(tokens), 0
    low = min(low, n)
    totals[:n] = 0
    for length in range(1, min(high, n) + 1):
        left, own = n - length + 1, totals[length - 1 : n]
        for i in range(left):
            own[i] = _step(own[i], tokens[i])
        if length >= low:
            made = grams[done : done + left]
            for i in range(left):
                made[i] = (own[i] ^ u64(length)) * _N >> u64(64 - GRAM_BITS)
            done += left
    return done


@kernel
def _sort(grams, heads, scattered, indices, counts):
    """Write the distinct grams in ascending order, and how often each occurs; return their number."""
    bits = 1
    while 1 << bits < len(grams):
        bits += 1
    shift, heads = u64(max(GRAM_BITS - bits, 0)), heads[: (1 << bits) + 1]
    heads[:] = 0
    for gram in grams:
        heads[(gram >> shift) + u64(1)] += 1
    for k in range(1, len(heads)):
        heads[k] += heads[k - 1]
    for gram in grams:
        bucket = gram >> shift
        scattered[u64(heads[bucket])] = gram
        heads[bucket] += 1
    n = 0
    for i in range(len(grams)):
        gram, at = i64(scattered[i]), n
        while at > 0 and indices[u64(at - 1)] > gram:
            at -= 1
        if at > 0 and indices[u64(at - 1)] == gram:
            counts[u64(at - 1)] += f32(1)
            continue
        for k in range(n, at, -1):
            indices[u64(k)], counts[u64(k)] = indices[u64(k - 1)], counts[u64(k - 1)]
        indices[u64(at)], counts[u64(at)] = gram, f32(1)
        n += 1
    return n


@kernel
def _weigh(counts, weights):
    for i in range(len(counts)):
        if weights == BINARY:
            counts[i] = f32(1)
        elif weights == LOG and counts[i] > f32(1):
            counts[i] = f32(1 + log_scalar(f64(counts[i])))
        elif weights == SQRT and counts[i] > f32(1):
            counts[i] = np.sqrt(counts[i])


@kernel
def weigh_buckets(buckets, counts, n_rows, weights):
    """Write the weights of grams under idf, 1 + log(n_rows / count), at the numbers of their buckets."""
    for i in range(len(buckets)):
        weights[buckets[i]] = f32(1 + log_scalar(f64(n_rows) / f64(counts[i])))


@kernel
def are_ascii(starts, sizes):
    """Return True for each text whose bytes are all below 128, and for null."""
    found = np.empty(len(starts), np.bool_)
    for row in range(len(starts)):
        at, stop, seen = starts[row], starts[row] + sizes[row], u64(0)
        while at + 8 <= stop:
            seen |= value_at(u64, at)
            at += 8
        found[row] = (seen | _load(at, stop)) & _HIGH == 0
    return found


@kernel
def encode_texts(starts, sizes, unit, low, high, weights, lower, classes, most, indptr, indices, values):
    """Encode texts as rows of n-grams.

    Parameters
    ----------
    starts, sizes : ndarray of shape (n_rows,), int64
        Addresses of texts, and their numbers of bytes; -1 for null, which is an empty row.
    unit : int
        WORD or CHAR.
    low, high : int
        Least and largest number of tokens of a gram.
    weights : int
        BINARY, COUNT, LOG or SQRT.
    lower : bool
        True if letters of ASCII become lower-case.
    classes : ndarray of shape (0x110000,), uint8
        For each code point 1 if it is part of a word, 2 if it is a word, else 0.
    most : int
        Upper bound of the tokens of a text.
    indptr : ndarray of shape (n_rows + 1,), int64
    indices, values : ndarray, int64 and float32
        Of enough elements.
    """
    n_lengths = high - low + 1
    tokens, totals, heads = np.empty(most, u64), np.empty(most, u64), np.empty(2 * most * n_lengths + 2, np.int32)
    grams, scattered = np.empty(most * n_lengths, u64), np.empty(most * n_lengths, u64)
    done = indptr[0] = 0
    for row in range(len(starts)):
        start, stop = starts[row], starts[row] + sizes[row]
        if unit == WORD:
            n = _hash_words(start, stop, lower, classes, tokens)
        else:
            n = _hash_characters(start, stop, lower, tokens)
        n = _hash_grams(tokens[:n], low, high, totals, grams)
        n = _sort(grams[:n], heads, scattered, indices[done:], values[done:]) if n else 0
        _weigh(values[done : done + n], weights)
        done += n
        indptr[row + 1] = done
