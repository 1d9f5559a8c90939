"""Training of linear models: the public function `train`, and its steps by stochastic gradient descent."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dkfeat.config.execution import ExecutionConfig
from dkfeat.config.train import CLASS_LOSSES, REAL_LOSSES, SGD, SOLVERS, Liblinear, foreign_options, several
from dkfeat.engine.dataset.dataset import open_shards
from dkfeat.engine.featurize import featurized_in_memory
from dkfeat.engine.open import Target, as_target
from dkfeat.engine.runners.open import LazyRunner
from dkfeat.engine.scan import scale_warning
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.filesystems.urls import is_url
from dkfeat.learn.checks import check_continues, check_fits, check_same_features, class_weights, classes_of, task_of
from dkfeat.learn.model import LinearModel, load_model, settings_of
from dkfeat.learn.scores import calibrate
from dkfeat.learn.sgd.checkpoint import ALGORITHM, Checkpoints
from dkfeat.learn.sgd.descent import DescentConfig, Variant
from dkfeat.learn.sgd.epochs import EpochLines, Training
from dkfeat.learn.sgd.parallel import Averaging, count_parts
from dkfeat.learn.sgd.rows import TrainingRows, batch_rows, labelled_batches
from dkfeat.messages import counted, logger_of
from dkfeat.store.commit.run_log import read_logs, recorded_shares
from dkfeat.store.manifest.manifest import labels_named
from dkfeat.validation import check_choice, check_seed

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

    from dkfeat.encoders._base import Encoder
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.maps import FeatureMap


ROWS_PER_CLASS = 150_000
"""Number of rows for each class, over all epochs, from which the default number of epochs is computed."""
FEWEST_EPOCHS, MOST_EPOCHS = 5, 40
DEFAULT_FRACTION = 0.1
"""Default share of the rows to hold out, if training chooses among variants or epochs."""
MOST_COLUMNS = 2**31 - 1
"""Maximum number of columns in the compiled loops."""
DESCENT_VERSION, PARTS_VERSION = 1, 3
"""Numbers that must increase when a change gives other weights for the same rows, options and seed: the second one for
trainings in parts, the first one for others."""
UNIT_TOLERANCE = 0.01
"""Rows are not scaled if their root mean square length differs from 1 by less than this."""

logger = logger_of(__name__)


def train(
    shards: ShardDataset | str | os.PathLike[str] | Any,
    solver: Literal["sgd", "liblinear"] | SGD | Liblinear = "sgd",
    *,
    y: Any = None,
    map: FeatureMap | None = None,
    encoder: Encoder | Literal["auto"] | None = "auto",
    test: ShardDataset | str | os.PathLike[str] | None = None,
    validation: ShardDataset | str | os.PathLike[str] | None = None,
    init: LinearModel | str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | Target | None = None,
    client: Client | ExecutionConfig | None = None,
    random_state: Any = 0,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | Callable[[Mapping[str, Any]], None] = True,
) -> LinearModel:
    """Train a linear model on featurized shards that need not fit in memory, or on rows in memory.

    The same shards, settings and library versions give the same weights bit for bit, also if the training was
    interrupted and continued from its checkpoint.

    Parameters
    ----------
    shards : ShardDataset, str or path; or rows in memory
        Output of `dkfeat.featurize`: the data set or its folder. Or rows that `TableSource` takes, or a source: they
        are featurized first, into the memory of this process, which must hold their codes; no file is written. If rows
        have weights, each row counts by its weight divided by the mean weight.
    solver : {"sgd", "liblinear"}, SGD or Liblinear, default="sgd"
        Solver with its options, or its name for the default options. `dkfeat.SGD` passes over the shards in epochs.
        `dkfeat.Liblinear` holds all features in memory and finds the optimum; it raises an error if they do not fit.
    y : array, Series or list of n_rows labels, optional
        Labels of rows in memory, as in `TableSource`; without it, a table has them in its column ``label``.
    map : FeatureMap, optional
        Feature map of rows in memory, which need one; with `init` the model's, of which another one is an error.
    encoder : TableEncoder, ColumnScale, "auto" or None
        Encoder of rows in memory, as in `dkfeat.featurize`; with `init` the model's. A `client` featurizes the rows;
        they are trained in this process.
    test : ShardDataset, str or path, optional
        Shards made by the same map (``like=``). They are scored after every epoch and do not influence the training.
    validation : ShardDataset, str or path, optional
        Shards made by the same map. They replace the rows held out of training in the choice among alphas, losses and,
        with `patience`, epochs. "sgd" only.
    init : LinearModel, str or path, optional
        Model to continue from, or its folder, instead of weights of 0; "sgd" only. Rows in memory are featurized as
        those of the model were; shards have its map and encoder (``like=MODEL``). No row has a label that it lacks. By
        default the loss is the model's, and there are five epochs. Weights are averaged over the steps of this call.
    checkpoint : str, path or Target, optional
        Local folder for the training state. The same training on the same manifest continues from it, also within an
        epoch. The state is saved every 30 seconds (when the next window of 65,536 rows ends) and at the end. With
        `parts` it is saved only after an epoch, when the weights of the parts have been averaged. It takes about twice
        the size of the weights (three times with `parts`), which have 4 or 8 bytes for each feature and class. Remove
        the folder when the model is saved. With ``dkfeat.Target(folder, resume=False)`` training starts from the
        beginning.
    client : distributed.Client, optional
        Cluster on which parts of the shards are trained in parallel, see `dkfeat.SGD`. Without a client, one descent in
        this process passes over all shards, or, with ``SGD(parts=...)``, the threads of this process train the parts.
        All workers must be able to read the shards; each is read once per epoch.
    random_state : int, None or numpy.random.RandomState or Generator, default=0
        Seed for the order of shards and rows and for the choice of held-out rows, in [0, 2**64). None draws a seed,
        which ``model.training`` records.
    storage_options : mapping, optional
        Options of the storage, for shards given by URL, as in `dkfeat.open_shards`.
    progress : bool or callable, default=True
        True prints the first and the last epoch, and one every few seconds in between, on standard error. A callable
        receives the history entry of each epoch.

    Returns
    -------
    model : LinearModel
        ``model.history`` has one entry per epoch. ``train_loss`` is the mean loss of a row (and class) under the
        weights after the epoch, on up to eight batches of training rows, and ``penalty`` what is added to it; both are
        for labels in their own units. ``loss`` is the mean over all rows of the loss that each had before its own step.
        It is higher, because those weights are not averaged. Scores (accuracy or R²) are on held-out and test rows.

    Raises
    ------
    ConfigError
        For a setting out of range, or if the weights of all models diverged.
    InputError
        If the shards have no rows, no labels, or rows of only one class.
    SpecConflictError
        If test shards or those for `init` were made by another map or encoder, or read with other input options, or if
        a checkpoint belongs to other shards or settings.
    PlanError
        If the weights would not fit in this machine's memory, or in a worker's.
    ClusterError
        If the scheduler was lost, or if several workers died while training the same part.
    ShardError
        If a shard cannot be read, or if no checkpoint in the folder can be read.

    Notes
    -----
    Parts are trained as in Algorithm 3 of [1]_, but averaged up to four times per epoch, with Nesterov's momentum as in
    [3]_: the next parts start ahead of the last average, by 0.8 times its last step (half of it with two parts). An
    epoch has fewer of these rounds if a part has fewer than four shards, because each shard belongs to one round. In
    each of them a worker receives a table with 4 bytes for each feature and trained model; several models are padded to
    a multiple of 16. The result of a part is twice as large (not without `average`). Workers add results two by two and
    send the last sum to this process, whose memory does not grow with the number of parts.

    A row that `GCWSFeatures` or `DartFeatures` has transformed holds ``n_components`` ones. They are scaled by
    ``1/sqrt(n_components)`` in training, so that rows have unit length and the same `alpha` and step size suit every
    `n_components`; other features are divided by the root mean square length of the rows of the first batch, unless it
    is within 0.01 of 1. The scale is folded into the weights afterwards. The step size is constant, because averaging
    takes the place of a decreasing step size. Steps are implicit [2]_: no step moves the prediction for a row beyond
    its target, whatever the row's length and weight. Labels of a regression are standardised in training, and ``loss``
    values are in these units; "huber" changes from squared to absolute error at a tenth of the labels' standard
    deviation.

    References
    ----------
    .. [1] "Parallelized stochastic gradient descent", M. Zinkevich, M. Weimer, A. Smola and L. Li, NIPS 2010.
    .. [2] "Implicit online learning", B. Kulis and P. L. Bartlett, ICML 2010.
    .. [3] "Scalable training of deep learning machines by incremental block training with intra-block parallel
       optimization and blockwise model-update filtering", K. Chen and Q. Huo, ICASSP 2016.
    """
    if isinstance(solver, str):
        solver = SOLVERS[check_choice(solver, "solver", tuple(SOLVERS))]()
    if not isinstance(solver, SGD | Liblinear):
        text = f"solver={solver!r:.100}, but it must be dkfeat.SGD(...), dkfeat.Liblinear(...) or a name"
        raise ConfigError(f"{text}; the labels of rows in memory are given by keyword, as y=")
    seed = check_seed(random_state)
    settings = settings_of(solver, seed)
    is_folder = isinstance(shards, str | os.PathLike) or hasattr(shards, "manifest")
    of_rows = {"y": y, "map": map, "encoder": None if encoder == "auto" else encoder}
    if is_folder and (given := [name for name, value in of_rows.items() if value is not None]):
        raise ConfigError(
            f"{given[0]}= is for rows in memory, and for sources such as dkfeat.ParquetSource(path); shards have their "
            "own: leave it out"
        )
    scored, held_out = (_opened(given, storage_options) for given in (test, validation))
    init = None if init is None else load_model(init, storage_options=storage_options)
    if init is not None and init.task != "regression" and getattr(solver, "loss", None) in REAL_LOSSES:
        raise SpecConflictError(f"init: a {init.task} model cannot continue as a regression; train a new model")
    if is_folder:
        opening: Any = nullcontext(_opened(shards, storage_options))
    else:
        if checkpoint is not None:
            raise ConfigError("checkpoint= is for shards in a folder; featurize the rows first, or leave it out")
        opening = featurized_in_memory(
            shards, client=client, progress=progress is True, y=y, map=map, encoder=encoder, init=init
        )
        client = None if isinstance(solver, Liblinear) or solver.parts is None else ExecutionConfig(scheduler="threads")
    with opening as data:
        data.check_features()
        where = data.shards.storage.url if is_folder else "the rows"
        shares = recorded_shares(read_logs(data.shards.storage)) if is_folder else {}  # of rows the run has warned
        if warning := scale_warning(shares, data.spec["input"]):
            logger.warning("%s: in the rows of these shards, %s, and featurize them again", where, warning)
        others = {name: other for name, other in (("validation", held_out), ("test", scored)) if other is not None}
        for name, other in others.items():
            shards = f"the {name} shards"
            check_same_features(data.spec, other.spec, shards=shards, owner="the training shards'", like="TRAIN")
        if isinstance(solver, Liblinear):
            # late import: loads scikit-learn's solvers only when they are used
            from dkfeat.learn.liblinear import train_liblinear

            unused = {"validation": held_out, "init": init, "checkpoint": checkpoint}
            unused |= client.to_mapping() if isinstance(client, ExecutionConfig) else {"client": client}
            if foreign := [name for name, value in unused.items() if value is not None]:
                raise ConfigError(foreign_options(foreign))
            model = train_liblinear(data, solver, test=scored, seed=seed, progress=progress)
            return replace(model, training={**model.training, **settings})
        if init is not None:
            check_continues(init, data, where)
        task, solver = _resolved(data, solver, init)
        if solver.validation_fraction is not None and held_out is not None:
            raise ConfigError("both validation= and validation_fraction= are given; give only one of them")
        job = TrainingJob(
            data=data,
            solver=solver,
            task=task,
            seed=seed,
            others=others,
            init=init,
            checkpoint=None if checkpoint is None else as_target(checkpoint),
            progress=progress,
        )
        with nullcontext() if client is None and solver.parts is None else LazyRunner(client) as workers:
            model = _train_once(job, workers)
            model = _refitted(job, model, workers) if solver.refit and job.held_out else model
            return replace(model, training={**model.training, **settings})


def _opened(shards: Any, options: Mapping[str, Any] | None) -> Any:
    """Open shards given by folder or URL; anything else is returned unchanged."""
    if not isinstance(shards, str | os.PathLike):
        if not (shards is None or hasattr(shards, "manifest")):
            raise ConfigError(
                f"a {type(shards).__name__} is given for test or validation, which are shards; featurize these rows "
                "and those of the training into folders, or score the model by dkfeat.evaluate"
            )
        return shards
    return open_shards(os.fspath(shards), storage_options=options if is_url(os.fspath(shards)) else None)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingJob:
    """One training: opened shards and all options, checked and resolved."""

    data: ShardDataset
    solver: SGD
    """Options of the descent; losses, the number of epochs and class weights are resolved."""
    task: str
    """Task of the resulting `LinearModel`."""
    seed: int
    others: Mapping[str, ShardDataset]
    """Shards named "validation", which choose among variants and epochs, and "test", which are only scored."""
    checkpoint: Target | None
    init: LinearModel | None = None
    """Model to continue from."""
    progress: bool | Callable[[Mapping[str, Any]], None]

    @cached_property
    def classes(self) -> NDArray[Any]:
        """Classes, ascending; none for regression."""
        return classes_of(self.data, self.task) if self.init is None else self.init.classes

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Models to train in the same descent."""
        return tuple(
            Variant(loss, alpha) for loss in several(self.solver.loss or ()) for alpha in several(self.solver.alpha)
        )

    @property
    def held_out(self) -> float:
        """Share of the rows to hold out."""
        if self.solver.validation_fraction is not None:
            return self.solver.validation_fraction
        chooses = len(self.variants) > 1 or self.solver.patience is not None
        return DEFAULT_FRACTION if chooses and "validation" not in self.others else 0.0

    @property
    def record(self) -> dict[str, Any]:
        """Options as plain JSON values, for the model and its checkpoints."""
        return {
            "average": self.solver.average,
            "class_weight": self.solver.class_weight,
            "epochs": self.solver.epochs,
            "patience": self.solver.patience,
            "random_state": self.seed,
            "shuffle_rows": self.solver.shuffle_rows,
            "validation_fraction": self.held_out or None,
            **({} if self.init is None else {"init": hashlib.sha256(self.init.coef.tobytes()).hexdigest()}),
        }

    def pins(self, parts: int | None) -> dict[str, Any]:
        """Plain JSON values that determine the weights after a number of rows; `parts` is None for one descent."""
        manifests = {name: data.manifest.sha256 for name, data in self.others.items()}
        facts = self.record | {"variants": [[variant.loss, variant.alpha] for variant in self.variants], "parts": parts}
        del facts["epochs"]
        facts[ALGORITHM] = DESCENT_VERSION if parts is None else PARTS_VERSION
        return {"manifest": self.data.manifest.sha256, "batch_rows": batch_rows(self.data), **facts, **manifests}


