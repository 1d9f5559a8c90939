"""Contributions of columns to the scores of a linear model on codes: each code comes from one column of the row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix, issparse

from dkfeat.blocks import PackedCodes
from dkfeat.compiled.jit import owned
from dkfeat.compiled.sampling.contributions import add_weights
from dkfeat.encoders._arrow import read_table
from dkfeat.errors import ConfigError, InputError
from dkfeat.messages import counted
from dkfeat.sources.parquet.batches import copy_views
from dkfeat.store.manifest.manifest import columns_besides_features
from dkfeat.validation import check_integer

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_COLUMNS = 1 << 20
"""Columns of rows of numbers that all have a place in an explanation; of more, those that the rows hold have one."""


class _Sums(NamedTuple):
    """Contributions of some rows: those of row i are ``sums[indptr[i] : indptr[i + 1]]``, of ascending columns."""

    indptr: NDArray[np.int64]
    keys: NDArray[np.int64]
    """Numbers of columns; of a table their first coordinates, and the coordinates of n-grams and entries of lists."""
    sums: NDArray[np.float64]
    """Shape (nnz, n_scores)."""

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(self.n_rows), np.diff(self.indptr))


class _Columns(NamedTuple):
    """Columns of an explanation."""

    keys: NDArray[np.int64]
    """As in `_Sums`, ascending."""
    is_dense: bool
    names: Sequence[Any] = ()
    """Of columns of numbers."""
    encoder: Any = None
    """Of a table."""
    single: Any = None
    """Mask of the columns of a table with one value a row."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Explanation:
    """Contributions of columns to the scores of rows, made by `dkfeat.explain`.

    A score is the intercept plus the contributions of the row, exactly: no part is sampled or approximated. A model of
    two classes, whose positive scores mean the second class, and a regression have one score a row; others have one for
    each class.
    """

    classes: NDArray[Any]
    """Classes with a score each; empty if there is one score."""
    _sums: _Sums
    _columns: _Columns
    _intercepts: NDArray[np.float64]
    _baselines: NDArray[np.float64]
    _rows: Any

    def __repr__(self) -> str:
        classes = f", {counted(len(self.classes), 'class')}" if len(self.classes) else ""
        return f"Explanation({counted(self.n_rows, 'row')}, {counted(len(self.columns), 'column')}{classes})"

    @property
    def n_rows(self) -> int:
        """Number of explained rows."""
        return self._sums.n_rows

    @property
    def columns(self) -> NDArray[np.object_]:
        """Names of the columns, or their numbers from 0, shape (n_columns,).

        An n-gram or an entry of a list is a column of its own, such as ``body=free money``.
        """
        return np.array(self._named[0], object)

    @property
    def contributions(self) -> Any:
        """Contributions of the columns to the scores of each row.

        ndarray of shape (n_rows, n_columns), float64, or (n_rows, n_columns, n_classes) with a score for each class.
        For sparse rows, and for tables with n-grams or lists: csr_matrix, or a list with one for each class.
        """
        indptr, columns, sums = self._sums
        shape = self.n_rows, len(self._columns.keys)
        if not self._columns.is_dense:
            matrices = [csr_matrix((each, columns, indptr), shape=shape) for each in sums.T]
            return matrices if len(self.classes) else matrices[0]
        dense = np.zeros((*shape, sums.shape[1]))
        dense[self._sums.rows, columns] = sums
        return self._squeezed(dense)

    @property
    def intercept(self) -> Any:
        """Intercept of the model, a number, or of shape (n_classes,)."""
        return self._squeezed(self._intercepts)

    @property
    def baseline(self) -> NDArray[np.float64]:
        """Mean contributions over the background rows, shape (n_columns,) or (n_columns, n_classes)."""
        return self._squeezed(self._baselines)

    @property
    def scores(self) -> NDArray[np.float64]:
        """Intercept plus contributions, shape (n_rows,) or (n_rows, n_classes): ``model.decision_function``."""
        return self._squeezed(_totals(self._sums.rows, self._sums.sums, self.n_rows) + self._intercepts)

    @property
    def importances(self) -> NDArray[np.float64]:
        """Mean of ``abs(contribution - baseline)`` over rows and classes, shape (n_columns,)."""
        n_columns, columns = len(self._columns.keys), self._sums.keys
        found = _totals(columns, np.abs(self._sums.sums - self._baselines[columns]), n_columns)
        absent = self.n_rows - np.bincount(columns, minlength=n_columns)
        return np.asarray((found + absent[:, None] * np.abs(self._baselines)).mean(axis=1) / self.n_rows)

    def ranked(self) -> dict[Any, float]:
        """Return the importance of each column, the largest first; equal ones in the order of the columns."""
        found = self.importances
        return {self._named[0][at]: float(found[at]) for at in np.argsort(-found, kind="stable")}

    def row(self, number: int) -> list[dict[str, Any]]:
        """Return the contributions to one row's score, or to its largest score, with the largest magnitudes first.

        Parameters
        ----------
        number : int
            Row, from 0.

        Returns
        -------
        contributions : list of dict
            With the keys column, value and contribution, for each column that the row holds.

        Raises
        ------
        ConfigError
            If there is no such row.
        """
        check_integer(number, "row", low=0, high=self.n_rows - 1)
        own = slice(*self._sums.indptr[number : number + 2])
        columns, sums = self._sums.keys[own], self._sums.sums[own]
        sums = sums[:, (sums.sum(axis=0) + self._intercepts).argmax()]
        values, names = self._values_at(np.full(len(columns), number), columns), self._named[0]
        order = np.argsort(-np.abs(sums), kind="stable")
        return [{"column": names[columns[at]], "value": values[at], "contribution": float(sums[at])} for at in order]

    def to_table(self) -> pa.Table:
        """Return the contributions as a long table.

        Returns
        -------
        table : pyarrow.Table
            An entry for each row and column that the row holds, with the columns row, from 0; class, if there are
            several scores; column; contribution; and value, of the row in the column: a number, or text for tables.
        """
        rows, columns, parts = self._sums.rows, self._sums.keys, []
        values = pa.array(self._values_at(rows, columns), pa.string() if self._columns.encoder else pa.float64())
        names = self.columns[columns].astype(str)
        for at, sums in enumerate(self._sums.sums.T):
            classes = {"class": pa.repeat(self.classes[at], len(rows))} if len(self.classes) else {}
            parts.append(pa.table({"row": rows, **classes, "column": names, "contribution": sums, "value": values}))
        return pa.concat_tables(parts)

    def _squeezed(self, array: NDArray[np.float64]) -> Any:
        """Drop the last axis if there is one score."""
        return array if len(self.classes) else array[..., 0]

    def _values_at(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Any:
        """Return values of the explained rows: numbers, or text of tables."""
        if self._columns.encoder is None:
            return np.asarray(self._rows[rows, self._columns.keys[columns]], np.float64).reshape(-1).tolist()
        found, (names, held) = np.empty(len(rows), object), self._named
        for column in np.unique(columns).tolist():
            at, value = columns == column, held[column]
            if value is None and self._rows is not None:
                cells = self._rows[names[column]].take(pa.array(rows[at])).to_pylist()
                found[at] = [None if cell is None else str(cell) for cell in cells]
            else:
                found[at] = value
        return found.tolist()

    @cached_property
    def _named(self) -> tuple[Sequence[Any], Sequence[str | None]]:
        """Names of the columns, and the n-gram or entry of a list that each stands for, if any."""
        keys, _, names, encoder, single = self._columns
        if encoder is None:
            return names, ()
        values, names = [], []
        for name, key, own in zip(encoder.name_of(keys, self._rows), keys.tolist(), single.tolist(), strict=True):
            other = name.part if name.part == "missing" else f"{name.part} {key}"
            values.append(None if own else name.value or other)
            names.append(name.column if own else f"{name.column}={values[-1]}")
        return names, values


def _totals(places: NDArray[np.int64], sums: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Sum contributions by their places, shape (size, n_scores)."""
    return np.stack([np.bincount(places, each, size) for each in sums.T], axis=1)


def explain_rows(model: Any, rows: Any, background: Iterable[Any] | None = None) -> Explanation:
    """Explain rows in memory by a `LinearModel`; see `dkfeat.explain`. `background` are blocks of rows."""
    if model.map.layout != "codes":
        raise ConfigError(
            f"each feature of the map {model.map.name} depends on all columns of a row, so a score is no sum over "
            "columns, and there is no exact explanation; train a model on codes (GCWSFeatures, DartFeatures or "
            "MinHashFeatures)"
        )
    rows = _checked(model, rows)
    if _takes_tables(model) and not issparse(rows):
        rows = copy_views(pa.Table.from_batches(read_table(rows)))
    found = _sums_of(model, rows)
    columns = _columns_of(model, rows, found.keys)
    places, _ = _places(columns.keys, found.keys)
    totals, n_rows = _totals(places, found.sums, len(columns.keys)), found.n_rows
    if background is not None:
        totals[:], n_rows = 0, 0
        for block in background:
            part = _sums_of(model, _checked(model, block))
            at, known = _places(columns.keys, part.keys)
            totals, n_rows = totals + _totals(at[known], part.sums[known], len(totals)), n_rows + part.n_rows
    if not min(n_rows, found.n_rows):
        raise InputError("there are no rows to explain, or none for the baseline; give one or more")
    if columns.encoder is None:
        rows = csr_matrix(rows) if issparse(rows) else np.asarray(rows)
    elif issparse(rows):
        rows = None
    return Explanation(
        classes=model.names[:0] if model.task in ("binary", "regression") else model.names,
        _sums=found._replace(keys=places),
        _columns=columns,
        _intercepts=model.intercept.astype(np.float64),
        _baselines=totals / n_rows,
        _rows=rows,
    )


def _checked(model: Any, rows: Any) -> Any:
    if isinstance(rows, PackedCodes):
        raise InputError("codes do not tell the columns that they come from; give the rows from which they were made")
    return model.numbers_by_name(rows)


def _takes_tables(model: Any) -> bool:
    return model.encoder is not None and model.encoder.takes_tables


def _sums_of(model: Any, rows: Any) -> _Sums:
    if model.encoder is not None:
        rows = model.encoder.rows_for_map(rows, columns_besides_features(model.input_spec))
    weights, parts = owned(model.coef.T), []
    for block, (codes, empty), i_star in model.map._traced_blocks(rows):
        sums = add_weights(block.indptr, block.indices, codes, empty, i_star, model.map.code_bits, weights)
        parts.append((np.diff(block.indptr), block.indices, sums))
    counts, keys, sums = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    if not _takes_tables(model) or not len(keys):
        return _Sums(indptr, keys, sums)
    keys = model.encoder.own_columns(keys)  # of a row, equal ones are neighbours
    starts = np.concatenate([[True], keys[1:] != keys[:-1]])
    starts[indptr[:-1][counts > 0]] = True
    first = np.flatnonzero(starts)
    return _Sums(np.searchsorted(first, indptr), keys[first], np.add.reduceat(sums, first, axis=0))


def _places(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], Any]:
    """Find columns among ascending ones: their positions, and a mask of those that are among them."""
    if len(keys) and keys[-1] == len(keys) - 1:  # all columns are, and each is its own position
        return wanted, slice(None)
    places = np.searchsorted(keys, wanted)
    return places, np.append(keys, -1)[places] == wanted


def _columns_of(model: Any, rows: Any, keys: NDArray[np.int64]) -> _Columns:
    if not _takes_tables(model):
        width = model.map.n_features_in_
        keys = np.arange(width) if width <= MOST_COLUMNS else np.unique(keys)
        given = getattr(rows, "columns", getattr(model.map, "feature_names_in_", None))
        given = rows.schema.names if isinstance(rows, pa.Table | pa.RecordBatch) else given
        if given is None and model.input_spec.get("features_as") == "columns":
            given = model.input_spec["features"]
        names = keys.tolist() if given is None or len(given) != len(keys) else list(given)
        return _Columns(keys, not issparse(rows), names)
    single, is_dense = model.encoder.single_columns()
    keys = np.union1d(single, keys)
    return _Columns(keys, is_dense, encoder=model.encoder, single=np.isin(keys, single))
