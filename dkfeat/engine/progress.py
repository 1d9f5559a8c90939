"""Progress of a run: its state after each task, a line on standard error, and logs of its stages."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO

from dkfeat.compiled.jit import COMPILATIONS
from dkfeat.messages import counted
from dkfeat.process_cache import METER
from dkfeat.store.commit.run_log import StageLog

if TYPE_CHECKING:
    from rich.console import RenderableType

COMPILING = "compiling, once per machine"

LINE_SECONDS = 5.0
"""Seconds between two plain lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressState(StageLog):
    """Progress of one stage of a run: its log up to now, and how much there is in all."""

    total_bytes: int
    """Number of all bytes of the source, as stored."""

    @property
    def rows_per_second(self) -> float:
        """Mean number of rows per second so far."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Mean number of bytes per second so far, of the source as stored."""
        return self.source_bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimated time to the end at the mean speed so far; None while nothing is done."""
        if self.source_bytes == 0:
            return None
        return self.seconds * (self.total_bytes - self.source_bytes) / self.source_bytes

    @property
    def pace(self) -> str:
        """Mean speeds and, if it can be estimated, the time left, as text."""
        left = "" if self.seconds_left is None else f", {clock(self.seconds_left)} left"
        return self._speeds + left

    @property
    def _speeds(self) -> str:
        return f"{self.rows_per_second:,.0f} rows/s, {self.bytes_per_second / 1e6:,.1f} MB/s"

    def describe(self) -> str:
        """Format the state as one line.

        Examples
        --------
        >>> ProgressState(stage="featurize", tasks=3, total_tasks=4, rows=90_000, source_bytes=60_000_000,
        ...               total_bytes=80_000_000, seconds=3.0).describe()
        'featurize: 3 of 4 splits, 90,000 rows, 30,000 rows/s, 20.0 MB/s, 0:01 left'
        """
        done = f"{self.tasks:,} of {counted(self.total_tasks, 'split')}, {counted(self.rows, 'row')}"
        return f"{self.stage}: {done}, {self.pace}"

    @property
    def totals(self) -> str:
        """Rows, elapsed time and mean speeds, as text."""
        return f"{counted(self.rows, 'row')} in {clock(self.seconds)}, {self._speeds}"


class Progress:
    """Progress reports of a run; use ``with progress.stage(...)`` for each stage.

    Parameters
    ----------
    report : bool or callable
        True writes to `stream`; False reports nothing; a callable receives a `ProgressState` after each step.
    stream : text file or None
        None: standard error.

    Examples
    --------
    >>> seen = []
    >>> with Progress(seen.append).stage("featurize", total_tasks=1, total_bytes=10) as stage:
    ...     stage.advance(rows=2, source_bytes=10)
    >>> seen[-1].rows, seen[-1].source_bytes
    (2, 10)
    """

    def __init__(self, report: bool | Callable[[ProgressState], object], stream: TextIO | None = None) -> None:
        self._report = report
        self._stream = sys.stderr if stream is None else stream
        self._stages: list[Stage] = []

    @contextmanager
    def stage(self, name: str, *, total_tasks: int, total_bytes: int) -> Iterator[Stage]:
        """Report a stage with these numbers of tasks and bytes for the ``with`` block."""
        begin = ProgressState(
            stage=name, tasks=0, total_tasks=total_tasks, rows=0, source_bytes=0, total_bytes=total_bytes, seconds=0.0
        )
        stage = Stage(begin)
        self._stages.append(stage)
        with self._shown(stage) as stage.show:
            try:
                yield stage
            finally:
                stage.update()

    def _shown(self, stage: Stage) -> AbstractContextManager[Callable[[ProgressState], object]]:
        if callable(self._report):
            return nullcontext(self._report)
        if not self._report:
            return nullcontext(lambda _: None)
        return _bar(self._stream, stage) if self._stream.isatty() else _lines(self._stream, stage)

    def logs(self) -> tuple[StageLog, ...]:
        """Return the logs of the stages up to now."""
        return tuple(stage.state for stage in self._stages)

    def note(self, text: str) -> None:
        """Write a message as text, unless nothing is reported or a callable receives the states."""
        if self._report is True:
            print(text, file=self._stream, flush=True)


class Stage:
    """One stage."""

    show: Callable[[ProgressState], object]
    """Called with the state after each task."""

    def __init__(self, begin: ProgressState) -> None:
        self.state = begin
        self._began = time.monotonic()

    def update(self, **counts: Any) -> None:
        """Set counts of the state, and its time."""
        self.state = replace(self.state, seconds=time.monotonic() - self._began, **counts)

    def now(self) -> ProgressState:
        """Return the state at this moment, with the bytes that running tasks of this process have processed."""
        state, seconds = self.state, time.monotonic() - self._began
        bytes_done = min(state.total_bytes, state.source_bytes + int(METER.total))
        return replace(state, source_bytes=bytes_done, seconds=seconds)

    def advance(self, *, rows: int, source_bytes: int) -> None:
        """Count one task, with its rows and its bytes of the source as stored."""
        state = self.state
        self.update(tasks=state.tasks + 1, rows=state.rows + rows, source_bytes=state.source_bytes + source_bytes)
        self.show(self.state)


@contextmanager
def _lines(stream: TextIO, stage: Stage) -> Iterator[Callable[[ProgressState], object]]:
    """Write a plain line every few seconds, and one at the end."""
    due = time.monotonic() + LINE_SECONDS

    def show(state: ProgressState) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + LINE_SECONDS
            print(state.describe(), file=stream, flush=True)

    yield show
    print(f"{stage.state.stage}: done, {stage.state.totals}", file=stream, flush=True)


@contextmanager
def _bar(stream: TextIO, stage: Stage) -> Iterator[Callable[[ProgressState], object]]:
    """Show a bar with the elapsed time, speed and time left, and at the end the totals."""
    from rich.console import Console  # late import: it takes 0.1 s, which runs without a terminal do not need
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bars

    total = max(1, stage.state.total_bytes)

    class LiveBars(Bars):
        def get_renderables(self) -> Iterable[RenderableType]:
            """Bring the bar up to date whenever it is drawn, also within tasks."""
            for task in self.tasks:
                if not task.finished:
                    now = stage.now()
                    pace = f", {now.pace.removeprefix('0 rows/s, ')}" if now.source_bytes else ""
                    text = COMPILING if COMPILATIONS.running else clock(now.seconds) + pace
                    self.update(task.id, completed=max(task.completed, min(now.source_bytes, total - 1)), pace=text)
            return super().get_renderables()

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[pace]}"))
    with LiveBars(*columns, console=Console(file=stream), refresh_per_second=4) as bars:
        task = bars.add_task(stage.state.stage, total=total, pace="")
        try:
            yield lambda _: None
        except BaseException:
            bars.live.transient = True  # no bar above the error
            raise
        bars.update(task, completed=total, pace=stage.state.totals)


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds, with hours if there are any.

    Examples
    --------
    >>> clock(62.4), clock(3601)
    ('1:02', '1:00:01')
    """
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
