"""Numbers of the random streams, in one list for compiled loops and all else.

A stream is one use of randomness, see `dkfeat.random_streams`. Numbers are part of what a seed means: none is ever
reused or changed.
"""

from __future__ import annotations

__all__ = [
    "STREAM_CIRCULANT",
    "STREAM_CODE_SHIFT",
    "STREAM_DENSE",
    "STREAM_FASTFOOD",
    "STREAM_GCWS",
    "STREAM_HELD_OUT",
    "STREAM_LANDMARK",
    "STREAM_LAPLACE_CIRCULANT",
    "STREAM_LAPLACE_DENSE",
    "STREAM_LAPLACE_MIXTURE",
    "STREAM_LENGTH",
    "STREAM_MACLAURIN_DEGREE",
    "STREAM_MACLAURIN_INNER",
    "STREAM_MACLAURIN_SAMPLE",
    "STREAM_MACLAURIN_SIGN",
    "STREAM_MIXTURE",
    "STREAM_PERMUTATION",
    "STREAM_PHASE",
    "STREAM_SIGN",
]

STREAM_GCWS = 0
"""Parameters of consistent weighted sampling and the mixed code of a coordinate."""
STREAM_CODE_SHIFT = 1
"""Shift between the codes of positive and negative coordinates, one a component."""
STREAM_DENSE = 16
"""Gaussian entries of a dense projection."""
STREAM_CIRCULANT = 17
"""First columns of circulant matrices."""
STREAM_SIGN = 18
"""Sign flips of the input of a structured projection."""
STREAM_MIXTURE = 19
"""Which circulant of a mixture a column takes its weights from."""
STREAM_FASTFOOD = 20
"""Gaussian diagonal of Fastfood."""
STREAM_PERMUTATION = 21
"""Permutation of Fastfood."""
STREAM_LENGTH = 22
"""Row lengths of Fastfood."""
STREAM_PHASE = 23
"""Phases of random Fourier features."""
STREAM_LANDMARK = 48
"""Numbers of the rows that are the landmarks of Nyström features."""
STREAM_LAPLACE_DENSE = 40
"""Positive entries of a dense projection."""
STREAM_LAPLACE_CIRCULANT = 41
"""First columns of circulant matrices of positive entries."""
STREAM_LAPLACE_MIXTURE = 42
"""Which of these circulants a column takes its weights from."""
STREAM_MACLAURIN_DEGREE = 32
"""Degrees of random Maclaurin features."""
STREAM_MACLAURIN_SIGN = 33
"""Their random signs."""
STREAM_MACLAURIN_INNER = 34
"""Seeds of the inner maps of compositional kernels."""
STREAM_MACLAURIN_SAMPLE = 35
"""Signs of the samples of an inner GCWS."""
STREAM_HELD_OUT = 56
"""Which rows are held out of training."""
