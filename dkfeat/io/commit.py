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
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dkfeat.canonical import fingerprint
from dkfeat.errors import CommitConflictError, CommitError, DkfeatError, ShardError, SpecConflictError
from dkfeat.io import killpoints, metadata, strict_json
from dkfeat.io.entries import PreviousManifest, ShardEntry, SourceEntry, check_shard_name
from dkfeat.io.manifest import Manifest
from dkfeat.io.plans import PinnedPlan, check_unchanged, numbered, plan_name
from dkfeat.io.publishing import existing_entry, publish
from dkfeat.io.storage import DATA, META, SPEC, SUCCESS, Lock, Storage

if TYPE_CHECKING:
    from types import TracebackType

    from dkfeat.blocks import SourceFile, Split

__all__ = ["Run", "begin", "existing_entry", "publish"]

logger = logging.getLogger(__name__)


def begin(
    storage: Storage,
    spec: Mapping[str, Any],
    files: Sequence[SourceFile],
    splits: Sequence[Split],
    *,
    resume: bool = True,
    break_lock: str | None = None,
) -> Run:
    """Become the writer of a data set and pin what is to be done.

    On disk before: nothing, a data set, or one left half-way. After: the spec, and the plan of the batch unless there
    is nothing to do; ``_SUCCESS`` is gone while a batch is under way. If the call dies half-way, or is made again:
    the same again, for every step finds what an earlier one left.

    Parameters
    ----------
    storage : Storage
        The target.
    spec : mapping
        All that affects the values, as plain JSON values.
    files : sequence of SourceFile
        The sources as they are now, in order.
    splits : sequence of Split
        How they are cut. Of sources that a manifest lists already, the splits are left out; the others are numbered
        on from it.
    resume : bool, default=True
        Whether a batch that was left half-way may be continued; if not, one is a conflict.
    break_lock : str, optional
        Run id of a holder on another host that is known to be gone.

    Returns
    -------
    run : Run
        To be used in a ``with`` statement, which frees the target at its end.

    Raises
    ------
    CommitError
        When the target cannot be written to.
    CommitConflictError
        When another run holds it; named in the message.
    SpecConflictError
        When the target has another spec, or a source changed or vanished.
    ShardError
        When what is there does not agree with itself.
    """
    run_id = secrets.token_hex(16)
    started = _now()
    try:
        storage.prepare()
    except OSError as fault:
        message = f"{storage.url}: cannot make a data set here: {fault.strerror or fault}"
        raise CommitError(message) from fault
    storage.probe()
    holder = {"run_id": run_id, "host": socket.gethostname(), "pid": os.getpid(), "since": started}
    try:
        lock = storage.acquire(holder, break_lock=break_lock)
    except DkfeatError:
        raise
    except OSError as fault:
        message = f"{storage.url}: cannot lock it: {fault.strerror or fault}"
        raise CommitError(message) from fault
    try:
        return _pin(storage, lock, run_id, started, dict(spec), files, splits, resume=resume)
    except OSError as fault:
        lock.release()
        if isinstance(fault, DkfeatError):
            raise
        message = f"{storage.url}: cannot prepare a batch: {fault}"
        raise CommitError(message) from fault
    except BaseException:
        lock.release()
        raise


