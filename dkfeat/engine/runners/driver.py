"""Runner of tasks that run tasks of their own, and therefore stay in the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dkfeat.engine.runners.open import LazyRunner

if TYPE_CHECKING:
    from dkfeat.blocks import Split
    from dkfeat.engine.runners.local import Homes, Runner


class DriverTask(Protocol):
    """Task whose splits are processed in the driver, each by tasks on workers."""

    def opened(self, splits: Sequence[Split], workers: Runner) -> AbstractContextManager[Callable[[Split], Any]]:
        """Prepare a run over splits; the ``with`` block gets the function that processes one of them."""
        ...


@dataclass(frozen=True, slots=True)
class DriverRunner:
    """Runner that processes one split after the other in this thread, and gives tasks the runner of the workers."""

    workers: Runner
    memory_limit: None = None
    n_threads: int = 1

    @property
    def description(self) -> str:
        """Workers, as text."""
        return self.workers.description

    def run(
        self,
        task: Any,
        splits: Sequence[Split],
        done: Callable[[Split, Any], None],
        home: Homes | None = None,  # noqa: ARG002 - there is one place
    ) -> None:
        """See `Runner.run`; the task is a `DriverTask`."""
        with task.opened(splits, self.workers) as process:
            for split in splits:
                done(split, process(split))

    def run_everywhere(self, function: Callable[[], Any]) -> None:
        """See `Runner.run_everywhere`."""
        self.workers.run_everywhere(function)


class LazyDriverRunner(LazyRunner):
    """`LazyRunner` of a `DriverRunner`."""

    def get(self) -> DriverRunner:
        """Open the runner, or return one for the workers that are open."""
        return DriverRunner(super().get())
