"""Removal of manifests, plans and segments that later commits have superseded."""

from __future__ import annotations

import logging

from dkfeat.errors import DkfeatError, ShardError
from dkfeat.store.manifest import metadata
from dkfeat.store.manifest.batch_plan import PLAN_NAME
from dkfeat.store.manifest.manifest import MANIFEST_NAME, SEGMENTS, Manifest, manifest_name
from dkfeat.store.storage.base import META, Storage

logger = logging.getLogger(__name__)

_START = 64
"""Bytes at the start of a manifest that tell whether its records are in segments."""


def remove_superseded(storage: Storage, manifest: Manifest) -> None:
    """Remove what no reader needs after the commit of a manifest; only the run that committed it may call this.

    The newest `metadata.KEPT` manifests stay with their segments: a reader may have looked up one of them, and tasks of
    a training read the one that it began with. Of older manifests the segments go first, so that an interrupted call is
    continued by that of the next commit. A segment is removed only if a manifest that goes lists it: one that no
    manifest lists may be of a commit under way. Of plans the newest stays, except that manifests of earlier versions,
    which list records themselves, need the plans of all batches as long as one of them stays.

    An error is logged and not raised, because the batch is committed.
    """
    try:
        names = storage.list(META, sized=())
        kept = metadata.kept_numbers(manifest.number)
        numbers = [int(match[1]) for match in map(MANIFEST_NAME.fullmatch, names) if match is not None]
        superseded = [number for number in numbers if number < kept.start]
        plans = [name for name in names if (match := PLAN_NAME.fullmatch(name)) and int(match[1]) < manifest.number]
        heads = metadata.read_heads(storage, kept)
        needed = {entry.name for head in heads for entry in head.segments}
        for number in superseded:
            for segment in _segments(storage, number):
                if segment in names and segment not in needed:
                    storage.remove(f"{META}/{segment}")
            storage.remove(f"{META}/{manifest_name(number)}")
        for name in plans if all(head.segments for head in heads) else ():
            storage.remove(f"{META}/{name}")
    except (OSError, DkfeatError) as fault:
        logger.warning("%s: superseded manifests are left for the next commit to remove: %s", storage.url, fault)


def _segments(storage: Storage, number: int) -> list[str]:
    """Return the names of the segments of a superseded manifest; none if it is damaged, so that it can be removed."""
    if SEGMENTS.encode() not in storage.read_part(f"{META}/{manifest_name(number)}", 0, _START):
        return []
    try:
        return [entry.name for entry in metadata.read_heads(storage, [number])[0].segments]
    except ShardError as fault:
        if isinstance(fault.__cause__, OSError):  # it may be intact
            raise
        logger.warning(
            "a superseded manifest is damaged; it is removed, and `dkfeat clean %s` removes the segments that only it "
            "lists: %s",
            storage.url,
            fault,
        )
        return []