def _refitted(job: TrainingJob, model: LinearModel, workers: LazyRunner | None) -> LinearModel:
    chosen = {name: model.training[name] for name in ("loss", "alpha")}
    # a folder for each choice: the first training may continue with more epochs and then choose another variant
    state = None
    if job.checkpoint is not None:
        folder = Path(job.checkpoint.path) / "refit-{loss}-{alpha!r}".format_map(chosen)
        state = replace(job.checkpoint, urlpath=folder)
    epochs = job.solver.epochs if job.solver.patience is None else model.training["epoch"]
    solver = replace(job.solver, **chosen, epochs=epochs, patience=None, validation_fraction=None)
    others = {name: data for name, data in job.others.items() if name != "validation"}
    refitted = _train_once(replace(job, solver=solver, others=others, checkpoint=state), workers)
    kept = ("grid", "patience", "validation_fraction", "epochs", "calibration")
    choice = {name: model.training[name] for name in kept if model.training.get(name) is not None}
    return replace(refitted, training={**refitted.training, **choice, "refit": True})


def _train_once(job: TrainingJob, workers: LazyRunner | None) -> LinearModel:
    solver, epochs = job.solver, job.solver.epochs or 0
    rows = TrainingRows(
        job.data, fraction=job.held_out, seed=job.seed, shuffle_rows=solver.shuffle_rows, loaders=solver.loaders
    )
    config = _descent_config(job, rows)
    n_parts = None if workers is None else count_parts(job.data, solver.parts, job.held_out)
    _check_memory(config, job.data.map.n_features_out, in_parts=(n_parts or 1) > 1)
    scored = {name: labelled_batches(data, job.task, job.classes) for name, data in job.others.items()}
    if job.held_out:
        scored["validation"] = rows.held_out
    lines = EpochLines(epochs) if job.progress is True else None
    state = job.checkpoint
    averaging = None
    if workers is not None and n_parts is not None and n_parts > 1:
        averaging = Averaging(rows, config, n_parts, workers.get())
    elif workers is not None and solver.parts is None and lines is not None:
        lines.note(f"{counted(job.data.n_rows, 'row')} are one part, trained in this process; parts can be set")
    with ExitStack() as stack:
        pins = job.pins(None if averaging is None else n_parts)
        kept = None if state is None else Checkpoints(state.path, pins)
        training = Training(
            rows=rows,
            config=config,
            epochs=epochs,
            patience=solver.patience,
            scored=scored,
            checkpoints=None if kept is None else stack.enter_context(kept.locked()),
            on_epoch=lines if job.progress is True else job.progress or None,
            averaging=averaging,
            init=None if job.init is None else (job.init.coef, job.init.intercept),
        )
        chosen = training.run(resume=state is None or state.resume)
        if lines is not None:
            lines.end()
    variant = job.variants[chosen.variant]
    record = job.record | {"loss": variant.loss, "alpha": variant.alpha, "epoch": chosen.epoch}
    if n_parts is not None:
        record["parts"] = n_parts
    if len(job.variants) > 1:
        record["grid"] = training.state.grid
    model = LinearModel.of_shards(
        job.data,
        classes=job.classes,
        coef=chosen.coef,
        intercept=chosen.intercept,
        task=job.task,
        training=record,
        history=tuple(training.state.history),
    )
    if "validation" in scored and variant.loss.endswith("hinge"):
        record["calibration"] = calibrate(model, scored["validation"]())
    return model


