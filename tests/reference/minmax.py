"""The GMM and pGMM kernels by plain loops: an oracle that shares no code with the package."""

import math
from fractions import Fraction


def gmm(x, y, p=1.0):
    """Similarity of two sequences of floats; exact arithmetic where p is 1."""
    if p == 1.0:
        x, y = [Fraction(v) for v in x], [Fraction(v) for v in y]
    lows, highs = [], []
    for a, b in zip(x, y, strict=True):
        for sign in (1, -1):
            u, v = max(sign * a, 0) ** (1 if p == 1.0 else p), max(sign * b, 0) ** (1 if p == 1.0 else p)
            lows.append(min(u, v))
            highs.append(max(u, v))
    if p == 1.0:
        return float(sum(lows) / sum(highs)) if any(highs) else 0.0
    return math.fsum(lows) / math.fsum(highs) if any(highs) else 0.0


def gram(X, Y, p=1.0):
    """All similarities of two lists of rows, as nested lists."""
    return [[gmm(x, y, p) for y in Y] for x in X]
