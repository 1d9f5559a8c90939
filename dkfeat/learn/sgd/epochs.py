"""Epochs of a training: descent, scores, choice of a model, checkpoints and progress lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TextIO

import numpy as np
from numpy.typing import NDArray

from dkfeat.engine.dataset.rows import prefetch
from dkfeat.engine.progress import NotebookLine
from dkfeat.errors import ConfigError
from dkfeat.learn.score import Score, predictions_of
from dkfeat.learn.sgd.descent import Descent, DescentConfig, Weights

if TYPE_CHECKING:
    from dkfeat.learn.sgd.checkpoint import Checkpoints
    from dkfeat.learn.sgd.rows import TrainingRows


LINE_SECONDS = 5.0
"""Time between two plain lines."""


class EpochLines:
    """Progress lines of a training, one as each epoch ends.

    Plain lines come for the first and the last epoch, and every few seconds in between. As a context manager it ends
    the line that is under way, so that an error has a line of its own on a terminal, and the last epoch is shown.

    Parameters
    ----------
    epochs : int
        How many there will be.
    stream : text file or None
        None: below the cell that runs, in a notebook, else standard error.
    """

    def __init__(self, epochs: int, stream: TextIO | None = None) -> None:
        self._epochs = epochs
        self._cell = NotebookLine.here() if stream is None else None
        self._stream = sys.stderr if stream is None else stream
        self._rewrites = self._stream.isatty()
        self._began = self._shown = time.monotonic()
        self._line_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._cell is not None:
            self._cell.end()
        if self._line_open:
            self._stream.write("\n")
            self._stream.flush()

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Show an epoch, given its entry of the history."""
        now = time.monotonic()
        last = entry["epoch"] == self._epochs
        line = self._describe(entry, now - self._began)
        self._began = now
        if self._cell is not None:
            self._cell.write(line, entry["epoch"] / self._epochs)
            return
        if self._rewrites:
            # carriage return, and clear to the end of the line
            self._stream.write(f"\r{line}\033[K" + ("\n" if last else ""))
            self._line_open = not last
        elif last or entry["epoch"] == 1 or now - self._shown >= LINE_SECONDS:
            self._stream.write(line + "\n")
            self._shown = now
        self._stream.flush()

    def _describe(self, entry: Mapping[str, Any], seconds: float) -> str:
        parts = [f"train: epoch {entry['epoch']} of {self._epochs}"]
        if entry.get("loss") is not None:
            parts.append(f"loss {entry['loss']:.4g}")
        if entry.get("alpha") is not None:
            parts.append(f"best alpha {entry['alpha']:g}")
        for rows in ("validation", "test"):
            if entry.get(f"{rows}_accuracy") is not None:
                parts.append(f"{rows} accuracy {entry[f'{rows}_accuracy']:.2%}")
            elif entry.get(f"{rows}_r2") is not None:
                parts.append(f"{rows} R² {entry[f'{rows}_r2']:.4f}")
        parts.append(f"{entry['rows'] / max(seconds, 1e-9):,.0f} rows/s")
        return ", ".join(parts)


SCORES = 1 << 22
"""Scores that are held at a time, about: 16 MiB."""
TOLERANCE = 1e-4
"""A score must grow by more than this to count as better."""

ScoredBatches = Callable[[], Iterable[tuple[Any, Any]]]


def score_name(task: str) -> str:
    """Name the score of a task's models, as histories do."""
    return "r2" if task == "regression" else "accuracy"


@dataclass(slots=True)
class Candidate:
    """The model that training would return."""

    variant: int
    epoch: int
    """From 1."""
    coef: NDArray[np.float32]
    intercept: NDArray[np.float64]
    score: float | None
    """On the held-out rows, if there are any."""


