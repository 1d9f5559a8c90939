"""Rows of shards for training: shuffled batches of each epoch, rows held out of it, and batches that are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from dkfeat.blocks import PackedCodes, take_rows
from dkfeat.compiled.random.philox import STREAM_HELD_OUT, draw_words
from dkfeat.engine.dataset.rows import prefetch
from dkfeat.errors import InputError
from dkfeat.learn.checks import LEAST_WEIGHT, MOST_WEIGHT
from dkfeat.learn.score import Moments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.engine.dataset.dataset import ShardDataset


BATCH_NONZEROS = 1 << 19
"""Stored values in a batch, about: 4 MiB with their column numbers, memory that the allocator uses again."""
DRAWN_ROWS = 4096
"""Rows whose random words are drawn at once."""
HELD_OUT_BYTES = 256 << 20
"""Held-out rows are kept in memory, encoded, up to this; more are read from the shards each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStatistics:
    """Labels and weights of the rows that are trained on."""

    n_rows: int
    n_held_out: int
    class_counts: NDArray[np.int64]
    """Rows of each class, shape (n_classes,); for lists of labels rows that have it."""
    weight_sums: NDArray[np.float64]
    """Sum of the weights of each class's rows, 1 a row without weights; shape (1,) where rows have no single class."""
    square_sums: NDArray[np.float64]
    """Sum of their squares likewise."""
    label_mean: float
    label_deviation: float
    """Standard deviation of a regression's labels; 0 for classes."""

    @property
    def mean_weight(self) -> float:
        """Of a row."""
        return float(self.weight_sums.sum()) / self.n_rows

    def typical_weight(self, class_weights: NDArray[np.float64] | None) -> float:
        """Mean weight of a row, each row counted by its weight, if `mean_weight` is 1 before classes have weights."""
        of_class = 1.0 if class_weights is None else class_weights
        total = float((self.weight_sums * of_class).sum())
        return float((self.square_sums * np.square(of_class)).sum()) / (total * self.mean_weight)


