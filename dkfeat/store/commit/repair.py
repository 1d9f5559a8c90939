"""Search for damaged shards of a data set, and the splits that make them again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dkfeat.store.manifest.batch_plan import check_pinned
from dkfeat.store.manifest.manifest import Manifest
from dkfeat.store.manifest.record_lists import planned_splits
from dkfeat.store.manifest.records import ShardEntry
from dkfeat.store.shards.codec import footer_part, holds_identity
from dkfeat.store.storage.base import DATA, Storage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import SourceFile, Split


logger = logging.getLogger(__name__)

MOST_SIZES, MOST_FOOTERS = 4096, 256
"""Maximum number of sizes that a run compares on a local disk, and of footers that it reads, before its work."""
EACH = 8
"""Of so many batches, one compares the names of all shards, whatever the modification time of ``data/`` is."""
NAMES_AT = "data_mtime_ns"
"""Key of the run block: modification time of ``data/`` when the run had published all shards and found its own."""
_GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 leave no large gap
_SHOWN = 5


def has_same_names(manifest: Manifest, modified: int | None) -> bool:
    """Return True if a new batch need not compare the committed shards: they are many, and no file came or went since.

    `modified` is the modification time of ``data/``, which a commit records if the storage knows it.
    """
    is_due = len(manifest.shards) <= MOST_SIZES or manifest.number % EACH == 0
    return not is_due and modified is not None and modified == manifest.run.get(NAMES_AT)


def splits_to_repair(storage: Storage, manifest: Manifest, files: Sequence[SourceFile]) -> tuple[Split, ...]:
    """Find the splits whose committed shards are missing, of another size or other shards under these names.

    Raises
    ------
    SpecConflictError
        If a file of such a split has changed.
    """
    damaged = _damaged(storage, manifest)
    if not damaged:
        return ()
    names = ", ".join(entry.name for entry in damaged[:_SHOWN])
    names += f" and {len(damaged) - _SHOWN} more" if len(damaged) > _SHOWN else ""
    logger.warning(
        "%s: %d of %d committed shards are missing, truncated or exchanged: %s; making them again",
        storage.url,
        len(damaged),
        len(manifest.shards),
        names,
    )
    wanted = {entry.split for entry in damaged}
    splits = [*planned_splits(manifest.records, wanted)]
    found = {file.name: file for file in files}
    for file in (file for split in splits for file in split.files):
        when = f"since shards were committed that are now missing, truncated or exchanged ({names})"
        check_pinned(file.identity, found.get(file.name), when)
    pinned = (file for split in splits for file in split.files)  # names of shards are functions of their properties
    located = {file.name: replace(file, url=found[file.name].url) for file in pinned}
    return tuple(split.with_files(located) for split in splits)


def _damaged(storage: Storage, manifest: Manifest) -> list[ShardEntry]:
    """Return the entries of shards whose name, size or footer is not that of the manifest.

    A run costs what it adds, not what is there: names are compared for all shards, on a local disk sizes for at most
    `MOST_SIZES`, and footers for at most `MOST_FOOTERS` of those that share their size with another one, because only
    these can have exchanged their names. These shards follow one another, and begin at another place after each batch.
    `verify` checks all.
    """
    shards, sizes = manifest.shards, manifest.records.shards["size"]
    places = _turn(np.arange(len(sizes)), manifest.number, MOST_SIZES)
    sized = {shards.names[place] for place in places.tolist()}
    missing = manifest.missing(storage.list(DATA, sized=sized))
    _, which, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    alike = _turn(np.flatnonzero(counts[which] > 1), manifest.number, MOST_FOOTERS)
    chosen = [shards[place] for place in alike.tolist()]
    agree = storage.map(lambda entry: _is_itself(storage, entry), chosen)
    found = {entry.name: entry for entry in missing}
    found |= {entry.name: entry for entry, agrees in zip(chosen, agree, strict=True) if not agrees}
    return [found[name] for name in sorted(found)]


def _turn(places: NDArray[np.int64], number: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` places, those whose turn it is after batch `number`; all of them if they are few.

    The beginnings of successive turns leave no large gap, however the number of places grows.
    """
    return np.roll(places, -int(number * _GOLDEN % 1 * len(places)))[:most]


def _is_itself(storage: Storage, entry: ShardEntry) -> bool:
    """Return True if the footer of a shard has the identity that the manifest states."""
    with suppress(FileNotFoundError):
        footer = footer_part(lambda start: storage.read_part(f"{DATA}/{entry.name}", start, entry.size), entry.size)
        return holds_identity(footer, entry)
    return False
