"""The tasks of an evaluation: a split's rows are predicted, or predictions of them read, and counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.blocks import SourceFile, Split
from dkfeat.engine.rows import indicator
from dkfeat.engine.runners import Stopped
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.learn.judges import relabelled
from dkfeat.learn.model import LinearModel
from dkfeat.learn.predict_job import piece_rows, score_rows, weights_sha256
from dkfeat.learn.prediction_source import dataset_reader, prediction_source, refuse_blocksize
from dkfeat.learn.tallies import Tally, tally_for

if TYPE_CHECKING:
    from dkfeat.io.entries import ShardEntry
    from dkfeat.io.reader import ShardReader
    from dkfeat.io.source import Source

__all__ = ["PredictionsTask", "RowsTask", "evaluation_work"]


@dataclass(frozen=True, slots=True)
class RowsTask:
    """Predicts for the rows of a split, and counts."""

    model: LinearModel
    source: Source
    piece_rows: int

    def size(self, split: Split) -> int:
        """Bytes as stored."""
        return self.source.split_bytes(split)

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> Tally:
        """Count the rows of a split."""
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
class PredictionsTask:
    """Counts predictions that were made before."""

    model: LinearModel
    reader: ShardReader
    entries: Mapping[str, ShardEntry]

    def size(self, split: Split) -> int:
        """Bytes as stored."""
        return split.file.size

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> Tally:
        """Count the rows of a split."""
        tally = tally_for(self.model)
        entry = self.entries[split.file.name]
        most = int(self.reader.spec["split"]["max_piece_rows"])
        parts = self.reader.batches(entry, most) if entry.rows else iter(())
        for number, data in enumerate(parts):
            if stopped():
                raise Stopped
            scores = _kept_scores(self.model, data.kept)
            predicted = data.kept["prediction"] if scores is None else None
            _count(tally, self.model, data.y, data.label_offsets, scores, predicted, [split.number, number])
        return tally


def evaluation_work(
    model: LinearModel, source: Any, blocksize: int | str | None, storage_options: Mapping[str, Any] | None
) -> tuple[RowsTask | PredictionsTask, Sequence[Split]]:
    """Give what is done with each split, and the splits; raises as `dkfeat.evaluate` does."""
    reader = dataset_reader(source, storage_options)
    if reader is not None and reader.spec["output"]["layout"] == "predictions":
        _check_predictions(model, reader)
        refuse_blocksize(reader, blocksize)
        entries = {entry.name: entry for entry in reader.manifest.shards}
        splits = [
            Split(number=n, file=SourceFile(name=e.name, url="", size=e.size), start=0, stop=e.rows)
            for n, e in enumerate(entries.values())
        ]
        return PredictionsTask(model, reader, entries), splits
    found = prediction_source(model, source, blocksize, storage_options)
    if not found.has_labels:
        _refuse_unlabelled()
    if bool(found.multilabel) != (model.task == "multilabel"):
        have = "lists of labels" if found.multilabel else "one label each"
        message = f"the rows have {have}, but the model is {model.task}"
        raise ConfigError(message)
    return RowsTask(model, found, piece_rows(model, scores=True)), found.splits()


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
    probabilities = None if scores is None or not model.has_probabilities else model.probabilities(scores)
    tally.add(own, predicted, scores, probabilities, seed)


def _indicator(y: NDArray[Any], offsets: NDArray[np.int64], classes: NDArray[Any]) -> Any:
    """Make the indicator matrix of label lists, in the model's classes as `relabelled` has them."""
    present = np.unique(y)
    return relabelled(indicator(y, offsets, present), present, classes)