def batch_rows(data: Any) -> int:
    """Rows of a batch that is worth decoding at once."""
    return max(1, BATCH_NONZEROS // (data.map.n_components if data.map.layout == "codes" else data.map.n_features_out))


class TrainingRows:
    """Rows of opened shards.

    Parameters
    ----------
    data : ShardDataset
    fraction : float
        Share of the rows that is held out, in [0, 1).
    seed : int
        Decides which rows are held out, and the order of the others in each epoch.
    shuffle_rows : int or None
        Rows mixed together, as ``buffer_rows`` of `ShardDataset.batches`.
    loaders : int, default=1
        Shards that are read at the same time.
    shards : sequence of int or None
        Ascending places of the shards to take; None: all.
    part : int, default=0
        Of several that share the rows, each with an order of its own.
    """

    def __init__(
        self,
        data: ShardDataset,
        *,
        fraction: float,
        seed: int,
        shuffle_rows: int | None,
        loaders: int = 1,
        shards: Sequence[int] | None = None,
        part: int = 0,
    ) -> None:
        self.data, self.fraction, self.seed, self.shuffle_rows = data, fraction, seed, shuffle_rows
        self._loaders, self._shards, self._part = loaders, shards, part
        self.is_weighted = "weight" in data.manifest.schema
        self._kept: list[tuple[Any, Any]] | None = None

    def epoch(self, number: int, skip: int = 0) -> Iterator[tuple[Any, Any, NDArray[np.float64] | None]]:
        """Features, labels and weights of an epoch's batches, without the rows held out and the first `skip` batches.

        Batches come in the same order with the same rows, bit for bit, each time that they are asked for.
        """
        seed = int(np.random.SeedSequence([self.seed, number, self._part]).generate_state(1)[0])
        for index, (encoded, y, weight, held) in enumerate(self._encoded(shuffle=True, seed=seed)):
            if index < skip:
                continue
            if held is None:
                yield self._decoded(encoded), y, weight
            else:
                keep = np.flatnonzero(~held)
                yield self._decoded(take_rows(encoded, keep)), y[keep], None if weight is None else weight[keep]

    def held_out(self) -> Iterator[tuple[Any, Any]]:
        """Features and labels of the rows held out, in the source's order."""
        parts: Iterator[tuple[Any, Any]] | list[tuple[Any, Any]]
        parts = self._held_out_parts() if self._kept is None else self._kept
        for encoded, y in parts:
            yield self._decoded(encoded), y

    def statistics(self, classes: NDArray[Any]) -> RowStatistics:
        """Go over all labels and weights once, and keep the held-out rows if they fit.

        Parameters
        ----------
        classes : ndarray of shape (n_classes,)
            Ascending; of no length for regression.

        Raises
        ------
        InputError
            For labels that are not finite numbers in a regression, for weights that are all 0 or out of range, and if
            no row is left to train on or none is held out.
        """
        n_rows = n_held = 0
        counts = np.zeros(len(classes), np.int64)
        single = len(classes) > 0 and not self.data.spec["input"].get("multilabel")
        sums, squares = np.zeros((2, len(classes) if single else 1))
        labels = Moments()
        kept: list[tuple[Any, Any]] | None = []
        room = HELD_OUT_BYTES
        for encoded, y, weight, held in self._encoded(shuffle=False, seed=0):
            rows = np.arange(y.shape[0]) if held is None else np.flatnonzero(~held)
            out = np.empty(0, np.int64) if held is None else np.flatnonzero(held)
            room -= len(out) * int(self.data.spec["output"]["row_bytes"])
            if room < 0:
                kept = None
            elif kept is not None and len(out):
                kept.append((take_rows(encoded, out), y[out]))
            n_held += len(out)
            if not len(rows):
                continue
            own, own_weights = y[rows], np.ones(len(rows)) if weight is None else weight[rows]
            _check_weights(own_weights)
            numbers = np.zeros(len(rows), np.intp)
            if sparse.issparse(own):
                counts += np.bincount(own.indices, minlength=len(classes))
            elif len(classes):
                numbers = np.searchsorted(classes, own)
                counts += np.bincount(numbers, minlength=len(classes))[: len(classes)]
            else:
                _check_finite(own)
                labels.add(own)
            sums += np.bincount(numbers, own_weights, minlength=len(sums))[: len(sums)]
            squares += np.bincount(numbers, np.square(own_weights), minlength=len(sums))[: len(sums)]
            n_rows += len(rows)
        self._kept = kept
        self._check(n_rows, n_held, float(sums.sum()))
        return RowStatistics(
            n_rows=n_rows,
            n_held_out=n_held,
            class_counts=counts,
            weight_sums=sums,
            square_sums=squares,
            label_mean=labels.mean,
            label_deviation=float(np.sqrt(labels.spread / n_rows)),
        )

    def row_length(self) -> float:
        """Root mean square of the l2 lengths of the first batch's rows in the source's order; 1 if all are 0."""
        for X, *_ in self.data.batches(batch_rows(self.data), shuffle=False):
            values = X.data if sparse.issparse(X) else X
            length = float(np.sqrt(np.square(values, dtype=np.float64).sum() / X.shape[0]))
            return length if length > 0 else 1.0
        return 1.0

    def _encoded(self, *, shuffle: bool, seed: int) -> Iterator[tuple[Any, Any, Any, Any]]:
        batches = self.data.batches(
            batch_rows(self.data),
            shuffle=shuffle,
            random_state=seed,
            buffer_rows=self.shuffle_rows if shuffle else None,
            decode=False,
            weight=self.is_weighted,
            number=True,
            loaders=self._loaders,
            shards=self._shards,
        )
        for encoded, y, *rest in batches:
            held = is_held_out(rest[-1], self.fraction, self.seed) if self.fraction else None
            yield encoded, y, rest[0] if self.is_weighted else None, held

    def _held_out_parts(self) -> Iterator[tuple[Any, Any]]:
        for encoded, y, _, held in prefetch(self._encoded(shuffle=False, seed=0)):
            rows = np.flatnonzero(held)
            yield take_rows(encoded, rows), y[rows]

    def _decoded(self, encoded: Any) -> Any:
        return self.data.map.decode(encoded) if isinstance(encoded, PackedCodes) else encoded

    def _check(self, n_rows: int, n_held: int, weights: float) -> None:
        if not n_rows or (self.fraction and not n_held):
            raise InputError(
                f"validation_fraction={self.fraction} holds {n_held:,} of {n_rows + n_held:,} rows out; "
                "choose another share, give validation= with shards of their own, or train with one alpha and without "
                "patience"
            )
        if not weights > 0:
            raise InputError(f"the weights of all {n_rows:,} rows are 0; there is nothing to train on")


def _check_weights(weights: NDArray[np.float64]) -> None:
    strange = weights[(weights != 0) & ~((weights >= LEAST_WEIGHT) & (weights <= MOST_WEIGHT))]
    if len(strange):
        raise InputError(
            f"a row has the weight {strange[0]}, but weights are 0 or from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}; "
            "multiply all of them by one number, which changes nothing else"
        )


def _check_finite(y: NDArray[Any]) -> None:
    strange = y[~np.isfinite(y)]
    if len(strange):
        raise InputError(
            f"a row has the label {strange[0]}; a regression needs numbers: filter such rows from the source"
        )


def labelled_batches(data: Any, task: str, classes: NDArray[Any]) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Return a function that gives the batches ``(X, y)`` of a data set, in its order.

    Parameters
    ----------
    data : ShardDataset
    task, classes
        Of the model that is scored. Indicator matrices of shards have a column for each label of their own, which
        `align_labels` turns into columns of these classes.
    """

    def batches() -> Iterator[tuple[Any, Any]]:
        for X, y in data.batches(batch_rows(data), shuffle=False):
            yield X, align_labels(y, np.asarray(data.classes), classes) if task == "multilabel" else y

    return batches


def align_labels(y: Any, own: NDArray[Any], classes: NDArray[Any]) -> sparse.csr_matrix:
    """Turn an indicator matrix of some labels into one of others.

    Parameters
    ----------
    y : csr_matrix of shape (n_rows, len(own))
    own, classes : ndarray
        Labels, ascending.

    Returns
    -------
    y : csr_matrix of shape (n_rows, len(classes)) or one column more
        The last column counts a row's labels that are none of `classes`, if there are such labels.

    Examples
    --------
    >>> y = sparse.csr_matrix(np.array([[1, 0, 1], [0, 1, 0]], np.uint8))
    >>> align_labels(y, np.array([1, 2, 4]), np.array([1, 2, 3])).toarray().tolist()
    [[1, 0, 0, 1], [0, 1, 0, 0]]
    """
    if np.array_equal(own, classes):
        return y
    columns = np.searchsorted(classes, own)
    known = np.isin(own, classes)
    columns[~known] = len(classes)
    width = len(classes) + (not known.all())
    taken = sparse.csr_matrix((np.ones(len(own), np.int64), (np.arange(len(own)), columns)), shape=(len(own), width))
    return sparse.csr_matrix(y.astype(np.int64) @ taken)


def is_held_out(numbers: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Select the rows that are held out of training: a pure function of a seed and a row's place in the source.

    Parameters
    ----------
    numbers : ndarray of int64, shape (n,)
        Places of rows in the source, from 0.
    fraction : float
        Share of rows to hold out, in [0, 1): each one is with this probability, whatever the others are.
    seed : int
        In [0, 2**64).

    Returns
    -------
    held_out : ndarray of bool, shape (n,)
        The same for a row however shards are cut and shuffled, and when rows are added after it.

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
    groups, place = np.divmod(numbers, DRAWN_ROWS)
    order = np.argsort(groups, kind="stable")
    present, firsts = np.unique(groups[order], return_index=True)
    for group, rows in zip(present, np.split(order, firsts[1:]), strict=True):
        draw_words(np.uint64(group), np.uint64(STREAM_HELD_OUT), np.uint64(seed), words)
        held_out[rows] = words[place[rows], 0] < limit
    return held_out
