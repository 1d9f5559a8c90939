"""Two suites, the rules that divide them, and fixtures that tests of several parts share.

``make test`` runs each public behaviour once and each family of faults by its cheapest case, with the same examples
each time, in minutes. ``make test-all`` runs everything: long matrices, killed processes, clusters, pages, notebooks.

A test belongs to ``make test`` unless

1. it is marked ``slow``: it starts many processes, compiles loops for another processor, repeats, or reads much;
2. it stands in one of `SLOW_FOLDERS`, or is marked ``cluster`` or ``data``;
3. it is a combination of parameters all of whose values occur in earlier combinations, where there are more than
   `FEW_CASES` of them: `make test` takes each value once, `make test-all` each combination.

Rules 2 and 3 add the mark ``slow``. The mark ``quick`` keeps a test, or one of its parameters, in ``make test`` against
all three; pyproject.toml selects ``quick or not slow``.
"""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from scipy import sparse
from threadpoolctl import threadpool_limits

from tests.faults.catalogue import CASES

# Their time, which depends on the machine, decides nothing, and examples may share a folder.
UNCHECKED = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
EXAMPLES = {"deadline": None, "database": None, "print_blob": True, "suppress_health_check": UNCHECKED}
# The same examples in each run, of which more would find nothing new the next time.
settings.register_profile("dkfeat", derandomize=True, max_examples=30, **EXAMPLES)
# Other examples in each run, which --hypothesis-seed repeats: make test-slow
settings.register_profile("random", derandomize=False, **EXAMPLES)
settings.load_profile("dkfeat")

SLOW_FOLDERS = ("tests/benchmarks", "tests/docs", "tests/reproduction")
FEW_CASES = 4

ROWS, COLUMNS = 400, 300


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a mark that names a fault case which is not in the catalogue."""
    unknown = {case for mark in item.iter_markers("fault") for case in mark.args} - CASES.keys()
    if unknown:
        raise pytest.UsageError(
            f"{item.nodeid}: tests/data/fault_cases.txt has no case {', '.join(sorted(map(str, unknown)))}"
        )


def pytest_collection() -> None:
    """Look for no garbage while tests are collected: what is made then stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage again, and multiply on one core, because tests run side by side."""
    gc.enable()
    threadpool_limits(1)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what the rules leave out of ``make test``."""
    cases = Counter(_test_of(item) for item in items)
    values: defaultdict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if "quick" not in marks:
            if "slow" in marks:
                continue
            repeats = cases[_test_of(item)] > FEW_CASES and _values(item) <= values[_test_of(item)]
            if repeats or marks & {"cluster", "data"} or item.nodeid.startswith(SLOW_FOLDERS):
                item.add_marker(pytest.mark.slow)
                continue
        values[_test_of(item)] |= _values(item)


def _test_of(item: pytest.Item) -> str:
    """Name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def _values(item: pytest.Item) -> set[tuple[Any, ...]]:
    """Parameters of a test, those that one mark gives together as one value."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return {()}
    left = dict(callspec.params)
    values = set()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        values.add(tuple((name, id(left.pop(name))) for name in names if name in left))
    return values | {((name, id(value)),) for name, value in left.items()}


def first_quick(values: Iterable[Any], n: int = 1) -> list[Any]:
    """Values of one parameter of which ``make test`` takes the first ``n``, and ``make test-all`` all."""
    values = list(values)
    return [*values[:n], *(pytest.param(value, marks=pytest.mark.slow) for value in values[n:])]


def peak_bytes(run: Callable[[], object]) -> int:
    """Memory that a call takes at its peak, as Python and numpy allocate it."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same in every run."""
    return np.random.default_rng(20261120)


def libsvm_text(X: sparse.csr_matrix, y: np.ndarray) -> str:
    """Rows as LIBSVM text, columns from 1, every value with all its digits."""
    lines = []
    for row in range(X.shape[0]):
        place = slice(X.indptr[row], X.indptr[row + 1])
        tokens = [
            f"{column + 1}:{value!r}" for column, value in zip(X.indices[place], X.data[place].tolist(), strict=True)
        ]
        lines.append(" ".join([f"{y[row]:g}", *tokens]))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def tiny_rows() -> tuple[sparse.csr_matrix, np.ndarray]:
    """400 sparse rows of either sign with two classes; each hundredth row is empty, the last column is used."""
    rng = np.random.default_rng(7)
    X = sparse.random(ROWS, COLUMNS, density=0.05, format="lil", random_state=rng, dtype=np.float32)
    X[::100] = 0
    X[1, COLUMNS - 1] = 2.5
    X = X.tocsr()
    X.data *= rng.choice([-1, 1], X.nnz).astype(np.float32)
    X.eliminate_zeros()
    return X, np.where(rng.random(ROWS) < 0.5, -1, 1)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, tiny_rows) -> Path:
    """The tiny rows as two LIBSVM files, with times of change that never move."""
    folder = tmp_path_factory.mktemp("tiny")
    X, y = tiny_rows
    for name, rows in (("a.svm", slice(0, 250)), ("b.svm", slice(250, ROWS))):
        path = folder / name
        path.write_text(libsvm_text(X[rows], y[rows]), encoding="ascii")
        os.utime(path, ns=(10**18, 10**18))
    return folder


@pytest.fixture(scope="session")
def cluster_client() -> Iterator[object]:
    """Client of one embedded cluster of two worker processes for the whole session."""
    import dask

    from dkfeat.engine.clusters.local import local_cluster

    # it waits most of the time, and looks at itself fifty times a second otherwise
    rarely = {"distributed.admin.tick.interval": "2s", "distributed.admin.system-monitor.interval": "60s"}
    with dask.config.set(rarely), local_cluster(n_workers=2, threads_per_worker=1) as client:
        yield client


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of the papers' data sets: DKFEAT_DATA, or ``shared/data`` beside the project."""
    folder = Path(os.environ.get("DKFEAT_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no data sets of the papers at {folder}; DKFEAT_DATA names another folder")
    return folder
