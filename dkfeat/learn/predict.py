"""Prediction with a linear model for every row of a source, into a committed folder of Parquet files or one file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import TextIOWrapper
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dkfeat.archives import pack_arrays
from dkfeat.blocks import PackedCodes, RowBlock
from dkfeat.engine.dataset.dataset import dataset_reader
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.open import Target, open_run
from dkfeat.engine.progress import ProgressState
from dkfeat.engine.resolve import PIECE_BYTES, Resolved, inherit_row_options, make_spec
from dkfeat.engine.run import execute
from dkfeat.engine.scan import warn_unterminated
from dkfeat.engine.tables import ORIGIN, origin_columns
from dkfeat.engine.tasks.job import Job
from dkfeat.engine.tasks.landmarks import sidecar_files
from dkfeat.errors import CommitError, ConfigError
from dkfeat.learn.checks import check_same_features
from dkfeat.learn.model import LinearModel, load_model
from dkfeat.messages import logger_of
from dkfeat.process_cache import ProcessCache
from dkfeat.sources.base import Source
from dkfeat.sources.contents import compression_of_name
from dkfeat.sources.formats import as_source
from dkfeat.store.manifest.metadata import read_sidecar, sidecar_name, sidecars_of
from dkfeat.store.manifest.model_folder import LocalFolder
from dkfeat.store.outputs import check_outputs
from dkfeat.store.shards.columns import ARROW_TYPES, kinds, lists, required_table, to_table
from dkfeat.store.storage.base import META, Storage

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

    from dkfeat.blocks import SourceFile, Split
    from dkfeat.config import ExecutionConfig
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.sources.pieces import Piece
    from dkfeat.store.manifest.manifest import Manifest


logger = logger_of(__name__)

PREDICTED = ("prediction", "score", "probability", "scores", "probabilities")

SCALES = ("loss", "calibration")
"""Entries of a model's training on which its probabilities depend."""
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
        kept = {**made.kept, **origin_columns(self.source, split, piece, before)}
        return replace(made, y=None if made.y is None else _named(made.y, self.source), kept=kept)

    def counts(self, piece: Piece, encoded: Any) -> dict[str, Any]:  # noqa: ARG002 - encoded rows are predictions
        """Count the rows without features."""
        return Job.counts(self, piece, piece.block.X)


def prediction_spec(model: LinearModel, source: Source, sha256: str, *, scores: bool) -> dict[str, Any]:
    """Return all settings that determine the bytes of predictions, with the hash of the model, as plain JSON values."""
    facts = {name: model.training[name] for name in SCALES if name in model.training}
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
        model={"sha256": sha256, "task": model.task, "loss": None, "classes": model.classes.tolist(), **facts},
        **({} if model.encoder is None else {"encoder": model.encoder.to_spec()}),
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
    """Compute the scores of rows as the source yields them: raw ones, or those of shards of the model's map."""
    if source.kind == "shards" and not isinstance(X, PackedCodes):
        return model.score_features(X)
    return model.score_rows(X)


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
        y=_named(np.zeros(0, source.label_dtype), source) if source.has_labels else None,
        label_offsets=np.zeros(1, np.int64) if source.has_labels and source.multilabel else None,
        qid=np.zeros(0, np.int64) if source.query_id else None,
        weight=np.zeros(0) if source.has_weights else None,
        kept={name: pa.array([], ARROW_TYPES[kind]) for name, kind in {**source.kept, **ORIGIN}.items()},
    )
    table, _ = to_table("predictions", block)
    return kinds(table.schema)


def _named(labels: NDArray[Any], source: Source) -> NDArray[Any]:
    """Return labels as the files have them: words where a source numbers these."""
    return np.array(source.classes)[labels] if source.classes and labels.dtype != object else labels


