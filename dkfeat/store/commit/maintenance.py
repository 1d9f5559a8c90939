"""Maintenance of a data set: abort a batch, delete leftovers, and break the lock of a dead run.

Only this module deletes files of earlier runs. It holds the lock, so that no run writes at the same time, and deletes
single files by name: never a folder, and only names that dkfeat creates. If a call is interrupted, the same call
continues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from typing import Any

from dkfeat.errors import CommitError
from dkfeat.store.commit.batch import mark_success
from dkfeat.store.commit.begin import hold
from dkfeat.store.commit.publish import wait_for_looks
from dkfeat.store.commit.run_log import log_numbers
from dkfeat.store.manifest import metadata
from dkfeat.store.manifest.batch_plan import plan_name
from dkfeat.store.manifest.manifest import RECORDS_NAME
from dkfeat.store.manifest.records import FILE_NAME, SHARD_NAME
from dkfeat.store.shards.codec import missing_shards, planned_shards, shard_files
from dkfeat.store.storage import base, open_storage
from dkfeat.store.storage.base import DATA, META, SET_ASIDE, SUCCESS, Storage, faults_as

_SET_ASIDE = re.compile(FILE_NAME.pattern + r"\.[0-9a-f]{32}")
_FAILED = "cannot be changed; correct the cause and call again to continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """Result of `abort`."""

    number: int | None
    """Number of the aborted batch, or None if there was none."""
    removed: tuple[str, ...]
    """Files that were deleted, relative to the target, in that order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """Result of `clean`."""

    removed: tuple[str, ...]
    """Files that were deleted, relative to the target."""
    size: int
    """Total size of these files in bytes."""
    refused: tuple[str, ...]
    """Foreign names, links and folders among dkfeat's files; they were not deleted."""


def abort(
    target: str | PathLike[str] | Storage, *, dry_run: bool = False, storage_options: Mapping[str, Any] | None = None
) -> Aborted:
    r"""Abort an interrupted batch, so that the next run makes a new plan.

    Use it for a batch that can no longer be finished because its sources have changed; if they have not changed, run
    featurize again instead. Committed data and the settings of the data set stay as they are. If nothing was
    committed, the next run may have other settings.

    On disk before: a plan that no manifest lists, and its shards. After: neither of them, and ``_SUCCESS`` if a batch
    was committed before. Shards are deleted before the plan that lists them: after an interruption, a run with the old
    sources resumes the batch, and the same call continues the deletion. A further call changes nothing.

    Parameters
    ----------
    target : str or path
        Folder of an interrupted `dkfeat.featurize`.
    dry_run : bool, default=False
        Only report the files that would be deleted.
    storage_options : mapping or None
        Settings of the storage.

    Returns
    -------
    aborted : Aborted
        Number of the batch and deleted files.

    Raises
    ------
    dkfeat.errors.TargetBusyError
        If a run holds the lock of the target.
    dkfeat.errors.ShardError
        If there is no data set, or its metadata are damaged.
    dkfeat.errors.CommitError
        If a file cannot be deleted.

    Examples
    --------
    >>> import pathlib, tempfile, dask, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:1\n" * 500 + "-1 9:1\n")
    >>> options = {"n_features": 2, "zero_based": False, "label_dtype": "int64", "blocksize": 2000}
    >>> source = dkfeat.LibsvmSource(folder / "rows.svm", **options)
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> with dask.config.set(scheduler="synchronous"):  # the first shard is made before the error
    ...     dkfeat.featurize(source, folder / "features", gcws, progress=False)
    Traceback (most recent call last):
    dkfeat.errors.ParseError: ...rows.svm:501:4: ...
    >>> dkfeat.abort(folder / "features").number
    1
    """
    with _locked(target, storage_options) as storage:
        manifest = metadata.newest_manifest(storage)
        number, plan = metadata.next_batch(storage, manifest)
        if not dry_run:
            # After the lock was taken and before shards are listed: a task of the aborted run that checked the lock
            # before has linked its shard, which the list shows, or lost its temporary file and fails. So no planned
            # shard appears after the list, and one list is enough. In an object store a late request can add one.
            storage.sweep()
            wait_for_looks(storage)
        files = shard_files(storage)
        planned = {} if plan is None else planned_shards(plan, files.values())
        names = [path for path, shard in files.items() if shard in planned]
        path = f"{META}/{plan_name(number)}"
        aborted = Aborted(number=number, removed=(*names, path)) if plan else Aborted(number=None, removed=())
        if dry_run:
            return aborted
        if plan is not None:
            storage.remove(SUCCESS)
            for name in names:
                base.passed("abort_before_shard")
                storage.remove(name)
            base.passed("abort_before_plan")
            storage.remove(path)
            base.passed("abort_after_plan")
        if manifest is not None and not missing_shards(storage, manifest, storage.list(DATA)):  # else a run repairs it
            mark_success(storage, manifest)
            base.passed("abort_after_success")
        return aborted


