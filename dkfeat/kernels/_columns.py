"""Columns that some sparse rows hold, to be found for many blocks of other rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

_SPARSITY = 64
"""Maximum number of columns for each one held if positions are listed for all of them."""
_FEW_COLUMNS = 1 << 16
"""Number of columns more that are listed."""


@dataclass(frozen=True, eq=False)
class HeldColumns:
    """Columns that some rows hold, and their positions in a table of these columns."""

    columns: NDArray[np.int64]
    """Ascending."""
    order: NDArray[np.int32]
    """Position of each of these columns."""
    n_columns: int
    """Number of all columns."""

    def positions(self, columns: NDArray[np.integer]) -> NDArray[np.int32]:
        """Find the position of each column; -1 if it is not held.

        Examples
        --------
        >>> HeldColumns(np.array([2, 5]), np.array([1, 0], np.int32), 2**40).positions(np.array([5, 3, 2])).tolist()
        [0, -1, 1]
        """
        if self._listed is not None:
            return self._listed[columns]
        if not len(self.columns):
            return np.full(len(columns), -1, np.int32)
        at = np.minimum(np.searchsorted(self.columns, columns), len(self.columns) - 1)
        return np.where(self.columns[at] == columns, self.order[at], np.int32(-1))

    @property
    def n_bytes(self) -> int:
        """Memory in bytes."""
        return 12 * len(self.columns) + (0 if self._listed is None else self._listed.nbytes)

    @cached_property
    def _listed(self) -> NDArray[np.int32] | None:
        """Positions of all columns; None if there are too many."""
        if self.n_columns > _SPARSITY * len(self.columns) + _FEW_COLUMNS:
            return None
        listed = np.full(self.n_columns, -1, np.int32)
        listed[self.columns] = self.order
        return listed