@dataclass(kw_only=True)
class Training:
    """A training under way.

    Parameters
    ----------
    rows : TrainingRows
    config : DescentConfig
    n_features : int
    epochs : int
        At most.
    validation : callable or None
        Gives batches ``(X, y)`` that choose among variants and epochs.
    test : callable or None
        Gives batches that are scored and choose nothing.
    patience : int or None
        Epochs without a better score on the held-out rows after which training stops. The best epoch's model is then
        returned, else the last one's.
    checkpoints : Checkpoints or None
    on_epoch : callable or None
        Given the history's entry of each epoch.
    averaging : callable or None
        Gives the weights after an epoch, from those before it and its number; None: `rows` are shown here.
    """

    rows: TrainingRows
    config: DescentConfig
    n_features: int
    epochs: int
    validation: ScoredBatches | None = None
    test: ScoredBatches | None = None
    patience: int | None = None
    checkpoints: Checkpoints | None = None
    on_epoch: Callable[[Mapping[str, Any]], None] | None = None
    averaging: Callable[[Weights, int], Weights] | None = None

    history: list[dict[str, Any]] = field(default_factory=list, init=False)
    grid: list[dict[str, Any]] = field(default_factory=list, init=False)
    """Each variant's loss, alpha and state after the last epoch."""
    best: Candidate | None = field(default=None, init=False)
    _stale: int = field(default=0, init=False)
    _batches: int = field(default=0, init=False)
    _before: tuple[int, NDArray[np.float64]] = field(default=(0, np.empty(0)), init=False)

    def run(self, *, resume: bool) -> Candidate:
        """Train, and return the chosen model.

        Raises
        ------
        ConfigError
            The weights of all variants diverged.
        SpecConflictError, ShardError
            From the checkpoint, if there is one.
        """
        weights = Weights.zeros(self.config, self.n_features)
        self._before = (0, weights.loss.copy())
        found = self.checkpoints.load() if self.checkpoints is not None and resume else None
        if found is not None:
            weights = self._restored(*found)
        descent = Descent(weights, self.config, copy=False)
        del weights, found
        while not self._is_over():
            if self.averaging is None:
                self._show_epoch(descent)
            else:
                averaged = self.averaging(descent.weights(), len(self.history))
                descent = Descent(averaged, self.config, copy=False)
                del averaged
            self._score_epoch(descent.weights())
            if self.checkpoints is not None and (self.checkpoints.is_due or self._is_over()):
                self._save(descent)
        return self._chosen(descent.weights())

    def _is_over(self) -> bool:
        return len(self.history) >= self.epochs or (self.patience is not None and self._stale >= self.patience)

    def _show_epoch(self, descent: Descent) -> None:
        for X, y, weight in prefetch(self.rows.epoch(len(self.history), skip=self._batches)):
            descent.show(X, y, weight)
            self._batches += 1
            if self.checkpoints is not None and descent.is_at_window_end and self.checkpoints.is_due:
                self._save(descent)
        self._batches = 0

    def _score_epoch(self, weights: Weights) -> None:
        config, name = self.config, score_name(self.config.task)
        losses = self._epoch_losses(weights)
        alive = [weights.is_finite(config, variant) and np.isfinite(loss) for variant, loss in enumerate(losses)]
        if not any(alive):
            raise ConfigError(self._diverged())
        scores = self._scores(weights)
        self.grid = [
            {
                "loss": variant.loss,
                "alpha": variant.alpha,
                "mean_loss": losses[index] if alive[index] else None,
                f"validation_{name}": scores[index] if alive[index] else None,
                "diverged": not alive[index],
            }
            for index, variant in enumerate(config.variants)
        ]
        chosen = self._first_of(scores, alive)
        entry: dict[str, Any] = {"epoch": len(self.history) + 1, "rows": weights.steps - self._before[0]}
        entry["loss"] = losses[chosen]
        if scores[chosen] is not None:
            entry[f"validation_{name}"] = scores[chosen]
        if len(alive) > 1:
            entry["alpha"], entry["trained_loss"] = config.variants[chosen].alpha, config.variants[chosen].loss
        if self.test is not None:
            entry[f"test_{name}"] = self._test_score(weights, chosen)
        self.history.append(entry)
        self._before = (weights.steps, weights.loss.copy())
        if self.patience is not None:
            self._keep_best(weights, chosen, scores[chosen])
        if self.on_epoch is not None:
            self.on_epoch(entry)

    def _first_of(self, scores: list[float | None], alive: list[bool]) -> int:
        """Variant with the best score; of equal ones the one with the larger alpha, then the earlier one."""
        found = [index for index, fine in enumerate(alive) if fine]
        return max(found, key=lambda index: (_orderable(scores[index]), self.config.variants[index].alpha, -index))

    def _keep_best(self, weights: Weights, variant: int, score: float | None) -> None:
        if self.best is None or _orderable(score) > _orderable(self.best.score) + TOLERANCE:
            self.best, self._stale = self._candidate(weights, variant, score), 0
        else:
            self._stale += 1

    def _candidate(self, weights: Weights, variant: int, score: float | None) -> Candidate:
        coef, intercept = weights.model(self.config, variant)
        return Candidate(variant, len(self.history), coef, intercept, score)

    def _chosen(self, weights: Weights) -> Candidate:
        if self.best is not None:
            return self.best
        name = f"validation_{score_name(self.config.task)}"
        scores = [entry[name] for entry in self.grid]
        chosen = self._first_of(scores, [not entry["diverged"] for entry in self.grid])
        return self._candidate(weights, chosen, scores[chosen])

    def _epoch_losses(self, weights: Weights) -> list[float]:
        """Mean loss of each variant over the rows of the epoch and its outputs."""
        steps, losses = self._before
        used = self.config.n_outputs * len(self.config.variants)
        with np.errstate(invalid="ignore", over="ignore"):  # lanes that diverged
            sums = weights.loss * weights.steps - losses * steps
            means = sums[:used].reshape(len(self.config.variants), -1).mean(axis=1)
            return [float(mean) for mean in means / max(1, weights.steps - steps)]

    def _scores(self, weights: Weights) -> list[float | None]:
        """Score of each variant on the held-out rows, if there are some, all from one product."""
        if self.validation is None:
            return [None] * len(self.config.variants)
        config = self.config
        found = [Score(config.task) for _ in config.variants]
        table, intercepts = weights.averaged
        factor = np.float32(config.scale if config.value is None else config.value)
        for X, y in _few_rows(prefetch(self.validation()), config.n_lanes):
            with np.errstate(invalid="ignore", over="ignore"):  # lanes that diverged
                all_scores = np.asarray(X @ table) * factor + intercepts.astype(np.float32)
            for variant, score in enumerate(found):
                scores = all_scores[:, variant * config.n_outputs : (variant + 1) * config.n_outputs]
                score.add(predictions_of(config.task, config.classes, self._shaped(scores)), y)
        return [score.value for score in found]

    def _shaped(self, scores: NDArray[Any]) -> NDArray[Any]:
        if self.config.task == "regression":
            return scores[:, 0].astype(np.float64) * self.config.target_scale + self.config.target_mean
        return scores[:, 0] if self.config.task == "binary" else scores

    def _test_score(self, weights: Weights, variant: int) -> float | None:
        assert self.test is not None
        coef, intercept = weights.model(self.config, variant)
        score = Score(self.config.task)
        for X, y in _few_rows(prefetch(self.test()), self.config.n_outputs):
            scores = np.asarray(X @ coef.T, dtype=np.float32) + intercept.astype(np.float32)
            scores = scores[:, 0] if self.config.task in ("binary", "regression") else scores
            score.add(predictions_of(self.config.task, self.config.classes, scores), y)
        return score.value

    def _diverged(self) -> str:
        variants = ", ".join(f"{variant.alpha:g} ({variant.loss})" for variant in self.config.variants)
        return (
            f"the weights diverged: they were no longer finite in epoch {len(self.history) + 1} with alpha={variants}; "
            "lower alpha if it is far above 1; are feature values beyond 1e35, or all below 1e-35? then scale the "
            "columns of the source"
        )

    def _save(self, descent: Descent) -> None:
        assert self.checkpoints is not None
        weights = descent.weights()
        arrays: dict[str, NDArray[Any]] = {
            "coef": weights.coef,
            "intercept": weights.intercept,
            "mean_intercept": weights.mean_intercept,
            "loss": weights.loss,
            "loss_before": self._before[1],
        }
        if weights.mean_coef is not None:
            arrays["mean_coef"] = weights.mean_coef
        state: dict[str, Any] = {
            "steps": weights.steps,
            "batches": self._batches,
            "history": self.history,
            "grid": self.grid,
            "stale": self._stale,
            "steps_before": self._before[0],
            "best": None,
        }
        if self.best is not None:
            state["best"] = [self.best.variant, self.best.epoch, self.best.score]
            arrays |= {"best_coef": self.best.coef.T, "best_intercept": self.best.intercept}
        self.checkpoints.save(state, arrays)

    def _restored(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Weights:
        self._batches, self._stale = state["batches"], state["stale"]
        self.history, self.grid = state["history"], state["grid"]
        self._before = (state["steps_before"], arrays["loss_before"])
        if state["best"] is not None:
            variant, epoch, score = state["best"]
            self.best = Candidate(variant, epoch, arrays["best_coef"].T, arrays["best_intercept"], score)
        lanes = (arrays["intercept"], arrays.get("mean_coef"), arrays["mean_intercept"], arrays["loss"])
        return Weights(arrays["coef"], *lanes, state["steps"])


def _few_rows(batches: Iterable[tuple[Any, Any]], n_scores: int) -> Iterator[tuple[Any, Any]]:
    """Cut batches so that rows with so many scores each stay within `SCORES`."""
    most = max(1, SCORES // n_scores)
    for X, y in batches:
        if y.shape[0] <= most:  # most often; slices of sparse rows are copies
            yield X, y
            continue
        for start in range(0, y.shape[0], most):
            yield X[start : start + most], y[start : start + most]


def _orderable(score: float | None) -> float:
    return -np.inf if score is None or np.isnan(score) else score
