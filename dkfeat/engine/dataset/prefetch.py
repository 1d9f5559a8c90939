"""Prefetching of items by background threads, with a limited number kept ready."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, cast

Item = TypeVar("Item")
_END = object()


def prefetch(items: Iterable[Item], *, ahead: int = 1) -> Iterator[Item]:
    """Yield the same items in the same order, while a background thread prepares the next ones.

    Parameters
    ----------
    items : iterable
        Iterated only in the background thread. Its exception is raised in the caller, after the items before it.
    ahead : int, default=1
        Maximum number of items kept ready, at least 1. It limits memory use.

    Yields
    ------
    item
        Items of `items`. Leaving the loop early stops the thread.

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
        except BaseException as error:  # raised again in the caller
            failure.append(error)
        offer(_END)

    thread = threading.Thread(target=make, name="dkfeat-prefetch", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            yield cast("Item", item)
            del item  # so that only the caller holds it while the next one is prepared
    finally:
        stopped.set()
        thread.join()
    if failure:
        raise failure[0]


def prefetch_calls(calls: Iterable[Callable[[], Item]], *, threads: int) -> Iterator[Item]:
    """Yield the results of calls in their order, while background threads run the next calls.

    Parameters
    ----------
    calls : iterable of callable
        Functions without arguments, called in the threads. An exception is raised in the caller in place of the result.
    threads : int
        Number of threads, at least 1. As many results are kept ready, which limits memory use.

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
