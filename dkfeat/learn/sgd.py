"""Out-of-core training of linear models by stochastic gradient descent over shards."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dkfeat.errors import ConfigError
from dkfeat.io.remote import is_url
from dkfeat.learn.model import LinearModel
from dkfeat.learn.sgd_options import checked_options
from dkfeat.learn.sgd_run import Run
from dkfeat.learn.training_data import check_same_features, classes_of, task_of
from dkfeat.validation import check_choice, check_integer

if TYPE_CHECKING:
    from dkfeat.config import ClusterConfig
    from dkfeat.engine.dataset import ShardDataset

__all__ = ["train"]

ROWS_A_CLASS = 150_000
"""Rows that all epochs together should show the classifier, for each class."""
FEWEST_EPOCHS, MOST_EPOCHS = 5, 40


def train(
    shards: ShardDataset | str | os.PathLike[str],
    *,
    test: ShardDataset | str | os.PathLike[str] | None = None,
    validation: ShardDataset | str | os.PathLike[str] | None = None,
    validation_fraction: float | None = None,
    refit: bool = False,
    task: Literal["auto", "classification", "regression"] = "auto",
    solver: Literal["sgd", "liblinear"] = "sgd",
    C: float | Sequence[float] | None = None,
    loss: str | Sequence[str] | None = None,
    alpha: float | Sequence[float] | None = None,
    epochs: int | None = None,
    average: bool | None = None,
    class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = True,
    shuffle_rows: int | None = None,
    loaders: int = 1,
    parts: int | None = None,
    client: Any = None,
    scheduler: str | None = None,
    scheduler_file: str | os.PathLike[str] | None = None,
    cluster: str | os.PathLike[str] | ClusterConfig | None = None,
    n_workers: int | None = None,
    threads_per_worker: int | None = None,
    memory_limit: int | str | None = None,
    performance_report: str | os.PathLike[str] | None = None,
    random_state: Any = 0,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | Callable[[Mapping[str, Any]], None] = True,
) -> LinearModel:
    """Train a linear model on featurized shards that need not fit in memory.

    Every epoch goes over all shards in a new seeded order, rows mixed in a bounded buffer, and shows each row once to
    all models that are trained: one against the rest for each class, for each `loss` and each `alpha`, side by side.
    The next batches are read and decoded meanwhile by other threads. The same shards, settings and library versions
    give the same weights bit for bit, also when a training was interrupted and went on from its checkpoint.

    Parameters
    ----------
    shards : ShardDataset, str or path
        What `dkfeat.featurize` wrote: the data set or its folder. Rows with a weight count by it, in relation to the
        mean weight.
    test : ShardDataset, str or path, optional
        Shards made by the same map (``like=``). They are scored after every epoch and choose nothing.
    validation : ShardDataset, str or path, optional
        Shards made by the same map that choose among alphas, losses and, with `patience`, epochs.
    validation_fraction : float, optional
        Instead: the share of the rows, in (0, 1), that is held out of training for that. Which rows is decided by the
        seed and a row's place in the source alone. By default 0.1 where there is something to choose, else none.
    refit : bool, default=False
        Whether what was chosen by rows held out of training (loss, alpha and, with `patience`, epochs) is then trained
        once more on all rows, as `GridSearchCV` does: that costs a second training, of one model. Otherwise the model
        has not seen the rows held out, as with ``SGDClassifier(early_stopping=True)``. "liblinear" always refits.
    task : {"auto", "classification", "regression"}, default="auto"
        What labels are. "auto" takes them for classes, unless `loss` is one for regression. Shards with lists of labels
        are trained with one model a label, each against the rest.
    solver : {"sgd", "liblinear"}, default="sgd"
        "liblinear" holds all features in memory, refuses where they do not fit, and finds the optimum for one loss for
        classes. Of the other options it takes `test`, `validation_fraction`, `class_weight` and `random_state`.
    C : float or sequence of float, optional
        For "liblinear": weight of the losses against the penalty, above 0; the one of several that does best on the
        held-out rows, of equals the smallest, is then fitted to all rows. By default 0.01, 0.1, 1, 10 and 100.
    loss : str or sequence of str, optional
        For classes "squared_hinge" (the default: linear support vector machine, as ``LinearSVC``), "hinge" (the same,
        heeding wrong labels less) or "log_loss" (logistic regression). For regression "squared_error" (the default) or
        "huber", which hardly heeds outliers.
    alpha : float or sequence of float, optional
        Strength of the l2 penalty, above 0: ``1 / (n_rows * C)`` in the terms of ``LinearSVC``. Default 1e-6: averaging
        and a bounded number of steps regularise more than the penalty does. Raise it for noisy labels. The model of
        several that does best on the held-out rows is returned; of equal ones that with the larger alpha.
        ``model.training["grid"]`` tells of all.
    epochs : int, optional
        Passes over the shards, at least 1. By default as many as show 150,000 rows a class, between 5 and 40.
    average : bool, default=True
        Return the mean of the weights over all steps instead of the last ones; with `parts`, steps of the t-th epoch
        count t times.
    class_weight : "balanced" or mapping of label to float, optional
        How much rows of a class count; 1 for labels that are not named. "balanced": in inverse proportion to the rows
        of the class, 1 on average.
    patience : int, optional
        Stop after so many epochs in a row without a better score on the held-out rows, and return the model of the best
        epoch. By default all epochs are trained and the last one counts.
    checkpoint : str or path, optional
        Local folder in which the state is saved, and from which the same training on the same manifest goes on, within
        an epoch too: every 30 seconds, at the first end of a window of 65,536 rows after that, and at the end. With
        `parts`, which are averaged at the end of an epoch, it is saved after epochs. Remove the folder when the model
        is saved. It takes about twice the weights' size, 4 or 8 bytes for each feature and class.
    resume : bool, default=True
        False begins anew whatever `checkpoint` holds.
    shuffle_rows : int, optional
        Rows that are mixed together, at least 1: enough to hold several shards where a source is sorted by label. By
        default as many as take 64 MiB in their shards.
    loaders : int, default=1
        Shards that are read at the same time, at least 1. Weights do not depend on it.
    parts : int, optional
        Train on a cluster: deal the shards out to so many parts, of about equally many rows. Every part runs each epoch
        over its own shards, then their weights are averaged. The same seed and number of parts give the same weights,
        bit for bit, wherever parts run and whatever workers are lost. By default, if anything of what follows is given,
        as many as tasks run at a time, but no more than there are shards; otherwise rows are shown one after another.
    client, scheduler, scheduler_file, cluster, n_workers, threads_per_worker, memory_limit, performance_report
        Where parts run, as in `dkfeat.featurize`: by default on threads of this process, with `n_workers` on processes
        of this machine. A worker keeps the encoded rows of its parts in memory, up to a quarter of what it may use. The
        manifest's shards must be in reach of all workers.
    random_state : int, None or numpy.random.RandomState or Generator, default=0
        Seed of the order of shards and rows and of the rows held out, in [0, 2**64). None draws one;
        ``model.training`` tells which.
    storage_options : mapping, optional
        For shards given by URL, as `dkfeat.open_shards` takes them.
    progress : bool or callable, default=True
        True tells the epochs on standard error, in a notebook below the cell. A callable is given each epoch's entry of
        the history.

    Returns
    -------
    model : LinearModel
        ``model.history`` tells of every epoch: rows, mean loss (of each row before it changed the weights) and scores,
        accuracy or R², on held-out and test rows.

    Raises
    ------
    ConfigError
        For a setting out of range, or if the weights of all models diverged.
    InputError
        If the shards hold no rows, no labels, or rows of one class only.
    SpecConflictError
        If test shards come from another map or were read by other input options, or a checkpoint belongs to other
        shards or settings.
    PlanError
        If the weights would not fit in this machine's memory, or in a worker's.
    ClusterError
        If the scheduler was lost, or several workers died over one part.
    ShardError
        If a shard does not read back, or no checkpoint in the folder does.

    Notes
    -----
    Parts are trained as in Algorithm 3 of [1]_, with an average after every epoch and not only after the last. Each
    worker is sent 4 bytes an epoch for each feature and each model trained, filled up to a multiple of 16 models if
    there are several; each part sends back twice that, without `average` once.

    A row that `GCWSFeatures` has transformed holds ``n_components`` ones. They are scaled by ``1/sqrt(n_components)``
    in training, so that rows have unit length and the same `alpha` and step size suit every `n_components`; other
    features are scaled by the mean length of the rows of the first batch. The scale is folded into the weights
    afterwards. The step size is constant, since averaging does what a falling one is for, and implicit [2]_: no row is
    carried beyond its target, whatever its length and weight. Labels of a regression are standardised in training, and
    `loss` values are in these units; "huber" turns from square to absolute at a tenth of the labels' standard
    deviation.

    References
    ----------
    .. [1] M. Zinkevich, M. Weimer, A. Smola and L. Li, "Parallelized stochastic gradient descent", NIPS 2010.
    .. [2] B. Kulis and P. L. Bartlett, "Implicit online learning", ICML 2010.
    """
    where: dict[str, Any] = {
        "parts": parts,
        "client": client,
        "scheduler": scheduler,
        "scheduler_file": scheduler_file,
        "cluster": cluster,
        "n_workers": n_workers,
        "threads_per_worker": threads_per_worker,
        "memory_limit": memory_limit,
        "performance_report": performance_report,
    }
    if check_choice(solver, "solver", ("sgd", "liblinear")) == "liblinear":
        # scikit-learn's solvers load when they are asked for
        from dkfeat.learn.liblinear import train_liblinear

        data, held_out = opened(shards, storage_options), None
        if test is not None:
            held_out = opened(test, storage_options)
            check_same_features(data, held_out)
        others: dict[str, Any] = {
            "validation": validation,
            "alpha": alpha,
            "epochs": epochs,
            "average": None if average else average,
        }
        others |= {"patience": patience, "checkpoint": checkpoint, "shuffle_rows": shuffle_rows}
        others |= where
        others["task"] = task if task == "regression" else None
        return train_liblinear(
            data,
            held_out,
            loss=loss,
            C=C,
            validation_fraction=validation_fraction,
            class_weight=class_weight,
            random_state=random_state,
            progress=progress,
            others=others,
        )
    if C is not None:
        message = f'C={C!r} is for solver="liblinear"; for "sgd" give alpha, which is 1 / (n_rows * C)'
        raise ConfigError(message)
    options = checked_options(
        task=task,
        loss=loss,
        alpha=alpha,
        epochs=epochs,
        average=average,
        class_weight=class_weight,
        patience=patience,
        validation_fraction=validation_fraction,
        has_validation=validation is not None,
        shuffle_rows=shuffle_rows,
        random_state=random_state,
    )
    check_integer(loaders, "loaders", low=1)
    data = opened(shards, storage_options)
    kind = task_of(data, options)
    options = options.for_task(kind)
    classes = classes_of(data, kind)
    judges = {}
    for name, given in (("validation", validation), ("test", test)):
        if given is not None:
            judges[name] = opened(given, storage_options)
            check_same_features(data, judges[name])
    if options.epochs is None:
        options = options.with_epochs(_epochs_for(data.n_rows, max(1, len(classes))))
    run = Run(
        data=data,
        task=kind,
        classes=classes,
        test=judges.get("test"),
        loaders=loaders,
        resume=resume,
        progress=progress,
        where=where,
    )
    model = run(options, judges.get("validation"), checkpoint)
    if not (refit and options.held_out):
        return model
    # a folder for each choice: the first training may go on with more epochs, and then choose otherwise
    own = "refit-{loss}-{alpha!r}".format_map(model.training)
    again = run(options.for_refit(model.training), None, None if checkpoint is None else Path(checkpoint) / own)
    kept = ("grid", "patience", "validation_fraction", "epochs")
    told = {name: value for name, value in model.training.items() if name in kept and value is not None}
    return replace(again, training={**again.training, **told, "refit": True})


def opened(shards: Any, options: Mapping[str, Any] | None = None) -> Any:
    """Open shards by their folder or URL; shards that are open are returned as they are."""
    if isinstance(shards, str | os.PathLike):
        # a caller that opened its shards already has what this import brings
        from dkfeat.engine.dataset import open_shards

        return open_shards(os.fspath(shards), storage_options=options if is_url(os.fspath(shards)) else None)
    return shards


def _epochs_for(n_rows: int, n_classes: int) -> int:
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, math.ceil(n_classes * ROWS_A_CLASS / n_rows)))
