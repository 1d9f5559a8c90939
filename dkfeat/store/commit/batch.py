"""Batch in progress: its plan, its lock and its commit."""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dkfeat.canonical import dumps, fingerprint
from dkfeat.errors import CommitConflictError, CommitError, ConfigError, DkfeatError, ShardError
from dkfeat.messages import logger_of
from dkfeat.store.commit.delta_log import extend_log
from dkfeat.store.commit.run_log import LogWriter
from dkfeat.store.manifest import metadata
from dkfeat.store.manifest.batch_plan import PLAN_NAME, BatchPlan, plan_name, read_plan
from dkfeat.store.manifest.manifest import (
    MANIFEST_NAME,
    RECORDS,
    RECORDS_NAME,
    SEGMENT_NAME,
    Head,
    Manifest,
    PreviousManifest,
    RecordsEntry,
    parse_head,
)
from dkfeat.store.manifest.record_table import Records
from dkfeat.store.manifest.records import NO_BAD_ROWS, SHARD_NAME, ShardEntry, SourceEntry, check_shard_name
from dkfeat.store.shards.codec import planned_shards, shard_files, text_files
from dkfeat.store.storage import base
from dkfeat.store.storage.base import DATA, META, SPEC, SUCCESS, Lock, Storage, faults_as, now

if TYPE_CHECKING:
    from dkfeat.blocks import Split

from dkfeat.store.commit.publish import check_holder, create_or_keep, wait_for_looks

logger = logger_of(__name__)

