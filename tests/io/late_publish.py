"""Publication of a shard by a run that another run replaced, before the call or in the middle of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dkfeat.errors import CommitConflictError
from dkfeat.io.storage.base import Storage


def check_late_publish(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, moment: str, take_over: Callable[[], object], late: Callable
) -> None:
    """Let a run take over before `late` publishes a shard or while it creates it; `late` must fail."""
    if moment == "before":
        take_over()
    else:
        create = type(storage).create
        pending = [take_over]

        def stopped(self: Storage, name: str, data: bytes | memoryview) -> None:
            if pending and name.startswith("data/"):
                pending.pop()()
            create(self, name, data)

        monkeypatch.setattr(type(storage), "create", stopped)
    with pytest.raises(CommitConflictError, match="does not hold the lock any more"):
        late()
