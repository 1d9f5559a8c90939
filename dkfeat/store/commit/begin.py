"""Commit protocol: record a plan, publish shards in any order and any number of times, commit once.

The driver calls `begin`, sends `Batch.splits` to workers and calls `Batch.commit` with their results. A worker calls
`existing_entry`, and if that returns None, `publish`. No other code writes to a data set.

A shard's name and bytes are functions of its inputs, so repeating a task is harmless. Only the exclusive creation of
the next numbered manifest changes what a reader sees. A run that dies at any point leaves whole shards that no manifest
lists; the next run finds and keeps them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dkfeat.canonical import fingerprint
from dkfeat.errors import CommitConflictError, CommitError, SpecConflictError
from dkfeat.filesystems.urls import identifying
from dkfeat.messages import logger_of
from dkfeat.store.commit.batch import FIRST_OUT_OF_ORDER, Batch, mark_success
from dkfeat.store.commit.delta_log import begin_log
from dkfeat.store.commit.publish import create_or_keep
from dkfeat.store.commit.run_log import LogWriter
from dkfeat.store.manifest import metadata
from dkfeat.store.manifest.batch_plan import BatchPlan, check_pinned, numbered, plan_name
from dkfeat.store.manifest.manifest import Manifest
from dkfeat.store.manifest.metadata import SIDECAR_NAME
from dkfeat.store.manifest.record_table import planned_splits
from dkfeat.store.manifest.records import check
from dkfeat.store.shards.codec import missing_shards, shard_files
from dkfeat.store.storage import base
from dkfeat.store.storage.base import DATA, META, SPEC, SUCCESS, Lock, Storage, faults_as, now

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile, Split


logger = logger_of(__name__)

KEEP = 'on_changed_source="keep" (--on-changed-source keep)'
_SHOWN = 5


def begin(
    storage: Storage,
    spec: Mapping[str, Any],
    files: Sequence[SourceFile],
    splits: Sequence[Split],
    *,
    sidecars: Mapping[str, bytes] | None = None,
    resume: bool = True,
    keep_changed: bool = False,
    lock: Lock | None = None,
    delta: Mapping[str, str] | None = None,
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
    splits : sequence of Split
        Splits of the files. Splits of files that a manifest lists already are left out; the others are numbered on from
        that manifest.
    sidecars : mapping of str to bytes, optional
        Contents, by name, of the files whose SHA-256 is in the spec. They are written before the spec, so that
        a spec never exists without them.
    resume : bool, default=True
        Continue an unfinished batch; if False, such a batch is a conflict.
    keep_changed : bool, default=False
        Accept committed sources that have changed or vanished; their rows stay as committed.
    lock : Lock, optional
        Lock of the target, from `hold`, if the caller holds it already; it is released at the end of the batch.
    delta : mapping, optional
        Columns and types of the shards, to begin a Delta log of the target, unless there is one.

    Returns
    -------
    run : Batch
        Batch to use in a ``with`` statement, which unlocks the target at its end.

    Raises
    ------
    ConfigError
        If the spec or the plan is too long.
    CommitError
        If the target cannot be written.
    CommitConflictError
        If another run holds the target; the message names it.
    SpecConflictError
        If the target has another spec, or a source changed, vanished or has another name.
    ShardError
        If the target's files contradict each other.
    """
    text = metadata.spec_text(spec)  # raises an error before anything is written
    lock = lock or hold(storage)
    try:
        with faults_as(CommitError, f"{storage.url}: cannot make a data set here"):
            storage.prepare()
        with faults_as(CommitError, f"{storage.url}: cannot prepare a batch"):
            storage.sweep()
            _write_spec(storage, dict(spec), text, sidecars or {})
            if delta is not None:
                begin_log(storage, fingerprint(spec), delta)
            manifest = metadata.newest_manifest(storage)
            changed: tuple[str, ...] = ()
            repairs: tuple[Split, ...] = ()
            if manifest is not None:
                changed = changed_sources(storage, manifest, files, keep=keep_changed)
                repairs = splits_to_repair(storage, manifest, files)
            spec_fp = fingerprint(spec)
            number, begun = metadata.next_batch(storage, manifest)
            number, plan = _plan(
                storage, spec_fp, manifest, files, splits, number, begun, resume=resume, is_damaged=bool(repairs)
            )
            return Batch(
                storage=storage,
                lock=lock,
                spec_fp=spec_fp,
                manifest=manifest,
                plan=plan,
                repairs=repairs,
                changed=changed,
                source_root=fingerprint_of_root(files),
                log=LogWriter(storage, number, lock.holder["run_id"], lock.holder["since"]),
                is_resumed=begun is not None or bool(repairs),
            )
    except BaseException:
        lock.release()
        raise


