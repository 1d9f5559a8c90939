"""Commit protocol: record a plan, publish shards in any order and any number of times, commit once.

The driver calls `begin`, sends `Batch.splits` to workers and calls `Batch.commit` with their results. A worker calls
`existing_entry`, and if that returns None, `publish`. No other code writes to a data set.

A shard's name and bytes are functions of its inputs, so repeating a task is harmless. Only the exclusive creation of
the next numbered manifest changes what a reader sees. A run that dies at any point leaves whole shards that no manifest
lists; the next run finds and keeps them.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from dkfeat.canonical import fingerprint
from dkfeat.errors import (
    CommitConflictError,
    CommitError,
    InputError,
    ParquetError,
    ParseError,
    SpecConflictError,
)
from dkfeat.io.commit.batch import Batch, mark_success, now
from dkfeat.io.manifest import metadata
from dkfeat.io.manifest.batch_plan import BatchPlan, check_pinned, numbered, plan_name
from dkfeat.io.manifest.manifest import Manifest, SourceEntry, check
from dkfeat.io.manifest.metadata import SIDECAR_NAME
from dkfeat.io.storage import crash_points
from dkfeat.io.storage.base import DATA, META, SPEC, SUCCESS, Lock, Storage, faults_as

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile, Split

    Splits = Sequence[Split] | Callable[[Sequence[SourceFile]], Sequence[Split]]
    Checksum = tuple[int, int, str]
    Checksums = Callable[[Sequence[SourceFile]], Iterable[Checksum]]


logger = logging.getLogger(__name__)


def begin(
    storage: Storage,
    spec: Mapping[str, Any],
    files: Sequence[SourceFile],
    splits: Splits,
    *,
    sidecars: Mapping[str, bytes] | None = None,
    resume: bool = True,
    keep_changed: bool = False,
    checksums: Checksums | None = None,
) -> Batch:
    """Lock a data set for writing, and record the plan of the next batch.

    On disk before: nothing, a data set, or an unfinished one. After: the spec, which replaces a spec under which
    nothing was made, and the plan of the batch unless there is nothing to do. ``_SUCCESS`` is absent while a batch is
    in progress. If the call is interrupted and repeated, the result is the same, since every step finds the results of
    earlier ones.

    Parameters
    ----------
    storage : Storage
        Storage of the target.
    spec : mapping
        All settings that affect values, as plain JSON values.
    files : sequence of SourceFile
        Source files as they are now, in order.
    splits : sequence of Split, or callable
        Splits of the files. Splits of files that a manifest lists already are left out; the others are numbered on from
        that manifest. A callable receives the files that no manifest lists, and returns their splits.
    sidecars : mapping of str to bytes, optional
        Contents, by name, of the files whose SHA-256 is in the spec. They are written before the spec, so that
        a spec never exists without them.
    resume : bool, default=True
        Continue an unfinished batch; if False, such a batch is a conflict.
    keep_changed : bool, default=False
        Accept committed sources that have changed or vanished; their rows stay as committed.
    checksums : callable, optional
        Reads files from the beginning and yields start, stop and SHA-256 of each piece, as committed shards list them.
        Required with `keep_changed`: new files of the size of a changed or vanished source are compared with it.

    Returns
    -------
    run : Batch
        Batch to use in a ``with`` statement, which unlocks the target at its end.

    Raises
    ------
    ConfigError
        If the spec is too long.
    CommitError
        If the target cannot be written.
    CommitConflictError
        If another run holds the target; the message names it.
    SpecConflictError
        If the target has another spec, a source changed or vanished, or a vanished one has another name.
    ShardError
        If the target's files contradict each other.
    """
    text = metadata.spec_text(spec)  # raises an error before anything is written
    run_id, started = secrets.token_hex(16), now()
    with faults_as(CommitError, f"{storage.url}: cannot make a data set here"):
        storage.prepare()
    lock = hold(storage, run_id, started)
    try:
        with faults_as(CommitError, f"{storage.url}: cannot prepare a batch"):
            storage.probe()  # under the lock, because the holder's sweep would delete the probe's temporary files
            storage.sweep()
            _write_spec(storage, dict(spec), text, sidecars or {})
            batch = Batch(
                storage=storage,
                lock=lock,
                id=run_id,
                started=started,
                spec_fp=fingerprint(spec),
                manifest=metadata.newest_manifest(storage),
            )
            if batch.manifest is not None:
                batch.changed = changed_sources(storage, batch.manifest, files, keep=keep_changed, checksums=checksums)
            _plan(batch, files, splits, resume=resume)
            return batch
    except BaseException:
        lock.release()
        raise


def hold(storage: Storage, run_id: str, since: str, break_lock: str | None = None) -> Lock:
    """Lock a target whose folders exist.

    Raises
    ------
    TargetBusyError
        If another run holds the target; the message names it.
    CommitError
        If the storage fails.
    """
    holder = {"run_id": run_id, "host": socket.gethostname(), "pid": os.getpid(), "since": since}
    with faults_as(CommitError, f"{storage.url}: cannot lock it"):
        return storage.acquire(holder, break_lock=break_lock)


def check_free(storage: Storage) -> None:
    """Raise an error, before any work, if a live run holds the target; only `hold` excludes other runs.

    Raises
    ------
    TargetBusyError
        If a live run holds the target; the message names it.
    """
    holder = None
    with suppress(OSError):  # `begin` reports storage errors
        holder = storage.holder()
    if holder is not None and holder.alive:
        raise holder.busy_error(storage.url)


def _plan(batch: Batch, files: Sequence[SourceFile], splits: Splits, *, resume: bool) -> None:
    """Compare the sources with the manifest, and find or record the plan of what is new."""
    storage, manifest = batch.storage, batch.manifest
    listed: set[str] = set()
    if manifest is not None:
        listed = {source.name for source in manifest.sources}
        batch.repairs = splits_to_repair(storage, manifest, files)
    number, batch.plan = metadata.next_batch(storage, manifest)
    new = [file for file in files if file.name not in listed]
    if manifest is not None and batch.plan is None and not new:
        if batch.repairs:
            storage.remove(SUCCESS)
        else:
            mark_success(storage, manifest)
        return
    storage.remove(SUCCESS)
    name = f"{META}/{plan_name(number)}"
    first = manifest.n_splits if manifest else 0
    if batch.plan is None:
        cut = splits(new) if callable(splits) else splits
        batch.plan = BatchPlan(number=number, spec_fp=batch.spec_fp, files=tuple(new), splits=numbered(cut, new, first))
        storage.create(name, batch.plan.to_json())
    elif not resume:
        raise CommitConflictError(
            f"{storage.url}: batch {number} is unfinished; allow resume, or choose another target"
        )
    else:
        follows = not batch.plan.splits or batch.plan.splits[0].number == first
        check(
            batch.plan.spec_fp == batch.spec_fp and follows,
            f"{storage.url}/{name}: does not agree with the spec and the newest manifest",
        )
        remedy = f"abort the interrupted batch with `dkfeat abort {storage.url}`"
        batch.plan = batch.plan.located(files, remedy)
        logger.info("%s: resuming batch %d of %d splits", storage.url, number, len(batch.plan.splits))
    crash_points.passed("after_plan")


def _write_spec(storage: Storage, spec: dict[str, Any], text: bytes, sidecars: Mapping[str, bytes]) -> None:
    """Create the spec, after the files that it names; replace a spec under which nothing was made."""
    is_new = storage.size(SPEC) is None
    if is_new:
        foreign = [*storage.list(DATA)][:3]
        if foreign:
            raise CommitError(
                f"{storage.url}/{DATA} holds files that dkfeat did not write: {foreign}; choose another target"
            )
    else:
        lines = metadata.differences(metadata.read_spec(storage), spec)
        if not lines:
            return
        remedy = metadata.spec_conflict_remedy(storage)
        if remedy is not None:
            raise SpecConflictError(
                f"{storage.url} was made with another spec; {remedy}. It differs in\n  " + "\n  ".join(lines)
            )
    for name, data in sidecars.items():
        _write_sidecar(storage, name, data)
    if not is_new:
        storage.remove(SPEC)
    try:
        storage.create(SPEC, text)
    except FileExistsError:  # created by a run that the lock did not exclude
        if metadata.differences(metadata.read_spec(storage), spec):
            raise CommitConflictError(f"{storage.url}: another run created the spec meanwhile; run again") from None
    if not is_new:
        for name in storage.list(META):
            if SIDECAR_NAME.fullmatch(name) and f"{META}/{name}" not in sidecars:
                storage.remove(f"{META}/{name}")  # it belonged to the former spec
        logger.info("%s: its former settings, with which nothing was made, are replaced", storage.url)


def _write_sidecar(storage: Storage, name: str, data: bytes) -> None:
    """Create a file that the spec will name; keep an equal one of an earlier run that died before writing its spec."""
    try:
        storage.create(name, data)
    except FileExistsError:
        if storage.size(name) != len(data) or storage.read(name) != data:
            aside = storage.set_aside(name)
            logger.warning("%s/%s was damaged; set aside as %s", storage.url, name, aside)
            storage.create(name, data)


KEEP = 'on_changed_source="keep", --on-changed-source keep'


def changed_sources(
    storage: Storage, manifest: Manifest, files: Sequence[SourceFile], *, keep: bool, checksums: Checksums | None
) -> tuple[str, ...]:
    """Return the names of the committed sources that have changed or vanished.

    Raises
    ------
    SpecConflictError
        If a source has changed or vanished and `keep` is False, or its committed content is among `files` under another
        name.
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
        _check_moved(manifest, files, changed, checksums)
        logger.warning(
            "%s: %d of %d committed sources changed or are gone, such as %a; their rows stay as they are committed",
            storage.url,
            len(changed),
            len(manifest.sources),
            changed[0],
        )
    return tuple(changed)


