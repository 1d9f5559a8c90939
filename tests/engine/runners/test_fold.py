# ruff: noqa: ARG001 - tasks have fixed signatures
"""Results that are joined two by two where they are."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dkfeat.config import ExecutionConfig
from dkfeat.engine.clusters.local import local_cluster
from dkfeat.engine.runners import distributed
from dkfeat.engine.runners.distributed import ClientRunner, _Submissions
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ParseError


@dataclass(frozen=True)
class Item:
    number: int


@dataclass(frozen=True)
class Named:
    """Name the item and the shared value; later items end first."""

    count: int
    kill_at: int = -1
    """Item in which the first worker is killed that runs it."""
    folder: str = ""

    def __call__(self, item, stopped, shared):
        assert not stopped()
        time.sleep(0.02 * (self.count - item.number) / self.count)
        if item.number == self.kill_at and not (flag := Path(self.folder) / "killed").exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{shared[0]}{item.number}", np.full(3, item.number)


def join(left, right):
    return f"({left[0]} {right[0]})", left[1] + right[1]


def expected(names):
    while len(names) > 1:
        names = [
            f"({' '.join(names[at : at + 2])})" if at + 1 < len(names) else names[at] for at in range(0, len(names), 2)
        ]
    return names[0]


def folded(runner, count, task=None):
    text, total = runner.fold(task or Named(count), ["x"], [Item(number) for number in range(count)], join)
    np.testing.assert_array_equal(total, np.full(3, count * (count - 1) // 2))
    return text


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_fold__joins_neighbours_whichever_ends_first(scheduler):
    with open_runner(
        ExecutionConfig(scheduler=scheduler, n_workers=None if scheduler == "synchronous" else 3)
    ) as runner:
        for count in range(1, 12):
            assert folded(runner, count) == expected([f"x{number}" for number in range(count)])


@pytest.mark.cluster
def test_fold__on_a_cluster_joins_the_same_and_sends_one_value_at_a_time(cluster_client, monkeypatch):
    gathered, gather = [], _Submissions._gather
    submitted, submit = [], _Submissions._submit

    def counted(submissions, futures):
        gathered.append(len(futures))
        return gather(submissions, futures)

    def recorded(submissions, batches):
        submitted.extend(node for batch in batches for _, node in batch)
        return submit(submissions, batches)

    monkeypatch.setattr(_Submissions, "_gather", counted)
    monkeypatch.setattr(_Submissions, "_submit", recorded)
    for count in (1, 2, 11, 70):
        gathered.clear()
        submitted.clear()
        assert folded(ClientRunner(cluster_client), count) == expected([f"x{number}" for number in range(count)])
        assert gathered == [1, 1]
    groups = [node.item for node in submitted if node.step == "items"]
    assert [len(group) for group in groups] == [8] * 8 + [6]  # in tasks of their own they would cost 139 messages
    assert len(submitted) == 9 + 8 + 3


def locate(item, stopped, shared):
    time.sleep(0.02)
    return (os.getpid(),), len(shared)


@pytest.mark.cluster
def test_fold__all_workers_have_items_though_one_holds_the_shared_value():
    with local_cluster(n_workers=2, threads_per_worker=1) as client:
        runner = ClientRunner(client)
        pids, _ = runner.fold(locate, bytes(32 << 20), [Item(0)] * 128, lambda left, right: (left[0] + right[0], 0))
    few, _ = sorted(Counter(pids).values())
    assert few >= 40  # if Dask chose, none


@pytest.mark.cluster
def test_fold__results_of_a_killed_worker_are_made_again(tmp_path):
    with local_cluster(n_workers=2, threads_per_worker=1) as client:
        text = folded(ClientRunner(client), 40, Named(40, kill_at=18, folder=str(tmp_path)))
    assert (tmp_path / "killed").exists()
    assert text == expected([f"x{number}" for number in range(40)])


@pytest.mark.cluster
def test_fold__sum_of_a_worker_that_hangs_is_made_again(monkeypatch):
    for name, seconds in (("SILENT", 1.5), ("REFRESH", 0.5), ("GATHER", 2.0)):
        monkeypatch.setattr(distributed, f"{name}_SECONDS", seconds)
    element, stopped = _Submissions._element, []

    def stop_holder(submissions, root, number):
        if not stopped:
            (holder,) = client.who_has([root])[root.key]
            stopped.append(pids[holder])
            os.kill(stopped[0], signal.SIGSTOP)
        return element(submissions, root, number)

    monkeypatch.setattr(_Submissions, "_element", stop_holder)
    with local_cluster(n_workers=3, threads_per_worker=1) as client:
        pids = client.run(os.getpid)
        try:
            begin = time.monotonic()
            assert folded(ClientRunner(client), 40) == expected([f"x{number}" for number in range(40)])
            assert time.monotonic() - begin < 60  # Dask waits for 300 s
        finally:
            os.kill(stopped[0], signal.SIGCONT)


def fail(item, stopped, shared):
    raise ParseError("indices must ascend", path="fake.svm", line=7, column=5, offset=99)


@pytest.mark.cluster
def test_fold__error_arrives(cluster_client):
    with pytest.raises(ParseError, match=r"fake\.svm.*7"):
        list(ClientRunner(cluster_client).fold(fail, 0, [Item(0), Item(1)], join))
