"""Out-of-core training of a linear classifier by stochastic gradient descent over shards."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dkfeat.engine.prefetch import prefetch
from dkfeat.errors import ConfigError, InputError, PlanError, SpecConflictError
from dkfeat.io.remote import is_url
from dkfeat.learn.descent import DEFAULT_ALPHA, LOSSES, fit_epochs
from dkfeat.learn.epoch_lines import EpochLines
from dkfeat.learn.model import LinearModel
from dkfeat.random_streams import check_seed
from dkfeat.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.engine.dataset import ShardDataset
    from dkfeat.learn.descent import Batches

__all__ = ["train"]

ROWS_A_CLASS = 150_000
"""Rows that all epochs together should show the classifier, for each class."""
FEWEST_EPOCHS, MOST_EPOCHS = 5, 40
BATCH_NONZEROS = 1 << 21
"""Stored values in a batch, about: 32 MiB with their column numbers."""
WIDEST = 2**31 - 1
"""Columns that the indices scikit-learn accepts can tell apart."""


def train(
    shards: ShardDataset | str | os.PathLike[str],
    *,
    test: ShardDataset | str | os.PathLike[str] | None = None,
    loss: Literal["hinge", "log_loss"] = "hinge",
    alpha: float | None = None,
    epochs: int | None = None,
    average: bool | None = None,
    shuffle_rows: int | None = None,
    random_state: Any = 0,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | Callable[[Mapping[str, Any]], None] = True,
) -> LinearModel:
    """Train a linear classifier on featurized shards that need not fit in memory.

    Every epoch goes over all shards in a new seeded order, rows mixed in a bounded buffer, and shows each row once
    to scikit-learn's ``SGDClassifier.partial_fit``. The next batches are read and decoded meanwhile by another thread.
    The same shards, settings and library versions give the same weights bit for bit.

    Parameters
    ----------
    shards : ShardDataset, str or path
        What `dkfeat.featurize` wrote: the data set or its folder.
    test : ShardDataset, str or path, optional
        Held-out shards, made by the same map (``like=``). They are scored after every epoch and choose nothing.
    loss : {"hinge", "log_loss"}, default="hinge"
        Linear support vector machine, or logistic regression.
    alpha : float, optional
        Strength of the l2 penalty, above 0: ``1 / (n_rows * C)`` in the terms of ``LinearSVC``. Default 1e-6: averaging
        and a bounded number of steps regularise more than the penalty does. Raise it for noisy labels.
    epochs : int, optional
        Passes over the shards, at least 1. By default as many as show 150,000 rows a class, between 5 and 40.
    average : bool, default=True
        Return the mean of the weights over all steps instead of the last ones.
    shuffle_rows : int, optional
        Rows that are mixed together, at least 1: enough to hold several shards where a source is sorted by label. By
        default as many as take 64 MiB in their shards.
    random_state : int, None or numpy.random.RandomState or Generator, default=0
        Seed of the order of shards and rows, in [0, 2**64). None draws one; ``model.training`` tells which.
    storage_options : mapping, optional
        For shards given by URL, as `dkfeat.open_shards` takes them.
    progress : bool or callable, default=True
        True tells the epochs on standard error. A callable is given each epoch's entry of the history.

    Returns
    -------
    model : LinearModel
        Of the last epoch; ``model.history`` tells the held-out accuracy of all of them.

    Raises
    ------
    ConfigError
        For a setting out of range, multi-label shards, or weights that diverged.
    InputError
        If the shards hold no rows, or rows of one class only.
    SpecConflictError
        If the test shards come from another map or were read by other input options.
    PlanError
        If the weights would not fit in this machine's memory.
    ShardError
        If a shard does not read back.

    Notes
    -----
    A row that `GCWSFeatures` has transformed holds ``n_components`` ones. They are scaled by ``1/sqrt(n_components)``
    in training, so that rows have unit length and the same `alpha` and step size suit every `n_components`; the
    scale is folded into the weights afterwards. The step size is constant (1 for hinge, 4 for log_loss), since
    averaging does what a falling one is for. More than two classes are trained one against the rest.
    """
    check_choice(loss, "loss", LOSSES)
    alpha = DEFAULT_ALPHA if alpha is None else check_real(alpha, "alpha", above=0)
    average = True if average is None else average
    epochs = None if epochs is None else check_integer(epochs, "epochs", low=1)
    shuffle_rows = None if shuffle_rows is None else check_integer(shuffle_rows, "shuffle_rows", low=1)
    root_seed = _checked_seed(random_state)
    data = _opened(shards, storage_options)
    held_out = None if test is None else _opened(test, storage_options)
    classes = _classes_of(data)
    epochs = _epochs_for(data.n_rows, len(classes)) if epochs is None else epochs
    if held_out is not None:
        _check_same_features(data, held_out)
    n_outputs = 1 if len(classes) == 2 else len(classes)
    width = data.map.n_features_out
    _check_memory(n_outputs, width, average)

    batch_rows, map_arrays = _batch_rows(data), data.map.fitted_arrays()

    def batches(epoch: int) -> Batches:
        seed = int(np.random.SeedSequence([root_seed, epoch]).generate_state(1)[0])
        return data.batches(batch_rows, shuffle=True, random_state=seed, buffer_rows=shuffle_rows)

    settings: dict[str, Any] = {"loss": loss, "alpha": alpha, "average": average, "random_state": root_seed}
    scale = 1 / math.sqrt(data.map.n_components) if data.map.layout == "codes" else None
    history: list[Mapping[str, Any]] = []
    lines = EpochLines(epochs) if progress and not callable(progress) else None
    tell = progress if callable(progress) else lines
    with lines or nullcontext():
        for coef, intercept, n_rows in fit_epochs(batches, classes, epochs, scale=scale, **settings):
            model = LinearModel(
                map_spec=data.map.to_spec(),
                map_arrays=map_arrays,
                input_spec=data.spec["input"],
                classes=classes,
                coef=coef,
                intercept=intercept,
                training={**settings, "epochs": epochs, "shuffle_rows": shuffle_rows},
                history=tuple(history),
                manifest_sha256=data.manifest.sha256,
            )
            entry: dict[str, Any] = {"epoch": len(history) + 1, "rows": n_rows}
            if held_out is not None:
                entry["test_accuracy"] = _accuracy(model, held_out)
            history.append(entry)
            if tell is not None:
                tell(entry)
    return replace(model, history=tuple(history))


def _opened(shards: Any, options: Mapping[str, Any] | None) -> Any:
    if isinstance(shards, str | os.PathLike):
        # a caller that opened its shards already has what this import brings
        from dkfeat.engine.dataset import open_shards

        return open_shards(os.fspath(shards), storage_options=options if is_url(os.fspath(shards)) else None)
    return shards


def _epochs_for(n_rows: int, n_classes: int) -> int:
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, math.ceil(n_classes * ROWS_A_CLASS / n_rows)))


def _batch_rows(data: Any) -> int:
    return max(1, BATCH_NONZEROS // (data.map.n_components if data.map.layout == "codes" else data.map.n_features_out))


def _checked_seed(random_state: Any) -> int:
    try:
        return check_seed(random_state)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error


def _classes_of(data: Any) -> NDArray[Any]:
    if data.spec["input"].get("multilabel"):
        message = "these shards hold a list of labels for each row; training on multi-label shards is not supported yet"
        raise ConfigError(message)
    if data.n_rows == 0:
        message = "the training shards hold no rows; featurize a source that does"
        raise InputError(message)
    if data.classes is None:
        message = "the shards' labels take more than 10,000 values, which is regression; only classes can be trained"
        raise ConfigError(message)
    classes = np.asarray(data.classes)
    if len(classes) < 2:
        only = ", ".join(str(label) for label in classes.tolist()) or "none"
        message = f"a classifier needs labels of two classes or more; all {data.n_rows:,} rows have the label {only}"
        raise InputError(message)
    return classes


def _check_same_features(data: Any, held_out: Any) -> None:
    if data.map.fingerprint() != held_out.map.fingerprint():
        ours, theirs = data.map.to_spec(), held_out.map.to_spec()
        other = ", ".join(
            f"{key} {ours.get(key)!r} and {theirs.get(key)!r}" for key in ours if ours[key] != theirs.get(key)
        )
        message = f"training and test shards come from different maps: {other}; featurize the test rows with like=TRAIN"
        raise SpecConflictError(message)
    for key in ("n_features", "zero_based", "multilabel"):
        ours, theirs = data.spec["input"].get(key), held_out.spec["input"].get(key)
        if ours != theirs:
            message = (
                f"training rows were read with {key}={ours!r}, test rows with {key}={theirs!r}; "
                "featurize the test rows with like=TRAIN"
            )
            raise SpecConflictError(message)


def _check_memory(n_outputs: int, width: int, average: bool) -> None:
    if width > WIDEST:
        message = f"the features have {width:,} columns, more than {WIDEST:,}; lower n_components or i_bits"
        raise ConfigError(message)
    # as measured: the classifier's own arrays, the copy that is handed out, and float32 copies in two models
    projected = int(8 * n_outputs * width * (4.5 if average else 3.5))
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if projected > available:
        message = (
            f"weights of {n_outputs:,} rows and {width:,} columns need {projected / 2**30:,.1f} GiB, "
            f"this machine has {available / 2**30:,.1f}; lower n_components or i_bits"
        )
        raise PlanError(message)


def _accuracy(model: LinearModel, data: Any) -> float | None:
    hits = rows = 0
    for X, y in prefetch(data.batches(_batch_rows(data), shuffle=False)):
        hits += int(np.count_nonzero(model.label(model.score_features(X)) == y))
        rows += len(y)
    return hits / rows if rows else None
