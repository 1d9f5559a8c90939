"""Crash points: named lines of code where tests kill the process, to check that a resumed run loses nothing.

``DKFEAT_KILL_AT="point:k"`` makes the process send itself SIGKILL when it passes `point` for the k-th time. The
variable is read once, at import; without it `passed` does nothing.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "DKFEAT_KILL_AT"

POINTS = (
    "after_plan",
    "before_tmp",
    "mid_write",
    "after_tmp",
    "after_publish",
    "before_manifest",
    "after_manifest",
    "after_success",
    "before_unlock",
)
"""Points in the order in which a run that publishes one shard passes them."""

ABORT_POINTS = ("abort_before_shard", "abort_before_plan", "abort_after_plan", "abort_after_success")
"""Points in the order in which an abort of a batch with one shard passes them."""

CHECKPOINT_POINTS = ("mid_checkpoint", "before_checkpoint", "between_checkpoints", "after_checkpoint")
"""Points in the order in which a training that saves checkpoints passes them."""


def _target(setting: str | None) -> tuple[str, int] | None:
    if not setting:
        return None
    point, _, count = setting.partition(":")
    points = (*POINTS, *ABORT_POINTS, *CHECKPOINT_POINTS)
    if point not in points or not count.isdecimal() or int(count) < 1:
        raise ValueError(
            f"{VARIABLE}={setting!r}, but it takes point:k with k at least 1 and point one of {', '.join(points)}"
        )
    return point, int(count)


_armed = _target(os.environ.get(VARIABLE))
_passes = 0


def is_armed() -> bool:
    """Return True if this process will kill itself at one of the points."""
    return _armed is not None


def passed(point: str) -> None:
    """Count a pass of `point`, and kill the process if the environment variable asks for it.

    Examples
    --------
    >>> passed("after_plan")
    """
    if _armed is None or _armed[0] != point:
        return
    global _passes
    _passes += 1
    if _passes == _armed[1]:
        os.kill(os.getpid(), signal.SIGKILL)
