"""The commit protocol: pin a plan, publish shards in any order, any number of times, commit once.

The driver calls `begin`, hands `Run.splits` to workers and calls `Run.commit` with what they return. A worker calls
`existing_entry`, and where that gives None, `publish`. Nothing else writes to a data set.

A shard's name and bytes are functions of its inputs, so doing a task twice is harmless. The one act that changes what
a reader sees is the exclusive create of the next numbered manifest. A run that dies anywhere leaves whole shards that
no manifest lists; the next run finds and keeps them.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dkfeat.canonical import fingerprint
from dkfeat.errors import CommitConflictError, CommitError, DkfeatError, ShardError, SpecConflictError
from dkfeat.io import killpoints, metadata
from dkfeat.io.attached import ATTACHED_NAME
from dkfeat.io.committed import changed_sources, splits_to_repair
from dkfeat.io.entries import check
from dkfeat.io.locks import busy
from dkfeat.io.plans import PinnedPlan, numbered, plan_name
from dkfeat.io.publishing import existing_entry, publish
from dkfeat.io.run import Run, mark_success, now
from dkfeat.io.storage import DATA, META, SPEC, SUCCESS, Lock, Storage

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile, Split

    Splits = Sequence[Split] | Callable[[Sequence[SourceFile]], Sequence[Split]]

__all__ = ["Run", "begin", "check_free", "existing_entry", "hold", "publish"]

logger = logging.getLogger(__name__)


def begin(
    storage: Storage,
    spec: Mapping[str, Any],
    files: Sequence[SourceFile],
    splits: Splits,
    *,
    attached: Mapping[str, bytes] | None = None,
    resume: bool = True,
    break_lock: str | None = None,
    keep_changed: bool = False,
) -> Run:
    """Become the writer of a data set and pin what is to be done.

    On disk before: nothing, a data set, or one left half-way. After: the spec, which replaces one that nothing was made
    with, and the plan of the batch unless there is nothing to do; ``_SUCCESS`` is gone while a batch is under way. If
    the call dies half-way, or is made again: the same again, for every step finds what an earlier one left.

    Parameters
    ----------
    storage : Storage
        The target.
    spec : mapping
        All that affects the values, as plain JSON values.
    files : sequence of SourceFile
        The sources as they are now, in order.
    splits : sequence of Split, or callable
        How they are cut. Of sources that a manifest lists already, the splits are left out; the others are numbered
        on from it. A callable is given the files that no manifest lists, and cuts these.
    attached : mapping of str to bytes, optional
        Files that the spec names by their SHA-256, by their names in the data set. They are made before it, so that
        where a spec is, they are.
    resume : bool, default=True
        Whether a batch that was left half-way may be continued; if not, one is a conflict.
    break_lock : str, optional
        Run id of a holder on another host that is known to be gone.
    keep_changed : bool, default=False
        Whether committed sources may have changed or vanished: their rows stay as they are committed.

    Returns
    -------
    run : Run
        To be used in a ``with`` statement, which frees the target at its end.

    Raises
    ------
    ConfigError
        When the spec is too long to be kept.
    CommitError
        When the target cannot be written to.
    CommitConflictError
        When another run holds it; named in the message.
    SpecConflictError
        When the target has another spec, or a source changed or vanished.
    ShardError
        When what is there does not agree with itself.
    """
    metadata.spec_text(spec)  # refused before anything is made
    run_id = secrets.token_hex(16)
    started = now()
    try:
        storage.prepare()
    except OSError as fault:
        message = f"{storage.url}: cannot make a data set here: {fault.strerror or fault}"
        raise CommitError(message) from fault
    lock = hold(storage, run_id, started, break_lock)
    try:
        storage.probe()  # under the lock: the files of a probe are temporary, and the holder sweeps those away
        storage.sweep()
        _settle_spec(storage, dict(spec), attached or {})
        return _pin(storage, lock, run_id, started, dict(spec), files, splits, resume=resume, keep_changed=keep_changed)
    except OSError as fault:
        lock.release()
        if isinstance(fault, DkfeatError):
            raise
        message = f"{storage.url}: cannot prepare a batch: {fault}"
        raise CommitError(message) from fault
    except BaseException:
        lock.release()
        raise


def hold(storage: Storage, run_id: str, since: str, break_lock: str | None = None) -> Lock:
    """Become the only writer of a target whose folders are there.

    Raises
    ------
    TargetBusyError
        When another run holds it; named in the message.
    CommitError
        When the storage refuses.
    """
    holder = {"run_id": run_id, "host": socket.gethostname(), "pid": os.getpid(), "since": since}
    try:
        return storage.acquire(holder, break_lock=break_lock)
    except DkfeatError:
        raise
    except OSError as fault:
        message = f"{storage.url}: cannot lock it: {fault.strerror or fault}"
        raise CommitError(message) from fault


def check_free(storage: Storage) -> None:
    """Refuse at once, before any work, a target that a living run holds; `hold` decides for good.

    Raises
    ------
    TargetBusyError
        Naming the run.
    """
    holder = None
    with suppress(OSError):  # what stands in the way is told by `begin`
        holder = storage.holder()
    if holder is not None and holder.alive:
        raise busy(storage.url, asdict(holder))


def _pin(
    storage: Storage,
    lock: Lock,
    run_id: str,
    started: str,
    spec: dict[str, Any],
    files: Sequence[SourceFile],
    splits: Splits,
    *,
    resume: bool,
    keep_changed: bool,
) -> Run:
    spec_fp = fingerprint(spec)
    manifest = metadata.newest_manifest(storage)
    if manifest is not None and manifest.spec_fp != spec_fp:
        message = f"{storage.url}: {manifest.name} was made for another spec"
        raise ShardError(message)
    listed = {source.name: source for source in manifest.sources} if manifest else {}
    changed = () if manifest is None else changed_sources(storage, manifest, files, keep=keep_changed)
    number = manifest.number + 1 if manifest else 1
    fresh = [file for file in files if file.name not in listed]
    pinned = metadata.pending_plan(storage, number)
    repairs = () if manifest is None else splits_to_repair(storage, manifest, files)
    if manifest is not None and pinned is None and not fresh:
        if repairs:
            storage.remove(SUCCESS)
        else:
            mark_success(storage, manifest)
        return Run(storage, lock, run_id, started, spec_fp, manifest, None, repairs, changed)
    storage.remove(SUCCESS)
    if pinned is None:
        first = manifest.n_splits if manifest else 0
        cut = splits(fresh) if callable(splits) else splits
        plan = PinnedPlan(number=number, spec_fp=spec_fp, files=tuple(fresh), splits=numbered(cut, fresh, first))
        storage.create(f"{META}/{plan_name(number)}", plan.to_json())
    else:
        if not resume:
            message = f"{storage.url}: batch {number} was left half-way; allow resume, or choose another target"
            raise CommitConflictError(message)
        follows = not pinned.splits or pinned.splits[0].number == (manifest.n_splits if manifest else 0)
        where = f"{storage.url}/{META}/{plan_name(number)}"
        check(
            pinned.spec_fp == spec_fp and follows, f"{where}: does not follow the spec and the manifest that are there"
        )
        plan = pinned.located(files, f"give the interrupted batch up with `dkfeat abort {storage.url}`")
        logger.info("%s: resuming batch %d of %d splits", storage.url, number, len(plan.splits))
    killpoints.passed("after_plan")
    return Run(storage, lock, run_id, started, spec_fp, manifest, plan, repairs, changed)


def _settle_spec(storage: Storage, spec: dict[str, Any], attached: Mapping[str, bytes]) -> None:
    text = metadata.spec_text(spec)
    try:
        if storage.size(SPEC) is None:
            strangers = [*storage.list(DATA)][:3]
            if strangers:
                message = (
                    f"{storage.url}/{DATA} holds files that dkfeat did not write: {strangers}; choose another target"
                )
                raise CommitError(message)
            for name, data in attached.items():
                _attach(storage, name, data)
        storage.create(SPEC, text)
    except FileExistsError:
        there = metadata.read_spec(storage)
        lines = metadata.differences(there, spec)
        if not lines:
            return
        remedy = metadata.ways_out(storage)
        if remedy is not None:
            message = f"{storage.url} was made with another spec; {remedy}. It differs in\n  " + "\n  ".join(lines)
            raise SpecConflictError(message) from None
        for name, data in attached.items():
            _attach(storage, name, data)
        storage.remove(SPEC)
        storage.create(SPEC, text)
        for name in storage.list(META):
            if ATTACHED_NAME.fullmatch(name) and f"{META}/{name}" not in attached:
                storage.remove(f"{META}/{name}")  # the former spec named it
        logger.info("%s: nothing was made there with its former settings; they are replaced", storage.url)


def _attach(storage: Storage, name: str, data: bytes) -> None:
    """Create a file that the spec will name, or keep the equal one that a run left which died before its spec."""
    try:
        storage.create(name, data)
    except FileExistsError:
        if storage.size(name) != len(data) or storage.read(name) != data:
            aside = storage.set_aside(name)
            logger.warning("%s/%s was damaged; set aside as %s", storage.url, name, aside)
            storage.create(name, data)
