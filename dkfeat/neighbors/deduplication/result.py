"""Result of a search for duplicates, in memory or in a folder, and the record of the folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from dkfeat.canonical import Count, Sha256, Share, parse_object, typed
from dkfeat.engine.dataset.dataset import open_shards
from dkfeat.errors import ConfigError, ShardError
from dkfeat.messages import counted
from dkfeat.store.manifest.metadata import DUPLICATES_FILE
from dkfeat.store.manifest.model_folder import open_model_folder
from dkfeat.store.manifest.records import check
from dkfeat.store.storage.base import DATA, SUCCESS, read_existing
from dkfeat.theory.bands import Bands

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.store.storage.base import Storage

PAIRS, GROUPS = "pairs", "groups"
"""Names of the tables and of their folders."""
INDEX, SEARCH = "index", "search"
"""Name of the folder to which new rows are joined, and of the file that describes a search in progress there."""
ANEW = "anew"
"""Name of the file that exists there while the pairs of all rows are searched again."""
_REMEDY = "make it, or continue it, with `dkfeat duplicates SHARDS --out FOLDER`"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Duplicates:
    """Copies and near copies among the rows of a data set; made by `duplicates`, or opened from its folder.

    Arrays are read from the folder when they are used.
    """

    shards: str
    """Path or URL of the data set."""
    threshold: Share
    """Similarity from which two rows are duplicates."""
    verify: Literal["codes", "exact"]
    """Way in which candidates were compared: by their "codes", or "exact"."""
    bands: Bands
    """Division of the codes by which candidates were found."""
    expected_recall: Share
    """Probability that two rows whose similarity is the threshold are candidates."""
    n_rows: Count
    """Number of rows of the data set."""
    n_copies: Count
    """Number of rows whose codes are those of a lower row."""
    n_pairs: Count
    """Number of similar pairs, copies included."""
    n_groups: Count
    """Number of groups of several rows."""
    n_kept: Count
    """Number of rows that are kept."""
    largest_group: Count
    """Number of rows of the largest group; 1 if no row has a duplicate, 0 if there are no rows."""
    n_candidates: Count
    """Number of pairs of rows with different codes that share a band, counted for each band."""
    n_compared: Count
    """Number of these that were compared; it is lower if very many rows share a band."""
    keep_earlier: bool = False
    """True if all rows are kept that earlier searches kept, also if their groups were joined since."""
    folder: str | None = None
    """Folder with the tables; None if the result is in memory."""
    arrays: Mapping[str, Any] = field(default_factory=dict)
    """Arrays of a result in memory, by name; or the opened tables of a folder."""

    @classmethod
    def open(cls, folder: str | PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> Duplicates:
        """Open the folder that `duplicates` wrote, given by path or URL; options are for a URL.

        Raises
        ------
        ConfigError
            If it is not such a folder, or the search has not ended.
        """
        root = open_model_folder(folder, storage_options)
        record = read_record(root)
        if record is None or not is_complete(root, record):
            is_begun = record is not None or has_search(root)
            state = "holds a search that was interrupted" if is_begun else "is no folder of duplicates"
            raise ConfigError(f"{fspath(folder)} {state}; {_REMEDY}")
        found = record["results"]
        options = storage_options if root.is_remote else None
        tables = {name: open_shards(f"{root.url}/{name}", storage_options=options) for name in (PAIRS, GROUPS)}
        for table, stated in ((PAIRS, found.n_pairs), (GROUPS, found.n_rows)):
            n_rows = tables[table].n_rows
            if n_rows != stated and has_search(root):
                raise ConfigError(f"{fspath(folder)} holds a search that was interrupted; {_REMEDY}")
            check(
                n_rows == stated,
                f"{root.url}/{DUPLICATES_FILE}: states {stated:,} rows of {table}, but the table has {n_rows:,}",
            )
        return replace(found, folder=root.url, arrays=tables)

    @cached_property
    def pairs(self) -> NDArray[np.int64]:
        """Shape (n_pairs, 2): numbers of two similar rows in the data set's order, the lower one first.

        They are sorted by the higher row, then by the lower one. Of rows with equal codes, each is paired with the
        lowest one only, which stands for all in the other pairs.
        """
        return np.column_stack([self._column(PAIRS, name) for name in ("row", "other")])

    @cached_property
    def similarities(self) -> NDArray[np.float64]:
        """Shape (n_pairs,): similarities, at least the threshold: estimates from codes, or the exact kernel."""
        return self._column(PAIRS, "similarity")

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """Shape (n_rows,): the lowest row of the group of each row, which is the row itself if it has no duplicate.

        Rows that are connected by pairs are a group.
        """
        return self._column(GROUPS, "group")

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Shape (n_rows,): True for the rows that are kept: the lowest row of each group, see also `keep_earlier`."""
        if self.folder is not None:
            return self._column(GROUPS, "keep")
        return self.groups == np.arange(len(self.groups))

    def __repr__(self) -> str:
        counts = f"{counted(self.n_rows, 'row')}, {counted(self.n_pairs, 'pair')}, {counted(self.n_kept, 'row')} kept"
        return f"Duplicates({counts})"

    def _column(self, table: str, name: str) -> NDArray[Any]:
        if self.folder is None:
            return np.asarray(self.arrays[name])
        shards, verifies = self.arrays[table].shards, self.arrays[table].verifies
        parts = (shards.read(entry, verifies, only=(name,)).kept[name] for entry in shards.manifest.shards)
        return np.concatenate([part.to_numpy(zero_copy_only=False) for part in parts])

    @property
    def chain_note(self) -> str:
        """Note if most rows, copies not counted, are one group, which below the threshold 1 are joined by chains."""
        if self.largest_group < 3 or 2 * (self.largest_group - self.n_copies) <= self.n_rows:
            return ""
        return (
            f"{self.largest_group:,} of the {self.n_rows:,} rows are one group: chains of pairs connect rows that are "
            "less similar than the threshold; a higher threshold gives smaller groups"
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return settings and numbers as plain values."""
        return {**{name: getattr(self, name) for name in _RESULTS}, "bands": list(self.bands)}


_RESULTS = tuple(item.name for item in fields(Duplicates) if item.name not in ("folder", "arrays"))


class IndexRecord(TypedDict):
    """What new rows are joined to."""

    shards: Count
    runs: list[tuple[Count, Count]]
    files: dict[str, tuple[Count, Sha256]]
    """Size of each file, and the SHA-256 by which a damaged one is known."""


class Record(TypedDict):
    """Content of the record of a folder."""

    format: Literal[1]
    settings: dict[str, Any]
    results: Duplicates
    index: IndexRecord


def is_complete(folder: Storage, record: Record | None) -> bool:
    """Return True if a search has ended in a folder: its record and its tables, as it describes them, are there."""
    are_there = all(folder.size(f"{name}/{SUCCESS}") is not None for name in (PAIRS, GROUPS))
    return record is not None and are_there and folder.size(f"{INDEX}/{DATA}/{ANEW}") is None


def has_search(folder: Storage) -> bool:
    """Return True if a search is in progress in the index of a folder, or was interrupted."""
    return folder.size(f"{INDEX}/{DATA}/{SEARCH}") is not None


def read_record(folder: Storage) -> Record | None:
    """Read the record of a folder; None if there is none."""
    where, text = f"{folder.url}/{DUPLICATES_FILE}", read_existing(folder, DUPLICATES_FILE)
    if text is None:
        return None
    try:
        return typed(parse_object(text, where), Record, where)
    except ShardError as fault:
        raise ShardError(f"{fault}: not as this version of dkfeat writes it; choose another folder") from None