def _descent_config(job: TrainingJob, rows: TrainingRows) -> DescentConfig:
    """Make the settings of the descent, with one pass over labels and weights if they are needed."""
    feature_map = job.data.map
    if feature_map.layout == "codes":
        code_bits, length = feature_map.code_bits, math.sqrt(feature_map.n_components)
    else:
        code_bits, length = 0, rows.row_length()
    facts: dict[str, Any] = {}
    if job.task == "regression" or job.held_out or job.solver.class_weight or rows.is_weighted:
        found = rows.statistics(job.classes)
        names = labels_named(job.classes.tolist(), job.data.spec["input"])
        weights = class_weights(job.solver.class_weight, names, found.class_counts)
        facts = {
            "class_weights": weights,
            "typical_weight": found.typical_weight(weights),
            "weight_scale": 1 / found.mean_weight,
        }
        if job.task == "regression":
            facts |= {"target_mean": found.label_mean, "target_scale": found.label_deviation or 1.0}
    return DescentConfig(
        task=job.task,
        classes=job.classes,
        variants=job.variants,
        average=job.solver.average,
        code_bits=code_bits,
        scale=1.0 if abs(length - 1) < UNIT_TOLERANCE else 1 / length,
        **facts,
    )


def _check_memory(config: DescentConfig, width: int, *, in_parts: bool) -> None:
    if width > MOST_COLUMNS:
        raise ConfigError(
            f"the features have {width:,} columns, more than {MOST_COLUMNS:,}; lower n_components or the bits of a code"
        )
    # float32: the tables of weights, and the returned model beside a second one while epochs are scored; with parts the
    # averages, the start of a round, and its sums, of which the second one comes when the start is gone
    tables = config.n_lanes * ((4 if in_parts else 3) if config.average else (3 if in_parts else 1))
    projected = 4 * width * (tables + 2 * config.n_outputs)
    what = f"training of {config.n_lanes:,} models with {width:,} columns"
    check_fits(projected, what, "lower n_components or the bits of a code, or train fewer alphas at once")


