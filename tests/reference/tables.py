"""Plain forms of what `dkfeat.TableEncoder` computes: XXH64, ranks, Gower's similarity, parts of dates."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
WORD = (1 << 64) - 1


def turn(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & WORD


def xxh64(data: bytes) -> int:
    """XXH64 of the specification, with seed 0."""
    p1, p2, p3, p4, p5 = PRIMES

    def mix(total: int, word: int) -> int:
        return turn((total + word * p2) & WORD, 31) * p1 & WORD

    total, rest = p5, data
    if len(data) >= 32:
        lanes = [p1 + p2, p2, 0, -p1]
        while len(rest) >= 32:
            lanes = [mix(lane, word) for lane, word in zip(lanes, struct.unpack("<4Q", rest[:32]), strict=True)]
            rest = rest[32:]
        total = sum(turn(lane & WORD, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & WORD
        for lane in lanes:
            total = ((total ^ mix(0, lane)) * p1 + p4) & WORD
    total = (total + len(data)) & WORD
    for kind, size in (("<Q", 8), ("<I", 4), ("<B", 1)):
        while len(rest) >= size:
            word = struct.unpack(kind, rest[:size])[0]
            rest = rest[size:]
            if size == 8:
                total = turn(total ^ mix(0, word), 27) * p1 + p4 & WORD
            elif size == 4:
                total = turn(total ^ word * p1 & WORD, 23) * p2 + p3 & WORD
            else:
                total = turn(total ^ word * p5 & WORD, 11) * p1 & WORD
    total = (total ^ total >> 33) * p2 & WORD
    total = (total ^ total >> 29) * p3 & WORD
    return total ^ total >> 32


def slot(text: str) -> int:
    """Slot of a category."""
    return 16 + xxh64(text.encode()) % (2**32 - 16)


def scaled_ranks(values: np.ndarray) -> np.ndarray:
    """Midranks among the values themselves, from 0 at the lowest to 1 at the highest."""
    ranks = rankdata(values)
    return (ranks - ranks.min()) / (ranks.max() - ranks.min())


def signed_ranks(values: np.ndarray) -> np.ndarray:
    """Share of the values of a sign with at most this magnitude, with the sign; 0 for 0."""
    return np.array(
        [np.sign(v) * np.mean(np.abs(values[np.sign(values) == np.sign(v)]) <= abs(v)) for v in values.tolist()]
    )


def gower(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Gower's similarity of all pairs of rows, from ranks of numbers and equality of other values."""
    total = np.zeros((len(columns[0]),) * 2)
    for column in columns:
        if column.dtype.kind == "f":
            ranks = scaled_ranks(column)
            total += 1 - np.abs(ranks[:, None] - ranks)
        else:
            total += column[:, None] == column
    return total / len(columns)


def circles(moment: dt.datetime) -> dict[int, float]:
    """Weights of the marks of a moment in UTC, by slot."""
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    turns = ((moment - day) / dt.timedelta(days=1), moment.weekday() / 7, (moment.month - 1) / 12)
    marks: dict[int, float] = {}
    for first, part in zip((2, 6, 10), turns, strict=True):
        for mark in range(4):
            distance = abs((part * 4 - mark + 2) % 4 - 2)
            if distance < 1:
                marks[first + mark] = 1 - distance
    return marks
