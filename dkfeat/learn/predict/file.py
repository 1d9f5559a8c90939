"""Predictions for the rows of files, in one process, as a single file: labels, and nothing else."""

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

from dkfeat.errors import ConfigError
from dkfeat.learn.predict.job import piece_rows, score_rows
from dkfeat.learn.predict.source import prediction_source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.io.sources.base import Source
    from dkfeat.learn.model.model import LinearModel


Writer = Callable[["NDArray[Any]", "NDArray[Any]"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Counts of the rows of a file that were predicted."""

    n_rows: int
    """Rows that got a prediction."""
    n_known: int
    """Rows whose own label is one of the model's."""
    n_correct: int
    """Of these, rows that got it."""

    @property
    def accuracy(self) -> float | None:
        """Fraction of the known rows that got their own label; None if there are none."""
        return self.n_correct / self.n_known if self.n_known else None


def predict_file(
    model: LinearModel,
    source: Source | str | Sequence[str],
    out: str | os.PathLike[str] | TextIO | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Predictions:
    """Predict for the rows of a source, one after the other.

    On disk: `out` appears under its name when all rows have a prediction; an error leaves what was there before. Memory
    is bounded by the block size, not by the source.

    Parameters
    ----------
    model : LinearModel
        Its map featurizes the rows, which are read as its training rows were.
    source, storage_options
        As in `dkfeat.predict`.
    out : str, path or text stream, optional
        ``.parquet`` and ``.csv`` files get the columns ``prediction`` and, where rows have labels, ``label``; any other
        file or a stream one prediction a line. None: only counted.

    Returns
    -------
    predictions : Predictions
        Counts of rows and hits.

    Raises
    ------
    SourceNotFoundError, ParseError
        From reading the source.
    SpecConflictError
        As from `dkfeat.predict`.
    ConfigError
        The model does not say how its rows were read, and `source` neither; `source` sets bad rows aside; or the model
        is one for lists of labels, which no single file holds.
    """
    if model.task == "multilabel" and out is not None:
        raise ConfigError(
            "lists of labels are kept in folders alone: use dkfeat.predict, on the command line --out DIR"
        )
    rows = prediction_source(model, source, storage_options)
    if rows.on_bad_row != "raise":
        raise ConfigError(
            "a file of predictions has one for each row, so on_bad_row must be 'raise'; bad rows are set aside in "
            "folders alone: use dkfeat.predict, on the command line --out DIR"
        )
    n_rows = n_known = n_correct = 0
    most = piece_rows(model, scores=True)
    dtype = np.dtype(np.float32) if model.task == "regression" else model.classes.dtype
    with _writer(out, dtype, has_labels=rows.has_labels) as write:
        for split in rows.splits():
            for piece in rows.read(split, max_piece_rows=most, checksum=False):
                labels = model.label(score_rows(model, piece.block.X, is_encoded=rows.kind == "shards"))
                own = piece.block.y
                n_rows += labels.shape[0]
                if rows.has_labels and model.task in ("binary", "multiclass"):
                    n_known += int(np.isin(own, model.classes).sum())
                    n_correct += int(np.count_nonzero(labels == own))
                write(labels, own)
    return Predictions(n_rows=n_rows, n_known=n_known, n_correct=n_correct)


@contextmanager
def _writer(out: Any, dtype: np.dtype[Any], *, has_labels: bool) -> Iterator[Writer]:
    if out is None:
        yield lambda labels, own: None  # noqa: ARG005 - a writer that keeps nothing
    elif not isinstance(out, str | os.PathLike):
        yield lambda labels, own: _write_lines(out, labels)  # noqa: ARG005 - text holds predictions alone
    else:
        path = Path(out)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with _file_writer(temporary, path.suffix, dtype, has_labels=has_labels) as write:
                yield write
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _file_writer(path: Path, suffix: str, dtype: np.dtype[Any], *, has_labels: bool) -> Iterator[Writer]:
    if suffix not in (".parquet", ".csv"):
        with path.open("x", encoding="ascii") as file:
            yield lambda labels, own: _write_lines(file, labels)  # noqa: ARG005 - as above
        return
    columns = [("prediction", pa.from_numpy_dtype(dtype)), ("label", pa.float64())]
    schema = pa.schema(columns if has_labels else columns[:1])
    kind = pa.parquet.ParquetWriter if suffix == ".parquet" else pa.csv.CSVWriter
    with kind(str(path), schema) as table:
        yield lambda labels, own: table.write_table(
            pa.table({"prediction": labels, "label": own.astype(np.float64)}).select(schema.names).cast(schema)
        )


def _write_lines(file: TextIO, labels: NDArray[Any]) -> None:
    file.writelines(f"{label}\n" for label in labels.tolist())
