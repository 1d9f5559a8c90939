"""Rows of shards for training: shuffled batches of each epoch, held-out rows, and batches that are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from dkfeat.blocks import PackedCodes, take_rows
from dkfeat.compiled.random import STREAM_HELD_OUT, draw_words
from dkfeat.engine.dataset.rows import prefetch
from dkfeat.errors import InputError
from dkfeat.learn.checks import MOST_LABEL, check_row_weights, no_weight
from dkfeat.learn.scores import Moments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.engine.dataset.dataset import ShardDataset


BATCH_NONZEROS = 1 << 19
"""Approximate number of stored values in a batch: 4 MiB with their column numbers, which the allocator reuses."""
DRAWN_ROWS = 4096
"""Number of rows whose random words are drawn at once."""
HELD_OUT_BYTES = 256 << 20
"""Maximum size of encoded held-out rows in memory; if they are larger, they are read from the shards each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStatistics:
    """Statistics of the labels and weights of training rows."""

    n_rows: int
    class_counts: NDArray[np.int64]
    """Number of rows of each class, shape (n_classes,); for lists of labels the number of rows with each label."""
    weight_sums: NDArray[np.float64]
    """Sum of the row weights of each class, shape (n_classes,), or (1,) if rows have no single class."""
    square_sums: NDArray[np.float64]
    """Sum of the squares of the row weights, of the same shape."""
    label_mean: float
    label_deviation: float
    """Standard deviation of the labels of a regression; 0 for classes."""

    @property
    def mean_weight(self) -> float:
        """Mean weight of a row."""
        return float(self.weight_sums.sum()) / self.n_rows

    def typical_weight(self, class_weights: NDArray[np.float64] | None) -> float:
        """Mean of row weight times class weight, weighted by itself, with row weights scaled to a mean of 1."""
        of_class = 1.0 if class_weights is None else class_weights
        total = float((self.weight_sums * of_class).sum())
        return float((self.square_sums * np.square(of_class)).sum()) / (total * self.mean_weight)


