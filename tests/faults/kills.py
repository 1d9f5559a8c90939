"""Count of the kills that runs survived in this session of tests, reported at its end."""

from __future__ import annotations

from collections import Counter

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
"""Kill points in the order in which a run that publishes one shard passes them."""
ABORT_POINTS = ("abort_before_shard", "abort_before_plan", "abort_after_plan", "abort_after_success")
"""Kill points in the order in which an abort of a batch with one shard passes them."""
RANDOM = "at random"

SURVIVED: Counter[str] = Counter()
"""Kills by kill point; counted when the resumed run has ended with the bytes of an undisturbed run."""


def summary() -> str:
    """Return one line for the end of the session."""
    points = {point: count for point, count in sorted(SURVIVED.items()) if point != RANDOM}
    each = ", ".join(f"{point} {count}" for point, count in points.items())
    return (
        f"survived with identical bytes: {sum(points.values())} kills at {len(points)} points ({each}), "
        f"{SURVIVED[RANDOM]} at random times"
    )
