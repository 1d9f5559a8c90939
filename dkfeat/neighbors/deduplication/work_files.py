"""Files that the stages of a search leave to each other, and to later ones: arrays, pairs of rows, groups of rows."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from dkfeat.compiled.sampling.bands import count_members, find_lowest, join_pairs
from dkfeat.errors import CommitError, ConfigError
from dkfeat.store.storage.base import DATA, faults_as
from dkfeat.store.storage.local import LocalStorage

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

MAX_ROWS = 1 << 32
"""Maximum number of rows: two row numbers fit in 64 bits."""
PIECE_ROWS = 1 << 20
"""Maximum number of rows from which a file of a table is made."""
MAX_PIECE_PAIRS = 1 << 22
"""Number of pairs that such a file should not exceed."""
BLOCK_ROWS = 1 << 10
"""Number of rows whose pairs are counted together, and fewest rows of a piece."""
_ROW_BITS, _LOWER = np.uint64(32), np.uint64(MAX_ROWS - 1)
_HEAD = 16  # bytes of the two counts at the start of a file of pairs
_CHUNK = 1 << 18  # pairs that are in memory at a time, of a file that is read as a whole


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """Files by their names, in a folder that the driver and all workers see; each exists whole or not at all.

    A task whose file exists is done. As its bytes depend on the settings of the search alone, a task may run again.
    """

    storage: LocalStorage

    @classmethod
    def of(cls, folder: str | Path, *, durable: bool = True) -> Self:
        """Create the folder, or continue to use it; temporary files of a dead run are removed.

        Files survive a crash of the machine only if they are durable.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        storage = LocalStorage(str(folder), durable=durable)
        storage.prepare()
        storage.sweep()
        return cls(storage)

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return Path(self.storage.url, DATA, name)

    def has(self, name: str) -> bool:
        """Return True if a file exists; raise `ConfigError` in a worker that does not see the folder of the driver."""
        path = self.path(name)
        if not path.exists() and not path.parent.is_dir():
            raise ConfigError(
                f"a worker does not see the folder {self.storage.url}; choose a folder as target, or without one "
                "set temporary-directory in Dask's configuration to a folder, that all workers share"
            )
        return path.exists()

    def write(self, name: str, arrays: Iterable[NDArray[Any] | bytes]) -> None:
        """Create a file with the bytes of arrays, or replace an equal one."""
        path = f"{DATA}/{name}"
        with faults_as(CommitError, f"{self.path(name)} cannot be written"), self.storage.writing(path) as file:
            for values in arrays:
                file.write(values if isinstance(values, bytes) else np.ascontiguousarray(values).data)

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all other files."""
        for name in self.storage.list(DATA, sizes=False):
            if name not in names:
                self.storage.remove(f"{DATA}/{name}", durable=False)  # what comes back is removed again

    def values(self, name: str, dtype: DTypeLike, offset: int = 0) -> NDArray[Any]:
        """Return the values in a file after `offset` bytes, read when they are used; changes stay in memory."""
        with open(f"{self.storage.url}/{DATA}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 -- a Path takes long
            if os.fstat(file.fileno()).st_size <= offset:
                return np.empty(0, dtype)
            return np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_COPY), dtype, offset=offset)


class Part(NamedTuple):
    """What a task of a stage works on: a range of partitions, or of rows, with its share of the stage's progress."""

    number: int
    n_rows: int
    start: int
    stop: int


class FoundPairs(NamedTuple):
    """Pairs of rows with their similarities, and how many pairs were looked at."""

    keys: NDArray[np.uint64]
    """Shape (n_pairs,): the higher row of each pair in the upper 32 bits, the lower one in the others."""
    similarities: NDArray[np.float64]
    """Shape (n_pairs,)."""
    n_candidates: int = 0
    """Number of pairs that were candidates."""
    n_compared: int = 0
    """Number of these that were compared."""

    @property
    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lower and the higher row of each pair."""
        return (self.keys & _LOWER).astype(np.int64), (self.keys >> _ROW_BITS).astype(np.int64)


def pair_keys(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the keys of pairs of rows, see `FoundPairs`."""
    keys: NDArray[np.uint64] = np.maximum(left, right).astype(np.uint64) << _ROW_BITS
    keys |= np.minimum(left, right).astype(np.uint64)
    return keys


