"""What a process loads once, however many of its threads ask for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["ProcessCache"]

Value = TypeVar("Value")


class ProcessCache(Generic[Value]):
    """The values that were asked for last.

    Parameters
    ----------
    most : int
        Values kept.

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
        """Value of a key; made if it is not there, while other threads wait."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
            return self._values[key]

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._values.clear()
