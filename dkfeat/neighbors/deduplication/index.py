"""Folder in a result with the codes, runs and groups to which new rows are joined, and the files of a search in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dkfeat.canonical import dumps, parse_object
from dkfeat.engine.resolve import must_agree
from dkfeat.errors import CommitConflictError, SpecConflictError, TargetBusyError
from dkfeat.neighbors.deduplication.result import INDEX, SEARCH, has_search
from dkfeat.neighbors.deduplication.runs import CODES, Run
from dkfeat.neighbors.deduplication.stages import Former, Found
from dkfeat.neighbors.deduplication.work_files import Counts, Groups, WorkFolder
from dkfeat.store.commit.begin import hold
from dkfeat.store.storage.base import DATA, META, SPEC, SUCCESS
from dkfeat.store.storage.local import LocalStorage

if TYPE_CHECKING:
    from dkfeat.neighbors.deduplication.result import Record
    from dkfeat.store.storage.base import Storage

WITHDRAWN = "withdrawn"
"""File that exists once the tables are ready for the new rows."""
_OF_COMMITS = ("manifest-", "records-", "plan-")  # in the order in which they are removed


@dataclass(frozen=True, slots=True)
class Index:
    """Files that stay in a result, and those of the search in progress, which the file `SEARCH` describes."""

    work: WorkFolder
    former: Former
    kept: Collection[str]
    """Files of the former search."""

    @classmethod
    def of(cls, folder: str | Path, record: Record | None, *, is_kept: bool) -> Self:
        """Open the index of a result; a temporary one is not kept, and knows no former search."""
        work = WorkFolder.of(folder, durable=is_kept)
        if record is None or "index" not in record:
            return cls(work, Former(), ())
        found = record["results"]
        runs = tuple(Run(*bounds) for bounds in record["index"]["runs"])
        counts = Counts(found.n_candidates, found.n_compared)
        former = Former(found.n_rows, record["index"]["shards"], runs, counts)
        groups = Groups(work, found.n_rows, keep_earlier=found.keep_earlier)
        return cls(work, former, _names(runs, groups))

    def begin(self, settings: Mapping[str, Any], *, resume: bool) -> None:
        """Continue a search, or begin one, for which the files of a search of other shards are removed.

        Raises
        ------
        SpecConflictError
            If an interrupted search has other settings, or files of the former search are missing.
        CommitConflictError
            If a search is not to be continued.
        """
        where = self.work.storage.url
        missing = [name for name in self.kept if not self.work.has(name)]
        if missing:
            raise SpecConflictError(
                f"{where}/{DATA}/{missing[0]} is missing, so new rows cannot be joined; restore it, or choose another "
                "target"
            )
        if self.work.has(SEARCH):
            if not resume:
                raise CommitConflictError(f"{where}: a search is unfinished; allow resume, or choose another target")
            found = self.search()
            remedy = "choose another target, or remove this one"
            must_agree({**settings, "shards": None}, {**found, "shards": None}, where, remedy)
            if found["shards"] == settings["shards"]:
                return
        self.work.keep_only(self.kept)
        self.work.write(SEARCH, [dumps(settings)])

    def search(self) -> dict[str, Any]:
        """Return the settings of the search in progress, and the hash of its shards."""
        path = self.work.path(SEARCH)
        return parse_object(path.read_bytes(), str(path))

    def end(self, found: Found) -> None:
        """Remove all files but those to which rows will be joined."""
        self.work.keep_only(_names(found.runs, found.groups))


def end_search(folder: Storage, record: Record) -> None:
    """Remove the files of the search that made a result, if it was interrupted after that, and is not in progress."""
    if not has_search(folder):
        return
    place = f"{folder.url}/{INDEX}"
    with suppress(TargetBusyError), hold(LocalStorage(place)):
        index = Index.of(place, record, is_kept=True)
        if index.search()["shards"] == record["settings"]["shards"]:
            index.work.keep_only(index.kept)


def _names(runs: Collection[Run], groups: Groups) -> tuple[str, ...]:
    return (CODES, *(run.name for run in runs), *groups.names)


def withdraw(storage: Storage, n_former: int, changed: Collection[int]) -> None:
    """Remove the commits of a table, and its shards after the former ones and those that change, unless none do.

    What is left is an interrupted run, in which the next one finds the other shards.
    """
    if storage.size(SPEC) is None:
        return
    splits = {name: int(name.split("-")[1]) for name in storage.list(DATA, sizes=False)}
    gone = [name for name, split in splits.items() if split >= n_former or split in changed]
    if not gone and storage.size(SUCCESS) is not None:
        return
    with hold(storage):
        storage.remove(SUCCESS)
        names = sorted(storage.list(META, sizes=False), reverse=True)
        commits = [f"{META}/{name}" for kind in _OF_COMMITS for name in names if name.startswith(kind)]
        for name in [*commits, *(f"{DATA}/{name}" for name in gone)]:
            storage.remove(name)