class Counts(NamedTuple):
    """Numbers of pairs that were looked at, see `FoundPairs`."""

    n_candidates: int = 0
    n_compared: int = 0


@dataclass(frozen=True, slots=True)
class PairFiles:
    """Files of pairs, sorted by their keys; a pair may be in several files, with the same similarity."""

    work: WorkFolder
    names: tuple[str, ...]

    def write(self, name: str, found: FoundPairs) -> Counts:
        """Create a file of pairs, which are in any order and different."""
        order = np.argsort(found.keys)
        head = np.array([found.n_candidates, found.n_compared], np.int64).view(np.uint64)
        similarities = found.similarities[order].view(np.uint64)
        self.work.write(name, [head, found.keys[order], similarities])
        return Counts(found.n_candidates, found.n_compared)

    def counts(self, name: str) -> Counts:
        """Return the counts of a file."""
        return Counts(*self.work.values(name, np.int64)[:2].tolist())

    def chunks(self) -> Iterator[FoundPairs]:
        """Iterate over the pairs of all files, a few at a time; a pair comes once for each file that has it."""
        for name in self.names:
            keys, similarities = self._columns(name)
            for at in range(0, len(keys), _CHUNK):
                some = slice(at, at + _CHUNK)
                yield FoundPairs(np.array(keys[some]), np.array(similarities[some]))

    def between(self, first: int, stop: int) -> FoundPairs:
        """Return the pairs whose higher row is in a range, sorted by it and then by the lower row, each pair once."""
        low, high = np.array([first, max(first, stop - 1)], np.uint64) << _ROW_BITS
        parts = [FoundPairs(np.empty(0, np.uint64), np.empty(0))]
        for name in self.names if first < stop else ():
            keys, similarities = self._columns(name)
            some = slice(np.searchsorted(keys, low), np.searchsorted(keys, high | _LOWER, side="right"))
            parts.append(FoundPairs(np.array(keys[some]), np.array(similarities[some])))
        keys, order = np.unique(np.concatenate([part.keys for part in parts]), return_index=True)
        return FoundPairs(keys, np.concatenate([part.similarities for part in parts])[order])

    def _columns(self, name: str) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        values = self.work.values(name, np.uint64, _HEAD)
        n = len(values) // 2
        return values[:n], values[n:].view(np.float64)


