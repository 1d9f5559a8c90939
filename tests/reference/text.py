"""Plain form of what `dkfeat.Text` computes, with Python's own classes of characters."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter

A, B, WORD = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, (1 << 64) - 1
OWN_WORDS = (
    *("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "IDEOGRAPHIC ITERATION", "IDEOGRAPHIC CLOSING", "HANGZHOU"),
    *("IDEOGRAPHIC NUMBER", "VERTICAL IDEOGRAPHIC ITERATION", "HIRAGANA", "KATAKANA", "HENTAIGANA"),
    *("HALFWIDTH KATAKANA", "COMBINING KATAKANA", "THAI"),
)
WEIGHTS = {"binary": lambda n: 1.0 * (n > 0), "count": float, "log": lambda n: 1 + math.log(n), "sqrt": math.sqrt}


def kind(character: str) -> int:
    """1 for a part of a word, 2 for a word, 0 for what is between words."""
    category = unicodedata.category(character)
    if category[0] not in "LMN" and category != "Pc":
        return 0
    return 1 + unicodedata.name(character, "").startswith(OWN_WORDS)


def words(text: str) -> list[str]:
    spaced = "".join((" ", "{}", " {} ")[kind(character)].format(character) for character in text)
    return spaced.split(" ")


def fold(text: str, *, lower: bool, normalize: bool) -> str:
    """Normalise a text, and map each character to the one of lower case."""
    text = unicodedata.normalize("NFKC", text) if normalize else text
    return "".join(c.lower()[0] if lower else c for c in text)


def step(total: int, token: int) -> int:
    total = (total + token) * A & WORD
    return total ^ total >> 32


def hash_of(token: str, *, is_word: bool) -> int:
    if not is_word or (len(token) == 1 and kind(token) == 2):
        return step(ord(token), B)
    total, data = 0, token.encode()
    for at in range(0, len(data), 8):
        total = step(total, int.from_bytes(data[at : at + 8], "little"))
    return total


def row(
    text: str | None, unit: str, low: int, high: int, weights: str, *, lower: bool = True, normalize: bool = True
) -> dict[int, float]:
    """Weights of the grams of a text, by coordinate."""
    folded = fold(text or "", lower=lower, normalize=normalize)
    tokens = [token for token in (words(folded) if unit == "word" else folded) if token]
    counts: Counter[int] = Counter()
    for length in range(min(low, len(tokens)), min(high, len(tokens)) + 1):
        for end in range(length, len(tokens) + 1) if length else ():
            total = 0
            for token in reversed(tokens[end - length : end]):
                total = step(total, hash_of(token, is_word=unit == "word"))
            counts[((total ^ length) * B & WORD) >> 24] += 1
    return {at: WEIGHTS[weights](count) for at, count in counts.items()}
