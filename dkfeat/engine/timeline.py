"""How many rows a stage had done at which moment, in a bounded number of points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dkfeat.io.run_logs import MOST_POINTS, StageLog

if TYPE_CHECKING:
    from dkfeat.engine.progress import ProgressState

__all__ = ["Timeline"]


class Timeline:
    """Rows and bytes done over time; where steps are many, every second, fourth, eighth … of them is kept.

    Parameters
    ----------
    state : ProgressState
        How the stage began.

    Examples
    --------
    >>> from dkfeat.engine.progress import ProgressState
    >>> at = {"stage": "scan", "total_tasks": 9999, "total_bytes": 9999}
    >>> timeline = Timeline(ProgressState(**at, tasks=0, rows=0, source_bytes=0, seconds=0.0))
    >>> for step in range(1, 10_000):
    ...     timeline.add(ProgressState(**at, tasks=step, rows=2 * step, source_bytes=step, seconds=step / 10))
    >>> log = timeline.log()
    >>> log.rows, len(log.points) <= MOST_POINTS, log.points[-1]
    (19998, True, (999.9, 19998, 9999))
    """

    def __init__(self, state: ProgressState) -> None:
        self._state = state
        self._points: list[tuple[float, int, int]] = []
        self._steps, self._every = 0, 1

    def add(self, state: ProgressState) -> None:
        """Note how far the stage has come."""
        self._state = state
        self._steps += 1
        if self._steps % self._every:
            return
        self._points.append(_point(state))
        if len(self._points) == MOST_POINTS:
            del self._points[::2]
            self._every *= 2

    def end(self, state: ProgressState) -> None:
        """Note how far the stage came."""
        self._state = state

    def log(self) -> StageLog:
        """Give what is known so far."""
        state, last = self._state, _point(self._state)
        points = self._points if self._points and self._points[-1] == last else [*self._points, last]
        return StageLog(
            stage=state.stage,
            tasks=state.tasks,
            total_tasks=state.total_tasks,
            rows=state.rows,
            source_bytes=state.source_bytes,
            seconds=round(state.seconds, 3),
            points=tuple(points),
        )


def _point(state: ProgressState) -> tuple[float, int, int]:
    return round(state.seconds, 3), state.rows, state.source_bytes