FIRST_OUT_OF_ORDER = 1_000_000
"""First number of a split that has seven digits; names of shards are in the order of rows only up to there."""
_NONE: Mapping[str, bool] = MappingProxyType({})
MOST_CHANGED = 100
"""Maximum number of names of changed sources in a manifest, which must not grow with the number of batches."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch(AbstractContextManager["Batch"]):
    """A batch in progress, possibly without splits to process; made by `begin`."""

    storage: Storage
    """Storage of the target."""
    lock: Lock
    """Lock of the target, held until `close`."""
    spec_fp: str
    """Fingerprint of the spec."""
    manifest: Manifest | None
    """Newest manifest when the batch began, or None before the first commit."""
    plan: BatchPlan | None
    """Plan of what this batch adds to the newest manifest, or None if there is nothing new."""
    repairs: tuple[Split, ...]
    """Splits whose committed shards are missing or truncated, and are made again."""
    changed: tuple[str, ...]
    """Committed sources that have changed or vanished; their rows stay as committed."""
    source_root: str
    """Fingerprint of the folder to which the names of sources are relative."""
    log: LogWriter
    """Log of the run; without its facts no log is written."""
    is_resumed: bool = True
    """False if no earlier run can have made shards of the batch."""

    @property
    def id(self) -> str:
        """128 random bits, in hexadecimal; workers pass it to `existing_entry` and `publish`."""
        return str(self.log.run_id)

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

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if isinstance(error, DkfeatError) and error.exit_code == ConfigError.exit_code:  # it would occur again
                with suppress(OSError):  # the original error is raised instead
                    self._withdraw()
            code = getattr(error, "exit_code", ShardError.exit_code)
            if not isinstance(error, OSError) or code != ShardError.exit_code:  # otherwise the storage failed
                self.log.end(error)
        finally:
            self.close()

    def _withdraw(self) -> None:
        """Delete the plan if it has no shards, so that corrected files or options get a new plan."""
        values = self.storage.lock_values() or {}
        if self.plan is None or values.get("run_id") != self.id:  # the plan may belong to the run that broke the lock
            return
        # The order matters: under the new id no task of this run passes its check any more; a task that passed it
        # before has linked its shard, which the list shows, or lost its temporary file and fails.
        self.lock.rename(secrets.token_hex(16))
        self.storage.sweep()
        wait_for_looks(self.storage)
        if planned_shards(self.plan, shard_files(self.storage).values()):
            return
        self.storage.remove(f"{META}/{plan_name(self.plan.number)}")
        if self.manifest is not None and not self.repairs:
            mark_success(self.storage, self.manifest)

    def close(self) -> None:
        """Release the lock of the target; a second call does nothing."""
        base.passed("before_unlock")
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
            Committed manifest; the previous one if shards were repaired and nothing was new.

        Raises
        ------
        CommitError
            If shards are missing, listed twice or of another size than reported, if a committed shard was lost
            meanwhile (in an object store, where these are not listed again, the next run finds that) or was made again
            with other bytes, if the spec, the landmarks or the previous manifest was deleted meanwhile, or if the
            storage fails.
        CommitConflictError
            If another run committed first.
        """
        if self.is_done:
            raise CommitError("there is nothing to commit: the newest manifest lists every source already")
        made = sorted(entries, key=lambda entry: (entry.split, entry.piece))
        self._preflight(made)
        if self.plan is None:
            assert self.manifest is not None  # there are repairs
            with faults_as(CommitError, f"{self.storage.url}: cannot repair {self.manifest.name}"):
                mark_success(self.storage, self.manifest)
                self.storage.sweep()
            self.log.is_committed = True
            return self.manifest
        former = self.manifest
        run: dict[str, Any] = {
            "id": self.id,
            "host": socket.gethostname(),
            "started": self.log.started,
            "ended": now(),
            "versions": dict(versions),
            "numeric_env": numeric_env,
            "source_root": self.source_root,
        }
        if self.changed:
            run["changed_sources"] = list(self.changed[:MOST_CHANGED])
        if len(self.changed) > MOST_CHANGED:
            run["n_changed_sources"] = len(self.changed)
        environments = sorted({*(former.numeric_envs if numeric_envs and former else ()), *numeric_envs})
        if len(environments) > 1:
            run["numeric_envs"] = environments
        try:
            new = [entry for entry in made if entry.split >= self._first_split]
            records = Records.of(new, _sources(self.plan, new, final_newlines), self.plan.splits, self.plan.files)
            if former is not None:
                records = Records.joined([former.records, records])
            listed = {entry.name for entry in made}.union(() if former is None else former.sizes())
            with faults_as(CommitError, f"{self.storage.url} cannot be listed"):
                if size := sum(size for shard, size in text_files(self.storage).values() if shard in listed):
                    run["text_size"] = size
            data = records.to_parquet()
            totals: dict[str, Any] = records.sums()
            head = Head(
                requires=(RECORDS,),
                number=self.plan.number,
                spec_fp=self.spec_fp,
                schema=dict(schema),
                n_features=n_features,
                labels=None if labels is None else tuple(labels),
                **totals,
                records_file=RecordsEntry(
                    sha256=hashlib.sha256(data).hexdigest(),
                    size=len(data),
                    sources=records.n_sources,
                    splits=records.n_splits,
                    shards=records.n_shards,
                ),
                previous=None if former is None else PreviousManifest(name=former.name, sha256=former.sha256),
                run=run,
            )
            manifest = Manifest.of(head, records)
        except ShardError as fault:
            raise CommitError(f"{self.storage.url}: the batch is not complete: {fault}") from fault
        return self._publish(manifest, data)

    @property
    def _first_split(self) -> int:
        """Number of the first split that is not committed."""
        return self.manifest.n_splits if self.manifest is not None else 0

    def _preflight(self, entries: Sequence[ShardEntry]) -> None:
        """Raise an error if readers would reject the manifest: compare its shards and files with those on disk."""
        expected = [split.number for split in self.splits]
        got = sorted({entry.split for entry in entries})
        if got != expected:
            wrong = sorted(set(expected) ^ set(got))[:5]
            raise CommitError(
                f"{self.storage.url}: {len(expected):,} splits were planned, but shards of {len(got):,} "
                f"were reported; the first splits that differ are {wrong}"
            )
        self._check_shards(entries)
        self._check_metadata()
        if self.manifest is not None:
            self._check_repaired(self.manifest, [entry for entry in entries if entry.split < self._first_split])

    def _check_shards(self, entries: Sequence[ShardEntry]) -> None:
        """Raise an error if a shard is missing or of another size than reported or committed; warn of foreign ones.

        In an object store, where a thousand names are a request, those that were listed when the batch began are not
        listed again.
        """
        first, after = min((entry.split for entry in entries), default=self._first_split), ""
        if self.storage.is_remote and self._first_split + len(self.splits) <= FIRST_OUT_OF_ORDER:
            after = f"part-{first:06d}"
        with faults_as(CommitError, f"{self.storage.url}/{DATA} cannot be listed"):
            sizes = self.storage.list(DATA, after=after)
        repaired = {split.number for split in self.repairs}  # their shards are in `entries`
        lost = [] if self.manifest is None or after else self.manifest.missing(sizes)
        made = [entry for entry in entries if sizes.get(check_shard_name(entry.name)) != entry.size]
        for entry in (*(entry for entry in lost if entry.split not in repaired), *made):
            raise CommitError(
                f"{self.storage.url}/{DATA}/{entry.name}: {entry.size:,} bytes were published, "
                f"but {sizes.get(entry.name, 'none')} were found; run again"
            )
        listed = {entry.name for entry in entries}.union(self.manifest.sizes() if self.manifest is not None else ())
        strays = [name for name in sizes if name not in listed and SHARD_NAME.fullmatch(name)]
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

    def _check_metadata(self) -> None:
        """Raise an error if the spec or the plan was changed, or a file was deleted that readers of the shards need."""
        with faults_as(CommitError, f"{self.storage.url}: cannot commit"):
            names = [f"{META}/{name}" for name in self.storage.list(META, sizes=False)]
            required = [SPEC, *([f"{META}/{self.manifest.name}"] if self.manifest is not None else ())]
            if SPEC in names:
                spec = metadata.read_spec(self.storage)
                self._check(fingerprint(spec) == self.spec_fp, SPEC, "changed", "restore it from a copy and run again")
                sidecars = metadata.sidecars_of(spec).items()
                required += [f"{META}/{metadata.sidecar_name(kind, sha256)}" for kind, sha256 in sidecars]
            for name in required:
                self._check(name in names, name, "deleted", "restore it from a copy and run again")
            if self.plan is not None:
                name = f"{META}/{plan_name(self.plan.number)}"
                if name not in names:
                    raise CommitConflictError(
                        f"{self.storage.url}: batch {self.plan.number} was aborted by another run meanwhile; run again"
                    )
                text = self.plan.to_json()
                # parsed only if an earlier version wrote the same plan in other words, as this takes much memory
                is_same = self.storage.read(name) == text or read_plan(self.storage, self.plan.number).to_json() == text
                self._check(is_same, name, "changed", "restore it from a copy or delete it, and run again")

    def _check(self, holds: bool, name: str, what: str, remedy: str) -> None:
        if not holds:
            raise CommitError(
                f"{self.storage.url}/{name} was {what} during the run, and nothing was committed; {remedy}, or choose "
                "another target"
            )

    def _check_repaired(self, manifest: Manifest, entries: Sequence[ShardEntry]) -> None:
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

    def _publish(self, manifest: Manifest, records: bytes) -> Manifest:
        """Create the file of the records, then the manifest, which commits them, then ``_SUCCESS``."""
        assert self.plan is not None
        text = manifest.to_json()
        manifest = replace(manifest, sha256=hashlib.sha256(text).hexdigest())
        name = f"{META}/{manifest.name}"
        with faults_as(CommitError, f"{self.storage.url}: cannot commit {manifest.name}"):
            create_or_keep(self.storage, f"{META}/{manifest.records_name}", records)
            base.passed("before_manifest")
            try:
                # without the lock another run may abort this batch and remove its records at any time
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
        base.passed("after_manifest")
        self.log.is_committed = True
        with faults_as(
            CommitError, f"{self.storage.url}: {manifest.name} is committed, but {SUCCESS} cannot be written"
        ):
            mark_success(self.storage, manifest)
            base.passed("after_success")
            self.storage.sweep()
        _remove_superseded(self.storage, manifest)
        return manifest


