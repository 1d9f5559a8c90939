"""Rows of shards: blocks, prefetching, and batches shuffled in a bounded buffer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import repeat, takewhile
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkfeat.blocks import PackedCodes, RowBlock
from dkfeat.errors import ConfigError
from dkfeat.sources.pieces import join_blocks

Item = TypeVar("Item")
_END: Any = object()


def indicator(y: NDArray[Any], offsets: NDArray[np.int64], classes: NDArray[Any] | None) -> sparse.csr_matrix:
    """Make the indicator matrix of label lists.

    Parameters
    ----------
    y : ndarray
        Labels of all rows, end to end.
    offsets : ndarray of int64, shape (n_rows + 1,)
        Row i has the labels ``y[offsets[i]:offsets[i + 1]]``.
    classes : ndarray of shape (n_classes,) or None
        Sorted labels; None raises an error.

    Returns
    -------
    indicator : csr_matrix of uint8, shape (n_rows, n_classes)
        1 where a row has a label.

    Examples
    --------
    >>> indicator(np.array([3, 1, 3]), np.array([0, 2, 2, 3]), np.array([1, 3])).toarray().tolist()
    [[1, 1], [0, 0], [0, 1]]
    """
    if classes is None:
        raise ConfigError(
            "the lists of labels of the data set have more than 10,000 different labels; read them by `labels()`"
        )
    columns = np.searchsorted(classes, y)
    matrix = sparse.csr_matrix(
        (np.ones(len(y), np.uint8), columns.astype(np.int32), offsets), shape=(len(offsets) - 1, len(classes))
    )
    matrix.sort_indices()
    return matrix


def prefetch(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the same items in the same order, while a background thread prepares the next one.

    Parameters
    ----------
    items : iterable
        Iterated only in the background thread. Its exception is raised in the caller, after the items before it.

    Yields
    ------
    item
        Items of `items`. Leaving the loop early stops the thread.

    Examples
    --------
    >>> list(prefetch(range(4)))
    [0, 1, 2, 3]
    """
    take = partial(next, iter(items), _END)
    yield from takewhile(lambda item: item is not _END, prefetch_calls(repeat(take), threads=1))


def prefetch_calls(calls: Iterable[Callable[[], Item]], *, threads: int) -> Iterator[Item]:
    """Yield the results of calls in their order, while background threads run the next calls.

    Parameters
    ----------
    calls : iterable of callable
        Functions without arguments, called in the threads. An exception is raised in the caller in place of the result.
    threads : int
        Number of threads, at least 1, and of results that are kept ready; this limits memory use.

    Yields
    ------
    item
        Result of each call. Leaving the loop early waits for the calls that are running.

    Examples
    --------
    >>> list(prefetch_calls([lambda: "a", lambda: "b"], threads=2))
    ['a', 'b']
    """
    under_way: deque[Future[Item]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="dkfeat-prefetch") as pool:
        try:
            for call in calls:
                under_way.append(pool.submit(call))
                if len(under_way) > threads:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


def cut_batches(shards: Iterable[RowBlock], rows: int) -> Iterator[RowBlock]:
    """Cut shards into batches of `rows` rows, in their order; the last batch may have fewer."""
    parts: list[RowBlock] = []
    held = 0
    for shard in shards:
        parts.append(shard)
        held += shard.n_rows
        del shard
        if held >= rows:
            joined, whole = join_blocks(parts), held // rows * rows
            for start in range(0, whole, rows):
                yield joined.take(slice(start, start + rows))
            parts = [joined.take(slice(whole, held))]
            held -= whole
    if held:
        yield join_blocks(parts)


