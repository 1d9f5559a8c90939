"""Comparison of a data set with its present source files, and with the files in ``data/``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dkfeat.canonical import fingerprint
from dkfeat.errors import SpecConflictError
from dkfeat.filesystems.urls import shown_url
from dkfeat.store.manifest.batch_plan import check_pinned
from dkfeat.store.manifest.manifest import Manifest
from dkfeat.store.manifest.record_table import planned_splits
from dkfeat.store.storage.base import DATA, Storage

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile, Split

logger = logging.getLogger(__name__)

KEEP = 'on_changed_source="keep", --on-changed-source keep'
_SHOWN = 5


def changed_sources(
    storage: Storage, manifest: Manifest, files: Sequence[SourceFile], *, keep: bool
) -> tuple[str, ...]:
    """Return the names of the committed sources that have changed or vanished.

    Raises
    ------
    SpecConflictError
        If a source has changed or vanished and `keep` is False, or a new file has the size and the time or tag of one.
    """
    found = {file.name: file for file in files}
    remedy = f"keep its rows as they are committed ({KEEP}), or choose another target"
    columns = manifest.records.sources
    keys = ("name", "size", "mtime_ns", "etag", "rows")
    committed = list(zip(*(columns[key].tolist() for key in keys), strict=True))
    changed = {}  # rows and properties by name
    for place, (name, *identity, rows) in enumerate(committed):
        file = found.get(name)
        if file is not None and identity == [file.size, file.mtime_ns, file.etag]:
            continue  # nearly all of up to a million files are unchanged
        try:
            check_pinned(manifest.sources[place].identity, file, f"since {manifest.name} was committed", remedy)
        except SpecConflictError:
            if not keep:
                raise
            changed[name] = (rows, *identity)
    root = manifest.run.get("source_root")
    has_no_tags = any(etag is None and name in found for name, _, _, etag, _ in committed)
    if has_no_tags and root not in (None, fingerprint_of_root(files)):
        logger.warning(
            "%s: the sources are in another folder than when %s was committed. Files of the same names, sizes and "
            "times are taken for the committed ones; `dkfeat verify --inputs` compares their bytes",
            storage.url,
            manifest.name,
        )
    if changed:
        listed = {name for name, *_ in committed}
        _check_not_renamed(changed, [file for file in files if file.name not in listed], found)
        logger.warning(
            "%s: %d of %d committed sources changed or are gone, such as %a; their rows stay as they are committed",
            storage.url,
            len(changed),
            len(committed),
            next(iter(changed)),
        )
    return tuple(changed)


def fingerprint_of_root(files: Sequence[SourceFile]) -> str:
    """Return the hash of the folder to which the names of files are relative."""
    return fingerprint(shown_url(files[0].url).removesuffix(files[0].name)) if files else ""


def _check_not_renamed(
    changed: Mapping[str, tuple[int, int, int | None, str | None]],
    new: Sequence[SourceFile],
    found: Mapping[str, SourceFile],
) -> None:
    """Raise an error if a new file has the size and the time or tag of a source that changed or vanished."""
    names = {
        (size, mtime_ns, etag): name
        for name, (rows, size, mtime_ns, etag) in changed.items()
        if rows and (mtime_ns, etag) != (None, None)
    }
    for file in new:
        name = names.get((file.size, file.mtime_ns, file.etag))
        if name is not None:
            state, kind = "has changed" if name in found else "is gone", "tag" if file.etag else "time"
            raise SpecConflictError(
                f"source {file.name!a} has the size and {kind} of {name!a}, which is committed and {state}: its rows "
                "would be committed twice. Give the file its committed name and the same paths and patterns as before, "
                "or move it to a folder outside of them"
            )


def splits_to_repair(storage: Storage, manifest: Manifest, files: Sequence[SourceFile]) -> tuple[Split, ...]:
    """Find the splits whose committed shards are missing or of another size.

    Raises
    ------
    SpecConflictError
        If a file of such a split has changed.
    """
    damaged = manifest.missing(storage.list(DATA))
    if not damaged:
        return ()
    names = ", ".join(entry.name for entry in damaged[:_SHOWN])
    names += f" and {len(damaged) - _SHOWN} more" if len(damaged) > _SHOWN else ""
    logger.warning(
        "%s: %d of %d committed shards are missing or truncated: %s; making them again",
        storage.url,
        len(damaged),
        len(manifest.shards),
        names,
    )
    splits = [*planned_splits(manifest.records, {entry.split for entry in damaged})]
    found = {file.name: file for file in files}
    pinned = [file for split in splits for file in split.files]  # names of shards are functions of their properties
    for file in pinned:
        when = f"since shards were committed that are now missing or truncated ({names})"
        check_pinned(file.identity, found.get(file.name), when)
    located = {file.name: replace(file, url=found[file.name].url) for file in pinned}
    return tuple(split.with_files(located) for split in splits)
