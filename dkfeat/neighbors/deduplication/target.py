"""Folder of the result of a search: its record, its lock, and the work files that exist until it is complete."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dkfeat.engine.open import as_path
from dkfeat.errors import CommitError, ConfigError, SpecConflictError
from dkfeat.filesystems.urls import local_path, printable
from dkfeat.neighbors.deduplication.result import RECORD, read_record, record_of
from dkfeat.neighbors.deduplication.work_files import WorkFolder
from dkfeat.store.commit.target import locked
from dkfeat.store.outputs import check_outside, write_output
from dkfeat.store.storage.base import DATA, META, SET_ASIDE, TMP
from dkfeat.store.storage.local import LocalStorage

if TYPE_CHECKING:
    from dkfeat.neighbors.deduplication.result import Facts

_WORK = "work"
_SETTINGS = {
    "shards": "rows were added to the shards, or they are other shards",
    "threshold": "threshold={old}, not {new}",
    "bands": "bands {old}, not {new}",
    "verify": "verify={old!r}, not {new!r}",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Folder with the record, the tables and the work files of one search."""

    folder: Path
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, target: str | PathLike[str], settings: Mapping[str, Any]) -> Self:
        """Check that a target is new, or of a search with these settings; nothing is written.

        Raises
        ------
        ConfigError
            If it is a URL, in a data set or a model, or holds something else.
        SpecConflictError
            If it is of a search with other settings, or of other shards.
        CommitError
            If it cannot be written.
        """
        text = as_path(target, "target")
        path = local_path(text)
        if path is None:
            raise ConfigError(
                f"target {printable(text)} is a URL, but codes are sorted in files of a folder; give a folder that all "
                "workers see, and copy the tables from it"
            )
        check_outside(path)
        made = cls(path, settings)
        made.check()
        if not made.is_complete:
            LocalStorage(str(path) if Path(text).is_absolute() else text).check_writable()
        return made

    def check(self) -> None:
        """Check what the folder holds, as `of` does."""
        record = read_record(self.folder)
        if record is None:
            if self.folder.exists() and {path.name for path in self.folder.iterdir()} - {_WORK, *self._unfinished()}:
                raise ConfigError(f"target {self.folder} holds other files than duplicates; choose a new folder")
            return
        old, new = record["settings"], self.settings
        differences = [
            text.format(old=old.get(name), new=new[name])
            for name, text in _SETTINGS.items()
            if old.get(name) != new[name]
        ]
        if differences:
            raise SpecConflictError(
                f"{self.folder} holds duplicates of another search: {'; '.join(differences)}; choose another folder, "
                "or delete this one"
            )

    @property
    def is_complete(self) -> bool:
        """True if the search has ended."""
        record = read_record(self.folder)
        return record is not None and record["results"] is not None

    @contextmanager
    def working(self) -> Iterator[WorkFolder | None]:
        """Create the folder and lock it; yield the one for work files, or None if another run has ended the search."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(LocalStorage(str(self.folder / _WORK))):
            self.check()
            for name in self._unfinished():
                Path(self.folder, name).unlink(missing_ok=True)
            if self.is_complete:
                yield None
                return
            write_output(self.folder / RECORD, record_of(self.settings, None))
            yield WorkFolder.of(self.folder / _WORK)

    def complete(self, facts: Facts) -> None:
        """Record the results, which ends the search."""
        write_output(self.folder / RECORD, record_of(self.settings, facts))

    def clean(self) -> None:
        """Remove the work files of a search that has ended, unless another run looks at them."""
        work = self.folder / _WORK
        if not work.exists():
            return
        with suppress(CommitError), locked(LocalStorage(str(work))):
            for name in (DATA, TMP, SET_ASIDE):
                shutil.rmtree(work / name, ignore_errors=True)
        for folder in (work / META, work):
            with suppress(OSError):  # another run holds the lock
                folder.rmdir()

    def _unfinished(self) -> list[str]:
        """Return the names of records that a killed run has not finished."""
        return [path.name for path in self.folder.glob(f".{RECORD}.*.tmp")]