def _remove_superseded(storage: Storage, manifest: Manifest) -> None:
    """Remove what no reader needs after the commit of a manifest; only the run that committed it may call this.

    The newest `metadata.KEPT` manifests stay with their records: a reader may have looked up one of them, and tasks of
    a training read the one that it began with. Of plans the newest stays. Manifests of earlier versions need their
    segments and all plans, which stay as long as one of these manifests does.

    An error is logged and not raised, because the batch is committed.
    """
    oldest = max(1, manifest.number - metadata.KEPT + 1)
    try:
        names = storage.list(META, sizes=False)
        manifests, records, plans = (
            {name: int(match[1]) for name in names if (match := pattern.fullmatch(name))}
            for pattern in (MANIFEST_NAME, RECORDS_NAME, PLAN_NAME)
        )
        superseded = [name for name, number in {**records, **manifests}.items() if number < oldest]
        if oldest in records.values():
            superseded += [name for name, number in plans.items() if number < manifest.number]
            superseded += [name for name in names if SEGMENT_NAME.fullmatch(name)]
        for name in superseded:
            storage.remove(f"{META}/{name}", durable=False)
    except (OSError, DkfeatError) as fault:
        logger.warning("%s: superseded manifests are left for the next commit to remove: %s", storage.url, fault)


def mark_success(storage: Storage, manifest: Manifest) -> None:
    """Write ``_SUCCESS``, or correct one that names another manifest, then extend the Delta log, if there is one.

    Only the lock's holder may call it.
    """
    text = dumps({"manifest": manifest.name, "sha256": manifest.sha256})
    size = storage.size(SUCCESS)
    if size != len(text) or storage.read(SUCCESS) != text:
        if size is not None:
            logger.warning("%s/%s named another manifest than %s; rewriting it", storage.url, SUCCESS, manifest.name)
            storage.remove(SUCCESS)
        storage.create(SUCCESS, text)
    extend_log(storage, manifest)


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
    return [
        SourceEntry(
            name=file.name,
            size=file.size,
            mtime_ns=file.mtime_ns,
            etag=file.etag,
            rows=rows[position],
            bad_rows=dict(sorted(bad_rows[position].items())) if position in bad_rows else NO_BAD_ROWS,
            final_newline=final_newlines.get(file.name),
        )
        for position, file in enumerate(plan.files)
    ]
