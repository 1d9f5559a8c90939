"""Rows of shards that stay in memory, as far as they fit, for those who read them again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dkfeat.engine.rows import ShardRows

__all__ = ["RowsCache"]


class RowsCache:
    """Rows of the shards that came first.

    What is kept stays: whoever goes over more shards than fit, round after round, would find none of them if the oldest
    made room for the newest.

    Parameters
    ----------
    most_bytes : int
        Bytes kept; 0 keeps nothing.
    """

    def __init__(self, most_bytes: int) -> None:
        self._room = most_bytes
        self._kept: dict[Hashable, ShardRows] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[RowsCache], tuple[int]]:
        """Travel without the rows and the lock."""
        return RowsCache, (self._room,)

    def get(self, key: Hashable, n_bytes: int, read: Callable[[], ShardRows]) -> ShardRows:
        """Rows of a key, read if they are not kept; `n_bytes` is what keeping them takes."""
        rows = self._kept.get(key)
        if rows is None:
            rows = read()
            with self._lock:
                if key not in self._kept and n_bytes <= self._room:
                    self._kept[key] = rows
                    self._room -= n_bytes
        return rows
