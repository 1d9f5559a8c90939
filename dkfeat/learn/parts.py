"""The parts of a training on a cluster: which shards each one has, and one epoch of it on a worker.

Zinkevich, Weimer, Smola and Li (2010), "Parallelized Stochastic Gradient Descent", Algorithm 3: rows are dealt out at
random, and every machine descends over its own share alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from dkfeat.engine.dataset import ShardDataset
from dkfeat.engine.prefetch import prefetch
from dkfeat.engine.process_cache import ProcessCache
from dkfeat.engine.runners import Stopped
from dkfeat.io.metadata import read_numbered, read_spec
from dkfeat.io.reader import ShardReader
from dkfeat.learn.descent import Descent, Weights
from dkfeat.learn.descent_settings import Settings
from dkfeat.learn.training_rows import TrainingRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.io.storage import Storage

__all__ = ["EpochTask", "Homes", "Part", "PinnedShards", "assign_shards", "forget_shards"]


def assign_shards(rows: Sequence[int], n_parts: int, seed: int) -> list[list[int]]:
    """Deal shards out to parts of about equally many rows.

    The largest shards go first, each to the part with the fewest rows; which of equal ones is first is drawn.

    Parameters
    ----------
    rows : sequence of int
        Rows of each shard.
    n_parts : int
        At least 1.
    seed : int
        In [0, 2**64).

    Returns
    -------
    parts : list of list of int
        Places of each part's shards, ascending. A shard without rows is in none.

    Examples
    --------
    >>> assign_shards([5, 3, 0, 3], 2, seed=0)
    [[0], [1, 3]]
    """
    counts = np.asarray(rows)
    order = np.random.default_rng(np.random.SeedSequence([seed, n_parts])).permutation(len(counts))
    order = order[np.argsort(-counts[order], kind="stable")]
    parts: list[list[int]] = [[] for _ in range(n_parts)]
    least = [(0, part) for part in range(n_parts)]
    for place in order[counts[order] > 0].tolist():
        held, part = heapq.heappop(least)
        parts[part].append(place)
        heapq.heappush(least, (held + int(counts[place]), part))
    return [sorted(places) for places in parts]


@dataclass(frozen=True, slots=True)
class Part:
    """Which part a task is for."""

    number: int
    """From 0."""
    n_parts: int

    @property
    def description(self) -> str:
        """Which part, for people."""
        return f"part {self.number + 1} of {self.n_parts}"


class Homes:
    """Which worker each part runs on: the same one in every epoch, as long as it lives.

    Parameters
    ----------
    n_parts : int

    Examples
    --------
    >>> homes = Homes(3)
    >>> homes({"a": 1, "b": 1}), homes({"b": 1, "c": 1})
    ({0: 'a', 1: 'b', 2: 'a'}, {0: 'c', 1: 'b', 2: 'b'})
    """

    def __init__(self, n_parts: int) -> None:
        self._n_parts = n_parts
        self._homes: dict[int, str] = {}

    def __call__(self, threads: Mapping[str, int]) -> dict[int, str]:
        """Worker of each part, given all workers with their threads; none without workers."""
        self._homes = {part: home for part, home in self._homes.items() if home in threads}
        for part in range(self._n_parts if threads else 0):
            if part not in self._homes:
                taken = list(self._homes.values())
                self._homes[part] = min(threads, key=lambda home: (taken.count(home) / max(1, threads[home]), home))
        return dict(sorted(self._homes.items()))


@dataclass(frozen=True, slots=True)
class PinnedShards:
    """A committed state of a data set, told in few bytes: workers read the list of shards themselves."""

    storage: Storage
    manifest: int
    """Its number."""
    sha256: str
    """Of the manifest."""
    verify: Literal["sha256", "size"]
    cache_bytes: int
    """Encoded rows that a worker process keeps in memory."""

    def open(self) -> ShardDataset:
        """Open it, once in each process."""
        key = (self.storage.url, self.sha256, self.verify, self.cache_bytes)
        return _OPENED.get(key, self._open)

    def _open(self) -> ShardDataset:
        manifest = read_numbered(self.storage, self.manifest, self.sha256)
        shards = ShardReader(self.storage, read_spec(self.storage), manifest)
        return ShardDataset(shards, self.verify, cache_bytes=self.cache_bytes)


_OPENED = ProcessCache[ShardDataset](1)
"""In a worker process: the shards that it trains on, with those of their rows that are kept."""


def forget_shards() -> None:
    """Free what this process keeps of shards."""
    _OPENED.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTask:
    """One epoch of every part: what is sent to each worker once an epoch."""

    shards: PinnedShards
    settings: Settings
    coef: NDArray[np.float32]
    """Weights to start from, shape (n_features, n_lanes)."""
    intercept: NDArray[np.float64]
    epoch: int
    """From 0."""
    fraction: float
    """Share of the rows that is held out."""
    seed: int
    shuffle_rows: int | None

    def __call__(self, part: Part, stopped: Callable[[], bool]) -> Weights:
        """Run an epoch over the shards of a part.

        Returns
        -------
        weights : Weights
            After it, with their mean over this epoch's steps, the mean loss and the number of its rows. A function of
            the part's number and this task, bit for bit, wherever and how often it runs.
        """
        data = self.shards.open()
        shards = assign_shards([entry.rows for entry in data.manifest.shards], part.n_parts, self.seed)[part.number]
        rows = TrainingRows(
            data,
            fraction=self.fraction,
            seed=self.seed,
            shuffle_rows=self.shuffle_rows,
            shards=shards,
            part=part.number,
        )
        fresh = Weights.zeros(self.settings, 0)
        mean = np.zeros_like(self.coef) if self.settings.average else None
        start = Weights(self.coef.copy(), self.intercept, mean, fresh.mean_intercept, fresh.loss)
        descent = Descent(start, self.settings, copy=False)
        for X, y, weight in prefetch(rows.epoch(self.epoch)):
            if stopped():
                raise Stopped
            descent.show(X, y, weight)
        return descent.weights()