class Run:
    """A batch under way, or nothing to do; made by `begin`."""

    def __init__(
        self,
        storage: Storage,
        lock: Lock,
        run_id: str,
        started: str,
        spec_fp: str,
        manifest: Manifest | None,
        plan: PinnedPlan | None,
    ) -> None:
        self.id = run_id
        """128 random bits, in hexadecimal; workers pass it to `existing_entry` and `publish`."""
        self.spec_fp = spec_fp
        """Fingerprint of the spec."""
        self.manifest = manifest
        """Newest manifest, or None before the first commit."""
        self.plan = plan
        """What this batch covers, or None if there is nothing to do."""
        self._storage = storage
        self._lock = lock
        self._started = started

    @property
    def is_done(self) -> bool:
        """Whether the newest manifest lists every source already."""
        return self.plan is None

    @property
    def splits(self) -> tuple[Split, ...]:
        """What is to be read, pinned; empty if there is nothing to do."""
        return () if self.plan is None else self.plan.splits

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the target; a second call does nothing."""
        killpoints.passed("before_unlock")
        self._lock.release()

    def commit(
        self,
        entries: Iterable[ShardEntry | Mapping[str, Any]],
        *,
        schema: Mapping[str, str],
        n_features: int,
        labels: Sequence[int | float] | None = None,
        versions: Mapping[str, str],
        numeric_env: str = "",
    ) -> Manifest:
        """Make the batch part of the data set: one exclusive create of the next manifest, then ``_SUCCESS``.

        Before: the shards of the batch, listed by no manifest. After: listed. If the call dies half-way, a reader
        sees the state before or the state after; calling again, or resuming, finishes it.

        Parameters
        ----------
        entries : iterable of ShardEntry or their mappings
            Every shard of the batch, in any order.
        schema : mapping
            Columns and types, from ``shards.schema_of``.
        n_features : int
            Columns of the source.
        labels : sequence of int or float, optional
            Sorted label set, if known and of at most 10,000 values.
        versions : mapping
            Versions of the software that ran.
        numeric_env : str
            What the arithmetic ran on, in words.

        Returns
        -------
        manifest : Manifest
            As committed; `manifest` holds it too.

        Raises
        ------
        CommitError
            When shards are missing, doubled or of another size than reported, or the storage refuses.
        CommitConflictError
            When another run committed first.
        """
        if self.plan is None:
            message = "there is nothing to commit: the newest manifest lists every source already"
            raise CommitError(message)
        fresh = [entry if isinstance(entry, ShardEntry) else ShardEntry.from_mapping(entry) for entry in entries]
        fresh.sort(key=lambda entry: (entry.split, entry.piece))
        self._check_present(fresh)
        former = self.manifest
        shards = (*(former.shards if former else ()), *fresh)
        run = {
            "id": self.id,
            "host": socket.gethostname(),
            "started": self._started,
            "ended": _now(),
            "versions": dict(versions),
            "numeric_env": numeric_env,
        }
        try:
            made = Manifest(
                number=self.plan.number,
                spec_fp=self.spec_fp,
                schema=dict(schema),
                n_features=n_features,
                labels=None if labels is None else tuple(labels),
                rows=sum(entry.rows for entry in shards),
                nnz=sum(entry.nnz for entry in shards),
                n_empty_rows=sum(entry.n_empty for entry in shards),
                shards=shards,
                sources=(*(former.sources if former else ()), *_sources(self.plan, fresh)),
                previous=None if former is None else PreviousManifest(name=former.name, sha256=former.sha256),
                run=run,
            )
        except ShardError as fault:
            message = f"{self._storage.url}: the batch is not complete: {fault}"
            raise CommitError(message) from fault
        self.manifest = self._publish(made.to_json())
        return self.manifest

    def _check_present(self, entries: Sequence[ShardEntry]) -> None:
        expected = [split.number for split in self.splits]
        got = sorted({entry.split for entry in entries})
        if got != expected:
            wrong = sorted(set(expected) ^ set(got))[:5]
            message = f"{self._storage.url}: {len(expected):,} splits were planned, {len(got):,} came; see {wrong}"
            raise CommitError(message)
        try:
            sizes = self._storage.list(DATA)
        except OSError as fault:
            message = f"{self._storage.url}/{DATA} cannot be listed: {fault.strerror or fault}"
            raise CommitError(message) from fault
        for entry in entries:
            if sizes.get(check_shard_name(entry.name)) != entry.size:
                message = (
                    f"{self._storage.url}/{DATA}/{entry.name}: {entry.size:,} bytes were published, "
                    f"{sizes.get(entry.name, 'none')} are there; run again"
                )
                raise CommitError(message)

    def _publish(self, text: bytes) -> Manifest:
        manifest = Manifest.from_json(text)
        name = f"{META}/{manifest.name}"
        killpoints.passed("before_manifest")
        try:
            try:
                self._storage.create(name, text)
            except FileExistsError:
                there = Manifest.from_json(self._storage.read(name), name)
                if there.run.get("id") != self.id:
                    message = f"{self._storage.url}: {manifest.name} was committed first by run {there.run.get('id')!a}"
                    raise CommitConflictError(message) from None
                manifest = there
            killpoints.passed("after_manifest")
            _mark_success(self._storage, manifest)
            killpoints.passed("after_success")
            self._storage.sweep()
        except DkfeatError:
            raise
        except OSError as fault:
            message = f"{self._storage.url}: cannot commit {manifest.name}: {fault.strerror or fault}"
            raise CommitError(message) from fault
        return manifest


def _pin(
    storage: Storage,
    lock: Lock,
    run_id: str,
    started: str,
    spec: dict[str, Any],
    files: Sequence[SourceFile],
    splits: Sequence[Split],
    *,
    resume: bool,
) -> Run:
    storage.sweep()
    _settle_spec(storage, spec)
    spec_fp = fingerprint(spec)
    manifest = metadata.newest_manifest(storage)
    if manifest is not None and manifest.spec_fp != spec_fp:
        message = f"{storage.url}: {manifest.name} was made for another spec"
        raise ShardError(message)
    listed = {source.name: source for source in manifest.sources} if manifest else {}
    found = {file.name: file for file in files}
    for name, source in listed.items():
        check_unchanged(source.identity, found.get(name), f"since {manifest.name if manifest else ''} was committed")
    number = manifest.number + 1 if manifest else 1
    fresh = [file for file in files if file.name not in listed]
    pinned = _pinned(storage, number)
    if manifest is not None and pinned is None and not fresh:
        _finish(storage, manifest)
        return Run(storage, lock, run_id, started, spec_fp, manifest, None)
    storage.remove(SUCCESS)
    if pinned is None:
        first = manifest.n_splits if manifest else 0
        plan = PinnedPlan(number=number, spec_fp=spec_fp, files=tuple(fresh), splits=numbered(splits, fresh, first))
        storage.create(f"{META}/{plan_name(number)}", plan.to_json())
    else:
        if not resume:
            message = f"{storage.url}: batch {number} was left half-way; allow resume, or choose another target"
            raise CommitConflictError(message)
        plan = pinned.located(files)
        logger.info("%s: resuming batch %d of %d splits", storage.url, number, len(plan.splits))
    killpoints.passed("after_plan")
    return Run(storage, lock, run_id, started, spec_fp, manifest, plan)


def _settle_spec(storage: Storage, spec: dict[str, Any]) -> None:
    text = strict_json.dumps(spec)
    try:
        if storage.size(SPEC) is None:
            strangers = [*storage.list(DATA)][:3]
            if strangers:
                message = (
                    f"{storage.url}/{DATA} holds files that dkfeat did not write: {strangers}; choose another target"
                )
                raise CommitError(message)
        storage.create(SPEC, text)
    except FileExistsError:
        there = metadata.read_spec(storage)
        lines = metadata.differences(there, spec)
        if lines:
            message = (
                f"{storage.url} was made with another spec; choose another target. It differs in\n  "
                + "\n  ".join(lines)
            )
            raise SpecConflictError(message) from None


def _pinned(storage: Storage, number: int) -> PinnedPlan | None:
    if storage.size(f"{META}/{plan_name(number)}") is None:
        return None
    return metadata.read_plan(storage, number)


def _finish(storage: Storage, manifest: Manifest) -> None:
    sizes = storage.list(DATA)
    for entry in manifest.shards:
        if sizes.get(entry.name) != entry.size:
            message = (
                f"{storage.url}/{DATA}/{entry.name}: {entry.size:,} bytes were committed, "
                f"{sizes.get(entry.name, 'none')} are there; restore it from a copy"
            )
            raise ShardError(message)
    _mark_success(storage, manifest)


def _mark_success(storage: Storage, manifest: Manifest) -> None:
    text = metadata.success_text(manifest)
    try:
        storage.create(SUCCESS, text)
    except FileExistsError:
        if storage.read(SUCCESS) != text:
            logger.warning("%s/%s named another manifest than %s; rewriting it", storage.url, SUCCESS, manifest.name)
            storage.remove(SUCCESS)
            storage.create(SUCCESS, text)


def _sources(plan: PinnedPlan, entries: Iterable[ShardEntry]) -> list[SourceEntry]:
    rows = dict.fromkeys((file.name for file in plan.files), 0)
    for entry in entries:
        rows[entry.source] += entry.rows
    return [SourceEntry(**file.identity, rows=rows[file.name]) for file in plan.files]  # type: ignore[arg-type]  # identity is a mapping of mixed types


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
