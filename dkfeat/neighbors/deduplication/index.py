"""Folder in a result with the codes, runs and groups to which new rows are joined, and the files of a search in it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dkfeat.canonical import dumps, parse_object
from dkfeat.engine.resolve import must_agree
from dkfeat.errors import CommitConflictError, ShardError, TargetBusyError
from dkfeat.messages import logger_of
from dkfeat.neighbors.deduplication.result import ANEW, INDEX, SEARCH, has_search
from dkfeat.neighbors.deduplication.runs import CODES, Run
from dkfeat.neighbors.deduplication.search import Found
from dkfeat.neighbors.deduplication.stages import Former
from dkfeat.neighbors.deduplication.work_files import Counts, WorkFolder
from dkfeat.store.commit.begin import hold
from dkfeat.store.storage.base import DATA, META, SPEC, SUCCESS
from dkfeat.store.storage.local import LocalStorage

if TYPE_CHECKING:
    from dkfeat.neighbors.deduplication.result import IndexRecord, Record
    from dkfeat.store.storage.base import Storage

logger = logger_of(__name__)

WITHDRAWN = "withdrawn"
"""File that exists once the tables are ready for the new rows."""
_ENDS = 1 << 20  # bytes at the beginning and at the end of codes and runs, of which a hash is taken
_OF_COMMITS = ("manifest-", "records-", "plan-")  # in the order in which they are removed


@dataclass(frozen=True, slots=True)
class Index:
    """Files that stay in a result, and those of the search in progress, which the file `SEARCH` describes."""

    work: WorkFolder
    former: Former
    kept: Mapping[str, tuple[int, str]]
    """Files of the former search, with their sizes and hashes."""

    @classmethod
    def of(cls, folder: str | Path, record: Record | None, *, is_kept: bool, has_pairs: bool = True) -> Self:
        """Open the index of a result; a temporary one is not kept, and knows no former search.

        If former pairs are lost, both tables are made anew, by the codes, runs and groups of the former search.
        """
        work = WorkFolder.of(folder, durable=is_kept)
        if not is_kept or record is None:
            return cls(work, Former(), {})
        found = record["results"]
        runs = tuple(Run(*bounds) for bounds in record["index"]["runs"])
        former = Former(found.n_rows, runs)
        if has_pairs and not work.has(ANEW):
            counts = Counts(found.n_candidates, found.n_compared)
            former = Former(found.n_rows, runs, record["index"]["shards"], found.n_rows, counts)
        return cls(work, former, record["index"]["files"])

    def begin(self, settings: Mapping[str, Any], groups: Storage, *, resume: bool) -> None:
        """Continue a search, or begin one, for which the files of a search of other shards are removed.

        If that search may have written the groups of former rows anew, the table of groups is emptied.

        Raises
        ------
        SpecConflictError
            If an interrupted search has other settings.
        ShardError
            If a file of the former search is missing or damaged.
        CommitConflictError
            If a search is not to be continued.
        """
        where = self.work.storage.url
        for name, (size, sha256) in self.kept.items():
            is_there = self.work.has(name)
            if not is_there or _state(self.work, name, size) != (size, sha256):
                state = "not as the last search left it" if is_there else "missing"
                raise ShardError(
                    f"{self.work.path(name)} is {state}, so new rows cannot be joined; restore it from a copy, or "
                    "choose another target"
                )
        is_anew = self.former.n_paired < self.former.n_rows
        if self.work.has(SEARCH):
            if not resume:
                raise CommitConflictError(f"{where}: a search is unfinished; allow resume, or choose another target")
            found = self.search()
            remedy = "choose another target, or remove this one"
            must_agree({**settings, "shards": None}, {**found, "shards": None}, where, remedy)
            if found["shards"] == settings["shards"] and is_anew == self.work.has(ANEW):
                return
        if self.work.has(WITHDRAWN):
            withdraw(groups, 0, [])
        self.work.keep_only({*self.kept, ANEW})
        if is_anew:
            logger.warning(
                "%s: shards of its table of pairs are missing or truncated; comparing all rows", Path(where).parent
            )
            self.work.write(ANEW, [])
        self.work.write(SEARCH, [dumps(settings)])

    def search(self) -> dict[str, Any]:
        """Return the settings of the search in progress, and the hash of its shards."""
        path = self.work.path(SEARCH)
        return parse_object(path.read_bytes(), str(path))

    def record(self, found: Found, n_shards: int) -> IndexRecord:
        """Return the record of the files to which rows will be joined."""
        names = (CODES, *(run.name for run in found.runs), *found.groups.names)
        files = {name: _state(self.work, name) for name in names}
        return {"shards": n_shards, "runs": [*found.runs], "files": files}


def end_search(folder: Storage, record: Record) -> None:
    """Remove the files of the search that made a result, if it was interrupted after that, and is not in progress.

    Those of a search for lost pairs stay, with which it continues.
    """
    if not has_search(folder):
        return
    place = f"{folder.url}/{INDEX}"
    with suppress(TargetBusyError), hold(LocalStorage(place)):
        index = Index.of(place, record, is_kept=True)
        if index.search()["shards"] == record["settings"]["shards"] and not index.work.has(ANEW):
            index.work.keep_only(index.kept)


def _state(work: WorkFolder, name: str, size: int | None = None) -> tuple[int, str]:
    """Return the size of a file and its SHA-256; of codes and runs, which are large, that of both ends.

    The file of codes may have those of further rows, of an interrupted search, after its first `size` bytes.
    """
    n = len(work.values(name, np.uint8))
    if name == CODES and size is not None:
        n = min(n, size)
    is_large = name == CODES or name.startswith("run-")
    sha256 = hashlib.sha256()
    for start in (0, max(0, n - _ENDS)) if is_large else range(0, n, _ENDS):
        sha256.update(work.values(name, np.uint8)[start : min(start + _ENDS, n)].data)  # mapped anew: pages are memory
    return n, sha256.hexdigest()


def withdraw(storage: Storage, n_former: int, changed: Collection[int]) -> None:
    """Remove the commits of a table, and its shards after the former ones and those that change, unless all stay.

    What is left is an interrupted run, in which the next one finds the other shards.
    """
    if storage.size(SPEC) is None:
        return
    splits = {name: int(name.split("-")[1]) for name in storage.list(DATA, sizes=False)}
    gone = [name for name, split in splits.items() if split >= n_former or split in changed]
    if n_former and not changed and not gone and storage.size(SUCCESS) is not None:
        return
    with hold(storage):
        storage.remove(SUCCESS)
        names = sorted(storage.list(META, sizes=False), reverse=True)
        commits = [f"{META}/{name}" for kind in _OF_COMMITS for name in names if name.startswith(kind)]
        for name in [*commits, *(f"{DATA}/{name}" for name in gone)]:
            storage.remove(name)
