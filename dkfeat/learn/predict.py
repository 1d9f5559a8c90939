"""Labels for the rows of files, made block by block with the map that a model was trained on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dkfeat.blocks import PackedCodes
from dkfeat.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.io.parquet import ParquetSource
    from dkfeat.io.source import Source
    from dkfeat.learn.model import LinearModel

__all__ = ["Predictions", "labels_if_there", "predict", "score_rows", "settled_like"]

INPUT_OPTIONS = {
    "libsvm": ("n_features", "zero_based", "dtype", "query_id"),
    "parquet": ("features", "features_as", "label", "n_features", "zero_based", "dtype", "multilabel"),
}
"""What of the training rows' source is taken over."""
PIECE_ROWS = 65_536

Writer = Callable[["NDArray[Any]", "NDArray[Any]"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What became of a file's rows."""

    n_rows: int
    """Rows labelled."""
    n_known: int
    """Rows whose own label is one of the model's."""
    n_correct: int
    """Of these, rows that got it."""

    @property
    def accuracy(self) -> float | None:
        """Fraction of the known rows that got their own label; None if there are none."""
        return self.n_correct / self.n_known if self.n_known else None


def predict(
    model: LinearModel,
    source: Source | str | Sequence[str],
    out: str | os.PathLike[str] | TextIO | None = None,
    *,
    blocksize: int | str = "16MiB",
    storage_options: Mapping[str, Any] | None = None,
) -> Predictions:
    """Label the rows of LIBSVM text.

    On disk: `out` appears under its name when all rows are labelled; an error leaves what was there before. Memory is
    bounded by the block size, not by the file.

    Parameters
    ----------
    model : LinearModel
        Its map featurizes the rows; column count and index base are those of its training rows.
    source : LibsvmSource, ParquetSource, str or sequence of str
        File, glob or fsspec URL, or several, of the format that the training rows had; a source is read by its own
        options. Parquet files may lack the column of labels.
    out : str, path or text stream, optional
        ``.parquet`` and ``.csv`` files get the columns ``prediction`` and ``label`` (the row's own), any
        other file or a stream one prediction a line. None: only counted.
    blocksize : int or str, default="16MiB"
        Text or rows that are read at a time; a source has its own.
    storage_options : mapping, optional
        For a source given by URL; a source has its own.

    Returns
    -------
    predictions : Predictions
        Counts of rows and hits.

    Raises
    ------
    SourceNotFoundError, ParseError
        From reading the source.
    ConfigError
        If the model does not say how its rows were read, and `source` is none, or if `source` sets bad rows aside.
    """
    if model.task == "multilabel" and out is not None:
        message = "lists of labels are kept in folders alone: use dkfeat.predict, on the command line --out DIR"
        raise ConfigError(message)
    settled = settled_like(model, source, blocksize, storage_options)
    if settled.on_bad_row != "raise":
        message = (
            "a file of predictions has one for each row, so on_bad_row must be 'raise'; bad rows are set aside in "
            "folders alone: use dkfeat.predict, on the command line --out DIR"
        )
        raise ConfigError(message)
    n_rows = n_known = n_correct = 0
    regression = model.task == "regression"
    with _writer(out, np.dtype(np.float32) if regression else model.classes.dtype) as write:
        for split in settled.splits():
            for piece in settled.read(split, max_piece_rows=PIECE_ROWS, checksum=False):
                labels = model.label(score_rows(model, piece.block.X, is_encoded=settled.kind == "shards"))
                own = piece.block.y
                n_rows += labels.shape[0]
                if settled.has_labels and model.task in ("binary", "multiclass"):
                    n_known += int(np.isin(own, model.classes).sum())
                    n_correct += int(np.count_nonzero(labels == own))
                write(labels, own)
    return Predictions(n_rows=n_rows, n_known=n_known, n_correct=n_correct)


def score_rows(model: LinearModel, X: Any, *, is_encoded: bool) -> NDArray[np.float32]:
    """Scores of raw rows, or of rows as shards of the model's map hold them."""
    if is_encoded and not isinstance(X, PackedCodes):
        return model.score_features(X)
    return model.decision_function(X)


def settled_like(
    model: LinearModel,
    source: Any,
    blocksize: int | str = "16MiB",
    storage_options: Mapping[str, Any] | None = None,
) -> Source:
    """Source that is read as the training rows were; one that is given keeps its own options."""
    # readers and their compiled parser load when there is something to read
    from dkfeat.io.libsvm import LibsvmSource
    from dkfeat.io.parquet import ParquetSource
    from dkfeat.io.source import Source

    if not isinstance(source, Source):
        kinds: dict[str, Any] = {"libsvm": LibsvmSource, "parquet": ParquetSource}
        kind = kinds.get(str(model.input_spec.get("kind")))
        if kind is None:
            message = "the model does not say how its training rows were read; give a source with all options"
            raise ConfigError(message)
        options = {name: model.input_spec[name] for name in INPUT_OPTIONS[kind.kind] if name in model.input_spec}
        # float64 takes any label: rows yet to be labelled often carry a placeholder
        options |= {"blocksize": blocksize, "label_dtype": "float64", "storage_options": storage_options}
        source = kind(source, **options)
        if isinstance(source, ParquetSource):
            source = labels_if_there(source)
    if not source.is_settled:
        source = source.inspect(source.files())
    if not source.is_settled:
        message = "a source for predictions needs n_features, zero_based and label_dtype"
        raise ConfigError(message)
    return source


def labels_if_there(source: ParquetSource) -> ParquetSource:
    """Source that does without labels where its files have no column of them."""
    return source if source.label in source.column_names(source.files()) else source.replaced(label=None)


@contextmanager
def _writer(out: Any, dtype: np.dtype[Any]) -> Iterator[Writer]:
    if out is None:
        yield lambda labels, own: None  # noqa: ARG005 - a writer that keeps nothing
    elif not isinstance(out, str | os.PathLike):
        yield lambda labels, own: _write_lines(out, labels)  # noqa: ARG005 - text holds predictions alone
    else:
        path = Path(out)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with _file_writer(temporary, path.suffix, dtype) as write:
                yield write
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _file_writer(path: Path, suffix: str, dtype: np.dtype[Any]) -> Iterator[Writer]:
    if suffix not in (".parquet", ".csv"):
        with path.open("x", encoding="ascii") as file:
            yield lambda labels, own: _write_lines(file, labels)  # noqa: ARG005 - as above
        return
    schema = pa.schema([("prediction", pa.from_numpy_dtype(dtype)), ("label", pa.float64())])
    kind = pa.parquet.ParquetWriter if suffix == ".parquet" else pa.csv.CSVWriter
    with kind(str(path), schema) as table:
        yield lambda labels, own: table.write_table(
            pa.table({"prediction": labels, "label": own.astype(np.float64)}, schema=schema)
        )


def _write_lines(file: TextIO, labels: NDArray[Any]) -> None:
    file.writelines(f"{label}\n" for label in labels.tolist())