@dataclass(frozen=True, slots=True)
class PairTask:
    """Task that finds pairs, and writes them into a file, unless it is written."""

    pairs: PairFiles
    """Files of the tasks, in the order of the numbers of their parts."""

    def __call__(self, part: Part, stopped: Callable[[], bool]) -> Counts:
        """See `dkfeat.engine.runners.base.Runner.run`."""
        name = self.pairs.names[part.number]
        if self.pairs.work.has(name):
            return self.pairs.counts(name)
        return self.pairs.write(name, self.find(part, stopped))

    @abstractmethod
    def find(self, part: Part, stopped: Callable[[], bool]) -> FoundPairs:
        """Find the pairs of a part."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Files with the lowest row of the group of each row, which of them are copies of a lower row, and which are kept.

    Rows that are connected by pairs are a group. 5 bytes for each row are in memory.
    """

    work: WorkFolder
    n_rows: int
    n_former: int = 0
    """Number of rows that have groups from an earlier search."""
    keep_earlier: bool = False
    """Keep all rows that were kept before; otherwise the lowest row of each group alone."""

    @property
    def former(self) -> Groups:
        """The groups of the earlier search."""
        return replace(self, n_rows=self.n_former)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files."""
        names = ("groups", "copies", "kept") if self.keep_earlier else ("groups", "copies")
        return tuple(f"{name}-{self.n_rows}" for name in names)

    def mark_copies(self, pairs: PairFiles) -> int:
        """Write which rows are copies; return their number."""
        is_copy = np.zeros(self.n_rows, np.bool_)
        is_copy[: self.n_former] = self.former.are_copies(slice(None))
        for some in pairs.chunks():
            is_copy[some.rows[1]] = True
        self.work.write(self.names[1], [is_copy])
        return int(np.count_nonzero(is_copy))

    def are_copies(self, rows: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
        """Return which rows are copies of a lower row."""
        copies = self.work.values(self.names[1], np.bool_) if self.n_rows else np.empty(0, np.bool_)
        found: NDArray[np.bool_] = copies[rows]
        return found

    def find(self, pairs: PairFiles) -> int:
        """Find the groups and write them; return the number of rows whose pairs make a file of moderate size."""
        parents = np.arange(self.n_rows, dtype=self._dtype)
        parents[: self.n_former] = self.former._lowest
        n_pairs = np.zeros(self.n_rows // BLOCK_ROWS + 1, np.int64)
        for some in pairs.chunks():
            lower, higher = some.rows
            join_pairs(parents, lower, higher)
            count_in_blocks(n_pairs, higher)
        find_lowest(parents)
        self.work.write(self.names[0], [parents])
        if self.keep_earlier:
            kept = parents == np.arange(self.n_rows)
            kept[: self.n_former] = self.former.kept(0, self.n_former)
            self.work.write(self.names[2], [kept])
        return _piece_rows(n_pairs)

    def of(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return the lowest row of the group of each row in a range."""
        return self._lowest[first:stop].astype(np.int64)

    def kept(self, first: int, stop: int) -> NDArray[np.bool_]:
        """Return which rows of a range are kept."""
        if self.keep_earlier and first < stop:
            return self.work.values(self.names[2], np.bool_)[first:stop]
        return self.of(first, stop) == np.arange(first, stop)

    def changed(self) -> NDArray[np.int64]:
        """Return the former rows whose groups have a lower first row than before."""
        return np.flatnonzero(self.former._lowest != self._lowest[: self.n_former])

    def count(self) -> dict[str, int]:
        """Return the numbers of groups of several rows and of kept rows, and the size of the largest group."""
        sizes = np.zeros(self.n_rows, self._dtype)
        count_members(self._lowest, sizes)
        kept = self.work.values(self.names[2], np.bool_) if self.keep_earlier and self.n_rows else sizes
        n_groups, n_kept = int(np.count_nonzero(sizes > 1)), int(np.count_nonzero(kept))
        return {"n_groups": n_groups, "n_kept": n_kept, "largest_group": int(sizes.max(initial=0))}

    @property
    def _lowest(self) -> NDArray[Any]:
        return self.work.values(self.names[0], self._dtype) if self.n_rows else np.empty(0, self._dtype)

    @property
    def _dtype(self) -> type[np.signedinteger]:
        return np.int32 if self.n_rows < 1 << 31 else np.int64


def count_in_blocks(n_pairs: NDArray[np.int64], higher: NDArray[np.int64]) -> None:
    """Add the number of pairs whose higher row is in a block to the counts of the blocks."""
    n_pairs += np.bincount(higher // BLOCK_ROWS, minlength=len(n_pairs))


def _piece_rows(n_pairs: NDArray[np.int64]) -> int:
    """Return the number of rows, a power of two, that have at most `MAX_PIECE_PAIRS` pairs wherever they begin.

    Examples
    --------
    >>> _piece_rows(np.array([0, MAX_PIECE_PAIRS // 2, MAX_PIECE_PAIRS, 0]))
    1024
    >>> _piece_rows(np.zeros(9))
    1048576
    """
    rows, before = PIECE_ROWS, np.concatenate([[0], np.cumsum(n_pairs)])
    while rows > BLOCK_ROWS:
        n_blocks = min(rows // BLOCK_ROWS + 1, len(n_pairs))  # a piece may begin within a block
        if (before[n_blocks:] - before[:-n_blocks]).max() <= MAX_PIECE_PAIRS:
            break
        rows //= 2
    return rows
