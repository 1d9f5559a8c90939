"""Batch in progress: its plan, its lock, and its commit."""

from __future__ import annotations

import hashlib
import logging
import secrets
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dkfeat.canonical import fingerprint
from dkfeat.errors import CommitConflictError, CommitError, ConfigError, DkfeatError, ShardError
from dkfeat.store.commit.publish import check_holder
from dkfeat.store.commit.repair import NAMES_AT
from dkfeat.store.commit.run_log import RUNNING, RunLog, first_line, keep_log
from dkfeat.store.commit.superseded import remove_superseded
from dkfeat.store.manifest import metadata
from dkfeat.store.manifest.batch_plan import BatchPlan, plan_name
from dkfeat.store.manifest.manifest import SEGMENTS, Head, Manifest, PreviousManifest, parse_head
from dkfeat.store.manifest.records import SHARD_NAME, ShardEntry, SourceEntry, check_shard_name
from dkfeat.store.manifest.segment import Segment, SegmentEntry, to_merge
from dkfeat.store.shards.codec import planned_shards
from dkfeat.store.storage import crash_points
from dkfeat.store.storage.base import DATA, META, SPEC, SUCCESS, Lock, Storage, faults_as

if TYPE_CHECKING:
    from types import TracebackType

    from dkfeat.blocks import Split


logger = logging.getLogger(__name__)

_NONE: Mapping[str, bool] = MappingProxyType({})

BAD_INPUT = ConfigError.exit_code
"""Exit status of errors in data or settings, which would occur again in the same run."""
STORAGE = ShardError.exit_code
"""Exit status of storage errors."""
MOST_CHANGED = 100
"""Maximum number of names of changed sources in a manifest, which must not grow with the number of batches."""
LOG_SECONDS = 60.0
"""Interval at which the log of a run in progress is replaced."""


