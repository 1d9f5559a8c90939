"""Cache of values that a process loads once."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from dkfeat.engine.runners.local import ProcessCache


def test_get__makes_a_value_once_however_many_threads_ask():
    cache, made, start = ProcessCache(1), [], threading.Barrier(8)

    def make():
        time.sleep(0.05)  # the other threads call get() meanwhile
        made.append(object())
        return made[-1]

    def ask(_):
        start.wait()
        return cache.get("key", make)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(8)))
    assert len(made) == 1
    assert all(value is made[0] for value in found)


def test_get__forgets_what_was_asked_for_least_recently():
    cache, made = ProcessCache(2), []

    def get(key):
        return cache.get(key, lambda: made.append(key) or key)

    for key in "abaca":  # c replaces b
        assert get(key) == key
    assert made == ["a", "b", "c"]
    get("b")
    assert made == ["a", "b", "c", "b"]
    cache.clear()
    get("b")
    assert made[-2:] == ["b", "b"]
