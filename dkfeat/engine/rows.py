"""Rows of shards held in memory: gathered, joined and cut, whatever their layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from dkfeat.blocks import PackedCodes
from dkfeat.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.io.decoding import ShardData

__all__ = ["ShardRows", "indicator"]


@dataclass(frozen=True, slots=True, eq=False)
class ShardRows:
    """Encoded rows with their labels."""

    encoded: Any
    """PackedCodes, csr_matrix or ndarray, by the layout."""
    y: Any
    """Labels of shape (n_rows,), or their indicator matrix."""
    qid: NDArray[np.int64] | None
    """Query of each row, where kept."""
    weight: NDArray[np.float64] | None = None
    """Weight of each row, where kept."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Further columns by name, as pyarrow arrays."""
    number: NDArray[np.int64] | None = None
    """Place of each row among all rows of the data set, where asked."""

    @classmethod
    def of(cls, data: ShardData, classes: NDArray[Any] | None) -> ShardRows:
        """Rows of a shard; `classes` are the columns of the indicator matrix where rows have several labels."""
        if data.label_offsets is None or data.y is None:
            return cls(data.encoded, data.y, data.qid, data.weight, data.kept)
        y = indicator(data.y, data.label_offsets, classes)
        return cls(data.encoded, y, data.qid, data.weight, data.kept)

    @classmethod
    def joined(cls, parts: Sequence[ShardRows]) -> ShardRows:
        """Rows of all parts, in order; at least one part."""
        if len(parts) == 1:
            return parts[0]
        qid = None if parts[0].qid is None else np.concatenate([part.qid for part in parts])
        weight = None if parts[0].weight is None else np.concatenate([part.weight for part in parts])
        number = None if parts[0].number is None else np.concatenate([part.number for part in parts])
        kept = {name: pa.concat_arrays([part.kept[name] for part in parts]) for name in parts[0].kept}
        encoded, y = _joined([part.encoded for part in parts]), _joined([part.y for part in parts])
        return cls(encoded, y, qid, weight, kept, number)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.y.shape[0])

    def take(self, rows: Any) -> ShardRows:
        """Chosen rows: positions in the order wanted, or a slice."""
        encoded = self.encoded
        encoded = PackedCodes(*(part[rows] for part in encoded)) if isinstance(encoded, PackedCodes) else encoded[rows]
        return ShardRows(
            encoded,
            self.y[rows],
            None if self.qid is None else self.qid[rows],
            None if self.weight is None else self.weight[rows],
            {
                name: column[rows] if isinstance(rows, slice) else column.take(rows)
                for name, column in self.kept.items()
            },
            None if self.number is None else self.number[rows],
        )

    def numbered(self, first: int) -> ShardRows:
        """Copy in which the rows are numbered upwards from `first`."""
        return replace(self, number=np.arange(first, first + self.n_rows))


def indicator(y: NDArray[Any], offsets: NDArray[np.int64], classes: NDArray[Any] | None) -> sparse.csr_matrix:
    """Make the indicator matrix of label lists.

    Parameters
    ----------
    y : ndarray
        Labels of all rows, end to end.
    offsets : ndarray of int64, shape (n_rows + 1,)
        Row i has the labels ``y[offsets[i]:offsets[i + 1]]``.
    classes : ndarray of shape (n_classes,) or None
        Sorted; None refuses.

    Returns
    -------
    indicator : csr_matrix of uint8, shape (n_rows, n_classes)
        1 where a row has a label.

    Examples
    --------
    >>> indicator(np.array([3, 1, 3]), np.array([0, 2, 2, 3]), np.array([1, 3])).toarray().tolist()
    [[1, 1], [0, 0], [0, 1]]
    """
    if classes is None:
        message = "the data set has lists of labels with more than 10,000 labels in all; read them by `labels()`"
        raise ConfigError(message)
    columns = np.searchsorted(classes, y)
    matrix = sparse.csr_matrix(
        (np.ones(len(y), np.uint8), columns.astype(np.int32), offsets), shape=(len(offsets) - 1, len(classes))
    )
    matrix.sort_indices()
    return matrix


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], PackedCodes):
        return PackedCodes(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    if sparse.issparse(parts[0]):
        return sparse.csr_matrix(sparse.vstack(parts, format="csr"))
    return np.concatenate(parts)
