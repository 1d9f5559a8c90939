"""Publication of shards by workers, each once and whole, as long as their run holds the target."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping

from dkfeat.errors import CommitConflictError, ShardError
from dkfeat.messages import logger_of
from dkfeat.store.manifest.records import ShardEntry, check_shard_name
from dkfeat.store.shards.codec import EncodedShard, TextFile, check_whole
from dkfeat.store.storage.base import DATA, SPEC, Storage, faults_as

logger = logger_of(__name__)


LOOK_SECONDS = 5.0
"""Time for which a worker relies on its last look at the lock in an object store, where each look is a request."""
_looked: tuple[str, str, float, float] = ("", "", 0.0, 0.0)
"""Target, run and two clocks of this process's last look that found the run to hold the lock."""
_ATTEMPTS = 3
_IDENTITY = ("spec_fp", "split", "piece", "range", "source_sha256", "last")


def existing_entry(storage: Storage, name: str, expected: Mapping[str, object], *, run_id: str) -> ShardEntry | None:
    """Return the manifest record of a shard that an earlier attempt published, made from the shard alone.

    The whole file is checked: its seal, page checksums, rows, footer and file of text. A damaged file is set aside
    under the metadata folder, with a warning in the log, and the shard counts as missing.

    Parameters
    ----------
    storage : Storage
        Storage of the target.
    name : str
        Name of the shard, from ``shards.shard_name``.
    expected : mapping
        Values that the shard's footer must have, by the names of `ShardFooter`, such as spec_fp, split, piece and, if
        they are known, range, source_sha256 and last; a footer with other values counts as damaged.
    run_id : str
        ``Batch.id`` of the run that the task belongs to.

    Returns
    -------
    entry : ShardEntry or None
        Record, or None if there is no undamaged shard of that name.

    Raises
    ------
    ShardError
        If the shard cannot be read from the storage.
    CommitConflictError
        If the shard is damaged, but another run now holds the lock of the target.
    """
    path = f"{DATA}/{check_shard_name(name)}"
    with faults_as(ShardError, f"{storage.url}/{path}: cannot be read"):
        if (size := storage.size(path)) is None:
            return None
        data = storage.load(path, size)
        try:
            footer, sha256 = check_whole(data, name)
            for key, value in expected.items():
                if getattr(footer, key) != value:
                    raise ShardError(f"{name}: its footer states {key}={getattr(footer, key)!r}, expected {value!r}")
            if footer.text is not None:
                footer.text.check(storage)
        except ShardError as fault:
            check_holder(storage, run_id)
            aside = storage.set_aside(path)
            logger.warning("%s: damaged shard set aside as %s: %s", storage.url, aside, fault)
            return None
        return footer.entry(name, len(data), sha256)


def publish(storage: Storage, name: str, shard: EncodedShard, *, run_id: str) -> ShardEntry:
    """Create a shard in the data set atomically, unless an undamaged one of that name exists.

    Before: nothing, or a shard of that name. After: one whole shard. If the process dies during the call: nothing or
    the whole shard, and perhaps a temporary file, which the next run removes. Calling again is safe.

    Parameters
    ----------
    storage : Storage
        Storage of the target.
    name : str
        Name of the shard, from ``shards.shard_name``.
    shard : EncodedShard
        Shard, from ``shards.encode_shard``.
    run_id : str
        ``Batch.id`` of the run that the task belongs to.

    Returns
    -------
    entry : ShardEntry
        Record of the published shard: of this one or, if another attempt published other bytes first, of that one.

    Raises
    ------
    ShardError
        If the shard cannot be written, most often because the disk is full; the message names the shard and the
        free space.
    CommitConflictError
        If the run does not hold the lock of the target any more: its driver died and another run took over, or its
        batch was aborted.
    """
    path, entry = f"{DATA}/{check_shard_name(name)}", shard.entry(name)
    expected = {key: getattr(shard.footer, key) for key in _IDENTITY}
    with faults_as(ShardError, f"{storage.url}/{path}: cannot be written"):
        for _ in range(_ATTEMPTS):
            try:
                storage.create(path, shard.data, before_publish=lambda: _check_at_times(storage, run_id))
            except FileNotFoundError:
                check_holder(storage, run_id)
                raise CommitConflictError(
                    f"{storage.url}: the temporary file of {name} was removed by a commit, or by another run that took "
                    f"over the target; if run {run_id} is still in progress, run again"
                ) from None
            except FileExistsError:
                found = existing_entry(storage, name, expected, run_id=run_id)
                if found is None:
                    continue
                if found.sha256 != entry.sha256:
                    logger.warning("%s: another attempt published it first with other bytes; keeping those", name)
                return found
            return entry
    raise ShardError(f"{storage.url}/{path}: a damaged shard of this name was found and set aside {_ATTEMPTS} times")


def publish_text(storage: Storage, name: str, data: bytes, *, run_id: str) -> TextFile:
    """Create the file of text of a shard, before the shard, and return its record for the footer; see `publish`."""
    with faults_as(ShardError, f"{storage.url}/{name}: cannot be written"):
        create_or_keep(storage, name, data, before=lambda: _check_at_times(storage, run_id))
    return TextFile(name=name, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def check_holder(storage: Storage, run_id: str) -> None:
    """Raise `CommitConflictError` if a run does not hold the lock of the target."""
    values = storage.lock_values()
    if values is None and storage.size(SPEC) is None:
        raise ShardError(f"{storage.url}: the target was deleted during the run")
    if (values or {}).get("run_id") != run_id:
        raise CommitConflictError(
            f"{storage.url}: run {run_id} does not hold the lock any more; its tasks may not change the target"
        )


def wait_for_looks(storage: Storage) -> None:
    """Wait, in an object store, until each worker has to look at the lock again before it publishes a shard."""
    if storage.is_remote:
        time.sleep(LOOK_SECONDS)


def _check_at_times(storage: Storage, run_id: str) -> None:
    """Call `check_holder`; in an object store only if the last look is older than `LOOK_SECONDS`.

    Both clocks go on while the process is stopped; the second one also while the machine is suspended.
    """
    global _looked
    clocks = time.monotonic(), time.time()
    is_same = _looked[:2] == (storage.url, run_id)
    recent = all(0 <= now - then < LOOK_SECONDS for now, then in zip(clocks, _looked[2:], strict=True))
    if not (storage.is_remote and is_same and recent):
        check_holder(storage, run_id)
        _looked = (storage.url, run_id, *clocks)  # of the time before the request


def create_or_keep(storage: Storage, name: str, data: bytes, before: Callable[[], object] | None = None) -> None:
    """Create a file; keep an equal one of a run that died before it used the file, and set another one aside."""
    try:
        storage.create(name, data, before_publish=before)
    except (FileExistsError, FileNotFoundError):  # not found: a faster run removed our temporary file
        if storage.size(name) is None:
            raise
        if storage.size(name) != len(data) or storage.read(name) != data:
            aside = storage.set_aside(name)
            logger.warning("%s/%s was damaged; set aside as %s", storage.url, name, aside)
            storage.create(name, data, before_publish=before)
