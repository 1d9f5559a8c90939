"""Prediction as a job of the engine: its sources, its spec, the columns of its shards, and the model beside them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dkfeat.archives import pack_arrays
from dkfeat.blocks import PackedCodes, RowBlock
from dkfeat.engine.dataset.dataset import dataset_reader
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.resolve import PIECE_BYTES, inherit_row_options
from dkfeat.engine.tables import ORIGIN, origin_columns
from dkfeat.engine.tasks.job import Job, count_empty
from dkfeat.engine.tasks.process_cache import ProcessCache
from dkfeat.errors import ConfigError
from dkfeat.learn.checks import check_same_features
from dkfeat.learn.model import LinearModel
from dkfeat.sources.base import Source
from dkfeat.sources.formats import as_source
from dkfeat.store.manifest.metadata import landmarks_of, read_sidecar, sidecar_name, spec_text
from dkfeat.store.shards.columns import ARROW_TYPES, kinds, lists, required_table, to_table
from dkfeat.store.storage.base import META, Storage

if TYPE_CHECKING:
    from dkfeat.blocks import Split
    from dkfeat.sources.base import Piece


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
        is_encoded, scores = self.source.kind == "shards", bool(self.spec["output"]["scores"])
        return lambda X: prediction_table(model, score_rows(model, X, is_encoded=is_encoded), scores=scores)

    def kept(self, split: Split, piece: Piece, before: Sequence[int]) -> Mapping[str, Any]:
        """Return the columns that the source keeps, and the origin of each row."""
        return {**piece.block.kept, **origin_columns(self.source, split, piece, before)}

    def n_empty(self, piece: Piece, encoded: Any) -> int:  # noqa: ARG002 - encoded rows are predictions
        """Count the rows without features."""
        return count_empty(piece.block.X)


def prediction_spec(model: LinearModel, source: Source, *, scores: bool) -> dict[str, Any]:
    """Return all settings that determine the bytes of predictions, with the hash of the model, as plain JSON values."""
    mapping = source.to_mapping()
    spec = {
        "format": 1,
        "model": {
            "sha256": weights_sha256(model),
            "task": model.task,
            "loss": model.training.get("loss"),
            "classes": model.classes.tolist(),
        },
        "map": dict(model.map_spec),
        "input": mapping,
        "split": {"blocksize": mapping.get("blocksize"), "max_piece_rows": piece_rows(model, scores=scores)},
        "output": {
            "schema": 1,
            "layout": "predictions",
            "n_features_out": model.coef.shape[0],
            "row_bytes": _row_bytes(model, scores=scores),
            "scores": bool(scores),
        },
    }
    plain: dict[str, Any] = json.loads(spec_text(spec))  # tuples become the lists that are read back
    return plain


def piece_rows(model: LinearModel, *, scores: bool) -> int:
    """Return the number of rows that are scored, and whose predictions are held, at once."""
    return max(1, PIECE_BYTES // _row_bytes(model, scores=scores))


def _row_bytes(model: LinearModel, *, scores: bool) -> int:
    """Return the bytes of a row while it is scored: its features, its scores in both precisions, its predictions."""
    n_outputs = model.coef.shape[0]
    lists_a_row = (scores and model.task != "regression") * (2 if model.has_probabilities else 1)
    kept = _ORIGIN_BYTES + 4 * n_outputs * lists_a_row + (8 * n_outputs if model.task == "multilabel" else 0)
    return max(kept + 12 * n_outputs, model.map.encoded_row_bytes)


def score_rows(model: LinearModel, X: Any, *, is_encoded: bool) -> NDArray[np.float32]:
    """Compute the scores of raw rows, or of rows from shards of the model's map."""
    if is_encoded and not isinstance(X, PackedCodes):
        return model.score_features(X)
    return model.decision_function(X)


def prediction_schema(model: LinearModel, source: Source, *, scores: bool) -> dict[str, str]:
    """Return the columns and types of every shard of predictions.

    Raises
    ------
    ConfigError
        If a kept column of the source has the name of a column of predictions.
    """
    kept = dict(source.kept)
    taken = [name for name in kept if name in (*ORIGIN, *PREDICTED)]
    if taken:
        raise ConfigError(
            f"the source keeps a column {taken[0]!r}, but predictions have a column of that name; rename or drop it"
        )
    kept |= ORIGIN
    n_outputs = model.coef.shape[0]
    single = model.task in ("binary", "regression")
    no_scores = np.zeros(0 if single else (0, n_outputs), np.float32)
    block = RowBlock(
        X=prediction_table(model, no_scores, scores=scores),
        y=np.zeros(0, source.label_dtype) if source.has_labels else None,
        label_offsets=np.zeros(1, np.int64) if source.has_labels and source.multilabel else None,
        qid=np.zeros(0, np.int64) if source.query_id else None,
        weight=np.zeros(0) if source.has_weights else None,
        kept={name: pa.array([], ARROW_TYPES[kind]) for name, kind in kept.items()},
    )
    table, _ = to_table("predictions", block)
    return kinds(table.schema)


def prediction_table(model: LinearModel, values: NDArray[np.float32], *, scores: bool) -> pa.Table:
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


def model_file(model: LinearModel) -> dict[str, bytes]:
    """Return name and bytes of the file that holds the model's weights beside the spec."""
    data = _packed(model)
    return {f"{META}/{sidecar_name('model', hashlib.sha256(data).hexdigest())}": data}


def _packed(model: LinearModel) -> bytes:
    try:
        return pack_arrays({name: getattr(model, name) for name in ("classes", "coef", "intercept")})
    except ValueError as error:
        raise ConfigError(f"the weights cannot be stored beside the predictions: {error}") from error


def weights_sha256(model: LinearModel) -> str:
    """Return the hash that identifies a model's weights and classes in specs."""
    return hashlib.sha256(_packed(model)).hexdigest()


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


def prediction_source(
    model: LinearModel,
    source: Any,
    storage_options: Mapping[str, Any] | None = None,
) -> Source:
    """Resolve the source of predictions; `source` may be anything that `dkfeat.predict` accepts.

    Raises
    ------
    ConfigError
        If neither the model nor the source defines how rows are read.
    SpecConflictError
        If shards were made by another map, or the source sets other options than those of the training rows.
    """
    reader = dataset_reader(source, storage_options)
    if reader is not None:
        expected = {"map": model.map_spec, "input": model.input_spec}
        options = ("n_features", "zero_based")
        check_same_features(
            expected, reader.spec, shards=reader.storage.url, owner="the model's", like="MODEL", options=options
        )
        return ShardSource.of(reader)
    found = as_source(source, None if isinstance(source, Source) else storage_options)
    # float64, because unlabelled rows often have a placeholder; int64 if float64 cannot represent a class
    is_exact = np.array_equal(model.classes.astype(np.float64).astype(object), model.classes.astype(object))
    training = model.input_spec if "kind" in model.input_spec else {}
    if not training and found.n_features is None:
        found = found.replaced(n_features=model.map.n_features_in_)
    found = inherit_row_options(found, "the model", training, "float64" if is_exact else "int64")
    if not found.is_resolved:
        found = found.inspect(found.files())
    if not found.is_resolved:
        raise ConfigError("a source for predictions needs n_features, zero_based and label_dtype")
    return found
