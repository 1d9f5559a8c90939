"""Batches of equal size out of shards of any size, mixed by a bounded buffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dkfeat.engine.rows import ShardRows

if TYPE_CHECKING:
    import numpy as np

__all__ = ["cut_batches"]


def cut_batches(
    shards: Iterable[ShardRows], rows: int, *, kept: int = 0, rng: np.random.Generator | None = None
) -> Iterator[ShardRows]:
    """Cut shards into batches.

    Parameters
    ----------
    shards : iterable of ShardRows
        Taken one after another.
    rows : int
        Rows in a batch, at least 1; the last batch may have fewer.
    kept : int
        Rows that stay in the buffer while more shards come, from which batches are drawn.
    rng : numpy.random.Generator or None
        Draws the order within the buffer; None keeps the order in which rows come.

    Yields
    ------
    batch : ShardRows
        Each row is in exactly one. At most about ``2 * kept`` rows and two shards are held.
    """
    enough = kept + max(rows, kept // 2)  # many small shards are joined at once
    parts: list[ShardRows] = []
    held = 0
    for shard in shards:
        parts.append(shard)
        held += shard.n_rows
        del shard
        if held >= enough:
            buffer = _mixed(parts, rng)
            batches = (held - kept) // rows
            for start in range(0, batches * rows, rows):
                yield buffer.take(start, start + rows)
            parts.append(buffer.take(batches * rows, held))
            held -= batches * rows
            del buffer
    if held:
        buffer = _mixed(parts, rng)
        for start in range(0, held, rows):
            yield buffer.take(start, min(start + rows, held))


class _Buffer:
    """Rows in an order of their own."""

    def __init__(self, rows: ShardRows, order: np.ndarray | None) -> None:
        self._rows, self._order = rows, order

    def take(self, start: int, stop: int) -> ShardRows:
        return self._rows.take(slice(start, stop) if self._order is None else self._order[start:stop])


def _mixed(parts: list[ShardRows], rng: np.random.Generator | None) -> _Buffer:
    """Join and empty the parts."""
    rows = ShardRows.joined(parts)
    parts.clear()
    return _Buffer(rows, None if rng is None else rng.permutation(rows.n_rows))
