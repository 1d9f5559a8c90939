"""Kernels by plain loops over Python numbers: an oracle that shares no code with the package."""

import math
from fractions import Fraction


def resemblance(x, y):
    """Common nonzero places over all nonzero places."""
    common = sum(1 for a, b in zip(x, y, strict=True) if a != 0 and b != 0)
    either = sum(1 for a, b in zip(x, y, strict=True) if a != 0 or b != 0)
    return common / either if either else 0.0


def rbf(x, y, gamma):
    """exp(-gamma * squared distance), the distance exact."""
    square = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(x, y, strict=True))
    return math.exp(-gamma * float(square))


def rbf_cosine(x, y, gamma):
    """exp(-gamma (1 - cosine)); an all-zero row stays at the origin."""
    if not any(x) or not any(y):
        return math.exp(-gamma / 2) if any(x) or any(y) else 1.0
    inner = sum(Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True))
    squares = sum(Fraction(a) ** 2 for a in x) * sum(Fraction(b) ** 2 for b in y)
    # 1 - c = (1 - c^2) / (1 + c) keeps the digits of a small angle
    share = Fraction(inner * inner, squares)
    cosine = math.copysign(math.sqrt(share), inner)
    distance = float(1 - share) / (1 + cosine) if cosine > 0 else 1 - cosine
    return math.exp(-gamma * distance)


def exponential_semigroup(x, y, beta):
    """exp(-beta * sum of roots)."""
    return math.exp(-beta * math.fsum(math.sqrt(a + b) for a, b in zip(x, y, strict=True)))


def reciprocal_semigroup(x, y, rate):
    """Product of rate / (x + y + rate)."""
    product = Fraction(1)
    for a, b in zip(x, y, strict=True):
        product *= Fraction(rate) / (Fraction(a) + Fraction(b) + Fraction(rate))
    return float(product)


def power_series(x, y, coefficients):
    """Sum of a_n * inner^n, exact."""
    inner = sum(Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True))
    return float(sum(Fraction(a) * inner**n for n, a in enumerate(coefficients)))


def inner(x, y):
    """Inner product, correctly rounded."""
    return float(sum(Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True)))


def gram(function, X, Y, *parameters):
    """All values of a function of two rows, as nested lists."""
    return [[function(x, y, *parameters) for y in Y] for x in X]
