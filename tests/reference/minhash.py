"""Fast Similarity Sketching in plain Python: an oracle that shares no code with the package.

`samples` is Algorithm 1 of Dahlgaard, Knudsen and Thorup, "Fast Similarity Sketching" (FOCS 2017), for any random
numbers; `codes` gives it those of docs/decisions/minhash.md.
"""

from __future__ import annotations

from tests.reference.darts import philox

STREAM = 3
WORD = 0xFFFFFFFF


def samples(elements, k, n_rounds, draw):
    """Round and value that each of k bins keeps; `draw(i, a)` gives the bin and value of element a in round i."""
    kept = [None] * k
    for i in range(n_rounds + k):
        for a in elements:
            at, value = draw(i, a)
            if kept[at] is None or (i, value) < kept[at]:
                kept[at] = i, value
        if None not in kept:
            break
    return kept


def mixed(x, factor, mask):
    """The hash of a word."""
    h = (x ^ mask) * factor & WORD
    h = (h ^ h >> 15) * 0x85EBCA6B & WORD
    return h ^ h >> 16


def codes(columns, k, seed, bits):
    """Codes of `bits` bits of a set of columns."""
    key = seed & WORD, seed >> 32
    words = [[int(word) for word in philox((0, 0, j, STREAM), key)] for j in range(k)]
    fold = int(philox((1, 0, 0, STREAM), key)[0]) | 1
    n_rounds, n_bits = max(k - 1, 1), (k - 1).bit_length()

    def draw(i, a):
        if i < n_rounds:
            h = mixed(a, words[i][0] | 1, words[i][1])
            return h * k >> 32, h & (1 << 32 - n_bits) - 1
        j = i - n_rounds
        return j, mixed(a, words[j][2] | 1, words[j][3]) >> n_bits

    found = []
    elements = {(column & WORD) ^ (column >> 32) * fold & WORD for column in map(int, columns)}
    for j, (i, value) in enumerate(samples(elements, k, n_rounds, draw)):
        h = ((min(i, k - 1) << 32 - n_bits | value) ^ words[j][3]) * 0x9E3779B1 & WORD
        found.append((h ^ h >> 15) * 0x85EBCA77 % 2**32 >> 32 - bits)
    return found