def _plan(
    storage: Storage,
    spec_fp: str,
    manifest: Manifest | None,
    files: Sequence[SourceFile],
    splits: Sequence[Split],
    number: int,
    plan: BatchPlan | None,
    *,
    resume: bool,
    is_damaged: bool,
) -> tuple[int, BatchPlan | None]:
    """Resume a plan, or record one of what is new; return the number of the batch, and None if nothing is new."""
    new = tuple(files) if manifest is None else manifest.new_files(files)
    if manifest is not None and plan is None and not new:
        if is_damaged:
            storage.remove(SUCCESS)
        else:
            mark_success(storage, manifest)
        return manifest.number, None
    storage.probe()  # under the lock, because the holder's sweep would delete the probe's temporary files
    name = f"{META}/{plan_name(number)}"
    first = manifest.n_splits if manifest else 0
    if plan is None:
        plan = BatchPlan(number=number, spec_fp=spec_fp, files=new, splits=numbered(splits, new, first))
        text = plan.to_json()
        storage.remove(SUCCESS)  # not before, because an error of new files leaves the data set as it is
        storage.create(name, text)
        if FIRST_OUT_OF_ORDER in range(first, first + len(plan.splits)):
            logger.warning(
                "%s: from split %d on, the names of shards have another order than the rows; dkfeat reads the rows in "
                "order, but for other Parquet readers raise blocksize, or divide the source into several targets",
                storage.url,
                FIRST_OUT_OF_ORDER,
            )
    elif not resume:
        raise CommitConflictError(
            f"{storage.url}: batch {number} is unfinished; allow resume, or choose another target"
        )
    else:
        storage.remove(SUCCESS)
        follows = not plan.splits or plan.splits[0].number == first
        check(
            plan.spec_fp == spec_fp and follows,
            f"{storage.url}/{name}: does not agree with the spec and the newest manifest",
        )
        plan = plan.located(files, f"abort the interrupted batch with `dkfeat abort {storage.url}`")
        logger.info("%s: resuming batch %d of %d splits", storage.url, number, len(plan.splits))
    base.passed("after_plan")
    return number, plan


def _write_spec(storage: Storage, spec: dict[str, Any], text: bytes, sidecars: Mapping[str, bytes]) -> None:
    """Create the spec, after the files that it names; replace a spec under which nothing was made."""
    is_new = storage.size(SPEC) is None
    if is_new:
        storage.probe()
        check_unused(storage)
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
        create_or_keep(storage, name, data)
    if not is_new:
        storage.remove(SPEC)
    storage.create(SPEC, text)
    if not is_new:
        for name in storage.list(META):
            if SIDECAR_NAME.fullmatch(name) and f"{META}/{name}" not in sidecars:
                storage.remove(f"{META}/{name}")  # it belonged to the former spec
        logger.info("%s: its former settings, with which nothing was made, are replaced", storage.url)


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
    return fingerprint(identifying(files[0].url).removesuffix(files[0].name)) if files else ""


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
    damaged = missing_shards(storage, manifest, storage.list(DATA))
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


def hold(storage: Storage, break_lock: str | None = None) -> Lock:
    """Lock a target under a new run id.

    Raises
    ------
    TargetBusyError
        If another run holds the target; the message names it.
    CommitError
        If the storage fails.
    """
    holder = {"run_id": secrets.token_hex(16), "since": now()}
    with faults_as(CommitError, f"{storage.url}: cannot lock it"):
        return storage.acquire(holder, break_lock=break_lock)


def check_target(storage: Storage) -> None:
    """Raise an error, before any work, if a run cannot use a target; nothing is changed.

    Raises
    ------
    TargetBusyError
        If a live run holds the target; the message names it. Only `hold` excludes other runs.
    CommitError
        If the target is not a data set and holds files under the names of one, or cannot be read.
    """
    with faults_as(CommitError, f"{storage.url}: cannot make a data set here"):
        holder = storage.holder()
        if holder is not None and holder.alive:
            raise holder.busy_error(storage.url)
        if storage.size(SPEC) is None:
            check_unused(storage)


def check_unused(storage: Storage) -> None:
    """Raise `CommitError` if a target without a spec has files in ``data/`` or a ``_SUCCESS``."""
    foreign: list[str] = []
    with suppress(FileNotFoundError):
        foreign = [*shard_files(storage)]
    if storage.size(SUCCESS) is not None:
        foreign.append(SUCCESS)
    if foreign:
        raise CommitError(f"{storage.url} holds files that dkfeat did not write: {foreign[:3]}; choose another target")
