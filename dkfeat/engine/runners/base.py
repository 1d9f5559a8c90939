"""Runner of tasks: its interface, and what tasks and runners share: batches, and results in order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.blocks import PackedCodes
from dkfeat.errors import InputError
from dkfeat.process_cache import METER

BATCHES_PER_SECOND = 200
"""Rate that sets the longer duration of batches on many workers; as items are whole, up to twice as many are done. A
scheduler can handle more."""

MOST_PROBED = 256
"""Maximum number of features, or bytes of codes, of a built-in row that are compared."""

MOST_FOLDED = 8
"""Maximum number of items of a fold, a power of 2, that a cluster's task runs and joins."""

Value = TypeVar("Value")


class Stopped(Exception):
    """A task stopped between two pieces because its run was stopped."""


class Task(Protocol):
    """Function that runs on workers: small, picklable, sent to each worker once.

    If it, or the first argument of a partial function, has the attribute ``map``, a feature map or None, no worker runs
    it that makes other features by this map than the driver, see `probe`.
    """

    def __call__(self, item: Any, /, stopped: Callable[[], bool]) -> Any:
        """Process one item and return a small value; raise `Stopped` between its parts when `stopped()` is true."""


class Runner(Protocol):
    """Runner of a task over items, such as splits; made by `open_runner`."""

    @property
    def description(self) -> str:
        """Workers, as text."""

    @property
    def memory_limit(self) -> int | None:
        """Maximum memory of a task in bytes; None if the scheduler sets no limit."""

    @property
    def n_threads(self) -> int:
        """Number of tasks that run at a time."""

    def run(self, task: Task, items: Sequence[Any], done: Callable[[Any, Any], None]) -> None:
        """Run `task` on every item; items are picklable, and those with a ``description`` are named by it in messages.

        `done(item, result)` is called in the calling thread for each result, in any order. The first error stops
        submission and the running tasks, and is raised here unchanged.

        Raises
        ------
        ClusterError
            If workers or the scheduler were lost.
        """

    def hold(self, values: Sequence[Any]) -> Sequence[Any]:
        """Compute delayed values of Dask where tasks run, and return them, or futures, which items have as ``rows``."""

    def fold(
        self, task: Callable[..., Any], shared: Any, items: Sequence[Any], join: Callable[[Any, Any], Any]
    ) -> Iterator[Any]:
        """Run ``task(item, stopped, shared)`` on every item, join the results, and yield what the last one consists of.

        Results are tuples of the same length, and are not changed after they are made. They are joined two by two, as
        by `Tree`: by ``join(left, right)``, and on a cluster by its workers, between which they travel, those of up to
        `MOST_FOLDED` neighbours by the task that runs these. This process gets only the last one, an element at a time.
        Items are as for `run`, and are numbered by ``number``, from 0.

        Raises
        ------
        ClusterError
            If workers or the scheduler were lost.
        """


def results_of(runner: Runner, task: Task, items: Sequence[Any]) -> list[Any]:
    """Run a task on items with a ``number``; return all results, in the order of the numbers."""
    found: dict[int, Any] = {}
    runner.run(task, items, lambda item, result: found.update({item.number: result}))
    return [found[number] for number in sorted(found)]


