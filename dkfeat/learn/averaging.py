"""Training on the workers of a cluster: each descends over its own shards, and weights are averaged after each epoch.

Zinkevich, Weimer, Smola and Li (2010), "Parallelized Stochastic Gradient Descent", Algorithms 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.errors import ConfigError, PlanError
from dkfeat.learn.descent import Weights
from dkfeat.learn.descent_settings import Settings
from dkfeat.validation import check_integer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.engine.dataset import ShardDataset
    from dkfeat.engine.runners import Runner

__all__ = ["Averaging", "open_averaging"]

EARLIER = 0.5
"""What steps of earlier epochs count for in the mean of the weights: epoch t then has a share of 2 / (t + 1), as in the
averages of Shamir and Zhang (2013), eta = 1. Parts begin worse than one descent, and an even mean remembers that."""
CACHE_SHARE = 4
"""A worker keeps encoded rows in memory up to this part of what one of its tasks may use."""
CACHE_BYTES = 1 << 30
"""The same where no limit is known."""
BUFFERS_BYTES = 256 << 20
"""What a part needs beside weights and kept rows: the shuffle buffer, two shards and two decoded batches."""


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """Epochs over the parts of a data set.

    For each epoch every worker is sent one table of weights, 4 bytes for each feature and lane, and every part sends
    one back, two with the mean over its steps; lanes are the models trained side by side times their outputs, filled up
    to a multiple of 16 if there are several.

    Parameters
    ----------
    runner : Runner
        Where parts run.
    data : ShardDataset
    settings : Settings
    n_parts : int
    fraction, seed, shuffle_rows
        As in `TrainingRows`.
    """

    runner: Runner
    data: ShardDataset
    settings: Settings
    n_parts: int
    fraction: float
    seed: int
    shuffle_rows: int | None
    home: Callable[[Mapping[str, int]], Mapping[int, str]]
    cache_bytes: int

    def __call__(self, weights: Weights, epoch: int) -> Weights:
        """Run one epoch over all parts.

        Parameters
        ----------
        weights : Weights
            Where all parts start; not changed.
        epoch : int
            From 0.

        Returns
        -------
        weights : Weights
            The mean of the parts' weights, each counting by its rows; their mean over the steps of all epochs likewise,
            with epoch t, from 1, counting t times. A function of data, settings, seed and number of parts, bit for bit.

        Raises
        ------
        ClusterError
            The scheduler was lost, or several workers died over one part.
        ShardError
            A shard does not read back.
        """
        from dkfeat.learn.parts import EpochTask, Part

        task: Any = EpochTask(
            shards=self.pinned,
            settings=replace(self.settings, n_descents=self.n_parts),
            coef=weights.coef,
            intercept=weights.intercept,
            epoch=epoch,
            fraction=self.fraction,
            seed=self.seed,
            shuffle_rows=self.shuffle_rows,
        )
        mean = _Mean(weights)
        waiting: dict[int, Weights] = {}

        def done(part: Any, found: Weights) -> None:
            waiting[part.number] = found
            while mean.n_parts in waiting:  # one order of sums, whichever part ends first
                mean.add(waiting.pop(mean.n_parts))

        parts: Any = [Part(number, self.n_parts) for number in range(self.n_parts)]
        self.runner.run(task, parts, done, self.home)
        return mean.result()

    @property
    def pinned(self) -> Any:
        """The shards, as workers find them."""
        from dkfeat.learn.parts import PinnedShards

        manifest, shards = self.data.manifest, self.data.shards
        return PinnedShards(shards.storage, manifest.number, manifest.sha256, self.data.verifies, self.cache_bytes)


class _Mean:
    """Mean of parts' weights in proportion to their rows, and of means and losses with those of earlier epochs."""

    def __init__(self, before: Weights) -> None:
        self.n_parts = self._rows = 0
        self._before = before
        # running means: w += (w_i - w) n_i / n; only the order of parts decides how they are rounded
        self._coef = np.zeros_like(before.coef)
        self._mean_coef = None if before.mean_coef is None else before.mean_coef.copy()
        self._intercept = np.zeros_like(before.intercept)
        self._mean_intercept, self._loss = before.mean_intercept.copy(), before.loss.copy()

    def add(self, part: Weights) -> None:
        self.n_parts += 1
        if not part.steps:
            return
        self._rows += part.steps
        own = part.steps / self._rows
        overall = part.steps / (self._before.steps + self._rows)
        late = part.steps / (EARLIER * self._before.steps + self._rows)
        with np.errstate(invalid="ignore", over="ignore"):  # lanes that diverged
            _move(self._coef, part.coef, own)
            _move(self._intercept, part.intercept, own)
            if self._mean_coef is not None and part.mean_coef is not None:
                _move(self._mean_coef, part.mean_coef, late)
            _move(self._mean_intercept, part.mean_intercept, late)
            _move(self._loss, part.loss, overall)

    def result(self) -> Weights:
        if not self._rows:
            return self._before
        means = (self._mean_coef, self._mean_intercept, self._loss)
        return Weights(self._coef, self._intercept, *means, self._before.steps + self._rows)


