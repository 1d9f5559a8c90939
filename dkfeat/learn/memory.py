"""Whether what must be held at once fits in this machine's memory: asked before the work, not after."""

from __future__ import annotations

import os
from pathlib import Path

from dkfeat.errors import PlanError
from dkfeat.wording import show_bytes

__all__ = ["available_bytes", "check_fits"]

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def available_bytes() -> int:
    """Memory that this process may use, in bytes: the machine's, or its container's if that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical


def check_fits(needed: int, what: str, advice: str, limit: int | None = None) -> None:
    """Refuse work that does not fit.

    Parameters
    ----------
    needed : int
        Bytes at the highest point.
    what, advice : str
        Subject of the message, and what to do instead.
    limit : int or None
        Bytes allowed; None: `available_bytes`.

    Raises
    ------
    PlanError
        Both sizes are told.

    Examples
    --------
    >>> check_fits(3 << 30, "LIBLINEAR", "use SGD", limit=2 << 30)
    Traceback (most recent call last):
    ...
    dkfeat.errors.PlanError: LIBLINEAR needs about 3.0 GiB of memory, 2.0 GiB may be used; use SGD
    """
    limit = available_bytes() if limit is None else limit
    if needed > limit:
        message = f"{what} needs about {show_bytes(needed)} of memory, {show_bytes(limit)} may be used; {advice}"
        raise PlanError(message)
