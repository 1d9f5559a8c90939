"""Items made ready by one background thread, a bounded number ahead."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, cast

__all__ = ["prefetch", "prefetch_calls"]

Item = TypeVar("Item")
_END = object()


def prefetch(items: Iterable[Item], *, ahead: int = 1) -> Iterator[Item]:
    """Yield the same items in the same order, while a thread makes the next ones.

    Parameters
    ----------
    items : iterable
        Consumed by the thread alone. An exception it raises reaches the caller at its turn.
    ahead : int, default=1
        Items kept ready, at least 1: what bounds memory.

    Yields
    ------
    item
        Leaving the loop early ends the thread.

    Examples
    --------
    >>> list(prefetch(range(4)))
    [0, 1, 2, 3]
    """
    ready: queue.Queue[object] = queue.Queue(maxsize=ahead)
    stopped = threading.Event()
    failure: list[BaseException] = []

    def offer(item: object) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def make() -> None:
        try:
            for item in items:
                if not offer(item):
                    return
        except BaseException as error:  # handed to the caller, which raises it
            failure.append(error)
        offer(_END)

    thread = threading.Thread(target=make, name="dkfeat-prefetch", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            yield cast("Item", item)
            del item  # held by the caller alone while the next one is made
    finally:
        stopped.set()
        thread.join()
    if failure:
        raise failure[0]


def prefetch_calls(calls: Iterable[Callable[[], Item]], *, threads: int) -> Iterator[Item]:
    """Yield what calls return, in their order, while threads make the next ones.

    Parameters
    ----------
    calls : iterable of callable
        Made by the threads. An exception reaches the caller at its turn.
    threads : int
        At least 1; as many results are kept ready, which bounds memory.

    Yields
    ------
    item
        Leaving the loop early waits for the calls under way.

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