def _check_moved(
    manifest: Manifest, files: Sequence[SourceFile], changed: Sequence[str], checksums: Checksums | None
) -> None:
    """Raise an error if the committed content of a changed or vanished source is among `files` under another name."""
    listed = {source.name for source in manifest.sources}
    found = {file.name: file for file in files}
    new: dict[int, list[SourceFile]] = {}
    for file in files:
        if file.name not in listed:
            new.setdefault(file.size, []).append(file)
    wanted = set(changed)
    alone: dict[int, list[_Content]] = {}
    for content in _contents(manifest, wanted):
        if len(content.sources) == 1:
            alone.setdefault(content.sources[0].size, []).append(content)
            continue
        lost = [source for source in content.sources if source.name in wanted and source.rows]
        for choice in _choices(lost, new):
            renamed = {source.name: file for source, file in zip(lost, choice, strict=True)}
            members = [renamed.get(source.name, found.get(source.name)) for source in content.sources]
            if _matching([file for file in members if file is not None], [content], checksums) is not None:
                raise _moved_error(choice[0], lost[0], found)
        if len(lost) > 1:  # the hash of the group does not tell which of its files were renamed
            keys = {_unnamed(source): source for source in lost}
            for file in (file for source in lost for file in new.get(source.size, ())):
                if _unnamed(file) in keys:
                    raise _moved_error(file, keys[_unnamed(file)], found)
    for size, contents in alone.items():
        for file in new.get(size, ()):
            match = _matching([file], contents, checksums)
            if match is not None:
                raise _moved_error(file, match.sources[0], found)


