"""Rows made ready for a map: centred, normalised and handed on in blocks of bounded size."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.cws import SWEPT_ROWS
from dkfeat.compiled.rows import L1, L2, MAX, normalise_rows
from dkfeat.errors import ConfigError
from dkfeat.validation import check_choice, check_finite, check_real, rows_as_csr

__all__ = ["RowPreparation"]

_BLOCK_CELLS = 2**23
"""Values that a dense or centred block may hold: bounds what a call needs beside its result."""
_BLOCK_NONZEROS = 2**21
"""Nonzeros that a sparse block holds about: hashing needs 27 bytes for each."""
_CENTER_LIMIT = 2**24
"""Columns that a centre may fill in; beyond, each row would be a dense vector of more than 128 MiB."""
_NORMS = {"l1": L1, "l2": L2, "max": MAX}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowPreparation:
    """What is done to a row before a map sees it: first the centre, then the norm."""

    n_features: int
    center: float | NDArray[np.float64] | None
    """Subtracted from every value, absent entries of sparse rows included."""
    normalize: Literal["l1", "l2", "max"] | None
    """Norm by which each row is divided, in float64."""

    @classmethod
    def checked(cls, *, n_features: int, center: Any, normalize: Any) -> RowPreparation:
        """Make one of an estimator's parameters, or raise ConfigError."""
        normalize = check_choice(normalize, "normalize", (None, "l1", "l2", "max"))
        return cls(n_features=n_features, center=_check_center(center, n_features), normalize=normalize)

    def blocks(self, X: Any) -> Iterator[sp.csr_matrix]:
        """Cut rows into canonical CSR blocks, prepared, in order; at least one block, if only of no rows.

        Parameters
        ----------
        X : ndarray or CSR of shape (n_samples, n_features), float32 or float64
        """
        center = self._center_row()
        for rows in self._cut(X, center):
            block = rows_as_csr(_slice(X, rows), first_row=rows.start)
            if center is not None:
                block = _subtract(block, center)
                check_finite(block, first_row=rows.start, cause="after the centre was subtracted")
            yield self._normalised(block)

    def _cut(self, X: Any, center: sp.csr_matrix | None) -> Iterator[slice]:
        """Equal ranges of rows that bound what a block holds beside its result."""
        n_samples = X.shape[0]
        if center is None and sp.issparse(X):
            n_blocks = max(-(-n_samples // SWEPT_ROWS), -(-X.nnz // _BLOCK_NONZEROS), 1)
        else:
            cells = center.nnz if center is not None and sp.issparse(X) else self.n_features
            n_blocks = max(-(-n_samples // max(1, _BLOCK_CELLS // cells)), 1)
        for block in range(n_blocks):
            yield slice(n_samples * block // n_blocks, n_samples * (block + 1) // n_blocks)

    def _center_row(self) -> sp.csr_matrix | None:
        if self.center is None or not np.any(self.center):
            return None
        return rows_as_csr(np.broadcast_to(np.asarray(self.center), (1, self.n_features)))

    def _normalised(self, rows: sp.csr_matrix) -> sp.csr_matrix:
        if self.normalize is None:
            return rows
        values = np.empty(rows.nnz, np.float64)
        normalise_rows(rows.indptr.astype(np.int64), rows.data.astype(np.float64), _NORMS[self.normalize], values)
        normalised = sp.csr_matrix((values, rows.indices, rows.indptr), shape=rows.shape)
        if not values.all():  # some vanish beside a value 1e308 times larger
            normalised = normalised.copy()  # the indices may be the caller's
            normalised.eliminate_zeros()
        return normalised


def _check_center(center: Any, n_features: int) -> float | NDArray[np.float64] | None:
    if center is None:
        return None
    if isinstance(center, numbers.Real):
        number = check_real(center, "center")
        _check_filled(n_features if number else 0)
        return number
    columns = np.array(center, dtype=np.float64)  # a copy: a fitted map does not change with its parameters
    if columns.shape != (n_features,) or not np.isfinite(columns).all():
        message = (
            f"center has shape {columns.shape}, but it must be one number, or one finite number for each of the "
            f"{n_features:,} columns; set center accordingly"
        )
        raise ConfigError(message)
    _check_filled(int(np.count_nonzero(columns)))
    return columns


def _check_filled(n_columns: int) -> None:
    if n_columns > _CENTER_LIMIT:
        message = (
            f"center fills in {n_columns:,} columns, so that every row becomes a vector of that many values, but at "
            f"most {_CENTER_LIMIT:,} are taken; centre only the columns that need it, or none"
        )
        raise ConfigError(message)


def _slice(X: Any, rows: slice) -> Any:
    if not sp.issparse(X):
        return X[rows]
    if rows == slice(0, X.shape[0]):
        return X
    indptr = X.indptr[rows.start : rows.stop + 1]
    held = slice(indptr[0], indptr[-1])
    return sp.csr_matrix((X.data[held], X.indices[held], indptr - indptr[0]), shape=(len(indptr) - 1, X.shape[1]))


def _subtract(rows: sp.csr_matrix, center: sp.csr_matrix) -> sp.csr_matrix:
    n_samples = rows.shape[0]
    indptr = np.arange(n_samples + 1) * center.nnz
    repeated = sp.csr_matrix(
        (np.tile(center.data, n_samples), np.tile(center.indices, n_samples), indptr), shape=rows.shape
    )
    repeated.has_canonical_format = True
    with np.errstate(over="ignore"):  # an overflow is an error of the input, raised with its place
        centred = rows.astype(np.float64) - repeated  # scipy drops the zeros that come out
    centred.has_canonical_format = True
    return centred
