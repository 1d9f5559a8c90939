"""Epochs of a training: descent, scores, choice of a model, and progress lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from dkfeat.canonical import Count
from dkfeat.engine.dataset.rows import prefetch
from dkfeat.engine.progress import Progress
from dkfeat.errors import ConfigError
from dkfeat.learn.scores import Entry, Score, predictions_of
from dkfeat.learn.sgd.descent import Descent, DescentConfig, Weights
from dkfeat.store.manifest.records import check

if TYPE_CHECKING:
    from dkfeat.learn.sgd.checkpoint import Checkpoints
    from dkfeat.learn.sgd.parallel import Averaging
    from dkfeat.learn.sgd.rows import TrainingRows


LINE_SECONDS = 5.0
"""Minimum time between two progress lines, except the last."""


class EpochLines:
    """Progress lines of a training: for the first epoch, for one every few seconds, and, by `end`, for the last.

    Parameters
    ----------
    epochs : int
        Number of epochs.
    """

    def __init__(self, epochs: int) -> None:
        self._epochs, self._lines = epochs, Progress(True)
        self._began = self._shown = time.monotonic()
        self._hidden = ""

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Show an epoch, given its entry of the history."""
        now, began = time.monotonic(), self._began
        self._began = now
        shown = {"train_loss": "loss {:.4g}", "penalty": "penalty {:.4g}", "alpha": "best alpha {:g}"}
        for rows in ("validation", "test"):
            shown |= {f"{rows}_accuracy": f"{rows} accuracy {{:.2%}}", f"{rows}_r2": f"{rows} R² {{:.4f}}"}
        parts = [form.format(entry[name]) for name, form in shown.items() if entry.get(name) is not None]
        speed = f"{entry['rows'] / max(now - began, 1e-9):,.0f} rows/s"
        self._hidden = ", ".join([f"train: epoch {entry['epoch']} of {self._epochs}", *parts, speed])
        if entry["epoch"] == 1 or now - self._shown >= LINE_SECONDS:
            self._shown = now
            self.end()

    def note(self, text: str) -> None:
        """Show a line that is not about an epoch."""
        self._lines.note(f"train: {text}")

    def end(self) -> None:
        """Show the last epoch, which may be earlier than expected, unless it has been shown."""
        if self._hidden:
            self._lines.note(self._hidden)
        self._hidden = ""


SCORES = 1 << 22
"""Approximate number of scores held at a time: 16 MiB."""
SAMPLED_BATCHES = 8
"""Maximum number of batches of training rows over which the loss of a model is computed after each epoch."""
TOLERANCE = 1e-4
"""Minimum increase of a score that counts as better."""

STATE = ("coef", "intercept", "mean_coef", "mean_intercept", "loss", "before_coef", "before_intercept")
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


class _Variant(TypedDict):
    loss: str
    alpha: float
    mean_loss: float | None
    validation_accuracy: NotRequired[float | None]
    validation_r2: NotRequired[float | None]
    diverged: bool


@dataclass(slots=True, kw_only=True)
class State:
    """State of a training beside its weights, as plain JSON values."""

    steps: Count = 0
    """Number of steps of the weights."""
    steps_before: Count = 0
    """Number of steps before the current epoch."""
    batches: Count = 0
    """Number of batches of the current epoch that have been run."""
    stale: Count = 0
    """Number of epochs since the best one."""
    history: list[Entry] = field(default_factory=list)
    grid: list[_Variant] = field(default_factory=list)
    """Loss, alpha and results of each variant after the last epoch."""
    best: tuple[Count, Count, float | None] | None = None
    """Variant, epoch and score of the best model, with `patience`."""


