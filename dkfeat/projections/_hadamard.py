"""What the projections share that pad rows for Walsh-Hadamard transforms."""

from __future__ import annotations

from dataclasses import dataclass

from dkfeat.compiled.hadamard import SMALLEST
from dkfeat.projections._base import Projection

__all__ = ["HadamardProjection"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HadamardProjection(Projection):
    """W of independent blocks of as many rows as columns, a power of two; the last block is cut."""

    def __post_init__(self) -> None:
        self._check_padded()

    @property
    def length(self) -> int:
        """Rows and columns of a block: the least power of two from 16 that holds n_features."""
        return max(SMALLEST, 1 << (self.n_features - 1).bit_length())

    @property
    def n_blocks(self) -> int:
        """Independent blocks, ceil(n_components / length)."""
        return -(-self.n_components // self.length)
