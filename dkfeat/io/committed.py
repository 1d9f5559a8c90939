"""What is committed, compared with what is there: sources that changed or vanished, and shards that got lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dkfeat.errors import SpecConflictError
from dkfeat.io import metadata
from dkfeat.io.entries import SourceEntry
from dkfeat.io.manifest import Manifest
from dkfeat.io.plans import check_pinned
from dkfeat.io.storage import DATA, Storage

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile, Split

__all__ = ["changed_sources", "splits_to_repair"]

logger = logging.getLogger(__name__)

KEEP = 'on_changed_source="keep", --on-changed-source keep'


def changed_sources(
    storage: Storage, manifest: Manifest, files: Sequence[SourceFile], *, keep: bool
) -> tuple[str, ...]:
    """Name the committed sources that are not what they were.

    Raises
    ------
    SpecConflictError
        There is one, and they are not to be kept; or one was moved to another name of the same source.
    """
    found = {file.name: file for file in files}
    changed = []
    remedy = f"keep its rows as they are committed ({KEEP}), or choose another target"
    for source in manifest.sources:
        try:
            check_pinned(source.identity, found.get(source.name), f"since {manifest.name} was committed", remedy)
        except SpecConflictError:
            if not keep:
                raise
            changed.append(source.name)
    if changed:
        _refuse_moved(manifest, files)
        logger.warning(
            "%s: %d of %d committed sources changed or are gone, such as %a; their rows stay as they are committed",
            storage.url,
            len(changed),
            len(manifest.sources),
            changed[0],
        )
    return tuple(changed)


def _refuse_moved(manifest: Manifest, files: Sequence[SourceFile]) -> None:
    """Refuse to add what is committed already once more, under another name."""
    listed, found = {source.name for source in manifest.sources}, {file.name for file in files}
    gone = {_known_by(source): source.name for source in manifest.sources if source.name not in found}
    for file in files:
        name = None if file.name in listed else gone.get(_known_by(file))
        if name is not None:
            message = (
                f"source {file.name!a} seems to be {name!a}, which is committed, under another name: its rows would be "
                "in twice. Name the source by the same paths and patterns as before, and move files to where none looks"
            )
            raise SpecConflictError(message)


def _known_by(file: SourceFile | SourceEntry) -> tuple[str, int, int | None, str | None]:
    return file.name.rpartition("/")[2], file.size, file.mtime_ns, file.etag


def splits_to_repair(storage: Storage, manifest: Manifest, files: Sequence[SourceFile]) -> tuple[Split, ...]:
    """Find the splits whose committed shards are missing or of another size.

    Raises
    ------
    SpecConflictError
        A file of such a split is not what it was.
    """
    sizes = storage.list(DATA)
    damaged = [entry for entry in manifest.shards if sizes.get(entry.name) != entry.size]
    if not damaged:
        return ()
    logger.warning(
        "%s: %d of %d committed shards are missing or cut, such as %s; making them again",
        storage.url,
        len(damaged),
        len(manifest.shards),
        damaged[0].name,
    )
    wanted = {entry.split for entry in damaged}
    plans = [metadata.read_plan(storage, number) for number in range(1, manifest.number + 1)]
    splits = [split for plan in plans for split in plan.splits if split.number in wanted]
    found = {file.name: file for file in files}
    for file in (file for split in splits for file in split.files):
        check_pinned(file.identity, found.get(file.name), "since shards of it were committed that are missing now")
    return tuple(split.with_files(found) for split in splits)