def clean(
    target: str | PathLike[str] | Storage,
    *,
    set_aside: bool = False,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Cleaned:
    r"""Delete leftovers of dead runs: temporary files, and shards and text that neither a manifest nor a plan lists.

    dkfeat does not read these files, but they take disk space, and other Parquet readers of ``data/`` would find the
    shards. Shards of an interrupted batch stay, so that a run can resume it; see `abort`. Logs of runs are deleted if
    their batch was aborted, and, if no batch is interrupted, records that no manifest lists, which a run leaves if it
    is killed right before its commit. Foreign files, links and folders of any name stay. If the call is interrupted,
    the same call continues.

    Parameters
    ----------
    target : str or path
        Folder that `dkfeat.featurize` wrote.
    set_aside : bool, default=False
        Also delete damaged shards that runs have set aside.
    dry_run : bool, default=False
        Only report the files that would be deleted.
    storage_options : mapping or None
        Settings of the storage.

    Returns
    -------
    cleaned : Cleaned
        Deleted files, their size, and foreign names.

    Raises
    ------
    dkfeat.errors.TargetBusyError
        If a run holds the lock of the target.
    dkfeat.errors.ShardError
        If there is no data set, or its metadata are damaged.
    dkfeat.errors.CommitError
        If a file cannot be deleted.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", gcws, progress=False)
    >>> dkfeat.clean(folder / "features").removed
    ()
    """
    with _locked(target, storage_options) as storage:
        manifest = metadata.newest_manifest(storage)
        number, plan = metadata.next_batch(storage, manifest)
        first = _delete(storage, dict.fromkeys(storage.leftovers(), True), dry_run)  # before the list, as in `abort`
        if not dry_run:
            wait_for_looks(storage)
        files = shard_files(storage)
        kept = {*(manifest.sizes() if manifest else ()), *(planned_shards(plan, files.values()) if plan else ())}
        found = {path: SHARD_NAME.fullmatch(shard) is not None for path, shard in files.items() if shard not in kept}
        if set_aside:
            found |= {f"{SET_ASIDE}/{name}": _SET_ASIDE.fullmatch(name) is not None for name in storage.list(SET_ASIDE)}
        last = number if plan else number - 1
        names = storage.list(META)
        found |= {f"{META}/{name}": True for name in names if log_numbers(name)[0] > last}
        if plan is None:  # otherwise a driver that the lock does not exclude any more may be about to list its records
            records = {name: int(match[1]) for name in names if (match := RECORDS_NAME.fullmatch(name))}
            found |= {f"{META}/{name}": True for name, number in records.items() if number > last}
        second = _delete(storage, found, dry_run)
        return Cleaned(
            removed=(*first.removed, *second.removed),
            size=first.size + second.size,
            refused=(*first.refused, *second.refused),
        )


def _delete(storage: Storage, found: Mapping[str, bool], dry_run: bool) -> Cleaned:
    """Delete the regular files whose value is True, unless `dry_run`; list everything else as refused."""
    ours = {name: named and _is_file(storage, name) for name, named in found.items()}
    removed = tuple(name for name, is_ours in ours.items() if is_ours)
    size = sum(storage.size(name) or 0 for name in removed)
    if not dry_run:
        for name in removed:
            storage.remove(name)
    return Cleaned(removed=removed, size=size, refused=tuple(name for name, is_ours in ours.items() if not is_ours))


def break_lock(
    target: str | PathLike[str] | Storage, run_id: str, *, target_options: Mapping[str, Any] | None = None
) -> bool:
    """Remove the lock of a run on another host that has ended.

    The next run takes over the lock of a run that ended on this host by itself. dkfeat cannot check whether a run on
    another host has ended: make sure that it has, then call this function with the id in the error message of the run
    that found the target locked.

    On disk before: a lock with `run_id`. After: no lock, so that the next `featurize` or `predict` can start. Nothing
    else changes. If the call is interrupted, the same call finishes it; without a lock it does nothing.

    Parameters
    ----------
    target : str or path
        Folder or URL that the run was writing to.
    run_id : str
        Id of the run that holds the lock, from `dkfeat.status` or the error message.
    target_options : mapping or None
        Settings of the storage.

    Returns
    -------
    broken : bool
        True if there was a lock.

    Raises
    ------
    dkfeat.errors.TargetBusyError
        If the lock belongs to another run, or the process that holds it is alive.
    dkfeat.errors.CommitError
        If the lock cannot be read or removed.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "_dkfeat").mkdir()
    >>> _ = (folder / "_dkfeat" / "lock.json").write_text('{"run_id": "7f3a", "host": "node7", "pid": 12}')
    >>> dkfeat.break_lock(folder, "7f3a"), dkfeat.break_lock(folder, "7f3a")
    (True, False)
    """
    storage = open_storage(target, target_options)
    with faults_as(CommitError, f"{storage.url} {_FAILED}"):
        if storage.holder() is None:
            return False
        hold(storage, run_id).release()
        return True


@contextmanager
def _locked(target: str | PathLike[str] | Storage, storage_options: Mapping[str, Any] | None) -> Iterator[Storage]:
    storage = open_storage(target, storage_options)
    metadata.read_spec(storage)  # a folder without a spec is not a data set, and gets no lock
    with faults_as(CommitError, f"{storage.url} {_FAILED}"), hold(storage):
        storage.prepare()  # create empty folders, which a copy of the data set may lack
        yield storage


def _is_file(storage: Storage, name: str) -> bool:
    with suppress(OSError), storage.open(name):
        return True
    return False