def shuffle_batches(
    shards: Iterable[RowBlock], sizes: Sequence[int], rows: int, *, kept: int, rng: np.random.Generator
) -> Iterator[RowBlock]:
    """Cut shards into batches of rows that are drawn at random from a buffer.

    Parameters
    ----------
    shards : iterable of RowBlock
        Taken one after another.
    sizes : sequence of int
        Number of rows of each shard.
    rows : int
        Rows in a batch, at least 1; the last batch may have fewer.
    kept : int
        Number of rows that stay in the buffer until the last shard.
    rng : numpy.random.Generator
        Draws the order.

    Yields
    ------
    batch : RowBlock
        Each row is in exactly one batch. Memory use is up to that of ``3.5 * kept`` rows and of one shard.
    """
    enough = kept + max(rows, kept // 2)  # many small shards are added at once
    most = min(sum(sizes), enough + max(sizes, default=0))
    buffer: _Buffer | _JoinedBuffer | None = None
    parts: list[RowBlock] = []
    held = 0
    for shard in shards:
        if buffer is None:
            is_whole = sum(sizes) < enough  # all rows are added at the end
            are_arrays = not (shard.kept or sparse.issparse(shard.X) or sparse.issparse(shard.y))
            buffer = _Buffer(most) if are_arrays and not is_whole else _JoinedBuffer()
        parts.append(shard)
        held += shard.n_rows
        del shard
        if held >= enough:
            buffer.add(parts, rng)
            drawn = (held - kept) // rows * rows
            yield from buffer.draw(drawn, rows)
            held -= drawn
    if buffer is not None and held:
        buffer.add(parts, rng)
        yield from buffer.draw(held, rows)


class _JoinedBuffer:
    """Shuffled rows that are joined anew with those that are added.

    As sparse rows and texts differ in length, new ones cannot take the places of others; rows that are added at once
    need not.
    """

    def __init__(self) -> None:
        self._rows: RowBlock | None = None
        self._order = np.arange(0)

    def add(self, parts: list[RowBlock], rng: np.random.Generator) -> None:
        """Add and empty the parts, and shuffle all rows."""
        self._rows = join_blocks(parts if self._rows is None else [self._rows, *parts])
        self._order = rng.permutation(self._rows.n_rows)
        parts.clear()

    def draw(self, n_rows: int, batch: int) -> Iterator[RowBlock]:
        """Remove the first rows of the order, in batches."""
        assert self._rows is not None
        for start in range(0, n_rows, batch):
            yield self._rows.take(self._order[start : min(start + batch, n_rows)])
        self._rows = self._rows.take(self._order[n_rows:])


class _Buffer:
    """Shuffled rows of arrays, in memory that is allocated once: new rows take the places of drawn ones.

    Parameters
    ----------
    n_rows : int
        Maximum number of rows in the buffer.
    """

    def __init__(self, n_rows: int) -> None:
        self._rows: RowBlock | None = None
        self._order, self._free = np.arange(0), np.arange(n_rows)

    def add(self, parts: list[RowBlock], rng: np.random.Generator) -> None:
        """Add and empty the parts, and shuffle all rows."""
        places, self._free = np.split(self._free, [sum(part.n_rows for part in parts)])
        if self._rows is None:
            n_rows = len(places) + len(self._free)
            self._rows = _by_column(lambda column: _uninitialized(column, n_rows), parts[0])
        self._rows = _by_column(lambda column, *new: _put(column, places, new), self._rows, *parts)
        self._order = rng.permutation(np.concatenate([self._order, places]))
        parts.clear()

    def draw(self, n_rows: int, batch: int) -> Iterator[RowBlock]:
        """Remove the first rows of the order, in batches."""
        assert self._rows is not None
        drawn, self._order = np.split(self._order, [n_rows])
        for start in range(0, n_rows, batch):
            yield self._rows.take(drawn[start : start + batch])
        self._free = np.concatenate([self._free, drawn])


def _by_column(function: Callable[..., Any], *blocks: RowBlock) -> RowBlock:
    """Apply a function to each array that the blocks have."""
    names = [name for name in ("X", "y", "qid", "weight", "number") if getattr(blocks[0], name) is not None]
    return RowBlock(**{"y": None, **{name: function(*(getattr(block, name) for block in blocks)) for name in names}})


def _uninitialized(column: Any, n_rows: int) -> Any:
    """Make a column of the same type with other rows, whose values do not matter."""
    if isinstance(column, PackedCodes):
        return PackedCodes(*(_uninitialized(array, n_rows) for array in column))
    return np.empty((n_rows, *column.shape[1:]), column.dtype)


def _put(column: Any, places: NDArray[np.int64], parts: Sequence[Any]) -> Any:
    """Replace rows by those of the parts, in place, and return the column."""
    if isinstance(column, PackedCodes):
        return PackedCodes(*(_put(array, places, arrays) for array, *arrays in zip(column, *parts, strict=True)))
    for part, at in zip(parts, np.split(places, np.cumsum([len(part) for part in parts])), strict=False):
        column[at] = part
    return column
