"""Files that the stages of a search leave to each other, and to later ones: arrays, and pairs of rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from io import FileIO
from itertools import chain, pairwise
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from dkfeat.engine.runners.base import until_stopped
from dkfeat.errors import CommitError, ConfigError
from dkfeat.store.storage.base import DATA, faults_as
from dkfeat.store.storage.local import LocalStorage

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

MAX_ROWS = 1 << 32
"""Maximum number of rows: two row numbers fit in 64 bits."""
_ROW_BITS, _LOWER = 32, np.uint64(MAX_ROWS - 1)
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

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.storage.remove(f"{DATA}/{name}", durable=False)  # what comes back is removed again

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all other files."""
        for name in self.storage.list(DATA, sizes=False):
            if name not in names:
                self.remove(name)

    def values(self, name: str, dtype: DTypeLike, offset: int = 0) -> NDArray[Any]:
        """Return the values in a file after `offset` bytes, read when they are used; changes stay in memory."""
        with self._open(name) as file:
            if os.fstat(file.fileno()).st_size <= offset:
                return np.empty(0, dtype)
            return np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_COPY), dtype, offset=offset)

    @contextmanager
    def opened(self) -> Iterator[OpenFiles]:
        """Open each file once, when it is first read, until the end of a task."""
        with ExitStack() as stack:
            yield OpenFiles(self.storage, stack)

    def _open(self, name: str) -> AbstractContextManager[FileIO]:
        return open(f"{self.storage.url}/{DATA}/{name}", "rb", buffering=0)  # noqa: PTH123 -- a Path takes long


@dataclass(frozen=True, slots=True)
class OpenFiles(WorkFolder):
    """A work folder whose files are opened once each, and closed with a stack."""

    stack: ExitStack
    files: dict[str, FileIO] = field(default_factory=dict)

    def _open(self, name: str) -> AbstractContextManager[FileIO]:
        if name not in self.files:
            self.files[name] = self.stack.enter_context(WorkFolder._open(self, name))
        return nullcontext(self.files[name])


class Part(NamedTuple):
    """What a task of a stage works on: a range of partitions, or of rows, with its share of the stage's progress."""

    number: int
    n_rows: int
    start: int
    stop: int


class Counts(NamedTuple):
    """Numbers of pairs that were candidates, and of those of them that were compared."""

    n_candidates: int = 0
    n_compared: int = 0


class FoundPairs(NamedTuple):
    """Pairs of rows with their similarities, and how many pairs were looked at."""

    keys: NDArray[np.uint64]
    """Shape (n_pairs,): the higher row of each pair in the upper 32 bits, the lower one in the others."""
    similarities: NDArray[np.float64]
    """Shape (n_pairs,)."""
    counts: Counts = Counts()

    @property
    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lower and the higher row of each pair."""
        return (self.keys & _LOWER).astype(np.int64), (self.keys >> np.uint64(_ROW_BITS)).astype(np.int64)


def pair_keys(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the keys of pairs of rows, see `FoundPairs`."""
    keys: NDArray[np.uint64] = np.maximum(left, right).astype(np.uint64) << np.uint64(_ROW_BITS)
    keys |= np.minimum(left, right).astype(np.uint64)
    return keys


@dataclass(frozen=True, slots=True)
class PairFiles:
    """Files of pairs, sorted by their keys; a pair may be in several files, with the same similarity."""

    work: WorkFolder
    names: tuple[str, ...]

    def write(self, name: str, found: FoundPairs) -> Counts:
        """Create a file of pairs, which are in any order and different."""
        order = np.argsort(found.keys)
        columns = found.keys[order], found.similarities[order].view(np.uint64)
        self.work.write(name, [np.array(found.counts, np.int64), *columns])
        return found.counts

    def chunks(self, first: int = 0, stop: int = MAX_ROWS) -> Iterator[FoundPairs]:
        """Iterate over the pairs of all files, a few at a time, whose higher row is in a range.

        A pair comes once for each file that has it.
        """
        for name in self.names:
            keys, similarities = self._columns(name)
            ends = np.array([first << _ROW_BITS, max(0, (stop << _ROW_BITS) - 1)], np.uint64)
            begin, end = np.searchsorted(keys, ends).tolist()
            for at in range(begin, end, _CHUNK):
                some = slice(at, min(at + _CHUNK, end))
                yield FoundPairs(np.array(keys[some]), np.array(similarities[some]))

    def between(self, first: int, stop: int) -> FoundPairs:
        """Return the pairs whose higher row is in a range, sorted by it and then by the lower row, each pair once."""
        parts = [FoundPairs(np.empty(0, np.uint64), np.empty(0)), *self.chunks(first, stop)]
        keys, order = np.unique(np.concatenate([part.keys for part in parts]), return_index=True)
        return FoundPairs(keys, np.concatenate([part.similarities for part in parts])[order])

    def merged_name(self, part: Part) -> str:
        """Return the name of the file with the pairs of a part of the files."""
        return f"merged-{self.names[part.start]}"

    def merge(self, part: Part, stopped: Callable[[], bool]) -> None:
        """Write the pairs of a part of the files, each once, into one file, unless it is written, and empty them."""
        name = self.merged_name(part)
        with self.work.opened() as work:
            some = PairFiles(work, self.names[part.start : part.stop])
            ranges = some._ranges()
            if self.work.has(name):  # else the files were not empty when they were opened just before
                return
            keys = (some.between(*each).keys for each in until_stopped(ranges, stopped))
            similarities = (some.between(*each).similarities.view(np.uint64) for each in until_stopped(ranges, stopped))
            self.work.write(name, chain([np.zeros(2, np.uint64)], keys, similarities))
            for each in some.names:  # their counts stay, by which their tasks are known to be done
                self.work.write(each, [work.values(each, np.uint64)[:2]])

    def _ranges(self) -> list[tuple[int, int]]:
        """Divide the rows into ranges that have few pairs."""
        step = _CHUNK // len(self.names) + 1
        sample = np.sort(np.concatenate([self._columns(name)[0][::step] for name in self.names]))
        bounds = np.unique(sample[:: len(self.names)] >> np.uint64(_ROW_BITS)).tolist()
        return [*pairwise([0, *bounds[1:], MAX_ROWS])]

    def _columns(self, name: str) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        values = self.work.values(name, np.uint64, _HEAD)
        n = len(values) // 2
        return values[:n], values[n:].view(np.float64)


@dataclass(frozen=True, slots=True)
class PairTask:
    """Task that finds pairs, and writes them into a file, unless it is written."""

    pairs: PairFiles
    """Files of the tasks, in the order of the numbers of their parts."""
    find: Callable[[Part, Callable[[], bool]], FoundPairs]
    """Finds the pairs of a part; `Stopped` is raised if the other argument returns True."""

    def __call__(self, part: Part, stopped: Callable[[], bool]) -> Counts:
        """See `dkfeat.engine.runners.base.Runner.run`."""
        name = self.pairs.names[part.number]
        if self.pairs.work.has(name):
            return Counts(*self.pairs.work.values(name, np.int64)[:2].tolist())
        return self.pairs.write(name, self.find(part, stopped))
