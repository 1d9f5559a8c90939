"""Training in parts on a cluster: each part descends over its own shards, and their weights are averaged.

Zinkevich, Weimer, Smola and Li (2010), "Parallelized Stochastic Gradient Descent", Algorithm 3: rows are distributed at
random, and every machine descends over its own rows. Averages have momentum, as those of Chen and Huo (2016), "Scalable
training of deep learning machines by incremental block training with intra-block parallel optimization and blockwise
model-update filtering".
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dkfeat.engine.clusters.local import more_memory
from dkfeat.engine.dataset.rows import prefetch
from dkfeat.engine.runners.base import MOST_FOLDED, until_stopped
from dkfeat.engine.runners.local import LocalRunner
from dkfeat.errors import ConfigError
from dkfeat.learn.checks import check_fits
from dkfeat.learn.sgd.descent import Descent, DescentConfig, Weights
from dkfeat.messages import counted, logger_of

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.runners.base import Runner
    from dkfeat.learn.sgd.rows import TrainingRows


logger = logger_of(__name__)


def assign_shards(rows: Sequence[int], n_parts: int, *seed: int) -> list[list[int]]:
    """Assign shards to parts of about equally many rows.

    The largest shards are assigned first, each to the part with the fewest rows; shards of equal size are in random
    order.

    Parameters
    ----------
    rows : sequence of int
        Number of rows of each shard.
    n_parts : int
        At least 1.
    *seed : int
        Seed, or numbers that make one together, at least 0.

    Returns
    -------
    parts : list of list of int
        Indices of the shards of each part, ascending. A shard without rows is in no part.

    Examples
    --------
    >>> assign_shards([5, 3, 0, 3], 2, 0)
    [[0], [1, 3]]
    """
    counts = np.asarray(rows)
    order = np.random.default_rng(np.random.SeedSequence([*seed, n_parts])).permutation(len(counts))
    order = order[np.argsort(-counts[order], kind="stable")]
    parts: list[list[int]] = [[] for _ in range(n_parts)]
    least = [(0, part) for part in range(n_parts)]
    for shard in order[counts[order] > 0].tolist():
        held, part = heapq.heappop(least)
        parts[part].append(shard)
        heapq.heappush(least, (held + rows[shard], part))
    return [sorted(shards) for shards in parts]


PART_ROWS = 10_000
"""Rows of a part by default, and from which parts reach the accuracy of one descent."""
MOST_PARTS = 256
"""Maximum number of parts by default."""
LOSSES_OF_PARTS = (3_000, "up to 0.4"), (1_500, "up to 1.5"), (700, "up to 3"), (0, "5 or more")
"""Points of accuracy lost by parts of at least so many rows, on the worst of the sets measured; rows decrease."""


def count_parts(data: ShardDataset, parts: int | None, fraction: float) -> int:
    """Check a number of parts, or return the default one, which depends on rows and shards alone.

    Held-out rows, a fraction of all, count by default, so that a model is refitted in as many parts.

    Raises
    ------
    ConfigError
        If there are more parts than shards with rows.
    """
    n_shards = sum(entry.rows > 0 for entry in data.manifest.shards)
    if parts is None:
        return max(1, min(MOST_PARTS, n_shards, data.n_rows // PART_ROWS))
    if parts > n_shards:
        raise ConfigError(
            f"parts={parts}, but only {n_shards:,} of the shards have rows, and a shard belongs to one part; lower "
            "parts, or featurize with a smaller blocksize"
        )
    if parts > 1 and (of_part := round(data.n_rows * (1 - fraction)) // parts) < PART_ROWS:
        logger.warning(
            "parts=%d leaves %s for each part; expect %s points of accuracy less than by one descent, which parts of "
            "%s rows or more reach",
            parts,
            counted(of_part, "row"),
            next(loss for rows, loss in LOSSES_OF_PARTS if of_part >= rows),
            f"{PART_ROWS:,}",
        )
    return parts


class Part(NamedTuple):
    """One part of a training, the input of one task; parts are numbered from 0."""

    number: int
    n_parts: int
    shards: Sequence[int]
    """Ascending indices of its shards, or of those of a round."""

    @property
    def description(self) -> str:
        """Number of the part in messages."""
        return f"part {self.number + 1} of {self.n_parts}"


ROUNDS = 4
"""Maximum number of times per epoch that the weights of parts are averaged."""
MOMENTUM = 0.8
"""Maximum share of the last step of the averages that is added to the next one. The mean of n parts moves as far as the
rows of one part push it; with a momentum of 1 - 1/n averages move as far as one descent, as long as it goes one way.
The first epoch has none: ahead of the first averages, which depend on few rows, weights only grow longer."""
EARLIER = 0.5
"""Weight of the steps of earlier rounds in the mean of the weights, if parts have fewer than `PART_ROWS` rows, or are
more than `FEW_PARTS`; else 1. Round t then has a share of 2 / (t + 1), as in polynomial-decay averaging with eta = 1
(Shamir and Zhang, 2013). Early rounds count less because the first weights of such parts are worse than those of one
descent."""
FEW_PARTS = 32
"""Number of parts up to which all rounds of large parts count alike."""

Sums = tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]
"""Weights, intercepts and losses of a part or the means over several, and the number of rows; and, if they are kept,
the same with the means of the weights over the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTask:
    """Task of the parts of a round, sent to each worker once."""

    rows: TrainingRows
    """Rows of all parts."""
    config: DescentConfig
    epoch: int
    """Number of the epoch, from 0."""

    def __call__(self, part: Part, stopped: Callable[[], bool], start: tuple[Any, Any]) -> Sums:
        """Run the round over shards of a part, from a table of weights and intercepts.

        Returns
        -------
        sums : Sums
            Depends only on the part, the start and this task, bit for bit.
        """
        rows = replace(self.rows, shards=part.shards, part=part.number)
        zeros = Weights.zeros(self.config, rows.data.shape[1])
        zeros.coef[...] = start[0]
        descent = Descent(replace(zeros, intercept=start[1]), self.config)
        for X, y, weight in until_stopped(prefetch(rows.epoch(self.epoch)), stopped):
            descent.run_batch(X, y, weight)
        end = descent.weights()
        last = end.coef, end.intercept, end.loss, end.steps
        return last, None if end.mean_coef is None else (end.mean_coef, end.mean_intercept, end.loss, end.steps)


