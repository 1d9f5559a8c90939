"""Dask arrays out of tasks that each give a block of rows with labels and more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import dask.array as da
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph

__all__ = ["BlockArray", "block_arrays"]


@dataclass(frozen=True, slots=True)
class BlockArray:
    """One of the arrays that the blocks are made of."""

    part: int
    """Its place in what a task gives."""
    name: str
    """What its keys begin with."""
    meta: Any
    """Array of its type and dtype, of no length."""
    width: tuple[float | None, ...] = ()
    """Lengths of its axes beside the rows."""


def block_arrays(
    load: Callable[[Any, Any], tuple[Any, ...]],
    shared: Any,
    pieces: Sequence[Any],
    row_chunks: Sequence[float],
    arrays: Sequence[BlockArray],
    *,
    name: str,
    token: str,
) -> tuple[da.Array, ...]:
    """Arrays whose blocks come from one task each; nothing is computed yet.

    Parameters
    ----------
    load : callable
        ``load(shared, piece)`` gives a tuple of blocks.
    shared
        What all tasks need; travels once to each worker.
    pieces : sequence
        What each task needs beside it; small.
    row_chunks : sequence of float
        Rows of each piece; NaN for unknown.
    arrays : sequence of BlockArray
    name, token : str
        Keys begin with the name and hold the token: equal tokens for equal contents.

    Returns
    -------
    arrays : tuple of dask.array.Array
        A graph of a few tasks for each piece, made in time linear in the pieces.
    """
    holder = delayed(shared, name=f"{name}-source-{token}", traverse=False)
    blocks = f"read-{name}-{token}"
    reading: dict[Any, Any] = {(blocks, number): (load, holder.key, piece) for number, piece in enumerate(pieces)}
    graph = HighLevelGraph.from_collections(blocks, reading, dependencies=[holder])
    found = []
    for array in arrays:
        key = f"{array.name}-{token}"
        places = (0,) * len(array.width)
        layer: dict[Any, Any] = {
            (key, number, *places): (itemgetter(array.part), (blocks, number)) for number in range(len(pieces))
        }
        whole = HighLevelGraph({**graph.layers, key: layer}, {**graph.dependencies, key: {blocks}})
        chunks = (tuple(row_chunks), *((length,) for length in array.width))
        found.append(da.Array(whole, key, chunks, meta=array.meta))
    return tuple(found)
