"""One writer at a time on an object store: objects that are created exclusively, one after the other.

``_dkfeat/lock.json`` names the holder. Whoever takes over from a holder R that is gone first creates
``_dkfeat/lock-after-R.json``, which only one can, then looks whether ``lock.json`` still names R, and puts its own
in place. A taker that dies on the way is itself taken over from, by its own id. Whose claim comes too late, after the
winner has tidied up, finds another name in ``lock.json`` and gives up.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dkfeat.errors import CommitConflictError, TargetBusyError
from dkfeat.io import processes, strict_json
from dkfeat.io.locks import busy, describe_holder
from dkfeat.io.storage import LOCK, META

if TYPE_CHECKING:
    from dkfeat.io.storage import Storage

__all__ = ["CLAIM", "ObjectLock", "lock_holder"]

logger = logging.getLogger(__name__)

CLAIM = "lock-after-"
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_ROUNDS, _LONGEST_CHAIN = 20, 50


class ObjectLock:
    """A lock object that names its holder, held from construction to `release`.

    Parameters
    ----------
    store : Storage
        Whose `create` is exclusive.
    holder : mapping
        Plain JSON values that name this run: run_id, host, pid, since.
    break_lock : str, optional
        Run id of a holder on another host that may be dispossessed.

    Raises
    ------
    TargetBusyError
        When somebody else holds it, or may hold it still.
    """

    def __init__(self, store: Storage, holder: Mapping[str, Any], *, break_lock: str | None = None) -> None:
        self._store = store
        self._holder = {**holder, **processes.this_process()}
        self._text = strict_json.dumps(self._holder)
        self._claims: list[str] = []
        try:
            self._take(break_lock)
        finally:
            with suppress(OSError):  # the next holder sweeps them away
                for claim in self._claims:
                    store.remove(claim)
        self._open = True

    def release(self) -> None:
        """Remove the object, if it still names this run; a second call does nothing."""
        if not self._open:
            return
        self._open = False
        try:
            if (_read(self._store, LOCK) or {}).get("run_id") == self._holder["run_id"]:
                self._store.remove(LOCK)
        except OSError as fault:
            logger.warning(
                "%s/%s could not be removed: %s; the next run on this host takes it over", self._store.url, LOCK, fault
            )

    def _take(self, break_lock: str | None) -> None:
        for _ in range(_ROUNDS):
            with suppress(FileExistsError):
                self._store.create(LOCK, self._text)
                return
            first = _read(self._store, LOCK)
            if first is None:
                continue  # released meanwhile
            last = _end_of_chain(self._store, first)
            self._check_gone(last, break_lock)
            claim = _claim_on(last)
            with suppress(FileExistsError):  # another taker was faster: see who
                self._store.create(claim, self._text)
                self._claims.append(claim)
                if _read(self._store, LOCK) == first:
                    logger.warning("%s: taking over from %s", self._store.url, describe_holder(last))
                    self._store.remove(LOCK)
        message = f"{self._store.url}: other runs keep taking the lock; wait for them or choose another target"
        raise CommitConflictError(message)

    def _check_gone(self, last: Mapping[str, Any], break_lock: str | None) -> None:
        where = self._store.url
        if not _is_ours(last):
            message = f"{where}/{LOCK} is not one that dkfeat wrote; remove it if no run is writing here"
            raise TargetBusyError(message)
        if last["run_id"] == break_lock or processes.has_ended(last):
            return
        here = self._holder
        if all(last.get(key) == here[key] for key in ("host", "machine", "boot", "pid_namespace")):
            raise busy(where, last)
        message = (
            f"{where} is, or was, being written by {describe_holder(last)}, and whether that run still lives cannot be "
            f"told from here; when it is gone, pass break_lock={last['run_id']!r}"
        )
        raise TargetBusyError(message)


def lock_holder(store: Storage) -> tuple[Mapping[str, Any], bool | None] | None:
    """Who is named by the lock, and whether it runs still, None where that cannot be told; None if it is free."""
    first = _read(store, LOCK)
    if first is None:
        return None
    last = _end_of_chain(store, first)
    if processes.has_ended(last):
        return last, False
    here = processes.this_process()
    same = all(last.get(key) == here[key] for key in ("host", "machine", "boot", "pid_namespace"))
    return last, True if same else None


def _end_of_chain(store: Storage, holder: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(_LONGEST_CHAIN):
        if not _is_ours(holder):
            return holder
        after = _read(store, _claim_on(holder))
        if after is None:
            return holder
        holder = after
    return holder


def _is_ours(holder: Mapping[str, Any]) -> bool:
    """Whether a run id is named, which may become part of a name."""
    return isinstance(run_id := holder.get("run_id"), str) and _RUN_ID.fullmatch(run_id) is not None


def _claim_on(holder: Mapping[str, Any]) -> str:
    return f"{META}/{CLAIM}{holder['run_id']}.json"


def _read(store: Storage, name: str) -> Mapping[str, Any] | None:
    """Values of a lock object, empty if it is none that dkfeat wrote; None if there is no such object."""
    try:
        text = store.read(name)
    except FileNotFoundError:
        return None
    with suppress(ValueError, RecursionError):
        values = json.loads(text)
        if isinstance(values, dict):
            return values
    return {}
