"""How good a model's predictions are, over rows of any number: counted where they are, split by split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.blocks import SourceFile, Split
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.rows import indicator
from dkfeat.engine.runners import Stopped, open_runner
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.learn.evaluation import Evaluation, evaluation_of
from dkfeat.learn.judges import relabelled
from dkfeat.learn.model import LinearModel, load_model
from dkfeat.learn.predict import score_rows
from dkfeat.learn.predict_job import prediction_spec, weights_sha256
from dkfeat.learn.prediction_source import dataset_reader, prediction_source
from dkfeat.learn.tallies import Tally, tally_for

if TYPE_CHECKING:
    from dask.distributed import Client

    from dkfeat.engine.dataset import ShardDataset
    from dkfeat.io.entries import ShardEntry
    from dkfeat.io.reader import ShardReader
    from dkfeat.io.source import Source

__all__ = ["evaluate"]

ROWS_AT_A_TIME = 65_536


def evaluate(
    model: LinearModel | str | PathLike[str],
    source: Source | ShardDataset | str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    blocksize: int | str | None = None,
    client: Client | None = None,
    scheduler: str | None = None,
    n_workers: int | None = None,
    threads_per_worker: int | None = None,
    memory_limit: int | str | None = None,
    in_flight: int | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Evaluation:
    r"""Compare a model's predictions with the labels that rows have. Nothing is written.

    Parameters
    ----------
    model : LinearModel, str or path
        The model or its folder.
    source : Source, ShardDataset, path, glob, URL, or a list of these
        Rows with labels: text, Parquet or shards, as for `dkfeat.predict`; or what that wrote for this model, which
        is read without predicting again.
    blocksize : int or str, optional
        As in `dkfeat.predict`.
    client, scheduler, n_workers, threads_per_worker, memory_limit, in_flight, progress
        Where it runs, as in `dkfeat.featurize`.
    storage_options : mapping or None
        For sources given by URL.

    Returns
    -------
    evaluation : Evaluation
        ``to_mapping()`` gives all figures as plain values, ``save(folder)`` writes them with plots and an HTML page.

    Raises
    ------
    dkfeat.errors.ConfigError
        The rows have no labels.
    dkfeat.errors.InputError
        There are no rows, or none whose label the model knows.
    dkfeat.errors.SpecConflictError
        The shards come from another map, or the predictions from another model.

    Notes
    -----
    Memory does not grow with the rows. What is kept: the counts of pairs of own and predicted label; for curves up to
    65,536 different scores of each class (fewer with more than 8 classes, none with more than 256), beyond which
    neighbouring scores count as equal, and ``auc_error`` bounds what that can change; ten bins of probabilities; and
    for a regression 5,000 rows drawn at random, for its picture alone. All other figures are exact.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", gcws, folder / "features", progress=False)
    >>> model = dkfeat.train(folder / "features", progress=False)
    >>> evaluation = dkfeat.evaluate(model, folder / "rows.svm", progress=False)
    >>> evaluation.summary["accuracy"], evaluation.summary["auc"]
    (1.0, 1.0)
    """
    if not isinstance(model, LinearModel):
        model = load_model(fspath(model))
    task, splits = _work(model, source, blocksize, storage_options)
    total = tally_for(model)
    waiting: dict[int, Tally] = {}
    with (
        open_runner(
            client,
            scheduler,
            n_workers=n_workers,
            threads_per_worker=threads_per_worker,
            memory_limit=memory_limit,
            in_flight=in_flight,
        ) as runner,
        Progress(progress).stage("evaluate", total_tasks=len(splits), total_bytes=sum(map(task.size, splits))) as stage,
    ):
        merged = 0

        def done(split: Split, tally: Tally) -> None:
            nonlocal merged
            waiting[split.number] = tally
            while merged in waiting:  # in order, so that sums come out the same however tasks end
                total.merge(waiting.pop(merged))  # type: ignore[arg-type]  # all are of the model's task
                merged += 1
            stage.advance(rows=tally.n_rows, source_bytes=task.size(split))

        runner.run(task, splits, done)
    return evaluation_of(total)


@dataclass(frozen=True, slots=True)
class _RowsTask:
    """Predicts for the rows of a split, and counts."""

    model: LinearModel
    source: Source
    piece_rows: int

    def size(self, split: Split) -> int:
        """Bytes as stored."""
        return self.source.split_bytes(split)

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> Tally:
        tally = tally_for(self.model)
        is_encoded = self.source.kind == "shards"
        pieces = self.source.read(split, self.piece_rows, checksum=False)
        while (piece := next(pieces, None)) is not None:
            if stopped():
                raise Stopped
            block = piece.block
            scores = score_rows(self.model, block.X, is_encoded=is_encoded)
            _count(tally, self.model, block.y, block.label_offsets, scores, None, [split.number, piece.number])
            del piece, block
        return tally


@dataclass(frozen=True, slots=True)
class _PredictionsTask:
    """Counts predictions that were made before."""

    model: LinearModel
    reader: ShardReader
    entries: Mapping[str, ShardEntry]

    def size(self, split: Split) -> int:
        """Bytes as stored."""
        return split.file.size

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> Tally:
        tally = tally_for(self.model)
        entry = self.entries[split.file.name]
        parts = self.reader.batches(entry, ROWS_AT_A_TIME) if entry.rows else iter(())
        for number, data in enumerate(parts):
            if stopped():
                raise Stopped
            scores = _kept_scores(self.model, data.kept)
            predicted = data.kept["prediction"] if scores is None else None
            _count(tally, self.model, data.y, data.label_offsets, scores, predicted, [split.number, number])
        return tally


def _work(
    model: LinearModel, source: Any, blocksize: int | str | None, storage_options: Mapping[str, Any] | None
) -> tuple[_RowsTask | _PredictionsTask, Sequence[Split]]:
    reader = dataset_reader(source, storage_options)
    if reader is not None and reader.spec["output"]["layout"] == "predictions":
        _check_predictions(model, reader)
        entries = {entry.name: entry for entry in reader.manifest.shards}
        splits = [
            Split(number=n, file=SourceFile(name=e.name, url="", size=e.size), start=0, stop=e.rows)
            for n, e in enumerate(entries.values())
        ]
        return _PredictionsTask(model, reader, entries), splits
    found = prediction_source(model, source, blocksize, storage_options)
    if not found.has_labels:
        _refuse_unlabelled()
    if bool(found.multilabel) != (model.task == "multilabel"):
        have = "lists of labels" if found.multilabel else "one label each"
        message = f"the rows have {have}, but the model is {model.task}"
        raise ConfigError(message)
    rows = int(prediction_spec(model, found, scores=True)["split"]["max_piece_rows"])
    return _RowsTask(model, found, rows), found.splits()


def _check_predictions(model: LinearModel, reader: ShardReader) -> None:
    if "label" not in reader.manifest.schema:
        _refuse_unlabelled()
    if reader.spec["model"]["sha256"] != weights_sha256(model):
        message = f"{reader.storage.url} was predicted by another model; give that one, or predict again"
        raise SpecConflictError(message)


def _refuse_unlabelled() -> None:
    message = "the rows have no labels to compare with; name their column, or give rows that have some"
    raise ConfigError(message)


def _kept_scores(model: LinearModel, kept: Mapping[str, Any]) -> NDArray[np.float32] | None:
    """Scores as ``decision_function`` gives them; None where they were left out."""
    if model.task == "regression":
        return np.asarray(kept["prediction"].to_numpy())
    if "score" in kept:
        return np.asarray(kept["score"].to_numpy())
    if "scores" in kept:
        return np.asarray(kept["scores"].flatten().to_numpy()).reshape(-1, model.coef.shape[0])
    return None


def _count(
    tally: Tally,
    model: LinearModel,
    y: Any,
    offsets: NDArray[np.int64] | None,
    scores: NDArray[np.float32] | None,
    predicted: Any,
    seed: Any,
) -> None:
    """Count rows, whose predictions come from their scores, or as a column where there are none."""
    if scores is not None:
        predicted = model.label(scores)
    elif model.task == "multilabel":
        flat, starts = predicted.flatten().to_numpy(), predicted.offsets.to_numpy()
        predicted = indicator(flat, starts - starts[0], model.classes)
    else:
        predicted = predicted.to_numpy()
    own = y if offsets is None else _indicator(y, offsets, model.classes)
    probabilities = None
    if scores is not None and model.task != "regression" and model.training.get("loss") == "log_loss":
        probabilities = model.probabilities(scores)
    tally.add(own, predicted, scores, probabilities, seed)


def _indicator(y: NDArray[Any], offsets: NDArray[np.int64], classes: NDArray[Any]) -> Any:
    """Make the indicator matrix of label lists, in the model's classes as `relabelled` has them."""
    present = np.unique(y)
    return relabelled(indicator(y, offsets, present), present, classes)
