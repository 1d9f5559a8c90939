"""Fixtures that tests of several parts share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from scipy import sparse

from tests import kills
from tests.fault_catalogue import CASES

# the time of an example depends on the machine, so it decides nothing
hypothesis.settings.register_profile("dkfeat", deadline=None)
hypothesis.settings.load_profile("dkfeat")

ROWS, COLUMNS = 400, 300


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a mark that names a fault case which is not in the catalogue."""
    unknown = {case for mark in item.iter_markers("fault") for case in mark.args} - CASES.keys()
    if unknown:
        message = f"{item.nodeid}: tests/data/fault_cases.txt has no case {', '.join(sorted(map(str, unknown)))}"
        raise pytest.UsageError(message)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the kills that one of several test processes survived to the process that tells of all."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["kills"] = dict(kills.SURVIVED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the kills of a test process that ends."""
    kills.SURVIVED.update(getattr(node, "workeroutput", {}).get("kills", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how many kills were survived."""
    if kills.SURVIVED:
        terminalreporter.write_line(kills.summary())


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
    from dkfeat.engine.cluster import local_cluster

    with local_cluster(n_workers=2, threads_per_worker=1) as client:
        yield client


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of the papers' data sets: DKFEAT_DATA, or ``shared/data`` beside the project."""
    folder = Path(os.environ.get("DKFEAT_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no data sets of the papers at {folder}; DKFEAT_DATA names another folder")
    return folder
