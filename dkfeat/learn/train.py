"""Training of linear models: the public function `train`, and a baseline that is trained alike on raw rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.preprocessing import normalize

from dkfeat.config.execution import ExecutionConfig
from dkfeat.config.train import SGD, SOLVERS, Liblinear, foreign_options
from dkfeat.deprecation import moved_parameters
from dkfeat.engine.dataset.rows import prefetch
from dkfeat.engine.open import Target, as_target
from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import is_url
from dkfeat.learn.model import LinearModel
from dkfeat.learn.score import Score, predictions_of
from dkfeat.learn.sgd.descent import DescentConfig, Variant, Weights, run_epoch
from dkfeat.learn.sgd.train import open_training, train_sgd
from dkfeat.random_streams import check_seed
from dkfeat.validation import check_choice

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.sources.base import Source


def _move(arguments: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Move former keywords of `train` into its solver and its checkpoint."""
    given = arguments.get("solver", "sgd")
    solver = SOLVERS[check_choice(given, "solver", tuple(SOLVERS))]() if isinstance(given, str) else given
    arguments["solver"] = replace(solver, **{name: old[name] for name in ("task", "class_weight") if name in old})
    if "resume" in old and arguments.get("checkpoint") is not None:
        arguments["checkpoint"] = replace(as_target(arguments["checkpoint"]), resume=old["resume"])


_MOVED = {
    "task": "dkfeat.SGD(task=...)",
    "class_weight": "dkfeat.SGD(class_weight=...) or dkfeat.Liblinear(class_weight=...)",
    "resume": "checkpoint=dkfeat.Target(folder, resume=...)",
}


@moved_parameters(_move, _MOVED)
def train(
    shards: ShardDataset | str | os.PathLike[str],
    solver: Literal["sgd", "liblinear"] | SGD | Liblinear = "sgd",
    *,
    test: ShardDataset | str | os.PathLike[str] | None = None,
    validation: ShardDataset | str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | Target | None = None,
    client: Client | ExecutionConfig | None = None,
    random_state: Any = 0,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | Callable[[Mapping[str, Any]], None] = True,
) -> LinearModel:
    """Train a linear model on featurized shards that need not fit in memory.

    The same shards, settings and library versions give the same weights bit for bit, also if the training was
    interrupted and continued from its checkpoint.

    Parameters
    ----------
    shards : ShardDataset, str or path
        Output of `dkfeat.featurize`: the data set or its folder. If rows have weights, each row counts by its weight
        divided by the mean weight.
    solver : {"sgd", "liblinear"}, SGD or Liblinear, default="sgd"
        Solver with its options, or its name for the default options. `dkfeat.SGD` passes over the shards in epochs.
        `dkfeat.Liblinear` holds all features in memory and finds the optimum; it raises an error if they do not fit.
    test : ShardDataset, str or path, optional
        Shards made by the same map (``like=``). They are scored after every epoch and do not influence the training.
    validation : ShardDataset, str or path, optional
        Shards made by the same map. They replace the rows held out of training in the choice among alphas, losses and,
        with `patience`, epochs. "sgd" only.
    checkpoint : str, path or Target, optional
        Local folder for the training state. The same training on the same manifest continues from it, also within an
        epoch. The state is saved every 30 seconds (when the next window of 65,536 rows ends) and at the end. With
        `parts` it is saved only after an epoch, when the weights of the parts have been averaged. It takes about twice
        the size of the weights, which have 4 or 8 bytes for each feature and class. Remove the folder when the model is
        saved. With ``dkfeat.Target(folder, resume=False)`` training starts from the beginning.
    client : distributed.Client, optional
        Cluster on which parts of the shards are trained in parallel, see `dkfeat.SGD`. Without a client, one descent in
        this process passes over all shards, or, with ``SGD(parts=...)``, the threads of this process train the parts. A
        worker keeps the encoded rows of its parts in memory, up to a quarter of the memory that a task may use. All
        workers must be able to read the shards.
    random_state : int, None or numpy.random.RandomState or Generator, default=0
        Seed for the order of shards and rows and for the choice of held-out rows, in [0, 2**64). None draws a seed,
        which ``model.training`` records.
    storage_options : mapping, optional
        Options of the storage, for shards given by URL, as in `dkfeat.open_shards`.
    progress : bool or callable, default=True
        True prints each epoch on standard error, or below the cell of a notebook. A callable receives the history entry
        of each epoch.

    Returns
    -------
    model : LinearModel
        ``model.history`` has one entry per epoch: rows, mean loss (computed for each row before that row changed the
        weights) and scores (accuracy or R²) on held-out and test rows.

    Raises
    ------
    ConfigError
        For a setting out of range, or if the weights of all models diverged.
    InputError
        If the shards have no rows, no labels, or rows of only one class.
    SpecConflictError
        If test shards were made by another map or read with other input options, or if a checkpoint belongs to other
        shards or settings.
    PlanError
        If the weights would not fit in this machine's memory, or in a worker's.
    ClusterError
        If the scheduler was lost, or if several workers died while training the same part.
    ShardError
        If a shard cannot be read, or if no checkpoint in the folder can be read.

    Notes
    -----
    Parts are trained as in Algorithm 3 of [1]_, but averaged after every epoch, not only after the last. In each epoch
    a worker receives 4 bytes for each feature and trained model; several models are padded to a multiple of 16. Each
    part sends back twice as many bytes, or the same number without `average`.

    A row that `GCWSFeatures` or `DartFeatures` has transformed holds ``n_components`` ones. They are scaled by
    ``1/sqrt(n_components)`` in training, so that rows have unit length and the same `alpha` and step size suit every
    `n_components`; other features are divided by the root mean square length of the rows of the first batch, unless it
    is within 0.01 of 1. The scale is folded into the weights afterwards. The step size is constant, because averaging
    takes the place of a decreasing step size. Steps are implicit [2]_: no step moves the prediction for a row beyond
    its target, whatever the row's length and weight. Labels of a regression are standardised in training, and `loss`
    values are in these units; "huber" changes from squared to absolute error at a tenth of the labels' standard
    deviation.

    References
    ----------
    .. [1] M. Zinkevich, M. Weimer, A. Smola and L. Li, "Parallelized stochastic gradient descent", NIPS 2010.
    .. [2] B. Kulis and P. L. Bartlett, "Implicit online learning", ICML 2010.
    """
    if isinstance(solver, str):
        solver = SOLVERS[check_choice(solver, "solver", tuple(SOLVERS))]()
    if not isinstance(solver, SGD | Liblinear):
        raise ConfigError(f"solver={solver!r:.100}, but it must be dkfeat.SGD(...), dkfeat.Liblinear(...) or a name")
    try:
        seed = check_seed(random_state)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
    data, held_out, test = (_opened(given, storage_options) for given in (shards, validation, test))
    options: dict[str, Any] = {"test": test, "seed": seed, "progress": progress}
    if isinstance(solver, Liblinear):
        # late import: loads scikit-learn's solvers only when they are used
        from dkfeat.learn.liblinear import train_liblinear

        where = client.to_mapping() if isinstance(client, ExecutionConfig) else {"client": client}
        unused = {"validation": held_out, "checkpoint": checkpoint} | where
        foreign = [name for name, value in unused.items() if value is not None]
        if foreign:
            raise ConfigError(foreign_options(foreign))
        return train_liblinear(data, solver, **options)
    state = None if checkpoint is None else as_target(checkpoint)
    return train_sgd(open_training(data, solver, validation=held_out, checkpoint=state, client=client, **options))


