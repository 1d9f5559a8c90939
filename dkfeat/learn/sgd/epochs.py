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
"""Minimum time between two lines written to a pipe, except the first and the last."""


class EpochLines:
    """Progress lines of a training, one for each epoch.

    A terminal gets one line that changes; a pipe gets lines for the first and the last epoch and every few seconds in
    between. On exit as a context manager the current line ends, so that an error message starts on its own line.

    Parameters
    ----------
    epochs : int
        Number of epochs.
    stream : text file or None
        None: the output of the running cell in a notebook, else standard error.
    """

    def __init__(self, epochs: int, stream: TextIO | None = None) -> None:
        self._epochs = epochs
        self._cell = NotebookLine.here() if stream is None else None
        self._stream = sys.stderr if stream is None else stream
        self._began = self._shown = time.monotonic()
        self._line_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._cell is not None:
            self._cell.end()
        if self._line_open:
            print(file=self._stream, flush=True)

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Show an epoch, given its entry of the history."""
        now, is_last = time.monotonic(), entry["epoch"] == self._epochs
        line = self._describe(entry, now - self._began)
        self._began = now
        if self._cell is not None:
            self._cell.write(line, entry["epoch"] / self._epochs)
        elif self._stream.isatty():
            # carriage return, and clear to the end of the line
            print(f"\r{line}\033[K", end="\n" if is_last else "", file=self._stream, flush=True)
            self._line_open = not is_last
        elif is_last or entry["epoch"] == 1 or now - self._shown >= LINE_SECONDS:
            print(line, file=self._stream, flush=True)
            self._shown = now

    def _describe(self, entry: Mapping[str, Any], seconds: float) -> str:
        shown = {"loss": "loss {:.4g}", "alpha": "best alpha {:g}"}
        for rows in ("validation", "test"):
            shown |= {f"{rows}_accuracy": f"{rows} accuracy {{:.2%}}", f"{rows}_r2": f"{rows} R² {{:.4f}}"}
        parts = [form.format(entry[name]) for name, form in shown.items() if entry.get(name) is not None]
        speed = f"{entry['rows'] / max(seconds, 1e-9):,.0f} rows/s"
        return ", ".join([f"train: epoch {entry['epoch']} of {self._epochs}", *parts, speed])


SCORES = 1 << 22
"""Approximate number of scores held at a time: 16 MiB."""
TOLERANCE = 1e-4
"""Minimum increase of a score that counts as better."""

STATE = ("coef", "intercept", "mean_coef", "mean_intercept", "loss")
"""Arrays of `Weights` in a checkpoint."""

ScoredBatches = Callable[[], Iterable[tuple[Any, Any]]]


@dataclass(slots=True)
class Candidate:
    """Model that training may return."""

    variant: int
    epoch: int
    """From 1."""
    coef: NDArray[np.float32]
    intercept: NDArray[np.float64]
    score: float | None
    """Score on the held-out rows, if there are any."""


@dataclass(kw_only=True)
class Training:
    """Training in progress.

    Parameters
    ----------
    rows : TrainingRows
    config : DescentConfig
    n_features : int
    epochs : int
        Maximum number of epochs.
    validation : callable or None
        Function that returns batches ``(X, y)`` to choose among variants and epochs.
    test : callable or None
        Function that returns batches ``(X, y)`` that are scored and do not influence the choice.
    patience : int or None
        Number of epochs without a better score on the held-out rows after which training stops. If given, the model of
        the best epoch is returned, else that of the last one.
    checkpoints : Checkpoints or None
    on_epoch : callable or None
        Function that receives the history entry of each epoch.
    averaging : callable or None
        Function that returns the weights after an epoch, given the weights before it and the number of the epoch; None:
        one descent in this process runs over `rows`.
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
    """Loss, alpha and results of each variant after the last epoch."""
    best: Candidate | None = field(default=None, init=False)
    _stale: int = field(default=0, init=False)
    _batches: int = field(default=0, init=False)
    _before: tuple[int, NDArray[np.float64]] = field(default=(0, np.empty(0)), init=False)

    def run(self, *, resume: bool) -> Candidate:
        """Train, and return the chosen model.

        Raises
        ------
        ConfigError
            If the weights of all variants diverged.
        SpecConflictError, ShardError
            If the checkpoint cannot be used.
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
                self._run_epoch(descent)
            else:
                averaged = self.averaging(descent.weights(), len(self.history))
                descent = Descent(averaged, self.config, copy=False)
                del averaged
            self._score_epoch(descent.weights())
            if self.checkpoints is not None and (self.checkpoints.is_due or self._is_over()):
                self._save(descent)
        return self._chosen(descent.weights())

    @property
    def _score_name(self) -> str:
        return "r2" if self.config.task == "regression" else "accuracy"

    def _is_over(self) -> bool:
        return len(self.history) >= self.epochs or (self.patience is not None and self._stale >= self.patience)

    def _run_epoch(self, descent: Descent) -> None:
        for X, y, weight in prefetch(self.rows.epoch(len(self.history), skip=self._batches)):
            descent.run_batch(X, y, weight)
            self._batches += 1
            if self.checkpoints is not None and descent.is_at_window_end and self.checkpoints.is_due:
                self._save(descent)
        self._batches = 0

    def _score_epoch(self, weights: Weights) -> None:
        config, name = self.config, self._score_name
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
        chosen = self._best_of(scores, alive)
        n_rows = weights.steps - self._before[0]
        entry: dict[str, Any] = {"epoch": len(self.history) + 1, "rows": n_rows, "loss": losses[chosen]}
        if scores[chosen] is not None:
            entry[f"validation_{name}"] = scores[chosen]
        if len(alive) > 1:
            entry["alpha"], entry["trained_loss"] = config.variants[chosen].alpha, config.variants[chosen].loss
        if self.test is not None:
            entry[f"test_{name}"] = self._test_score(weights, chosen)
        self.history.append(entry)
        self._before = (weights.steps, weights.loss.copy())
        if self.patience is not None:
            self._stale += 1
            if self.best is None or _orderable(scores[chosen]) > _orderable(self.best.score) + TOLERANCE:
                self.best, self._stale = self._candidate(weights, chosen, scores[chosen]), 0
        if self.on_epoch is not None:
            self.on_epoch(entry)

    def _best_of(self, scores: list[float | None], alive: list[bool]) -> int:
        """Return the variant with the best score; of equal ones the one with the largest alpha, then the first."""
        found = [index for index, fine in enumerate(alive) if fine]
        return max(found, key=lambda index: (_orderable(scores[index]), self.config.variants[index].alpha, -index))

    def _candidate(self, weights: Weights, variant: int, score: float | None) -> Candidate:
        coef, intercept = weights.model(self.config, variant)
        return Candidate(variant, len(self.history), coef, intercept, score)

    def _chosen(self, weights: Weights) -> Candidate:
        if self.best is not None:
            return self.best
        name = f"validation_{self._score_name}"
        scores = [entry[name] for entry in self.grid]
        chosen = self._best_of(scores, [not entry["diverged"] for entry in self.grid])
        return self._candidate(weights, chosen, scores[chosen])

    def _epoch_losses(self, weights: Weights) -> list[float]:
        """Compute the mean loss of each variant over its outputs and the rows of the epoch."""
        steps, losses = self._before
        used = self.config.n_outputs * len(self.config.variants)
        with np.errstate(invalid="ignore", over="ignore"):  # lanes that diverged
            sums = weights.loss * weights.steps - losses * steps
            means = sums[:used].reshape(len(self.config.variants), -1).mean(axis=1)
            return [float(mean) for mean in means / max(1, weights.steps - steps)]

    def _scores(self, weights: Weights) -> list[float | None]:
        """Score each variant on the held-out rows, if there are any, by one matrix product for all variants."""
        config = self.config
        if self.validation is None:
            return [None] * len(config.variants)
        totals = [Score(config.task) for _ in config.variants]
        table, intercepts = weights.averaged
        factor = np.float32(config.scale)
        for X, y in _few_rows(prefetch(self.validation()), config.n_lanes):
            with np.errstate(invalid="ignore", over="ignore"):  # lanes that diverged
                all_scores: NDArray[Any] = np.asarray(X @ table) * factor + intercepts.astype(np.float32)
            if config.task == "regression":
                all_scores = all_scores.astype(np.float64) * config.target_scale + config.target_mean
            for variant, total in enumerate(totals):
                scores = all_scores[:, config.lanes(variant)]
                total.add(predictions_of(config.task, config.classes, scores), y)
        return [total.value for total in totals]

    def _test_score(self, weights: Weights, variant: int) -> float | None:
        assert self.test is not None
        config, total = self.config, Score(self.config.task)
        coef, intercept = weights.model(config, variant)
        for X, y in _few_rows(prefetch(self.test()), config.n_outputs):
            scores = np.asarray(X @ coef.T, dtype=np.float32) + intercept.astype(np.float32)
            total.add(predictions_of(config.task, config.classes, scores), y)
        return total.value

    def _diverged(self) -> str:
        variants = ", ".join(f"{variant.alpha:g} ({variant.loss})" for variant in self.config.variants)
        return (
            f"the weights diverged: they were no longer finite in epoch {len(self.history) + 1} with alpha={variants}; "
            "lower alpha if it is far above 1; if feature values are beyond 1e35, or all below 1e-35, scale the "
            "columns of the source"
        )

    def _save(self, descent: Descent) -> None:
        assert self.checkpoints is not None
        weights = descent.weights()
        arrays = {name: getattr(weights, name) for name in STATE if getattr(weights, name) is not None}
        arrays["loss_before"] = self._before[1]
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
        kept: dict[str, Any] = {name: arrays.get(name) for name in STATE}
        return Weights(**kept, steps=state["steps"])


def _few_rows(batches: Iterable[tuple[Any, Any]], n_scores: int) -> Iterator[tuple[Any, Any]]:
    """Cut batches so that each has at most `SCORES` scores, `n_scores` for each row."""
    most = max(1, SCORES // n_scores)
    for X, y in batches:
        if y.shape[0] <= most:  # the usual case, without copies of sparse rows
            yield X, y
            continue
        for start in range(0, y.shape[0], most):
            yield X[start : start + most], y[start : start + most]


def _orderable(score: float | None) -> float:
    return -np.inf if score is None or np.isnan(score) else score