def _resolved(data: ShardDataset, solver: SGD, init: LinearModel | None = None) -> tuple[str, SGD]:
    """Check a solver against the shards; return the task and the solver without options that depend on them.

    Raises
    ------
    ConfigError
        For options that do not suit the labels.
    InputError
        If the shards hold no rows, no labels, or rows of one class only.
    """
    if init is not None:
        kind: Any = "regression" if init.task == "regression" else "classification"
        loss, epochs = solver.loss or init.training.get("loss"), solver.epochs or FEWEST_EPOCHS
        solver = replace(solver, task=kind if solver.task == "auto" else solver.task, loss=loss, epochs=epochs)
    task = task_of(data, solver.task, several(solver.loss))
    if init is not None:
        if (task == "regression") != (init.task == "regression"):
            raise SpecConflictError(f"init: a model of {init.task} cannot continue as a {task}; train a new model")
        task = init.task
    fit = REAL_LOSSES if task == "regression" else CLASS_LOSSES
    losses = fit[:1] if solver.loss is None else several(solver.loss)
    strange = [loss for loss in losses if loss not in fit]
    if strange:
        kind = "a regression" if task == "regression" else "classes"
        raise ConfigError(f"loss={strange[0]!r} is not a loss for {kind}; choose from {', '.join(fit)}")
    if solver.class_weight is not None and task in ("regression", "multilabel"):
        rows = "rows of a regression" if task == "regression" else "rows with lists of labels"
        raise ConfigError(f"class_weight={solver.class_weight!r}, but {rows} have no single class; leave it out")
    n_classes = 1 if init is not None else max(1, len(classes_of(data, task)))
    epochs = default_epochs(data.n_rows, n_classes) if solver.epochs is None else solver.epochs
    return task, replace(solver, loss=losses, epochs=epochs)


def default_epochs(n_rows: int, n_classes: int) -> int:
    """Return the number of epochs that process 150,000 rows for each class, but at least 5 and at most 40."""
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, math.ceil(n_classes * ROWS_PER_CLASS / n_rows)))