def _opened(shards: Any, options: Mapping[str, Any] | None) -> Any:
    """Open shards given by folder or URL; anything else is returned unchanged."""
    if not isinstance(shards, str | os.PathLike):
        return shards
    # late import: callers that pass open shards have loaded it already
    from dkfeat.engine.dataset.dataset import open_shards

    return open_shards(os.fspath(shards), storage_options=options if is_url(os.fspath(shards)) else None)


RAW_ALPHA = 1e-6
"""Strength of the l2 penalty of the baseline."""


def raw_accuracy(train: Source, test: Source, classes: NDArray[Any], epochs: int, seed: int = 0) -> float:
    """Compute the test accuracy of a linear model on the raw features, as a baseline.

    The model has hinge loss and no intercept. Rows are scaled to unit l2 length, read block by block and trained as
    `dkfeat.train` does.

    Parameters
    ----------
    train, test : Source
        Sources with resolved options.
    classes : ndarray of shape (n_classes,)
        All labels, ascending.
    epochs : int
        Passes over the training rows.
    seed : int, default=0
        Seed of the order of rows in each block.

    Returns
    -------
    accuracy : float
        In [0, 1].
    """

    def batches(epoch: int) -> Iterator[tuple[csr_matrix, NDArray[Any], None]]:
        random = np.random.default_rng([seed, epoch])
        for X, y in _unit_blocks(train):
            order = random.permutation(len(y))
            yield X[order], y[order], None

    config = DescentConfig(
        task="binary" if len(classes) == 2 else "multiclass",
        classes=classes,
        variants=(Variant("hinge", RAW_ALPHA),),
        fit_intercept=False,
    )
    weights = Weights.zeros(config, int(train.n_features or 0))
    for epoch in range(epochs):
        weights = run_epoch(weights, prefetch(batches(epoch)), config)
    coef, _ = weights.model(config, 0)
    score = Score(config.task)
    for X, y in _unit_blocks(test):
        score.add(predictions_of(config.task, classes, X @ coef.T), y)
    return score.value or 0.0


def _unit_blocks(source: Source) -> Iterator[tuple[csr_matrix, NDArray[Any]]]:
    for split in source.splits():
        for piece in source.read(split, checksum=False):
            if piece.block.n_rows:
                yield normalize(piece.block.X.astype(np.float64)), piece.block.y