def batch_rows(data: Any) -> int:
    """Return the number of rows in a batch, which are decoded at once."""
    return max(1, BATCH_NONZEROS // (data.map.n_components if data.map.layout == "codes" else data.map.n_features_out))


@dataclass(kw_only=True)
class TrainingRows:
    """Training rows of opened shards.

    Parameters
    ----------
    data : ShardDataset
    fraction : float
        Share of the rows that is held out, in [0, 1).
    seed : int
        Seed of the choice of held-out rows, and of the order of the others in each epoch.
    shuffle_rows : int or None
        Number of rows in the shuffle buffer, as ``buffer_rows`` of `ShardDataset.batches`.
    loaders : int, default=1
        Number of shards that are read at the same time.
    shards : sequence of int or None
        Ascending indices of the shards to use; None: all.
    part : int, default=0
        Number of the part, if the rows are trained in parts; each part has its own order.
    """

    data: ShardDataset = field(kw_only=False)
    fraction: float
    seed: int
    shuffle_rows: int | None
    loaders: int = 1
    shards: Sequence[int] | None = None
    part: int = 0
    _kept: list[tuple[Any, Any]] | None = field(default=None, init=False)

    @property
    def is_weighted(self) -> bool:
        """True if rows have weights."""
        return "weight" in self.data.manifest.schema

    def epoch(self, number: int, skip: int = 0) -> Iterator[tuple[Any, Any, NDArray[np.float64] | None]]:
        """Yield features, labels and weights of an epoch's batches, without held-out rows and the first `skip` batches.

        The same epoch always has the same batches in the same order, bit for bit.
        """
        seed = int(np.random.SeedSequence([self.seed, number, self.part]).generate_state(1)[0])
        for encoded, y, weight, held in islice(self._encoded(shuffle=True, seed=seed), skip, None):
            if held is None:
                yield encoded, y, weight
            else:
                keep = np.flatnonzero(~held)
                yield take_rows(encoded, keep), y[keep], None if weight is None else weight[keep]

    def held_out(self) -> Iterator[tuple[Any, Any]]:
        """Yield features and labels of the held-out rows, in the source's order."""
        parts: Iterable[tuple[Any, Any]] = self._kept or ()
        if self._kept is None:
            read = prefetch(self._encoded(shuffle=False, seed=0))
            parts = ((take_rows(encoded, np.flatnonzero(held)), y[held]) for encoded, y, _, held in read)
        for encoded, y in parts:
            yield self.data.map.decode(encoded) if isinstance(encoded, PackedCodes) else encoded, y

    def statistics(self, classes: NDArray[Any]) -> RowStatistics:
        """Read all labels and weights once, and keep the held-out rows if they fit in memory.

        Parameters
        ----------
        classes : ndarray of shape (n_classes,)
            Labels in ascending order; empty for regression.

        Raises
        ------
        InputError
            If labels of a regression are not finite, weights are all 0 or out of range, no row is left to train on, or
            none is held out.
        """
        n_rows = n_held = 0
        counts = np.zeros(len(classes), np.int64)
        single = len(classes) > 0 and not self.data.spec["input"].get("multilabel")
        sums, squares = np.zeros((2, len(classes) if single else 1))
        labels = Moments()
        kept: list[tuple[Any, Any]] | None = []
        room = HELD_OUT_BYTES
        for encoded, y, weight, held in self._encoded(shuffle=False, seed=0):
            held = np.zeros(y.shape[0], np.bool_) if held is None else held
            rows, out = np.flatnonzero(~held), np.flatnonzero(held)
            room -= len(out) * int(self.data.spec["output"]["row_bytes"])
            if room < 0:
                kept = None
            elif kept is not None and len(out):
                kept.append((take_rows(encoded, out), y[out]))
            n_held += len(out)
            if not len(rows):
                continue
            targets, weights = y[rows], np.ones(len(rows)) if weight is None else weight[rows]
            check_row_weights(weights)
            if not len(classes) and len(strange := targets[~(np.abs(targets) <= MOST_LABEL)]):
                raise InputError(
                    f"a row has the label {strange[0]}; a regression needs numbers of at most {MOST_LABEL:g}, "
                    "because predictions are float32: filter such rows from the source, or scale the labels"
                )
            numbers = np.zeros(len(rows), np.intp)
            if sparse.issparse(targets):
                counts += np.bincount(targets.indices, minlength=len(classes))
            elif len(classes):
                numbers = np.searchsorted(classes, targets)
                counts += np.bincount(numbers, minlength=len(classes))[: len(classes)]
            else:
                labels.add(targets)
            for total, values in ((sums, weights), (squares, np.square(weights))):
                total += np.bincount(numbers, values, minlength=len(total))[: len(total)]
            n_rows += len(rows)
        self._kept = kept
        if not n_rows or (self.fraction and not n_held):
            raise InputError(
                f"validation_fraction={self.fraction} holds {n_held:,} of {n_rows + n_held:,} rows out; "
                "choose another share, give other shards as validation=, or train with one alpha and without "
                "patience"
            )
        if not sums.sum() > 0:
            raise no_weight(n_rows)
        return RowStatistics(
            n_rows=n_rows,
            class_counts=counts,
            weight_sums=sums,
            square_sums=squares,
            label_mean=labels.mean,
            label_deviation=float(np.sqrt(labels.squared_deviations / n_rows)),
        )

    def row_length(self) -> float:
        """Compute the root mean square of the l2 lengths of the rows of the first batch; 1 if all are 0."""
        X, *_ = next(iter(self.data.batches(batch_rows(self.data), shuffle=False)))
        values = X.data if sparse.issparse(X) else X
        return float(np.sqrt(np.square(values, dtype=np.float64).sum() / X.shape[0])) or 1.0

    def _encoded(self, *, shuffle: bool, seed: int) -> Iterator[tuple[Any, Any, Any, Any]]:
        batches = self.data.batches(
            batch_rows(self.data),
            shuffle=shuffle,
            random_state=seed,
            buffer_rows=self.shuffle_rows if shuffle else None,
            decode=False,
            columns=("weight", "number") if self.is_weighted else ("number",),
            loaders=self.loaders,
            shards=self.shards,
        )
        for encoded, y, *rest in batches:
            held = is_held_out(rest[-1], self.fraction, self.seed) if self.fraction else None
            yield encoded, y, rest[0] if self.is_weighted else None, held


def labelled_batches(data: Any, task: str, classes: NDArray[Any]) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Return a function that yields the batches ``(X, y)`` of a data set, in its order.

    Parameters
    ----------
    data : ShardDataset
    task, classes
        Task and classes of the scored model. Columns of indicator matrices of the shards are aligned with these
        classes, see `align_labels`.
    """

    def batches() -> Iterator[tuple[Any, Any]]:
        for X, y in data.batches(batch_rows(data), shuffle=False):
            yield X, align_labels(y, np.asarray(data.classes), classes) if task == "multilabel" else y

    return batches


def align_labels(y: Any, labels: NDArray[Any], classes: NDArray[Any]) -> sparse.csr_matrix:
    """Convert an indicator matrix to the columns of other labels.

    Parameters
    ----------
    y : csr_matrix of shape (n_rows, len(labels))
    labels, classes : ndarray
        Labels of the columns before and after, ascending.

    Returns
    -------
    y : csr_matrix of shape (n_rows, len(classes)) or one column more
        If some labels are not in `classes`, a last column counts them in each row.

    Examples
    --------
    >>> y = sparse.csr_matrix(np.array([[1, 0, 1], [0, 1, 0]], np.uint8))
    >>> align_labels(y, np.array([1, 2, 4]), np.array([1, 2, 3])).toarray().tolist()
    [[1, 0, 0, 1], [0, 1, 0, 0]]
    """
    if np.array_equal(labels, classes):
        return y
    columns = np.searchsorted(classes, labels)
    known = np.isin(labels, classes)
    columns[~known] = len(classes)
    width = len(classes) + (not known.all())
    taken = sparse.csr_matrix(
        (np.ones(len(labels), np.int64), (np.arange(len(labels)), columns)), shape=(len(labels), width)
    )
    return sparse.csr_matrix(y.astype(np.int64) @ taken)


def is_held_out(numbers: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Select the rows that are held out of training, as a pure function of the seed and their position in the source.

    Parameters
    ----------
    numbers : ndarray of int64, shape (n,)
        Positions of rows in the source, from 0.
    fraction : float
        Share of rows to hold out, in [0, 1): probability of each row, independent of the others.
    seed : int
        In [0, 2**64).

    Returns
    -------
    held_out : ndarray of bool, shape (n,)
        Mask of the held-out rows. It does not depend on how shards are cut and shuffled, or on later rows.

    Examples
    --------
    >>> is_held_out(np.arange(12), 0.25, seed=0).astype(int).tolist() == [
    ...     int(is_held_out(np.array([row]), 0.25, seed=0)[0]) for row in range(12)]
    True
    """
    held_out = np.zeros(len(numbers), np.bool_)
    limit = round(fraction * 2**32)
    words: NDArray[Any] = np.empty((DRAWN_ROWS, 4), np.uint32)
    if not len(numbers):
        return held_out
    groups, offsets = np.divmod(numbers, DRAWN_ROWS)
    order = np.argsort(groups, kind="stable")
    present, firsts = np.unique(groups[order], return_index=True)
    for group, rows in zip(present, np.split(order, firsts[1:]), strict=True):
        draw_words(np.uint64(group), np.uint64(STREAM_HELD_OUT), np.uint64(seed), words)
        held_out[rows] = words[offsets[rows], 0] < limit
    return held_out
