from __future__ import annotations

import threading

import pytest

from dkfeat.engine.dataset.rows import prefetch


def test_prefetch__error_comes_after_the_items_before_it():
    def items():
        yield from "ab"
        raise ValueError("bad item")

    iterator = prefetch(items())
    assert [next(iterator), next(iterator)] == ["a", "b"]
    with pytest.raises(ValueError, match="bad item"):
        next(iterator)


def test_prefetch__prepares_one_item_ahead_and_no_more():
    prepared, go = [], threading.Semaphore(0)

    def items():
        for item in range(10):
            prepared.append(item)
            go.release()
            yield item

    iterator = prefetch(items())
    assert next(iterator) == 0
    for _ in range(2):
        assert go.acquire(timeout=60)
    assert not go.acquire(timeout=0.1)
    assert prepared == [0, 1]
    iterator.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dkfeat-prefetch")]