def join(left: Sums, right: Sums) -> Sums:
    """Join the results of two groups of parts: means weighted by their numbers of rows."""
    return _joined(left[0], right[0]), _joined(left[1], right[1])


def _joined(left: tuple[Any, ...] | None, right: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    if left is None or right is None:
        return None
    rows = left[-1] + right[-1]
    share = right[-1] / max(1, rows)
    return *(_moved(ours.copy(), theirs, share) for ours, theirs in zip(left[:-1], right[:-1], strict=True)), rows


def _moved(mean: Any, towards: Any, share: float) -> Any:
    """Move a mean by a share of the distance, in place; a share of 1 gives the other value exactly."""
    with np.errstate(invalid="ignore", over="ignore"):  # lanes that diverged
        mean -= towards
        mean *= mean.dtype.type(1 - share)
        mean += towards
    return mean


BATCHES_BYTES = 32 << 20
"""Memory of the decoded batches of a part."""
BUFFERS_BYTES = 256 << 20
"""Maximum memory of a part in addition to its weights: these batches, the shuffle buffer and two shards."""


class Averaging:
    """Epochs over the parts of a data set, whose weights are averaged up to four times per epoch, with momentum.

    An epoch reads each shard once. It has as many rounds as the part with the fewest shards allows; in each, every part
    descends over some of its shards, chosen at random for the epoch.

    In each round every worker receives one table of weights, with 4 bytes for each feature and lane. Workers add those
    of the parts two by two, and send one back, or two with the mean over its steps. Lanes are the outputs of all models
    trained in the same descent, padded to a multiple of 16 if there are several.

    Parameters
    ----------
    rows : TrainingRows
        Rows of all parts.
    config : DescentConfig
    n_parts : int
        Number of parts, see `count_parts`.
    runner : Runner

    Raises
    ------
    PlanError
        If the weights would not fit in the memory of a worker, or, on threads, in that of this process.
    """

    def __init__(self, rows: TrainingRows, config: DescentConfig, n_parts: int, runner: Runner) -> None:
        data = rows.data
        counts = [entry.rows for entry in data.manifest.shards]
        _check_memory(config, data, n_parts, runner)
        self._runner, self._config, self._width = runner, config, data.shape[1]
        self._momentum = min(MOMENTUM, 1 - 1 / n_parts)
        self._earlier = 1.0 if n_parts <= FEW_PARTS and data.n_rows // n_parts >= PART_ROWS else EARLIER
        shards = assign_shards(counts, n_parts, rows.seed)
        self._parts = [Part(number, n_parts, indices) for number, indices in enumerate(shards)]
        self._n_rounds = min(ROUNDS, *map(len, shards))
        self._counts, self._seed = counts, rows.seed
        self._task = partial(RoundTask, rows=replace(rows, loaders=1), config=config)  # without rows in memory

    def begin(self, weights: Weights) -> None:
        """Begin with weights of `zeros` or of a checkpoint; their arrays are changed."""
        self._weights = weights

    def zeros(self) -> Weights:
        """Return initial weights, all zero."""
        weights = Weights.zeros(self._config, self._width)
        return replace(weights, before_coef=np.zeros_like(weights.coef), before_intercept=weights.intercept.copy())

    def weights(self) -> Weights:
        """Return the mean of the parts' weights, and the mean over all steps, see `EARLIER`.

        They depend only on data, options, seed and number of parts, bit for bit.
        """
        return self._weights

    def run_epoch(self, epoch: int) -> None:
        """Run an epoch, numbered from 0, over all parts.

        Raises
        ------
        ClusterError
            If the scheduler was lost, or several workers died while training the same part.
        ShardError
            If a shard cannot be read.
        """
        for parts in zip(*(self._cut(part, epoch) for part in self._parts), strict=True):
            self._add(
                self._runner.fold(self._task(epoch=epoch), self._ahead(self._momentum if epoch else 0.0), parts, join)
            )

    def _cut(self, part: Part, epoch: int) -> Iterator[Part]:
        """Yield the part with the shards of each round."""
        rows = [self._counts[shard] for shard in part.shards]
        for chosen in assign_shards(rows, self._n_rounds, self._seed, epoch, part.number):
            yield part._replace(shards=[part.shards[index] for index in chosen])

    def _ahead(self, momentum: float) -> tuple[Any, Any]:
        """Return the start of all parts, ahead of the last average; it takes the memory of the average before that."""
        weights = self._weights
        self._weights = replace(weights, before_coef=None, before_intercept=None)
        share = 1 + momentum
        return (
            _moved(weights.before_coef, weights.coef, share),
            _moved(weights.before_intercept, weights.intercept, share),
        )

    def _add(self, results: Iterator[Any]) -> None:
        """Add the sums of a round; each is received when the one before is used."""
        weights, (coef, intercept, loss, steps) = self._weights, next(results)
        if (means := next(results)) is not None:
            share = steps / max(1, self._earlier * weights.steps + steps)
            _moved(weights.mean_coef, means[0], share)
            _moved(weights.mean_intercept, means[1], share)
        next(results, None)  # ends the run
        coef, intercept = (np.require(each, requirements="W") for each in (coef, intercept))
        if not steps:  # all rows are held out: momentum alone is no step
            coef[...], intercept[...] = weights.coef, weights.intercept
        self._weights = replace(
            weights,
            coef=coef,
            intercept=intercept,
            loss=_moved(weights.loss, loss, steps / max(1, weights.steps + steps)),
            steps=weights.steps + steps,
            before_coef=weights.coef,
            before_intercept=weights.intercept,
        )


def _check_memory(config: DescentConfig, data: ShardDataset, n_parts: int, runner: Runner) -> None:
    """Raise `PlanError` if the parts that run at a time do not fit in memory, unless its limit is unknown."""
    width, result, limit = data.shape[1], 2 if config.average else 1, runner.memory_limit
    table = 4 * width * config.n_lanes  # float32
    buffers = min(BUFFERS_BYTES, BATCHES_BYTES + 4 * data.n_rows * int(data.spec["output"]["row_bytes"]))
    what = f"with weights of {config.n_lanes:,} models and {width:,} columns"
    remedy = "lower n_components or the bits of a code, or train fewer alphas at once"
    if limit is not None:
        # two results and the third that they become, or the start and those of the descent, with mean and lag; and
        # results that wait
        needed = table * (1 + 2 * result + result * MOST_FOLDED.bit_length()) + buffers
        more = f"raise memory_limit of the workers by {more_memory(needed - limit)} for each of their threads"
        check_fits(needed, f"a part {what}", f"{more}, give each fewer threads, {remedy}", limit)
    elif isinstance(runner, LocalRunner):
        # those of each descent, with mean and lag; results that wait; and of all parts the averages and the start
        n_threads = min(runner.n_threads, n_parts)
        tables = n_threads * (2 * result - 1) + result * n_parts.bit_length() + 1 + result
        check_fits(table * tables + n_threads * buffers, f"{n_threads} parts {what}", f"run fewer threads, {remedy}")