@dataclass(kw_only=True)
class Training:
    """Training in progress.

    Parameters
    ----------
    rows : TrainingRows
    config : DescentConfig
    epochs : int
        Maximum number of epochs.
    patience : int or None
        Number of epochs without a better score on the held-out rows after which training stops. If given, the model of
        the best epoch is returned, else that of the last one.
    scored : mapping of str to callable
        Functions that return batches ``(X, y)``: "validation" to choose among variants and epochs, and "test" to score
        without influence on the choice.
    checkpoints : Checkpoints or None
    on_epoch : callable or None
        Function that receives the history entry of each epoch.
    averaging : Averaging or None
        Runs the epochs in parts; None: one descent in this process runs over `rows`.
    init : tuple of ndarray or None
        Weights and intercepts of the model to continue from; None: zeros.
    """

    rows: TrainingRows
    config: DescentConfig
    epochs: int
    patience: int | None
    scored: Mapping[str, ScoredBatches]
    checkpoints: Checkpoints | None
    on_epoch: Callable[[Mapping[str, Any]], object] | None
    averaging: Averaging | None
    init: tuple[NDArray[Any], NDArray[Any]] | None = None

    state: State = field(default_factory=State, init=False)
    _best: Candidate | None = field(default=None, init=False)
    _loss_before: NDArray[np.float64] = field(init=False)

    def run(self, *, resume: bool) -> Candidate:
        """Train, and return the chosen model.

        Raises
        ------
        ConfigError
            If the weights of all variants diverged.
        SpecConflictError, ShardError
            If the checkpoint cannot be used.
        """
        parts = self.averaging
        weights = Weights.zeros(self.config, self.rows.data.map.n_features_out) if parts is None else parts.zeros()
        if self.init is not None:
            weights.start_from(self.config, *self.init)
        self._loss_before = weights.loss.copy()
        found = self.checkpoints.load(State) if self.checkpoints is not None and resume else None
        if found is not None:
            weights = self._restored(weights, *found)
        if parts is not None:
            parts.begin(weights)
        descent = Descent(weights, self.config) if parts is None else parts
        del weights, found
        while not self._is_over():
            if isinstance(descent, Descent):
                self._run_epoch(descent)
            else:
                descent.run_epoch(len(self.state.history))
            self._score_epoch(descent.weights())
            if self.checkpoints is not None and (self.checkpoints.is_due or self._is_over()):
                self._save(descent)
        if self._best is not None:
            return self._best
        grid: list[Any] = self.state.grid
        scores = [entry[f"validation_{self._score_name}"] for entry in grid]
        chosen = self._best_of(scores, [not entry["diverged"] for entry in grid])
        return self._candidate(descent.weights(), chosen, scores[chosen])

    @cached_property
    def _sample(self) -> list[Any]:
        """Some batches of training rows, for the loss of models."""
        return [*islice(self.rows.epoch(0), SAMPLED_BATCHES)]

    @property
    def _score_name(self) -> str:
        return "r2" if self.config.task == "regression" else "accuracy"

    def _is_over(self) -> bool:
        if self.patience is not None and self.state.stale >= self.patience:
            return True
        return len(self.state.history) >= self.epochs

    def _run_epoch(self, descent: Descent) -> None:
        for X, y, weight in prefetch(self.rows.epoch(len(self.state.history), skip=self.state.batches)):
            descent.run_batch(X, y, weight)
            self.state.batches += 1
            if self.checkpoints is not None and descent.is_at_window_end and self.checkpoints.is_due:
                self._save(descent)
        self.state.batches = 0

    def _score_epoch(self, weights: Weights) -> None:
        config, state, name = self.config, self.state, self._score_name
        losses = self._epoch_losses(weights)
        alive = [weights.is_finite(config, variant) and np.isfinite(loss) for variant, loss in enumerate(losses)]
        if not any(alive):
            variants = ", ".join(f"{variant.alpha:g} ({variant.loss})" for variant in config.variants)
            raise ConfigError(
                f"the weights diverged: they were no longer finite in epoch {len(state.history) + 1} with "
                f"alpha={variants}; lower alpha if it is far above 1; if feature values are beyond 1e35, or all below "
                "1e-35, scale the columns of the source"
            )
        scores = self._scores(weights)
        grid: list[Any] = [
            {
                "loss": variant.loss,
                "alpha": variant.alpha,
                "mean_loss": losses[index] if alive[index] else None,
                f"validation_{name}": scores[index] if alive[index] else None,
                "diverged": not alive[index],
            }
            for index, variant in enumerate(config.variants)
        ]
        state.grid, chosen = grid, self._best_of(scores, alive)
        n_rows = weights.steps - state.steps_before
        entry: Any = {"epoch": len(state.history) + 1, "rows": n_rows, "loss": losses[chosen]}
        with np.errstate(invalid="ignore", over="ignore"):  # lanes that diverged
            objective = weights.objective(config, chosen, self._sample)
        if np.isfinite(objective).all():
            entry["train_loss"], entry["penalty"] = objective
        if scores[chosen] is not None:
            entry[f"validation_{name}"] = scores[chosen]
        if len(alive) > 1:
            entry["alpha"], entry["trained_loss"] = config.variants[chosen].alpha, config.variants[chosen].loss
        if "test" in self.scored:
            entry[f"test_{name}"] = self._test_score(weights, chosen)
        state.history.append(entry)
        state.steps_before, self._loss_before = weights.steps, weights.loss.copy()
        if self.patience is not None:
            state.stale += 1
            if self._best is None or _orderable(scores[chosen]) > _orderable(self._best.score) + TOLERANCE:
                self._best, state.stale = self._candidate(weights, chosen, scores[chosen]), 0
        if self.on_epoch is not None:
            self.on_epoch(entry)

    def _best_of(self, scores: list[float | None], alive: list[bool]) -> int:
        """Return the variant with the best score; of equal ones the one with the largest alpha, then the first."""
        found = [index for index, fine in enumerate(alive) if fine]
        return max(found, key=lambda index: (_orderable(scores[index]), self.config.variants[index].alpha, -index))

    def _candidate(self, weights: Weights, variant: int, score: float | None) -> Candidate:
        coef, intercept = weights.model(self.config, variant)
        return Candidate(variant, len(self.state.history), coef, intercept, score)

    def _epoch_losses(self, weights: Weights) -> list[float]:
        """Compute the mean loss of each variant over its outputs and the rows of the epoch."""
        steps, losses = self.state.steps_before, self._loss_before
        used = self.config.n_outputs * len(self.config.variants)
        with np.errstate(invalid="ignore", over="ignore"):  # lanes that diverged
            sums = weights.loss * weights.steps - losses * steps
            means = sums[:used].reshape(len(self.config.variants), -1).mean(axis=1)
            return [float(mean) for mean in means / max(1, weights.steps - steps)]

    def _scores(self, weights: Weights) -> list[float | None]:
        """Score each variant on the held-out rows, if there are any, by one matrix product for all variants."""
        config = self.config
        if "validation" not in self.scored:
            return [None] * len(config.variants)
        totals = [Score(config.task) for _ in config.variants]
        table, intercepts = weights.averaged
        factor = np.float32(config.scale)
        for X, y in _few_rows(prefetch(self.scored["validation"]()), config.n_lanes):
            with np.errstate(invalid="ignore", over="ignore"):  # lanes that diverged
                all_scores: NDArray[Any] = np.asarray(X @ table) * factor + intercepts.astype(np.float32)
            if config.task == "regression":
                all_scores = all_scores.astype(np.float64) * config.target_scale + config.target_mean
            for variant, total in enumerate(totals):
                scores = all_scores[:, config.lanes(variant)]
                total.add(predictions_of(config.task, config.classes, scores), y)
        return [total.value for total in totals]

    def _test_score(self, weights: Weights, variant: int) -> float | None:
        config, total = self.config, Score(self.config.task)
        coef, intercept = weights.model(config, variant)
        for X, y in _few_rows(prefetch(self.scored["test"]()), config.n_outputs):
            scores = np.asarray(X @ coef.T, dtype=np.float32) + intercept.astype(np.float32)
            total.add(predictions_of(config.task, config.classes, scores), y)
        return total.value

    def _save(self, descent: Descent | Averaging) -> None:
        assert self.checkpoints is not None
        weights, best = descent.weights(), self._best
        arrays = {name: getattr(weights, name) for name in STATE if getattr(weights, name) is not None}
        arrays["loss_before"] = self._loss_before
        self.state.steps = weights.steps
        if best is not None:
            self.state.best = best.variant, best.epoch, best.score
            arrays |= {"best_coef": best.coef.T, "best_intercept": best.intercept}
        self.checkpoints.save(asdict(self.state), arrays)

    def _restored(self, weights: Weights, state: State, arrays: dict[str, NDArray[Any]], path: str) -> Weights:
        """Return the weights of a checkpoint, which have the shapes of the initial ones, and keep the rest of it."""
        config, expected = self.config, {name: getattr(weights, name) for name in STATE} | {"loss_before": weights.loss}
        if state.best is not None:
            coef, intercept = weights.model(config, 0)
            expected |= {"best_coef": coef.T, "best_intercept": intercept}
        for name, like in expected.items():
            found = arrays.get(name)
            shown, wanted = ("none" if each is None else f"{each.dtype} of {each.shape}" for each in (found, like))
            check(shown == wanted, f"{path}: array {name} is {shown}, expected {wanted}")
        n_epochs, n_variants = len(state.history), len(config.variants)
        tried = [(variant.loss, variant.alpha) for variant in config.variants]
        scored = all(f"validation_{self._score_name}" in entry for entry in state.grid)
        holds = {
            "history": [entry["epoch"] for entry in state.history] == [*range(1, n_epochs + 1)],
            "steps": sum(entry["rows"] for entry in state.history) == state.steps_before <= state.steps,
            "grid": [(each["loss"], each["alpha"]) for each in state.grid] == (tried if n_epochs else []) and scored,
            "best": state.best is None or (state.best[0] < n_variants and 1 <= state.best[1] <= n_epochs),
        }
        for name, each in holds.items():
            check(each, f"{path}: state: {name} does not fit this training")
        self.state, self._loss_before = state, arrays["loss_before"]
        if state.best is not None:
            variant, epoch, score = state.best
            self._best = Candidate(variant, epoch, arrays["best_coef"].T, arrays["best_intercept"], score)
        return Weights(**{name: arrays.get(name) for name in STATE}, steps=state.steps)  # type: ignore[arg-type]


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
