"""Evaluation of a model's predictions, split by split in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.engine.dataset.dataset import dataset_reader
from dkfeat.engine.dataset.rows import indicator
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.runners.base import InOrder, until_stopped
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.learn.evaluate.accumulators import Accumulator, accumulator_for
from dkfeat.learn.evaluate.evaluation import Evaluation
from dkfeat.learn.explain import explain_sample
from dkfeat.learn.model import LinearModel, load_model
from dkfeat.learn.predict import packed_model, piece_rows, prediction_source, score_rows
from dkfeat.learn.sgd.rows import align_labels

if TYPE_CHECKING:
    from dask.distributed import Client

    from dkfeat.blocks import RowBlock, Split
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.maps import FeatureMap
    from dkfeat.sources.base import Source


PREDICTIONS = "predictions"
"""Layout of the output of `dkfeat.predict`."""


def evaluate(
    model: LinearModel | str | PathLike[str],
    source: Source | ShardDataset | str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    client: Client | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Evaluation:
    r"""Compare a model's predictions with the labels of rows. Nothing is written.

    Parameters
    ----------
    model : LinearModel, str or path
        The model, or its folder or URL.
    source : Source, ShardDataset, path, glob, URL, or a list of these
        Rows with labels: text, Parquet or shards, as for `dkfeat.predict`; or the output of `dkfeat.predict` for this
        model, whose stored predictions are used unchanged.
    client : distributed.Client or None, default=None
        Cluster to run on, as in `dkfeat.featurize`.
    progress : bool or callable, default=True
        Progress report, as in `dkfeat.featurize`.
    storage_options : mapping or None
        Options of fsspec for sources and a model given by URL.

    Returns
    -------
    evaluation : Evaluation
        ``to_mapping()`` gives all counts and scores as plain values, ``save(folder)`` writes them with plots and an
        HTML page.

    Raises
    ------
    dkfeat.errors.ConfigError
        If the rows have no labels.
    dkfeat.errors.InputError
        If there are no rows, or none whose label is among the model's classes.
    dkfeat.errors.SpecConflictError
        If the shards were made by another map, or the predictions by another model.

    Notes
    -----
    Memory does not grow with the number of rows. It holds counts by true and predicted label; for the curves, up to
    65,536 different scores of each class (fewer with more than 8 classes, none with more than 256); ten bins of
    probabilities; and for a regression 5,000 random rows, used only for the plots. Beyond the limit of scores,
    neighbouring scores count as equal, and ``auc_error`` bounds the resulting error. All other counts and scores are
    exact. All rows count alike; row weights are ignored.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", gcws, progress=False)
    >>> model = dkfeat.train(folder / "features", progress=False)
    >>> evaluation = dkfeat.evaluate(model, folder / "rows.svm", progress=False)
    >>> evaluation.summary["accuracy"], evaluation.summary["auc"]
    (1.0, 1.0)
    """
    model = load_model(model, storage_options=storage_options)
    rows = _labelled_rows(model, source, storage_options)
    splits = rows.splits()
    total = accumulator_for(model)
    with (
        open_runner(client) as runner,
        Progress(progress).stage(
            "evaluate", total_tasks=len(splits), total_bytes=sum(map(rows.split_bytes, splits))
        ) as stage,
    ):
        merge = InOrder(total.merge)  # so that sums do not depend on the order in which tasks end

        def done(split: Split, found: Accumulator) -> None:
            merge(split, found)
            stage.advance(rows=found.n_rows, source_bytes=rows.split_bytes(split))

        runner.run(_CountTask(model, rows), splits, done)
    if total.n_rows == total.n_unknown:
        message = f"the model knows the label of none of the {total.n_rows:,} rows"
        raise InputError(message if total.n_rows else "there are no rows to evaluate")
    return replace(total.evaluation(), explanation=explain_sample(model, rows))


def _labelled_rows(model: LinearModel, source: Any, storage_options: Mapping[str, Any] | None) -> Source:
    """Resolve the source of an evaluation: rows to predict for, or the output of a prediction."""
    reader = dataset_reader(source, storage_options)
    rows: Source
    if reader is not None and reader.spec["output"]["layout"] == PREDICTIONS:
        if reader.spec["model"]["sha256"] != packed_model(model)[0]:
            raise SpecConflictError(
                f"{reader.storage.url} was predicted by another model; give that one, or predict again"
            )
        rows = ShardSource.of(reader, layouts=(PREDICTIONS,))
    else:
        rows = prediction_source(model, source, storage_options)
    if not rows.has_labels:
        remedy = "featurize or predict" if isinstance(rows, ShardSource) else "name the label column, or give"
        raise ConfigError(f"the rows have no labels to compare with; {remedy} labelled rows")
    if bool(rows.multilabel) != (model.task == "multilabel"):
        have = "lists of labels" if rows.multilabel else "one label each"
        raise ConfigError(f"the rows have {have}, but the model is {model.task}")
    return rows


@dataclass(frozen=True, slots=True)
class _CountTask:
    """Task that counts the rows of a split, piece by piece."""

    model: LinearModel
    source: Source
    """Rows to predict for, or shards of predictions."""

    @property
    def map(self) -> FeatureMap:
        """Map of the model."""
        return self.model.map

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> Accumulator:
        counts, model = accumulator_for(self.model), self.model
        for piece in until_stopped(self.source.read(split, piece_rows(model, scores=True), checksum=False), stopped):
            block = piece.block
            scores, predicted = self._scores(block)
            if scores is not None:
                predicted = model.label(scores)
            probabilities = None if scores is None or not model.has_probabilities else model.probabilities(scores)
            y = self.source.numbered(block.y)
            if block.label_offsets is not None:  # the indicator matrix, with the model's classes as in `align_labels`
                present = np.unique(y)
                y = align_labels(indicator(y, block.label_offsets, present), present, model.classes)
            counts.add(y, predicted, scores, probabilities, seed=[split.number, piece.number])
        return counts

    def _scores(self, block: RowBlock) -> tuple[Any, Any]:
        """Return the scores of rows, equal to those of ``decision_function``; if none were stored, predictions."""
        model, stored = self.model, block.kept
        if not isinstance(self.source, ShardSource) or self.source.reader.spec["output"]["layout"] != PREDICTIONS:
            return score_rows(model, self.source, block.X), None
        column = stored["prediction"]
        if "score" in stored or model.task == "regression":
            return np.asarray(stored.get("score", column).to_numpy()), None
        if "scores" in stored:
            return np.asarray(stored["scores"].flatten().to_numpy()).reshape(-1, model.coef.shape[0]), None
        if model.task != "multilabel":
            return None, self.source.numbered(column.to_numpy(zero_copy_only=False))
        labels, starts = column.flatten().to_numpy(zero_copy_only=False), column.offsets.to_numpy()
        return None, indicator(self.source.numbered(labels), starts - starts[0], model.classes)
