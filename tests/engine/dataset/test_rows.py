from __future__ import annotations

import threading
from collections import deque

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from dkfeat.blocks import PackedCodes, RowBlock
from dkfeat.engine.dataset.rows import prefetch, shuffle_batches
from tests.conftest import peak_bytes


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


def drawn(sizes, rows, kept, rng):
    """Numbers of the rows of each batch, by the definition: a list is shuffled whenever it is long enough."""
    held, batches, first = np.arange(0), [], 0
    for size in (*sizes, None):
        if size is not None:
            held = np.concatenate([held, np.arange(first, first + size)])
            first += size
        if size is None or len(held) >= kept + max(rows, kept // 2):
            held = held[rng.permutation(len(held))]
            taken = len(held) if size is None else (len(held) - kept) // rows * rows
            batches += [held[start : min(start + rows, taken)] for start in range(0, taken, rows)]
            held = held[taken:]
    return batches


@pytest.mark.parametrize("layout", ["codes", "dense", "sparse"])
@pytest.mark.parametrize(
    ("sizes", "rows", "kept"), [([9, 1, 30, 4, 4, 17, 3], 4, 10), ([5] * 40, 7, 1), ([40, 8], 3, 10**12), ([6], 6, 6)]
)
def test_shuffle_batches__columns_of_all_types_follow_the_definition(sizes, rows, kept, layout):
    n_rows = sum(sizes)
    numbers = np.arange(n_rows)
    codes = PackedCodes(np.repeat(numbers[:, None], 3, axis=1).astype(np.uint8), numbers % 5 == 0)
    weights = sparse.csr_matrix((numbers + 1.5, numbers % 7, np.arange(n_rows + 1)), shape=(n_rows, 7))
    X = {"codes": codes, "dense": np.outer(numbers, [1.0, 2.0]), "sparse": weights}[layout]
    labels = sparse.csr_matrix((numbers + 1, numbers % 4, np.arange(n_rows + 1)), shape=(n_rows, 4))
    every = RowBlock(X=X, y=labels, weight=numbers / 2, number=numbers, kept={"name": pa.array(map(str, numbers))})
    shards = (every.take(slice(stop - size, stop)) for size, stop in zip(sizes, np.cumsum(sizes), strict=True))
    batches = list(shuffle_batches(shards, sizes, rows, kept=kept, rng=np.random.default_rng(3)))
    expected = drawn(sizes, rows, kept, np.random.default_rng(3))
    assert [batch.number.tolist() for batch in batches] == [batch.tolist() for batch in expected]
    for batch in batches:
        rows_of = batch.number
        if layout == "codes":
            assert batch.X.codes.tolist() == codes.codes[rows_of].tolist()
            assert batch.X.empty.tolist() == codes.empty[rows_of].tolist()
        else:
            assert (X[rows_of] != batch.X).sum() == 0
        assert (batch.y != labels[rows_of]).nnz == 0
        assert batch.weight.tolist() == (rows_of / 2).tolist()
        assert batch.kept["name"].to_pylist() == [str(number) for number in rows_of]


@pytest.mark.parametrize("layout", ["codes", "sparse"])
def test_shuffle_batches__memory_is_that_of_the_buffer(layout):
    rows = {
        "codes": PackedCodes(np.zeros((500, 2400), np.uint8), np.zeros(500, bool)),
        "sparse": sparse.random(500, 1000, 0.2, format="csr", random_state=0),  # 200 nonzeros of 12 bytes a row
    }[layout]
    shards = (RowBlock(X=rows, y=np.zeros(500)).take(np.arange(500)) for _ in range(16))
    batches = shuffle_batches(shards, [500] * 16, 100, kept=2000, rng=np.random.default_rng(0))
    assert peak_bytes(lambda: deque(batches, maxlen=0)) < 3.5 * 2000 * 2400
