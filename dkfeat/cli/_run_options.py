"""Options about how a run goes, which several commands share: where tasks run, and what becomes of bad rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dkfeat.cli._group import log_of
from dkfeat.cli._help import TOLD, heading, together
from dkfeat.cli._output import is_quiet
from dkfeat.cli._values import Choice, Words

__all__ = [
    "PLACE_PARAMETERS",
    "RUN_PARAMETERS",
    "SCHEDULERS",
    "TASK_PARAMETERS",
    "bad_row_options",
    "cluster",
    "on_bad_row",
    "performance_report",
    "run_arguments",
    "run_options",
    "scheduler_file",
    "where_options",
]

Command = TypeVar("Command", bound=Callable[..., Any])

PLACE_PARAMETERS = (
    "scheduler",
    "scheduler_file",
    "cluster",
    "n_workers",
    "threads_per_worker",
    "memory_limit",
    "performance_report",
)
"""Keywords that say where tasks run, of all that run some."""
TASK_PARAMETERS = (*PLACE_PARAMETERS, "in_flight", "progress")
"""Keywords of what writes no data set."""
RUN_PARAMETERS = (*TASK_PARAMETERS, "resume", "break_lock")
"""Keywords of `dkfeat.featurize` that say how a run goes."""
SCHEDULERS = Words("threads", "processes", "synchronous", "cluster")
BAD_ROW_PARAMETERS = ("on_bad_row", "max_bad_rows")

on_bad_row = click.option(
    "--on-bad-row",
    type=Choice(["raise", "quarantine"]),
    default="raise",
    show_default=True,
    help="End the run at a wrong row, or set such rows aside; `dkfeat quarantine DIR` lists these.",
)
_max_bad_rows = click.option(
    "--max-bad-rows",
    default="1%",
    show_default=True,
    metavar="N",
    help="Rows set aside at most: a number as 100, or a share as 1% or 0.01.",
)


def bad_row_options(command: Command) -> Command:
    """Say what becomes of rows that are wrong."""
    return together(command, on_bad_row, _max_bad_rows)


scheduler_file = click.option("--scheduler-file", metavar="FILE", help="What `dask scheduler --scheduler-file` wrote.")
cluster = click.option(
    "--cluster", metavar="FILE", help="Start the cluster of this file, by SLURM, Kubernetes or SSH; see conf/cluster."
)
performance_report = click.option(
    "--performance-report", metavar="FILE", help="HTML file for Dask's report of what the cluster did."
)


def where_options(command: Command) -> Command:
    """Where tasks run; nothing here changes a byte of the result."""
    return together(
        command,
        heading("Where tasks run"),
        click.option(
            "--scheduler",
            type=SCHEDULERS,
            help="threads, processes, synchronous, cluster or an address. Left out: worker processes if --n-workers "
            "or --memory-limit is given, else threads of this process.",
        ),
        scheduler_file,
        cluster,
        click.option("--n-workers", type=click.IntRange(min=1), help="Workers. Default: one for each core."),
        click.option("--threads-per-worker", type=click.IntRange(min=1), help="Threads in each worker process."),
        click.option("--memory-limit", help="Memory of a worker process, as in 4GiB."),
        click.option("--in-flight", type=click.IntRange(min=1), hidden=True, help="Tasks submitted at a time."),
        performance_report,
        heading(TOLD),
        click.option("--progress/--no-progress", default=True, help="Report progress on standard error."),
    )


def run_options(command: Command) -> Command:
    """`where_options`, and how a run treats what another one left."""
    return where_options(
        together(
            command,
            heading("Interrupted runs"),
            click.option(
                "--resume/--no-resume", default=True, show_default=True, help="Go on with an interrupted run."
            ),
            click.option("--break-lock", metavar="RUN_ID", help="Take over the lock of this run of another host."),
        )
    )


def run_arguments(ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """Keywords for a run, from those of the options above that the command has; what was left out is left out."""
    given = {name: options[name] for name in (*RUN_PARAMETERS, *BAD_ROW_PARAMETERS) if options.get(name) is not None}
    log = log_of(ctx)
    if is_quiet(ctx):
        given["progress"] = False
    elif log is not None and given["progress"]:
        given["progress"] = log.progress
    return given
