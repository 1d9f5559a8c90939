"""Values that all threads of a process share."""

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
