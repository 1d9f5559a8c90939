"""Evaluation of a model's predictions by counts, made split by split in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.blocks import SourceFile, Split
from dkfeat.engine.dataset.dataset import dataset_reader
from dkfeat.engine.dataset.rows import indicator
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.runners.local import InOrder, Stopped
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.learn.evaluate.accumulators import Accumulator, Batch, accumulator_for
from dkfeat.learn.evaluate.result import Evaluation, evaluation_of
from dkfeat.learn.model import LinearModel, load_model
from dkfeat.learn.predict_job import piece_rows, prediction_source, score_rows, weights_sha256
from dkfeat.learn.sgd.rows import align_labels

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.sources.base import Source
    from dkfeat.store.manifest.records import ShardEntry
    from dkfeat.store.shards.reader import ShardReader


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
    if not isinstance(model, LinearModel):
        model = load_model(fspath(model), storage_options=storage_options)
    task, splits = _task_and_splits(model, source, storage_options)
    total: Any = accumulator_for(model)
    size = sum(map(task.size, splits))
    with (
        open_runner(client) as runner,
        Progress(progress).stage("evaluate", total_tasks=len(splits), total_bytes=size) as stage,
    ):
        merge = InOrder(total.merge)  # so that sums do not depend on the order in which tasks end

        def done(split: Split, found: Accumulator) -> None:
            merge(split, found)
            stage.advance(rows=found.n_rows, source_bytes=task.size(split))

        runner.run(task, splits, done)
    return evaluation_of(total)


@dataclass(frozen=True, slots=True)
class _Task:
    """Task that counts the rows of a split, piece by piece."""

    model: LinearModel

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> Accumulator:
        """Count the rows of a split."""
        counts, model = accumulator_for(self.model), self.model
        for number, y, offsets, scores, predicted in self.pieces(split):
            if stopped():
                raise Stopped
            if scores is not None:
                predicted = model.label(scores)
            probabilities = None if scores is None or not model.has_probabilities else model.probabilities(scores)
            y_true = y if offsets is None else _label_matrix(y, offsets, model.classes)
            counts.add(Batch(y_true, predicted, scores, probabilities, [split.number, number]))
        return counts

    def pieces(self, split: Split) -> Iterator[tuple[int, Any, Any, Any, Any]]:
        """Yield the number of each piece, its labels, their offsets, and scores or else predictions."""
        raise NotImplementedError

    def size(self, split: Split) -> int:
        """Return the stored size of a split in bytes."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RowsTask(_Task):
    """Task that predicts for the rows of a source."""

    source: Source

    def pieces(self, split: Split) -> Iterator[tuple[int, Any, Any, Any, Any]]:
        """Yield the pieces of a split with scores."""
        is_encoded = self.source.kind == "shards"
        for piece in self.source.read(split, piece_rows(self.model, scores=True), checksum=False):
            block = piece.block
            yield (
                piece.number,
                block.y,
                block.label_offsets,
                score_rows(self.model, block.X, is_encoded=is_encoded),
                None,
            )

    def size(self, split: Split) -> int:
        """Return the stored size of a split in bytes."""
        return self.source.split_bytes(split)


@dataclass(frozen=True, slots=True)
class PredictionsTask(_Task):
    """Task that reads existing predictions; a split is one file of them."""

    reader: ShardReader
    entries: Mapping[str, ShardEntry]

    def pieces(self, split: Split) -> Iterator[tuple[int, Any, Any, Any, Any]]:
        """Yield pieces with stored scores, or with predictions if scores were not stored."""
        entry = self.entries[split.file.name]
        most = int(self.reader.spec["split"]["max_piece_rows"])
        for number, data in enumerate(self.reader.batches(entry, most) if entry.rows else ()):
            yield number, data.y, data.label_offsets, *_stored_predictions(self.model, data.kept)

    def size(self, split: Split) -> int:
        """Return the stored size of a split in bytes."""
        return split.file.size


def _task_and_splits(
    model: LinearModel, source: Any, storage_options: Mapping[str, Any] | None
) -> tuple[RowsTask | PredictionsTask, Sequence[Split]]:
    reader = dataset_reader(source, storage_options)
    if reader is not None and reader.spec["output"]["layout"] == "predictions":
        _check_labels("label" in reader.manifest.schema)
        if reader.spec["model"]["sha256"] != weights_sha256(model):
            raise SpecConflictError(
                f"{reader.storage.url} was predicted by another model; give that one, or predict again"
            )
        entries = {entry.name: entry for entry in reader.manifest.shards}
        splits = [
            Split(number=n, file=SourceFile(name=e.name, url="", size=e.size), start=0, stop=e.rows)
            for n, e in enumerate(entries.values())
        ]
        return PredictionsTask(model, reader, entries), splits
    rows = prediction_source(model, source, storage_options)
    _check_labels(rows.has_labels)
    if bool(rows.multilabel) != (model.task == "multilabel"):
        have = "lists of labels" if rows.multilabel else "one label each"
        raise ConfigError(f"the rows have {have}, but the model is {model.task}")
    return RowsTask(model, rows), rows.splits()


def _check_labels(has_labels: bool) -> None:
    if not has_labels:
        raise ConfigError("the rows have no labels to compare with; name the label column, or give labelled rows")


def _stored_predictions(model: LinearModel, kept: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return stored scores, equal to those of ``decision_function``, and predictions if there are no scores."""
    column = kept["prediction"]
    if "score" in kept or model.task == "regression":
        return np.asarray(kept.get("score", column).to_numpy()), None
    if "scores" in kept:
        return np.asarray(kept["scores"].flatten().to_numpy()).reshape(-1, model.coef.shape[0]), None
    if model.task != "multilabel":
        return None, column.to_numpy()
    labels, starts = column.flatten().to_numpy(), column.offsets.to_numpy()
    return None, indicator(labels, starts - starts[0], model.classes)


def _label_matrix(y: NDArray[Any], offsets: NDArray[np.int64], classes: NDArray[Any]) -> Any:
    """Make the indicator matrix of label lists, with the model's classes in the order of `align_labels`."""
    present = np.unique(y)
    return align_labels(indicator(y, offsets, present), present, classes)