def _move(mean: NDArray[Any], towards: NDArray[Any], share: float) -> None:
    """Move a mean by a share of the way; a share of 1 gives the other value exactly."""
    mean *= mean.dtype.type(1 - share)
    mean += towards * mean.dtype.type(share)


def open_averaging(
    data: ShardDataset,
    settings: Settings,
    *,
    parts: int | None,
    fraction: float,
    seed: int,
    shuffle_rows: int | None,
    **where: Any,
) -> AbstractContextManager[Averaging | None]:
    """Start what parts run on, for a ``with`` block; None if nothing asks for parts.

    `where` are keywords of `dkfeat.engine.opening.open_runner`.

    Raises
    ------
    ConfigError
        For a setting out of range, settings that do not go together, or more parts than shards that have rows.
    PlanError
        On entering: the weights would not fit in the memory of a worker.
    ClusterError
        On entering: workers do not start, or no scheduler answers.
    """
    if parts is not None:
        parts = check_integer(parts, "parts", low=1)
    if parts is None and all(value is None for value in where.values()):
        return nullcontext()
    most = sum(entry.rows > 0 for entry in data.manifest.shards)
    if parts is not None and parts > most:
        message = (
            f"parts={parts}, but only {most:,} of the shards have rows, and a shard belongs to one part; lower parts, "
            "or featurize with a smaller blocksize"
        )
        raise ConfigError(message)
    # importing Dask takes a while, which training in one process need not wait for
    from dkfeat.engine.opening import open_runner

    opening = open_runner(**where)
    return _open(opening, data, settings, parts, most, fraction=fraction, seed=seed, shuffle_rows=shuffle_rows)


@contextmanager
def _open(
    opening: AbstractContextManager[Runner],
    data: ShardDataset,
    settings: Settings,
    parts: int | None,
    most: int,
    **rows: Any,
) -> Iterator[Averaging]:
    from dkfeat.learn.parts import Homes, forget_shards

    with opening as runner:
        limit = runner.memory_limit
        _check_memory(settings, data.shape[1], limit)
        n_parts = parts or max(1, min(most, runner.n_threads))
        try:
            yield Averaging(
                runner=runner,
                data=data,
                settings=settings,
                n_parts=n_parts,
                home=Homes(n_parts),
                cache_bytes=CACHE_BYTES if limit is None else limit // CACHE_SHARE,
                **rows,
            )
        finally:
            runner.run_everywhere(forget_shards)


def _check_memory(settings: Settings, width: int, limit: int | None) -> None:
    # tables of float32: what was sent, the descent's with its mean and its lag, and what is sent back
    tables = 6 if settings.average else 3
    projected = 4 * width * settings.n_lanes * tables + BUFFERS_BYTES
    if limit is not None and projected > limit - limit // CACHE_SHARE:
        message = (
            f"a part needs {projected / 2**30:,.2f} GiB for weights of {settings.n_lanes:,} models and {width:,} "
            f"columns, workers allow {limit / 2**30:,.2f} GiB a task, a quarter of it for rows; raise their "
            "memory_limit, give each fewer threads, lower n_components or i_bits, or train fewer alphas at once"
        )
        raise PlanError(message)
