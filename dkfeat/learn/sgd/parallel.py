"""Training in parts on a cluster: each part descends over its own shards, and their weights are averaged.

Zinkevich, Weimer, Smola and Li (2010), "Parallelized Stochastic Gradient Descent", Algorithm 3: rows are distributed at
random, and every machine descends over its own rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dkfeat.engine.clusters.local import more_memory
from dkfeat.engine.dataset.rows import prefetch
from dkfeat.engine.runners.base import InOrder, until_stopped
from dkfeat.errors import ConfigError
from dkfeat.learn.checks import check_fits
from dkfeat.learn.sgd.descent import Descent, DescentConfig, Weights
from dkfeat.learn.sgd.rows import TrainingRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.runners.base import Runner


def assign_shards(rows: Sequence[int], n_parts: int, seed: int) -> list[list[int]]:
    """Assign shards to parts of about equally many rows.

    The largest shards are assigned first, each to the part with the fewest rows; shards of equal size are in random
    order.

    Parameters
    ----------
    rows : sequence of int
        Number of rows of each shard.
    n_parts : int
        At least 1.
    seed : int
        In [0, 2**64).

    Returns
    -------
    parts : list of list of int
        Indices of the shards of each part, ascending. A shard without rows is in no part.

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
    for shard in order[counts[order] > 0].tolist():
        held, part = heapq.heappop(least)
        parts[part].append(shard)
        heapq.heappush(least, (held + rows[shard], part))
    return [sorted(shards) for shards in parts]


class Part(NamedTuple):
    """One part of a training, the input of one task; parts are numbered from 0."""

    number: int
    n_parts: int
    shards: Sequence[int]
    """Ascending indices of its shards."""

    @property
    def description(self) -> str:
        """Number of the part in messages."""
        return f"part {self.number + 1} of {self.n_parts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTask:
    """One epoch of all parts, sent to each worker once per epoch."""

    data: ShardDataset
    config: DescentConfig
    coef: NDArray[np.float32]
    """Initial weights, shape (n_features, n_lanes)."""
    intercept: NDArray[np.float64]
    epoch: int
    """Number of the epoch, from 0."""
    rows: Callable[..., TrainingRows]
    """Makes the rows of a part from the data set, ``shards`` and ``part``."""

    def __call__(self, part: Part, stopped: Callable[[], bool]) -> Weights:
        """Run an epoch over the shards of a part.

        Returns
        -------
        weights : Weights
            Weights after the epoch, with their mean over its steps, the mean loss and the number of rows. They depend
            only on the part's number and this task, bit for bit.
        """
        rows = self.rows(self.data, shards=part.shards, part=part.number)
        zeros = Weights.zeros(self.config, len(self.coef))
        start = replace(zeros, coef=self.coef.copy(), intercept=self.intercept)
        descent = Descent(start, self.config)
        for X, y, weight in until_stopped(prefetch(rows.epoch(self.epoch)), stopped):
            descent.run_batch(X, y, weight)
        return descent.weights()


EARLIER = 0.5
"""Weight of the steps of earlier epochs in the mean of the weights. Epoch t then has a share of 2 / (t + 1), as in
polynomial-decay averaging with eta = 1 (Shamir and Zhang, 2013). Early epochs count less because the first weights of
parts are worse than those of one descent."""
BATCHES_BYTES = 32 << 20
"""Memory of the decoded batches of a part."""
BUFFERS_BYTES = 256 << 20
"""Maximum memory of a part in addition to its weights: these batches, the shuffle buffer and two shards."""