class _Content(NamedTuple):
    """Committed content that was read as one: a file, or a group of tiny files."""

    sources: tuple[SourceEntry, ...]
    pieces: tuple[Checksum, ...]


def _contents(manifest: Manifest, names: Container[str]) -> Iterator[_Content]:
    """Yield the committed content of the sources of these names that have rows, with the rest of their groups."""
    positions = {source.name: position for position, source in enumerate(manifest.sources)}
    for first, shards in groupby(manifest.shards, key=lambda entry: entry.source):
        entries = tuple(shards)
        position, n_files = positions[first], max(len(entries[0].rows_by_file), 1)
        sources = manifest.sources[position : position + n_files]
        if any(source.name in names and source.rows for source in sources):
            yield _Content(sources, tuple((*entry.range, entry.source_sha256) for entry in entries))


def _choices(lost: Sequence[SourceEntry], new: Mapping[int, list[SourceFile]]) -> Iterator[tuple[SourceFile, ...]]:
    """Yield new files of the sizes of the lost files of a group: each file for one of them, in order for several."""
    if len(lost) == 1:
        yield from ((file,) for file in new.get(lost[0].size, ()))
        return
    left = {source.size: iter(new.get(source.size, ())) for source in lost}
    choice = [next(left[source.size], None) for source in lost]
    if None not in choice:
        yield tuple(file for file in choice if file is not None)


def _matching(
    files: Sequence[SourceFile], contents: Sequence[_Content], checksums: Checksums | None
) -> _Content | None:
    """Return the content that files have, if any of `contents`; reading ends with the first range that none has."""
    assert checksums is not None
    n_pieces = 0
    try:
        for piece in checksums(files):
            contents = [content for content in contents if content.pieces[n_pieces : n_pieces + 1] == (piece,)]
            n_pieces += 1
            if not contents:
                return None
    except (ParseError, ParquetError, InputError):  # the committed rows were read without an error
        return None
    return next((content for content in contents if len(content.pieces) == n_pieces), None)


def _unnamed(file: SourceFile | SourceEntry) -> tuple[int, int | None, str | None]:
    return file.size, file.mtime_ns, file.etag


def _moved_error(file: SourceFile, source: SourceEntry, found: Container[str]) -> SpecConflictError:
    state = "has changed" if source.name in found else "is gone"
    return SpecConflictError(
        f"source {file.name!a} has the content of {source.name!a}, which is committed and {state}: its rows would be "
        "committed twice. Give the file its committed name and the same paths and patterns as before, or move it to a "
        "folder outside of them"
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
    logger.warning(
        "%s: %d of %d committed shards are missing or truncated, such as %s; making them again",
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
        check_pinned(file.identity, found.get(file.name), "since its shards, which are now missing, were committed")
    return tuple(split.with_files(found) for split in splits)