def _table(model: LinearModel, values: NDArray[np.float32], *, scores: bool) -> pa.Table:
    """Make the columns of predictions from the output of ``model.decision_function``.

    ``prediction``: a label, a list of labels, or a number. With `scores`, a model of two classes adds ``score`` of the
    second class, and a model of more classes or of lists of labels adds ``scores``, a list in the order of the classes.
    A model that has probabilities also adds ``probability`` or ``probabilities`` in the same form. Regression adds
    nothing.
    """
    found = model.label(values)
    if model.task == "multilabel":
        columns = {"prediction": lists(found.indptr, pa.array(model.names[found.indices]))}
    else:
        columns = {"prediction": pa.array(np.ascontiguousarray(model.named(found)))}
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
    landmarks = sidecars_of(spec).get("landmarks")
    model = LinearModel(
        map_spec=spec["map"],
        map_arrays={} if landmarks is None else read_sidecar(storage, "landmarks", landmarks),
        classes=arrays["classes"],
        coef=arrays["coef"],
        intercept=arrays["intercept"],
        task=facts["task"],
        training={name: facts[name] for name in SCALES if name in facts},
        input_spec=spec["input"],
    )
    model.map  # noqa: B018 - loaded now, while other threads wait
    return model


def predict(
    model: LinearModel | str | PathLike[str],
    source: Source | ShardDataset | str | PathLike[str] | Sequence[str | PathLike[str]],
    target: str | PathLike[str] | Target,
    *,
    scores: bool = True,
    client: Client | ExecutionConfig | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Manifest:
    r"""Predict for every row of a source, and write the predictions as Parquet files.

    Before the call, `target` must either not exist, or hold predictions of the same model with the same settings,
    complete or interrupted. After the call, the committed files cover the source. If the call is interrupted, earlier
    commits are intact and the same call continues. Repeated calls write nothing new unless files were added to the
    source. Any Parquet reader can read ``target/data`` once ``target/_SUCCESS`` exists.

    Parameters
    ----------
    model : LinearModel, str or path
        Model, or its folder or URL. Its weights are stored beside the predictions, named by their hash, for the
        workers.
    source : Source, ShardDataset, path, glob, URL, or a list of these
        LIBSVM text or Parquet, read with the input options of the model except those that the source sets, and
        transformed by the model's map. Or shards made by the same map, or their folder.
    target : str, path or Target
        Folder or URL for the predictions.
    scores : bool, default=True
        Also write scores, and probabilities if the model has them.
    client, progress
        As in `dkfeat.featurize`.
    storage_options : mapping or None
        Options of fsspec for a source and a model given by URL.

    Returns
    -------
    manifest : Manifest
        Committed list of files.

    Raises
    ------
    dkfeat.errors.SpecConflictError
        If shards were made by another map than the model's, a source changed, or the target holds something else.
    dkfeat.errors.DkfeatError
        As from `dkfeat.featurize`.

    Notes
    -----
    The columns are: ``label``, if rows have labels; ``qid``, ``weight`` and further columns that the source keeps;
    ``source_file``, ``source_split`` and ``source_row``, where ``source_row`` is the position of the row, from 0, among
    the rows of its file in its split, not counting bad rows (if rows may be bad, keep an id to join by);
    ``prediction``; and with `scores` either ``score`` and ``probability`` of the second of two classes, or ``scores``
    and ``probabilities``, lists in the order of the model's classes. Probabilities are those of `predict_proba`, for
    models that have them.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", gcws, progress=False)
    >>> model = dkfeat.train(folder / "features", progress=False)
    >>> dkfeat.predict(model, folder / "rows.svm", folder / "predictions", progress=False).rows
    2
    >>> import pyarrow.parquet
    >>> pyarrow.parquet.read_table(folder / "predictions" / "data")["prediction"].to_pylist()
    [1, -1]
    """
    model = load_model(model, storage_options=storage_options)
    rows = prediction_source(model, source, storage_options)
    with open_run(rows, target, kind="predictions", client=client, progress=progress) as opened:
        sha256, data = packed_model(model)
        spec = prediction_spec(model, rows, sha256, scores=scores)
        schema = prediction_schema(model, rows, scores=scores)
        kept = sidecar_files(spec, model.map, model.encoder) | {f"{META}/{sidecar_name('model', sha256)}": data}
        resolved = Resolved(opened=opened, source=rows, map=model.map, spec=spec, schema=schema, sidecars=kept)
        return execute(replace(resolved, job=PredictJob, stage="predict"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Numbers of predicted rows and of correct predictions."""

    n_rows: int
    """Number of rows with a prediction."""
    n_known: int
    """Number of rows whose label is among the model's classes."""
    n_correct: int
    """Number of rows whose prediction is their label."""

    @property
    def accuracy(self) -> float | None:
        """Share of correct predictions among the `n_known` rows; None if there are none."""
        return self.n_correct / self.n_known if self.n_known else None


def predict_file(
    model: LinearModel,
    source: Source | str | Sequence[str],
    out: str | os.PathLike[str] | TextIO | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Predictions:
    """Predict for the rows of a source, in this process, and write the labels into one file.

    A file `out` is created, or with `overwrite` replaced, when all rows have a prediction; an error leaves it
    unchanged. Memory is bounded by the block size, not by the source.

    Parameters
    ----------
    model : LinearModel
        Model whose map transforms the rows, which are read with the input options of its training rows.
    source, storage_options
        As in `dkfeat.predict`.
    out : str, path or text stream, optional
        Files ``.parquet`` and ``.csv`` get the columns ``prediction`` and, if rows have labels, ``label``; any other
        file or a stream gets one prediction per line, line breaks in words escaped. By default predictions are only
        counted.
    overwrite : bool, default=False
        Replace an existing file `out`, unless it is a file of the source.

    Returns
    -------
    predictions : Predictions
        Counts of rows and of correct predictions.

    Raises
    ------
    SourceNotFoundError, ParseError
        If the source cannot be read.
    SpecConflictError
        As from `dkfeat.predict`.
    ConfigError
        If neither the model nor `source` defines how rows are read, if `source` sets bad rows aside, if the model
        predicts lists of labels, which a single file cannot hold; if the name of `out` is that of a compressed file; or
        if `out` exists and `overwrite` is False, is a file of the source, or is in a data set or a model.
    CommitError
        If the folder of `out` does not exist.
    """
    if model.task == "multilabel" and out is not None:
        raise ConfigError("only a folder can hold lists of labels: use dkfeat.predict, on the command line --out DIR")
    rows = prediction_source(model, source, storage_options)
    if isinstance(out, str | os.PathLike):
        (out,) = check_outputs([out], inputs=rows.patterns, overwrite=overwrite)
    if rows.on_bad_row != "raise":
        raise ConfigError(
            "a file of predictions has one for each row, so on_bad_row must be 'raise'; only a folder can "
            "set bad rows aside: use dkfeat.predict, on the command line --out DIR"
        )
    n_rows = n_known = n_correct = 0
    most = piece_rows(model, scores=True)
    dtype = np.dtype(np.float32) if model.task == "regression" else model.names.dtype
    label_dtype = _named(np.zeros(0, rows.label_dtype), rows).dtype
    unterminated: list[SourceFile] = []
    has_warned = False
    with _writer(out, dtype, label_dtype if rows.has_labels else None) as write:
        for split in rows.splits():
            for piece in rows.read(split, max_piece_rows=most, checksum=False):
                predicted = model.named(model.label(score_rows(model, rows, piece.block.X)))
                y_true = _named(piece.block.y, rows)
                n_rows += predicted.shape[0]
                if rows.has_labels and model.task in ("binary", "multiclass"):
                    n_known += int(np.isin(y_true, model.names).sum())
                    n_correct += int(np.count_nonzero(predicted == y_true))
                write(predicted, y_true)
                unterminated += [split.files[position] for position in piece.unterminated or ()]
                if piece.rounded is not None and not has_warned:
                    logger.warning("%s", rows.describe_rounded(split.files[piece.rounded.file], piece.rounded))
                    has_warned = True
    warn_unterminated(unterminated, rows)
    return Predictions(n_rows=n_rows, n_known=n_known, n_correct=n_correct)


@contextmanager
def _writer(
    out: Any, dtype: np.dtype[Any], label_dtype: np.dtype[Any] | None
) -> Iterator[Callable[[Any, Any], object]]:
    """Open a stream, or the `Path` of a file; yield the function that writes predictions and, if any, labels."""
    if not isinstance(out, Path):
        yield lambda predicted, _: None if out is None else _write_lines(out, predicted)
        return
    if compression_of_name(out.name):
        raise ConfigError(f"{out}: predictions are not compressed; use a name in .parquet, .csv or .txt")
    if not out.parent.is_dir():
        raise CommitError(f"{out} cannot be written: {out.parent} is not a folder; create it, or choose another file")
    suffix = out.suffix.lower()
    with LocalFolder(str(out.parent)).writing(out.name) as file:
        if suffix in (".parquet", ".csv"):
            columns = {"prediction": dtype} if label_dtype is None else {"prediction": dtype, "label": label_dtype}
            schema = pa.schema({name: pa.from_numpy_dtype(kind) for name, kind in columns.items()})
            kind = pa.parquet.ParquetWriter if suffix == ".parquet" else pa.csv.CSVWriter
            with kind(file, schema) as table:
                yield lambda predicted, y_true: table.write_table(
                    pa.table({"prediction": predicted, "label": y_true}).select(schema.names).cast(schema)
                )
        else:
            text = TextIOWrapper(file, encoding="utf-8")
            yield lambda predicted, _: _write_lines(text, predicted)
            text.detach()


def _write_lines(file: TextIO, predicted: NDArray[Any]) -> None:
    file.writelines(str(label).replace("\r", r"\r").replace("\n", r"\n") + "\n" for label in predicted.tolist())


def prediction_source(model: LinearModel, source: Any, storage_options: Mapping[str, Any] | None = None) -> Source:
    """Resolve the source of predictions; `source` may be anything that `dkfeat.predict` accepts.

    Raises
    ------
    ConfigError
        If neither the model nor the source defines how rows are read, or labels are words of only one of them.
    SpecConflictError
        If shards were made by another map, or the source sets other options than those of the training rows.
    """
    reader = dataset_reader(source, storage_options)
    if reader is not None:
        options, where = ("n_features", "zero_based"), reader.storage.url
        check_same_features(model.spec, reader.spec, shards=where, owner="the model's", like="MODEL", options=options)
        return ShardSource.of(reader)
    found = as_source(source, None if isinstance(source, Source) else storage_options)
    # float64, because unlabelled rows often have a placeholder; int64 if float64 cannot represent a class
    is_exact = np.array_equal(model.classes.astype(np.float64).astype(object), model.classes.astype(object))
    training = model.input_spec if "kind" in model.input_spec else {}
    if not training and found.n_features is None:
        found = found.replaced(n_features=model.map.n_features_in_)
    dtype, remedy = "float64" if is_exact else "int64", "use another model"
    files = found.files()  # a missing file is the first thing to report
    found = inherit_row_options(found, "the model", training, dtype, files, encoder=model.encoder, remedy=remedy)
    if found.kind == "libsvm" and model.input_spec.get("classes"):
        raise ConfigError("the labels of LIBSVM text are numbers, but the model's are words; give the rows as a table")
    found = found.inspect(files)
    if found.classes == ():
        text = "labels are words, but the model's are numbers; convert them to its numbers"
        raise ConfigError(f"{text}, or pass label=None (--no-label)")
    if not found.is_resolved:
        raise ConfigError(f"the model does not say how its rows were read; give {', '.join(found.unresolved)}")
    return found.replaced(as_words=True)