class Averaging:
    """Epochs over the parts of a data set, whose weights are averaged after each epoch.

    In each epoch every worker receives one table of weights, with 4 bytes for each feature and lane, and every part
    sends back one, or two with the mean over its steps. Lanes are the outputs of all models trained in the same
    descent, padded to a multiple of 16 if there are several.

    Parameters
    ----------
    rows : TrainingRows
        Rows of all parts.
    config : DescentConfig
    parts : int or None
        Number of parts; None: as many as tasks run at a time, at most the number of shards with rows.
    runner : Runner

    Raises
    ------
    ConfigError
        If there are more parts than shards with rows.
    PlanError
        If the weights would not fit in the memory of a worker.
    """

    def __init__(self, rows: TrainingRows, config: DescentConfig, parts: int | None, runner: Runner) -> None:
        data, manifest, limit = rows.data, rows.data.manifest, runner.memory_limit
        most = sum(entry.rows > 0 for entry in manifest.shards)
        if parts is not None and parts > most:
            raise ConfigError(
                f"parts={parts}, but only {most:,} of the shards have rows, and a shard belongs to one part; lower "
                "parts, or featurize with a smaller blocksize"
            )
        if limit is not None:
            _check_memory(config, data, limit)
        self.n_parts = parts or max(1, min(most, runner.n_threads))
        self._runner = runner
        shards = assign_shards([entry.rows for entry in manifest.shards], self.n_parts, rows.seed)
        self._parts = [Part(number, self.n_parts, indices) for number, indices in enumerate(shards)]
        self._task = partial(
            EpochTask,
            data=data,
            config=replace(config, n_descents=self.n_parts),
            rows=partial(TrainingRows, fraction=rows.fraction, seed=rows.seed, shuffle_rows=rows.shuffle_rows),
        )

    def __call__(self, weights: Weights, epoch: int) -> Weights:
        """Run one epoch over all parts.

        Parameters
        ----------
        weights : Weights
            Initial weights of all parts; not changed.
        epoch : int
            Number of the epoch, from 0.

        Returns
        -------
        weights : Weights
            Mean of the parts' weights, weighted by their rows, and of their means over the steps of all epochs, where
            epoch t, from 1, counts t times. They depend only on data, options, seed and number of parts, bit for bit.

        Raises
        ------
        ClusterError
            If the scheduler was lost, or several workers died while training the same part.
        ShardError
            If a shard cannot be read.
        """
        task: Any = self._task(coef=weights.coef, intercept=weights.intercept, epoch=epoch)
        before, n_rows = weights.steps, 0
        # running means: w += (w_i - w) n_i / n, whose rounding depends on the order of parts only
        mean = Weights(
            np.zeros_like(weights.coef),
            np.zeros_like(weights.intercept),
            None if weights.mean_coef is None else weights.mean_coef.copy(),
            weights.mean_intercept.copy(),
            weights.loss.copy(),
        )

        def add(part: Weights) -> None:
            nonlocal n_rows
            if not part.steps:
                return
            n_rows += part.steps
            of_epoch, late = part.steps / n_rows, part.steps / (EARLIER * before + n_rows)
            shares = {"coef": of_epoch, "intercept": of_epoch, "mean_coef": late, "mean_intercept": late}
            shares["loss"] = part.steps / (before + n_rows)
            with np.errstate(invalid="ignore", over="ignore"):  # lanes that diverged
                for name, share in shares.items():
                    if (value := getattr(mean, name)) is not None:
                        _move(value, getattr(part, name), share)

        self._runner.run(task, self._parts, InOrder(add))
        return replace(mean, steps=before + n_rows) if n_rows else weights


def _move(mean: NDArray[Any], towards: NDArray[Any], share: float) -> None:
    """Move a mean by a share of the distance; a share of 1 gives the other value exactly."""
    mean *= mean.dtype.type(1 - share)
    mean += towards * mean.dtype.type(share)


def _check_memory(config: DescentConfig, data: ShardDataset, limit: int) -> None:
    width = data.shape[1]
    # float32 tables: the received one, those of the descent with mean and lag, and those that are sent back
    tables = 4 * width * config.n_lanes * (6 if config.average else 3)
    buffers = min(BUFFERS_BYTES, BATCHES_BYTES + 4 * data.n_rows * int(data.spec["output"]["row_bytes"]))
    check_fits(
        tables + buffers,
        f"a part with weights of {config.n_lanes:,} models and {width:,} columns",
        f"raise memory_limit of the workers by {more_memory(tables + buffers - limit)} for each of their threads, give "
        "each fewer threads, lower n_components or the bits of a code, or train fewer alphas at once",
        limit,
    )
