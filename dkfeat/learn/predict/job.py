"""Predictions as the shards of a job: their spec, their columns, and the model beside them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dkfeat.archives import pack_arrays
from dkfeat.blocks import PackedCodes
from dkfeat.engine.resolve.resolve import PIECE_BYTES
from dkfeat.engine.tasks.job import Job
from dkfeat.engine.tasks.process_cache import ProcessCache
from dkfeat.errors import ConfigError
from dkfeat.io.manifest.metadata import landmarks_of, read_sidecar, sidecar_name, spec_text
from dkfeat.io.shards.columns import KEPT_TYPES, kinds, lists, to_table
from dkfeat.io.storage.base import META, Storage
from dkfeat.learn.model.model import LinearModel

if TYPE_CHECKING:
    from dkfeat.blocks import Split
    from dkfeat.io.sources.base import Piece, Source


ORIGIN = ("source_file", "source_split", "source_row")
"""Columns that tell where a row comes from."""
PREDICTED = ("prediction", "score", "probability", "scores", "probabilities")

_ORIGIN_BYTES = 64
"""Of a row's label, prediction and origin, about."""

_models = ProcessCache[LinearModel](2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictJob(Job):
    """A job whose shards hold predictions; each process loads the model from beside the spec."""

    @property
    def keeps_labels(self) -> bool:
        """True for rows that have labels of their own."""
        return self.source.has_labels

    def encoder(self) -> Callable[[Any], Any]:
        """Give what turns rows into columns of predictions."""
        model = _models.get((self.storage.url, self.spec_fp), lambda: _load(self.spec, self.storage))
        is_encoded = self.source.kind == "shards"
        return partial(_predicted, model, is_encoded, bool(self.spec["output"]["scores"]))

    def kept(self, split: Split, piece: Piece, before: Sequence[int]) -> Mapping[str, Any]:
        """Columns that the source keeps, and where each row comes from."""
        origins = self.source.origins(split, piece, before)
        counts = [origin.n_rows for origin in origins]
        rows = [np.arange(origin.first, origin.first + origin.n_rows) for origin in origins]
        names = pa.array([origin.file for origin in origins], pa.string())
        columns = {
            "source_file": names.take(pa.array(np.repeat(np.arange(len(counts)), counts))),
            "source_split": pa.array(np.repeat(np.array([o.split for o in origins], np.int64), counts)),
            "source_row": pa.array(np.concatenate([np.empty(0, np.int64), *rows])),
        }
        return {**piece.block.kept, **columns}


def prediction_spec(model: LinearModel, source: Source, *, scores: bool) -> dict[str, Any]:
    """All that decides the bytes of predictions, as plain JSON values; the model by its hash."""
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
    """Rows of a piece that is scored, and whose predictions are kept, at once."""
    return max(1, PIECE_BYTES // _row_bytes(model, scores=scores))


def _row_bytes(model: LinearModel, *, scores: bool) -> int:
    """Bytes that are held of a row while it is scored: its features, its scores in both precisions, its predictions."""
    n_outputs = model.coef.shape[0]
    lists_a_row = (scores and model.task != "regression") * (2 if model.has_probabilities else 1)
    kept = _ORIGIN_BYTES + 4 * n_outputs * lists_a_row + (8 * n_outputs if model.task == "multilabel" else 0)
    return max(kept + 12 * n_outputs, model.map.encoded_row_bytes)


def score_rows(model: LinearModel, X: Any, *, is_encoded: bool) -> NDArray[np.float32]:
    """Scores of raw rows, or of rows as shards of the model's map hold them."""
    if is_encoded and not isinstance(X, PackedCodes):
        return model.score_features(X)
    return model.decision_function(X)


def prediction_schema(model: LinearModel, source: Source, *, scores: bool) -> dict[str, str]:
    """Columns and types of every shard of predictions.

    Raises
    ------
    ConfigError
        A kept column of the source has the name of another.
    """
    kept = dict(source.kept)
    taken = [name for name in kept if name in (*ORIGIN, *PREDICTED)]
    if taken:
        raise ConfigError(
            f"the source keeps a column {taken[0]!r}, as predictions have one themselves; rename or drop it"
        )
    kept |= {"source_file": "string", "source_split": "int64", "source_row": "int64"}
    n_outputs = model.coef.shape[0]
    single = model.task in ("binary", "regression")
    table, _ = to_table(
        "predictions",
        prediction_columns(model, np.zeros(0 if single else (0, n_outputs), np.float32), scores=scores),
        np.zeros(0, source.label_dtype) if source.has_labels else None,
        np.zeros(1, np.int64) if source.has_labels and source.multilabel else None,
        np.zeros(0, np.int64) if source.query_id else None,
        weight=np.zeros(0) if source.has_weights else None,
        kept={name: pa.array([], KEPT_TYPES[kind]) for name, kind in kept.items()},
    )
    return kinds(table.schema)


def prediction_columns(model: LinearModel, values: NDArray[np.float32], *, scores: bool) -> dict[str, pa.Array]:
    """Columns of predictions, from what ``model.decision_function`` gives.

    ``prediction``: a label, a list of labels, or a number. With `scores`, for two classes ``score`` and, after
    log_loss, ``probability``, both of the second class; for more, and for lists of labels, ``scores`` and
    ``probabilities``, lists in the order of the classes.
    """
    found = model.label(values)
    if model.task == "multilabel":
        columns = {"prediction": lists(found.indptr, pa.array(model.classes[found.indices]))}
    else:
        columns = {"prediction": pa.array(np.ascontiguousarray(found))}
    if not scores or model.task == "regression":
        return columns
    probabilities = model.probabilities(values).astype(np.float32) if model.has_probabilities else None
    if model.task == "binary":
        columns["score"] = pa.array(values)
        if probabilities is not None:
            columns["probability"] = pa.array(np.ascontiguousarray(probabilities[:, 1]))
        return columns
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.shape[1]
    columns["scores"] = lists(offsets, pa.array(np.ascontiguousarray(values).ravel()))
    if probabilities is not None:
        columns["probabilities"] = lists(offsets, pa.array(probabilities.ravel()))
    return columns


def model_file(model: LinearModel) -> dict[str, bytes]:
    """Bytes of the file that holds the model's weights beside the spec, by its name."""
    data = _packed(model)
    return {f"{META}/{sidecar_name('model', hashlib.sha256(data).hexdigest())}": data}


def _predicted(model: LinearModel, is_encoded: bool, scores: bool, X: Any) -> dict[str, pa.Array]:
    return prediction_columns(model, score_rows(model, X, is_encoded=is_encoded), scores=scores)


def _packed(model: LinearModel) -> bytes:
    try:
        return pack_arrays({name: getattr(model, name) for name in ("classes", "coef", "intercept")})
    except ValueError as error:
        raise ConfigError(f"the weights cannot be sent to where predictions are made: {error}") from error


def weights_sha256(model: LinearModel) -> str:
    """Hash that names a model's weights and classes in specs."""
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
    model.map  # noqa: B018 - made now, while other threads wait
    return model
