"""Publication of shards by workers: find the one that is there, or publish a new one. The first complete one wins."""

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


def existing_entry(
    storage: Storage,
    name: str,
    spec_fp: str,
    split: int,
    piece: int,
    *,
    run_id: str,
    span: tuple[int, int] | None = None,
    source_sha256: str | None = None,
    last: bool | None = None,
) -> ShardEntry | None:
    """Manifest record of a shard that an earlier attempt left, rebuilt from the shard alone.

    The file is read in full: its seal, its page checksums, its rows and its footer. One that does not hold is set
    aside under the metadata folder, with a warning in the log, and the shard counts as missing.

    Parameters
    ----------
    storage : Storage
        The target.
    name : str
        From ``shards.shard_name``.
    spec_fp : str
        Fingerprint of the spec.
    split, piece : int
        Numbers of the split and of the piece in it.
    run_id : str
        ``Batch.id`` of the run on whose behalf this is done.
    span : (int, int), optional
        Byte range of the piece in the decompressed source, if known; another one in the footer is a damage.
    source_sha256 : str, optional
        SHA-256 of those bytes, if known; as above.
    last : bool, optional
        Whether it is the split's last piece, if known; as above.

    Returns
    -------
    entry : ShardEntry or None
        None if there is no good shard of that name.

    Raises
    ------
    ShardError
        When the storage does not let it be read.
    CommitConflictError
        When it is damaged, but another run has taken the target over.
    """
    values = (spec_fp, split, piece, span, source_sha256, last)
    expected = {key: value for key, value in zip(_IDENTITY, values, strict=True) if value is not None}
    with _named_faults(storage, name):
        return _existing(storage, name, expected, run_id)


def publish(storage: Storage, name: str, shard: EncodedShard, *, run_id: str) -> ShardEntry:
    """Put a shard into the data set, whole, unless there is one.

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
        When the storage cannot take it, a full disk above all; names the shard and the room left.
    CommitConflictError
        When a damaged shard is in the way, but another run has taken the target over.
    """
    path, entry = f"{DATA}/{check_shard_name(name)}", shard.entry(name)
    expected = {key: getattr(shard.footer, key) for key in _IDENTITY}
    with _named_faults(storage, name, entry.size):
        for _ in range(_ATTEMPTS):
            try:
                storage.create(path, shard.data)
            except FileExistsError:
                there = _existing(storage, name, expected, run_id)
                if there is None:
                    continue
                if there.sha256 != entry.sha256:
                    logger.warning("%s: another attempt published it first with other bytes; keeping those", name)
                return there
            size = storage.size(path)
            if size != entry.size:
                raise ShardError(f"{storage.url}/{path}: wrote {entry.size:,} bytes, found {size}")
            return entry
    raise ShardError(f"{storage.url}/{path}: a damaged shard came back {_ATTEMPTS} times after it was set aside")


def _existing(storage: Storage, name: str, expected: Mapping[str, object], run_id: str) -> ShardEntry | None:
    path = f"{DATA}/{check_shard_name(name)}"
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