def probe(task: Task) -> NDArray[Any] | None:
    """Return features of two built-in rows by the map of a task; None without a map, or if it accepts only others."""
    fitted: Any = getattr(getattr(task, "args", (task,))[0], "map", None)
    if fitted is None:
        return None
    columns = sorted({part * fitted.n_features_in_ // 4 for part in range(4)})
    values = np.array([2.0**-position for position in range(len(columns))], np.float32)
    X = sp.csr_matrix((values, columns, [0, len(columns) // 2, len(columns)]), (2, fitted.n_features_in_))
    try:
        found = fitted.encode(X)
    except InputError:
        return None
    return np.asarray(found.codes if isinstance(found, PackedCodes) else found)[:, :MOST_PROBED]


class Batches:
    """Items of a run, cut into batches: short items are joined, because to hand over a task has its own cost.

    Batches grow as long as they take less than `seconds`, or on many workers less than the time in which
    `BATCHES_PER_SECOND` make one for each thread. They shrink towards the end, so that no worker gets a long one last.

    Parameters
    ----------
    items : sequence
        In the order in which they start.
    seconds : float
        Duration of a batch.
    most : int
        Maximum number of items in a batch.

    Examples
    --------
    >>> batches = Batches(range(100), seconds=0.5, most=256)
    >>> batches.take(2, window=4)
    [(0,), (1,)]
    >>> batches.measured(1, seconds=0.01)
    >>> batches.take(1, window=4)
    [(2, 3)]
    """

    def __init__(self, items: Sequence[Any], seconds: float, most: int) -> None:
        self._items, self._seconds, self._most = items, seconds, most
        self._start, self._size, self._item_seconds = 0, 1, math.inf

    def measured(self, size: int, seconds: float) -> None:
        """Set the size of the next batches by the duration of one."""
        self._size, self._item_seconds = 2 * size, seconds / size

    def take(self, count: int, window: int) -> list[tuple[Any, ...]]:
        """Return the next batches, at most `count`, of which `window` are submitted at a time."""
        seconds = max(self._seconds, window / (2 * BATCHES_PER_SECOND))
        taken: list[tuple[Any, ...]] = []
        while len(taken) < count and (left := len(self._items) - self._start):
            size = min(self._size, self._most, int(seconds / max(self._item_seconds, 1e-9)), left // window)
            stop = self._start + max(size, 1)
            taken.append(tuple(self._items[self._start : stop]))
            self._start = stop
        return taken


def run_batch(task: Task, items: Sequence[Any], stopped: Callable[[], bool]) -> tuple[float, list[Any]]:
    """Run a task on a batch of items; return the duration in seconds and the result of each."""
    began = time.perf_counter()
    METER.begin()
    try:
        results = [task(item, stopped) for item in until_stopped(items, stopped)]
    finally:
        METER.end()
    return time.perf_counter() - began, results


def until_stopped(parts: Iterable[Value], stopped: Callable[[], bool]) -> Iterator[Value]:
    """Yield the parts of an item, such as the pieces of a split; raise `Stopped` before the next one if it must end."""
    for part in parts:
        if stopped():
            raise Stopped
        yield part
        del part  # before the next one is read
        METER.processed()


class InOrder:
    """Function `done` for `Runner.run` that passes on results in the order of tasks, whichever ends first.

    Parameters
    ----------
    add : callable
        Called with each result, that of task 0 first.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> found = []
    >>> done = InOrder(found.append)
    >>> for number in (1, 2, 0):
    ...     done(SimpleNamespace(number=number), f"result {number}")
    >>> found
    ['result 0', 'result 1', 'result 2']
    """

    def __init__(self, add: Callable[[Any], object]) -> None:
        self._add, self._next = add, 0
        self._waiting: dict[int, Any] = {}

    def __call__(self, task: Any, result: Any) -> None:
        """Keep a task's result until the results of all earlier tasks have been passed on."""
        self._waiting[task.number] = result
        while self._next in self._waiting:
            self._add(self._waiting.pop(self._next))
            self._next += 1


class Tree:
    """Results that are joined two by two, in an order that depends only on their number, whichever ends first.

    A node is its level, from 0, and its place in the level. Nodes of places 0 and 1, 2 and 3, and so on are joined to
    one of the next level; a last one without a sibling goes up as it is.

    Parameters
    ----------
    n_items : int
        Number of results to join, at least 1.

    Examples
    --------
    >>> tree = Tree(3)
    >>> tree.add((0, 2), "c"), tree.add((0, 0), "a"), tree.add((0, 1), "b")
    (None, None, ((1, 0), ['a', 'b']))
    >>> tree.add((1, 0), "ab")
    ((2, 0), ['ab', 'c'])
    >>> tree.add((2, 0), "abc"), tree.root
    (None, 'abc')
    """

    def __init__(self, n_items: int) -> None:
        self._n_items = n_items
        self._waiting: dict[tuple[int, int], Any] = {}
        self.root: Any = None
        """Result of all items."""

    def add(self, node: tuple[int, int], result: Any) -> tuple[tuple[int, int], list[Any]] | None:
        """Add the result of a node; if that of its sibling is there, return the next node and both to join for it."""
        level, place = node
        while (width := -(-self._n_items // 2**level)) > 1 and place == width - 1 and place % 2 == 0:
            level, place = level + 1, place // 2
        if width == 1:
            self.root = result
        elif (sibling := (level, place ^ 1)) in self._waiting:
            pair = [self._waiting.pop(sibling), result]
            return (level + 1, place // 2), pair[::-1] if place % 2 == 0 else pair
        else:
            self._waiting[level, place] = result
        return None

    def fold(self, place: int, result: Any, join: Callable[[Any, Any], Any]) -> None:
        """Add the result of an item, and join what can be joined."""
        found: Any = (0, place), [result]
        while found is not None:
            node, results = found
            found = self.add(node, reduce(join, results))
