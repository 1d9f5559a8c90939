"""Job of predictions: its spec, and the columns that its tasks make from rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dkfeat.archives import pack_arrays
from dkfeat.blocks import PackedCodes, RowBlock
from dkfeat.engine.resolve import PIECE_BYTES, make_spec
from dkfeat.engine.runners.base import ProcessCache
from dkfeat.engine.tables import ORIGIN, origin_columns
from dkfeat.engine.tasks.job import Job
from dkfeat.errors import ConfigError
from dkfeat.learn.model import LinearModel
from dkfeat.sources.base import Source
from dkfeat.store.manifest.metadata import landmarks_of, read_sidecar
from dkfeat.store.shards.columns import ARROW_TYPES, kinds, lists, required_table, to_table
from dkfeat.store.storage.base import Storage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.sources.pieces import Piece


PREDICTED = ("prediction", "score", "probability", "scores", "probabilities")

_ORIGIN_BYTES = 64
"""Approximate bytes of a row's label, prediction and origin."""

_models = ProcessCache[LinearModel](2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictJob(Job):
    """Job whose shards hold predictions; each process loads the model that is stored beside the spec."""

    @property
    def keeps_labels(self) -> bool:
        """True if the rows of the source have labels."""
        return self.source.has_labels

    def encoder(self) -> Callable[[Any], Any]:
        """Return the function that turns rows into columns of predictions."""
        model = _models.get((self.storage.url, self.spec_fp), lambda: _load(self.spec, self.storage))
        scores = bool(self.spec["output"]["scores"])
        return lambda X: _table(model, score_rows(model, self.source, X), scores=scores)

    def block(self, split: Split, piece: Piece, encoded: Any, before: Sequence[int]) -> RowBlock:
        """Return the columns that the source keeps, and the origin of each row."""
        made = Job.block(self, split, piece, encoded, before)
        return replace(made, kept={**made.kept, **origin_columns(self.source, split, piece, before)})

    def counts(self, piece: Piece, encoded: Any) -> dict[str, Any]:  # noqa: ARG002 - encoded rows are predictions
        """Count the rows without features."""
        return Job.counts(self, piece, piece.block.X)


def prediction_spec(model: LinearModel, source: Source, sha256: str, *, scores: bool) -> dict[str, Any]:
    """Return all settings that determine the bytes of predictions, with the hash of the model, as plain JSON values."""
    loss, classes = model.training.get("loss"), model.classes.tolist()
    output = {
        "layout": "predictions",
        "n_features_out": model.coef.shape[0],
        "row_bytes": _row_bytes(model, scores=scores),
        "scores": bool(scores),
    }
    return make_spec(
        model.map_spec,
        source.to_mapping(),
        output,
        piece_rows=piece_rows(model, scores=scores),
        model={"sha256": sha256, "task": model.task, "loss": loss, "classes": classes},
    )


def piece_rows(model: LinearModel, *, scores: bool) -> int:
    """Return the number of rows that are scored, and whose predictions are held, at once."""
    return max(1, PIECE_BYTES // _row_bytes(model, scores=scores))


def _row_bytes(model: LinearModel, *, scores: bool) -> int:
    """Return the bytes of a row while it is scored: its features, its scores in both precisions, its predictions."""
    n_outputs = model.coef.shape[0]
    lists_a_row = (scores and model.task != "regression") * (2 if model.has_probabilities else 1)
    kept = _ORIGIN_BYTES + 4 * n_outputs * lists_a_row + (8 * n_outputs if model.task == "multilabel" else 0)
    return max(kept + 12 * n_outputs, model.map.encoded_row_bytes)


def score_rows(model: LinearModel, source: Source, X: Any) -> NDArray[np.float32]:
    """Compute the scores of raw rows, or of rows from shards of the model's map."""
    if source.kind == "shards" and not isinstance(X, PackedCodes):
        return model.score_features(X)
    return model.decision_function(X)


def prediction_schema(model: LinearModel, source: Source, *, scores: bool) -> dict[str, str]:
    """Return the columns and types of every shard of predictions.

    Raises
    ------
    ConfigError
        If a kept column of the source has the name of a column of predictions.
    """
    if taken := [name for name in source.kept if name in (*ORIGIN, *PREDICTED)]:
        raise ConfigError(
            f"the source keeps a column {taken[0]!r}, but predictions have a column of that name; rename or drop it"
        )
    no_scores = np.zeros(0 if model.task in ("binary", "regression") else (0, model.coef.shape[0]), np.float32)
    block = RowBlock(
        X=_table(model, no_scores, scores=scores),
        y=np.zeros(0, source.label_dtype) if source.has_labels else None,
        label_offsets=np.zeros(1, np.int64) if source.has_labels and source.multilabel else None,
        qid=np.zeros(0, np.int64) if source.query_id else None,
        weight=np.zeros(0) if source.has_weights else None,
        kept={name: pa.array([], ARROW_TYPES[kind]) for name, kind in {**source.kept, **ORIGIN}.items()},
    )
    table, _ = to_table("predictions", block)
    return kinds(table.schema)


def _table(model: LinearModel, values: NDArray[np.float32], *, scores: bool) -> pa.Table:
    """Make the columns of predictions from the output of ``model.decision_function``.

    ``prediction``: a label, a list of labels, or a number. With `scores`, a model of two classes adds ``score`` of the
    second class, and a model of more classes or of lists of labels adds ``scores``, a list in the order of the classes.
    A model trained with log_loss also adds ``probability`` or ``probabilities`` in the same form. Regression adds
    nothing.
    """
    found = model.label(values)
    if model.task == "multilabel":
        columns = {"prediction": lists(found.indptr, pa.array(model.classes[found.indices]))}
    else:
        columns = {"prediction": pa.array(np.ascontiguousarray(found))}
    if not scores or model.task == "regression":
        return required_table(columns)
    probabilities = model.probabilities(values).astype(np.float32) if model.has_probabilities else None
    if model.task == "binary":
        columns["score"] = pa.array(values)
        if probabilities is not None:
            columns["probability"] = pa.array(np.ascontiguousarray(probabilities[:, 1]))
        return required_table(columns)
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.shape[1]
    columns["scores"] = lists(offsets, pa.array(np.ascontiguousarray(values).ravel()))
    if probabilities is not None:
        columns["probabilities"] = lists(offsets, pa.array(probabilities.ravel()))
    return required_table(columns)


def packed_model(model: LinearModel) -> tuple[str, bytes]:
    """Return the hash and the bytes of the file that holds a model's weights and classes beside the spec."""
    try:
        data = pack_arrays({name: getattr(model, name) for name in ("classes", "coef", "intercept")})
    except ValueError as error:
        raise ConfigError(f"the weights cannot be stored beside the predictions: {error}") from error
    return hashlib.sha256(data).hexdigest(), data


def _load(spec: Mapping[str, Any], storage: Storage) -> LinearModel:
    facts = spec["model"]
    arrays = read_sidecar(storage, "model", facts["sha256"])
    landmarks = landmarks_of(spec)
    model = LinearModel(
        map_spec=spec["map"],
        map_arrays={} if landmarks is None else read_sidecar(storage, "landmarks", landmarks),
        classes=arrays["classes"],
        coef=arrays["coef"],
        intercept=arrays["intercept"],
        task=facts["task"],
        training={"loss": facts["loss"]},
    )
    model.map  # noqa: B018 - loaded now, while other threads wait
    return model
