"""What all threads of a process share: values that are loaded once, and a meter of the bytes that they process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ProcessCache(Generic[Value]):
    """Values that a process loads once and all of its threads share; a lock is held while a value is made.

    The least recently used value is dropped first.

    Parameters
    ----------
    most : int
        Maximum number of values kept.

    Examples
    --------
    >>> cache = ProcessCache[str](1)
    >>> cache.get("a", lambda: "made"), cache.get("a", lambda: "made again")
    ('made', 'made')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key; if it is missing, make it while other threads wait."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
            return self._values[key]


class Meter:
    """Bytes of source files that the running tasks of this process have processed: progress within a task.

    Examples
    --------
    >>> meter = Meter()
    >>> meter.begin()
    >>> meter.read(100)
    >>> meter.processed(0.25)
    >>> meter.total
    25.0
    """

    def __init__(self) -> None:
        self._tasks: dict[int, list[float]] = {}

    @property
    def total(self) -> float:
        """Bytes processed by the tasks that are running."""
        return sum(done for _, _, done in list(self._tasks.values()))

    def begin(self) -> None:
        """Begin the tasks of this thread; their bytes count until `end`."""
        self._tasks[threading.get_ident()] = [0.0, 0.0, 0.0]  # read, before the current part, processed

    def end(self) -> None:
        """End the tasks of this thread."""
        self._tasks.pop(threading.get_ident(), None)

    def read(self, n_bytes: int) -> None:
        """Count bytes that this thread has read."""
        if (task := self._tasks.get(threading.get_ident())) is not None:
            task[0] += n_bytes

    def processed(self, share: float = 1.0) -> None:
        """Set the processed share of the bytes that this thread has read since the last call with a share of 1."""
        if (task := self._tasks.get(threading.get_ident())) is not None:
            task[2] = task[1] + share * (task[0] - task[1])
            if share == 1:
                task[1] = task[0]


METER = Meter()
"""Meter of this process."""
