"""Rows of a comparison: a source and its test rows in memory, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from dkfeat.engine.scan import scan
from dkfeat.errors import ConfigError, InputError
from dkfeat.io.source import Source
from dkfeat.learn.c_grid import split_held_out
from dkfeat.learn.memory import check_fits

__all__ = ["ComparedRows", "load_rows"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComparedRows:
    """Training and test rows."""

    X: csr_matrix
    """Training rows, shape (n_samples, n_features)."""
    y: NDArray[Any]
    X_test: csr_matrix
    """Test rows, of the same width."""
    y_test: NDArray[Any]
    identity: Mapping[str, Any]
    """Plain values that say which rows these are: what was read, and how."""


def load_rows(source: Source, test: Source | None, *, test_fraction: float, seed: int) -> ComparedRows:
    """Read all rows.

    Parameters
    ----------
    source : Source
        Labels of one class a row, no weights.
    test : Source or None
        None: a part of the rows of `source`, chosen by seed, is the test rows.
    test_fraction, seed
        That part.

    Raises
    ------
    InputError
        For no rows, rows of one class, or labels that take more values than there are pairs of rows.
    ConfigError
        For lists of labels, no labels or weights, or a source that sets bad rows aside.
    PlanError
        If the rows do not fit in memory.
    SourceNotFoundError, ParseError
        From reading.
    """
    given = [source] if test is None else [source, test]
    for each in given:
        _check_kind(each)
    scans = [scan(source, progress=False)]
    if test is not None:
        if test.zero_based == "auto":  # what the first column is, the training rows say
            test = given[1] = test.replaced(zero_based=scans[0].zero_based)
        scans.append(scan(test, progress=False))
    width = max(each.n_features for each in scans)
    stored = sum(each.n_rows * width if each.nnz is None else each.nnz for each in scans)
    check_fits(3 * 12 * stored, "the rows of a comparison", "take fewer rows: they are all in memory")
    parts = [_read(each, found, width) for each, found in zip(given, scans, strict=True)]
    X, y = parts[0]
    _check_classes(y)
    if test is None:
        held = split_held_out(y, test_fraction, seed + 1)  # other rows than those that choose C
        X, y, X_test, y_test = X[~held], y[~held], X[held], y[held]
    else:
        X_test, y_test = parts[1]
    if not len(y_test):
        message = "there are no test rows; give a source that has some"
        raise InputError(message)
    read = [
        {"source": each.to_mapping(), "files": [dict(file.identity) for file in files]}
        for each, files in zip(given, (each.files() for each in given), strict=True)
    ]
    return ComparedRows(X=X, y=y, X_test=X_test, y_test=y_test, identity={"read": read})


def _check_classes(y: NDArray[Any]) -> None:
    n_classes = len(np.unique(y))
    message = None
    if n_classes == 0:
        message = "there are no training rows; give a source that has some"
    elif n_classes == 1:
        message = f"a comparison needs labels of two classes or more; all {len(y):,} rows have the label {y[0]}"
    elif n_classes > max(2, len(y) // 2):
        message = (
            f"the labels of {len(y):,} rows take {n_classes:,} values; a comparison is of classes, these are quantities"
        )
    if message is not None:
        raise InputError(message)


def _check_kind(source: Source) -> None:
    message = None
    if source.multilabel is True:
        message = "a comparison takes rows of one class each, not lists of labels; compare on one label at a time"
    elif not source.has_labels:
        message = "the rows have no labels; name their column, or give rows that have some"
    elif source.has_weights:
        message = "a comparison counts all rows alike; leave out the column of weights"
    elif source.on_bad_row != "raise":
        message = "a comparison drops no row in silence, so on_bad_row must be 'raise'; featurize sets bad rows aside"
    if message is not None:
        raise ConfigError(message)


def _read(source: Source, found: Any, width: int) -> tuple[csr_matrix, NDArray[Any]]:
    settled = source.settle(found).replaced(n_features=width)
    blocks = [piece.block for split in settled.splits() for piece in settled.read(split, checksum=False)]
    if not blocks:
        return csr_matrix((0, width), dtype=np.float32), np.empty(0)
    return csr_matrix(vstack([block.X for block in blocks])), np.concatenate([block.y for block in blocks])
