"""Available memory of this machine or container, and a check that planned work fits in it."""

from __future__ import annotations

import os
from pathlib import Path

from dkfeat.errors import PlanError
from dkfeat.messages import show_bytes

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
    """Raise an error if work does not fit in memory.

    Parameters
    ----------
    needed : int
        Peak memory of the work in bytes.
    what, advice : str
        Subject of the message, and the alternative that it offers.
    limit : int or None
        Maximum number of bytes; None: `available_bytes`.

    Raises
    ------
    PlanError
        If `needed` exceeds the limit; the message names both sizes.

    Examples
    --------
    >>> check_fits(3 << 30, "LIBLINEAR", "use SGD", limit=2 << 30)
    Traceback (most recent call last):
    ...
    dkfeat.errors.PlanError: LIBLINEAR needs about 3.0 GiB of memory, 2.0 GiB may be used; use SGD
    """
    limit = available_bytes() if limit is None else limit
    if needed > limit:
        raise PlanError(f"{what} needs about {show_bytes(needed)} of memory, {show_bytes(limit)} may be used; {advice}")