@dataclass(eq=False, kw_only=True)
class Batch:
    """A batch in progress, possibly without splits to process; made by `begin`."""

    storage: Storage
    """Storage of the target."""
    lock: Lock
    """Lock of the target, held until `close`."""
    id: str
    """128 random bits, in hexadecimal; workers pass it to `existing_entry` and `publish`."""
    started: str
    """Time at which the run began, as an ISO date and time."""
    spec_fp: str
    """Fingerprint of the spec."""
    manifest: Manifest | None
    """Newest manifest, or None before the first commit."""
    plan: BatchPlan | None = None
    """Plan of what this batch adds to the newest manifest, or None if there is nothing new."""
    repairs: tuple[Split, ...] = ()
    """Splits whose committed shards are missing or truncated, and are made again."""
    changed: tuple[str, ...] = ()
    """Committed sources that have changed or vanished; their rows stay as committed."""
    source_root: str = ""
    """Fingerprint of the folder to which the names of sources are relative."""
    names_at: int | None = None
    """Modification time of ``data/`` when the run began, if the storage knows it."""
    same_names: bool = False
    """True if by that time ``data/`` has the same files as after the newest commit, and is not listed."""
    is_committed: bool = False
    """True after `commit`."""
    log_facts: Callable[[], Mapping[str, Any]] | None = None
    """Function that returns the current fields of `RunLog`; without it no log is written."""
    _log_name: str | None = None
    _logged: float = 0.0

    @property
    def is_done(self) -> bool:
        """True if the newest manifest lists every source and all of its shards exist."""
        return not self.repairs and self.plan is None

    @property
    def number(self) -> int:
        """Number of the manifest that this batch commits; if it only repairs shards, of the newest manifest."""
        newest = self.manifest.number if self.manifest is not None else 0
        return newest if self.plan is None else self.plan.number

    @property
    def splits(self) -> tuple[Split, ...]:
        """Splits to read, as recorded in plans; empty if there is nothing to do."""
        return self.repairs if self.plan is None else (*self.repairs, *self.plan.splits)

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, DkfeatError) and error.exit_code == BAD_INPUT:
                with suppress(OSError):  # the original error is raised instead
                    self._withdraw()
            self._keep_log(error)
        finally:
            self.close()

    def log_progress(self, *, at_once: bool = False) -> None:
        """Write the log of this run if `at_once` is True or the last one is older than `LOG_SECONDS`."""
        if at_once or time.monotonic() - self._logged > LOG_SECONDS:
            self._write_log(RUNNING)

    def _keep_log(self, error: BaseException | None) -> None:
        storage_failed = isinstance(error, OSError) and getattr(error, "exit_code", STORAGE) == STORAGE
        if storage_failed:
            return
        failed = isinstance(error, Exception)
        outcome = "committed" if self.is_committed else "failed" if failed else "interrupted"
        self._write_log(outcome, first_line(f"{type(error).__name__}: {error}") if failed else "")

    def _write_log(self, outcome: str, error: str = "") -> None:
        if self.log_facts is None:
            return
        log = RunLog(
            batch=self.number,
            run_id=self.id,
            host=socket.gethostname(),
            started=self.started,
            ended=now(),
            outcome=outcome,
            error=error,
            **self.log_facts(),
        )
        self._log_name = keep_log(self.storage, log, self._log_name)
        self._logged = time.monotonic()

    def _withdraw(self) -> None:
        """Delete the plan if it has no shards, so that corrected files or options get a new plan."""
        holder = self.storage.holder()
        if holder is None or holder.run_id != self.id:  # the lock was broken: the plan may belong to another run
            return
        if self.plan is None:
            return
        # The order matters: under the new id no task of this run passes its check any more; a task that passed it
        # before has linked its shard, which the list shows, or lost its temporary file and fails.
        self.lock.rename(secrets.token_hex(16))
        self.storage.sweep()
        if planned_shards(self.plan, self.storage.list(DATA)):
            return
        self.storage.remove(f"{META}/{plan_name(self.plan.number)}")
        if self.manifest is not None and not self.repairs:
            mark_success(self.storage, self.manifest)

    def close(self) -> None:
        """Release the lock of the target; a second call does nothing."""
        crash_points.passed("before_unlock")
        self.lock.release()

    def commit(
        self,
        entries: Iterable[ShardEntry],
        *,
        schema: Mapping[str, str],
        n_features: int,
        labels: Sequence[int | float] | None = None,
        final_newlines: Mapping[str, bool] = _NONE,
        versions: Mapping[str, str],
        numeric_env: str = "",
        numeric_envs: Sequence[str] = (),
    ) -> Manifest:
        """Add the batch to the data set: create the next manifest exclusively, then write ``_SUCCESS``.

        Before the call no manifest lists the shards of the batch; after it the newest manifest does. If the call is
        interrupted, a reader sees the state before or after; another call, or a resumed run, finishes it.

        Parameters
        ----------
        entries : iterable of ShardEntry
            All shards of `splits`, in any order.
        schema : mapping
            Columns and types, from ``shards.schema_of``.
        n_features : int
            Columns of the source.
        labels : sequence of int or float, optional
            Sorted label set, if known and of at most 10,000 values.
        final_newlines : mapping of str to bool
            For each source file of text, by name, whether its last line has a line end.
        versions : mapping
            Versions of the software.
        numeric_env : str
            Description of processor and libraries.
        numeric_envs : sequence of str
            Descriptions of all processors and libraries that made `entries`, if the features depend on them; those of
            the previous manifest are added.

        Returns
        -------
        manifest : Manifest
            Committed manifest, also in `manifest`; the previous one if shards were repaired and nothing was new.

        Raises
        ------
        CommitError
            If shards are missing, listed twice or of another size than reported, if a committed shard was lost
            meanwhile or was made again with other bytes, if the spec, the landmarks or the previous manifest was
            deleted meanwhile, or if the storage fails.
        CommitConflictError
            If another run committed first.
        """
        if self.is_done:
            raise CommitError("there is nothing to commit: the newest manifest lists every source already")
        made = sorted(entries, key=lambda entry: (entry.split, entry.piece))
        former, repaired = self.manifest, {split.number for split in self.repairs}
        new = [entry for entry in made if entry.split not in repaired]
        names_at = self._check_present(made)
        self._check_metadata()
        if former is not None:
            self._check_equal(former, [entry for entry in made if entry.split in repaired])
            if self.plan is None:
                with faults_as(CommitError, f"{self.storage.url}: cannot repair {former.name}"):
                    mark_success(self.storage, former)
                    self.storage.sweep()
                self.is_committed = True
                return former
        assert self.plan is not None  # without a plan, the batch has repairs, and so a manifest
        run = {
            "id": self.id,
            "host": socket.gethostname(),
            "started": self.started,
            "ended": now(),
            "versions": dict(versions),
            "numeric_env": numeric_env,
            "source_root": self.source_root,
            **({"changed_sources": list(self.changed[:MOST_CHANGED])} if self.changed else {}),
            **({"n_changed_sources": len(self.changed)} if len(self.changed) > MOST_CHANGED else {}),
            **self._numeric_envs(numeric_envs),
            # a storage that did not notice the new shards would not notice the loss of one either
            **({NAMES_AT: names_at} if names_at not in (None, self.names_at) else {}),
        }
        try:
            sources = _sources(self.plan, new, final_newlines)
            added = Segment.of(new, sources, self.plan.splits, self.plan.files, f"batch {self.number}")
            former_records = [] if former is None else [former.records]
            kept, merged = self._merged(added)
            texts = merged.files()
            head = Head(
                requires=(SEGMENTS,),
                number=self.plan.number,
                spec_fp=self.spec_fp,
                schema=dict(schema),
                n_features=n_features,
                labels=None if labels is None else tuple(labels),
                rows=sum(entry.rows for entry in new) + (former.rows if former else 0),
                nnz=sum(entry.nnz for entry in new) + (former.nnz if former else 0),
                n_empty_rows=sum(entry.n_empty for entry in new) + (former.n_empty_rows if former else 0),
                segments=(*kept, *(entry for entry, _ in texts)),
                previous=None if former is None else PreviousManifest(name=former.name, sha256=former.sha256),
                run=run,
            )
            manifest = Manifest.of(head, Segment.joined([*former_records, added]))
        except ShardError as fault:
            raise CommitError(f"{self.storage.url}: the batch is not complete: {fault}") from fault
        return self._publish(manifest, texts)

    def _numeric_envs(self, added: Sequence[str]) -> dict[str, list[str]]:
        """Key of the run block with the numeric environments of all shards, if there is more than one."""
        before = self.manifest.numeric_envs if added and self.manifest is not None else ()
        found = sorted({*before, *added})
        return {"numeric_envs": found} if len(found) > 1 else {}

    def _check_equal(self, manifest: Manifest, entries: Sequence[ShardEntry]) -> None:
        """Raise an error for shards that were made again with other bytes than committed, and set them aside."""
        listed = {entry.name: entry for entry in manifest.shards} if entries else {}
        others = [entry.name for entry in entries if listed.get(entry.name) != entry]
        with faults_as(CommitError, f"{self.storage.url}: cannot repair {manifest.name}"):
            for name in others:
                self.storage.set_aside(f"{DATA}/{name}")
        if others:
            raise CommitError(
                f"{self.storage.url}: {others[0]} was made again, but its bytes differ from those that versions "
                f"{manifest.run.get('versions')} committed; use those versions, or restore it from a copy"
            )

    def _check_present(self, entries: Sequence[ShardEntry]) -> int | None:
        """Raise an error if shards are missing; return the modification time of ``data/`` before the check."""
        expected = [split.number for split in self.splits]
        got = sorted({entry.split for entry in entries})
        if got != expected:
            wrong = sorted(set(expected) ^ set(got))[:5]
            raise CommitError(
                f"{self.storage.url}: {len(expected):,} splits were planned, but shards of {len(got):,} "
                f"were reported; the first splits that differ are {wrong}"
            )
        lost: list[ShardEntry] = []
        with faults_as(CommitError, f"{self.storage.url}/{DATA} cannot be listed"):
            names_at = self.storage.modified(DATA)
            if self.same_names:
                found = {entry.name: self.storage.size(f"{DATA}/{check_shard_name(entry.name)}") for entry in entries}
                sizes = {name: size for name, size in found.items() if size is not None}
            else:
                sizes = self.storage.list(DATA, sized={entry.name for entry in entries})
                lost = [] if self.manifest is None else self.manifest.missing(sizes)
                self._warn_of_strays(sizes, entries)
        repaired = {split.number for split in self.repairs}  # their shards are in `entries`
        made = [entry for entry in entries if sizes.get(check_shard_name(entry.name)) != entry.size]
        for entry in (*(entry for entry in lost if entry.split not in repaired), *made):
            raise CommitError(
                f"{self.storage.url}/{DATA}/{entry.name}: {entry.size:,} bytes were published, "
                f"but {sizes.get(entry.name, 'none')} were found; run again"
            )
        return names_at

    def _check_metadata(self) -> None:
        """Raise an error if the spec was changed, or if a file was deleted that readers of the shards need."""
        with faults_as(CommitError, f"{self.storage.url}: cannot commit"):
            names = [SPEC]
            if self.manifest is not None:
                names += [f"{META}/{self.manifest.name}", *(f"{META}/{each.name}" for each in self.manifest.segments)]
            if self.storage.size(SPEC) is not None:
                spec = metadata.read_spec(self.storage)
                if fingerprint(spec) != self.spec_fp:
                    raise CommitError(
                        f"{self.storage.url}/{SPEC} was changed during the run, and nothing was committed; restore it "
                        "from a copy and run again, or choose another target"
                    )
                landmarks = metadata.landmarks_of(spec)
                if landmarks is not None:
                    names.append(f"{META}/{metadata.sidecar_name('landmarks', landmarks)}")
            present = {f"{META}/{name}" for name in self.storage.list(META, sized=())}
            gone = next((name for name in names if name not in present), None)
        if gone is not None:
            raise CommitError(
                f"{self.storage.url}/{gone} was deleted during the run, and nothing was committed; restore it from a "
                "copy and run again, or choose another target"
            )

    def _warn_of_strays(self, names: Iterable[str], entries: Iterable[ShardEntry]) -> None:
        """Log a warning if ``data/`` has shards that neither a manifest nor the batch lists."""
        listed = {entry.name for entry in entries}
        listed |= self.manifest.sizes().keys() if self.manifest else set()
        unlisted = [name for name in names if name not in listed and SHARD_NAME.fullmatch(name)]
        planned = planned_shards(self.plan, unlisted) if self.plan else {}
        strays = [name for name in unlisted if name not in planned]
        if strays:
            logger.warning(
                "%s/%s: shards of other runs that no manifest lists: %d, such as %s; "
                "remove them with `dkfeat clean %s`, because other Parquet readers find them",
                self.storage.url,
                DATA,
                len(strays),
                strays[0],
                self.storage.url,
            )

    def _plan_name(self, plan: BatchPlan) -> str:
        """Name of the plan's file; an error if the file was removed."""
        name = f"{META}/{plan_name(plan.number)}"
        if self.storage.size(name) is None:
            raise CommitConflictError(
                f"{self.storage.url}: batch {plan.number} was aborted by another run meanwhile; run again"
            )
        return name

    def _check_plan(self, plan: BatchPlan) -> None:
        """Raise an error if the plan was removed or changed, because readers would reject the manifest."""
        name = self._plan_name(plan)
        is_same = hashlib.sha256(self.storage.read(name)).digest() == hashlib.sha256(plan.to_json()).digest()
        # parsed only if an earlier version wrote the same plan in other words, because a parsed plan takes much memory
        if not is_same and metadata.read_plan(self.storage, plan.number).to_json() != plan.to_json():
            raise CommitError(
                f"{self.storage.url}/{name} was changed during the run, and nothing was committed; restore it from a "
                "copy or delete it, and run again"
            )

    def _merged(self, added: Segment) -> tuple[tuple[SegmentEntry, ...], Segment]:
        """Return the segments that stay as they are, and the batch's records joined to those of the other segments."""
        if self.manifest is None:
            return (), added
        segments = self.manifest.segments
        if not segments:  # an earlier version listed the records in the manifest
            return (), Segment.joined([self.manifest.records, added])
        n_kept = len(segments) - to_merge(segments, added.n_sources + added.n_shards)
        tail = metadata.read_segments(self.storage, segments[n_kept:], self.manifest.name)
        return segments[:n_kept], Segment.joined([*tail, added])

    def _write_segment(self, name: str, text: bytes) -> None:
        """Create the segment of the next manifest; keep an equal one of a run that died before its commit."""
        try:
            self.storage.create(name, text)
        except (FileExistsError, FileNotFoundError):  # not found: a faster run removed our temporary file
            if self.storage.size(name) is None:
                raise
            if self.storage.read(name) != text:
                aside = self.storage.set_aside(name)
                logger.warning("%s/%s was damaged; set aside as %s", self.storage.url, name, aside)
                self.storage.create(name, text)

    def _publish(self, manifest: Manifest, segments: Sequence[tuple[SegmentEntry, bytes]]) -> Manifest:
        assert self.plan is not None
        with faults_as(CommitError, f"{self.storage.url}: cannot commit {manifest.name}"):
            self._check_plan(self.plan)
            for entry, text in segments:
                self._write_segment(f"{META}/{entry.name}", text)
        text = manifest.to_json()
        manifest = replace(manifest, sha256=hashlib.sha256(text).hexdigest())
        name = f"{META}/{manifest.name}"
        crash_points.passed("before_manifest")
        with faults_as(CommitError, f"{self.storage.url}: cannot commit {manifest.name}"):
            self._plan_name(self.plan)
            try:
                # without the lock another run may abort this batch and remove its segments at any time
                self.storage.create(name, text, before_publish=lambda: check_holder(self.storage, self.id))
            except (FileExistsError, FileNotFoundError):  # not found: the faster run removed our temporary file
                if self.storage.size(name) is None:
                    check_holder(self.storage, self.id)
                    raise
                there, _ = parse_head(self.storage.read(name), name)
                if there.run.get("id") != self.id:
                    raise CommitConflictError(
                        f"{self.storage.url}: {manifest.name} was committed first by run {there.run.get('id')!a}"
                    ) from None
                manifest = metadata.read_numbered(self.storage, there.number, there.sha256)
        crash_points.passed("after_manifest")
        self.manifest, self.is_committed = manifest, True
        with faults_as(
            CommitError, f"{self.storage.url}: {manifest.name} is committed, but {SUCCESS} cannot be written"
        ):
            mark_success(self.storage, manifest)
            crash_points.passed("after_success")
            self.storage.sweep()
        remove_superseded(self.storage, manifest)
        return manifest


