"""Publication of shards by workers: find an existing shard, or publish a new one; the first complete one wins."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from dkfeat.errors import CommitConflictError, DkfeatError, ShardError, cause_of
from dkfeat.io.manifest.manifest import ShardEntry, check_shard_name
from dkfeat.io.shards.codec import EncodedShard, check_whole
from dkfeat.io.storage.base import DATA, LOCK, Storage, parse_holder

logger = logging.getLogger(__name__)

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_ATTEMPTS = 3
_IDENTITY = ("spec_fp", "split", "piece", "range", "source_sha256", "last")


def existing_entry(storage: Storage, name: str, expected: Mapping[str, object], *, run_id: str) -> ShardEntry | None:
    """Manifest record of a shard that an earlier attempt left, rebuilt from the shard alone.

    The file is read in full: its seal, its page checksums, its rows and its footer. A damaged file is set aside under
    the metadata folder, with a warning in the log, and the shard counts as missing.

    Parameters
    ----------
    storage : Storage
        The target.
    name : str
        From ``shards.shard_name``.
    expected : mapping
        Values that the shard's footer must have, by the names of `ShardFooter`, such as spec_fp, split, piece and, if
        they are known, range, source_sha256 and last; a footer with other values counts as damaged.
    run_id : str
        ``Batch.id`` of the run on whose behalf this is done.

    Returns
    -------
    entry : ShardEntry or None
        None if there is no good shard of that name.

    Raises
    ------
    ShardError
        If the shard cannot be read from the storage.
    CommitConflictError
        If it is damaged, but another run has taken the target over.
    """
    path = f"{DATA}/{check_shard_name(name)}"
    with _named_faults(storage, name):
        if storage.size(path) is None:
            return None
        data = storage.load(path)
        try:
            footer, sha256 = check_whole(data, name)
            for key, value in expected.items():
                if getattr(footer, key) != value:
                    raise ShardError(f"{name}: its footer states {key}={getattr(footer, key)!r}, expected {value!r}")
        except ShardError as fault:
            _check_holder(storage, run_id)
            aside = storage.set_aside(path)
            logger.warning("%s: damaged shard set aside as %s: %s", storage.url, aside, fault)
            return None
        return footer.entry(name, len(data), sha256)


def publish(storage: Storage, name: str, shard: EncodedShard, *, run_id: str) -> ShardEntry:
    """Create a shard in the data set, whole, unless one of that name exists.

    Before: nothing, or a shard of that name. After: one whole shard. If the call dies half-way: nothing or the whole
    shard, and at most a temporary file that the next run sweeps away. Calling again is safe.

    Parameters
    ----------
    storage : Storage
        The target.
    name : str
        From ``shards.shard_name``.
    shard : EncodedShard
        From ``shards.encode_shard``.
    run_id : str
        ``Batch.id`` of the run on whose behalf this is done.

    Returns
    -------
    entry : ShardEntry
        Of the shard that is there: this one or, where another attempt came first with other bytes, that.

    Raises
    ------
    ShardError
        If the shard cannot be written, most often because the disk is full; names the shard and the free space.
    CommitConflictError
        If a damaged shard of that name exists, but another run has taken the target over.
    """
    path, entry = f"{DATA}/{check_shard_name(name)}", shard.entry(name)
    expected = {key: getattr(shard.footer, key) for key in _IDENTITY}
    with _named_faults(storage, name, entry.size):
        for _ in range(_ATTEMPTS):
            try:
                storage.create(path, shard.data)
            except FileExistsError:
                found = existing_entry(storage, name, expected, run_id=run_id)
                if found is None:
                    continue
                if found.sha256 != entry.sha256:
                    logger.warning("%s: another attempt published it first with other bytes; keeping those", name)
                return found
            size = storage.size(path)
            if size != entry.size:
                raise ShardError(f"{storage.url}/{path}: wrote {entry.size:,} bytes, found {size}")
            return entry
    raise ShardError(f"{storage.url}/{path}: a damaged shard came back {_ATTEMPTS} times after it was set aside")


def _check_holder(storage: Storage, run_id: str) -> None:
    holder: dict[str, Any] = {}
    with suppress(OSError):
        holder = parse_holder(storage.read(LOCK))
    if holder.get("run_id") != run_id:
        raise CommitConflictError(
            f"{storage.url}: run {run_id} does not hold the target any more; its tasks may move nothing there"
        )


@contextmanager
def _named_faults(storage: Storage, name: str, size: int = 0) -> Iterator[None]:
    """Turn a fault of the storage into a `ShardError` that names the shard and, on a full disk, the room left."""
    try:
        yield
    except DkfeatError:
        raise
    except OSError as fault:
        room = f"; it needs {size:,} bytes, {_free(storage)} are free: make room and run again"
        cause = f"{cause_of(fault)}{room if fault.errno in _FULL else ''}"
        raise ShardError(f"{storage.url}/{DATA}/{name}: cannot be {'written' if size else 'read'}: {cause}") from fault


def _free(storage: Storage) -> str:
    try:
        free = storage.free_bytes()
    except OSError:
        free = None
    return "an unknown number" if free is None else f"{free:,}"