def mark_success(storage: Storage, manifest: Manifest) -> None:
    """Write ``_SUCCESS``, or correct one that names another manifest; only the lock's holder may call it."""
    text = metadata.success_text(manifest)
    try:
        storage.create(SUCCESS, text)
    except FileExistsError:
        if storage.size(SUCCESS) != len(text) or storage.read(SUCCESS) != text:
            logger.warning("%s/%s named another manifest than %s; rewriting it", storage.url, SUCCESS, manifest.name)
            storage.remove(SUCCESS)
            storage.create(SUCCESS, text)


def _sources(plan: BatchPlan, entries: Iterable[ShardEntry], final_newlines: Mapping[str, bool]) -> list[SourceEntry]:
    positions = {file.name: position for position, file in enumerate(plan.files)}
    firsts = {split.number: positions[split.file.name] for split in plan.splits}
    rows: Counter[int] = Counter()
    bad_rows: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for entry in entries:
        first = firsts[entry.split]  # the files of a group follow one another in the plan
        for offset, count in enumerate(entry.rows_by_file or (entry.rows,)):
            rows[first + offset] += count
        for offset, reason, count in entry.bad_rows:
            bad_rows[first + offset][reason] += count
    sources = []
    for position, file in enumerate(plan.files):
        values: dict[str, Any] = {**file.identity, "rows": rows[position]}
        values["final_newline"] = final_newlines.get(file.name)
        if position in bad_rows:
            values["bad_rows"] = dict(sorted(bad_rows[position].items()))
        sources.append(SourceEntry(**values))
    return sources


def now() -> str:
    """Return the current time, for the run block of the manifest."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
