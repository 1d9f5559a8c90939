"""Options about how a run goes, which several commands share: where tasks run, and what becomes of bad rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dkfeat.cli._group import log_of

__all__ = ["RUN_PARAMETERS", "max_bad_rows", "on_bad_row", "run_arguments", "run_options", "together", "where_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

RUN_PARAMETERS = (
    "scheduler",
    "n_workers",
    "threads_per_worker",
    "memory_limit",
    "in_flight",
    "progress",
    "resume",
    "break_lock",
)
"""Keywords of `dkfeat.featurize` that say how a run goes."""
BAD_ROW_PARAMETERS = ("on_bad_row", "max_bad_rows")

on_bad_row = click.option(
    "--on-bad-row",
    type=click.Choice(["raise", "quarantine"]),
    default="raise",
    show_default=True,
    help="End the run at a wrong row, or set such rows aside; `dkfeat quarantine DIR` lists these.",
)
max_bad_rows = click.option(
    "--max-bad-rows",
    default="1%",
    show_default=True,
    metavar="N",
    help="Rows set aside at most: a number as 100, or a share as 1% or 0.01.",
)


def where_options(command: Command) -> Command:
    """Where tasks run; nothing here changes a byte of the result."""
    return together(
        command,
        click.option(
            "--scheduler",
            help="threads, processes, synchronous, cluster or an address. Left out: worker processes if --n-workers "
            "or --memory-limit is given, else threads of this process.",
        ),
        click.option("--n-workers", type=click.IntRange(min=1), help="Workers. Default: one for each core."),
        click.option("--threads-per-worker", type=click.IntRange(min=1), help="Threads in each worker process."),
        click.option("--memory-limit", help="Memory of a worker process, as in 4GiB."),
        click.option("--in-flight", type=click.IntRange(min=1), hidden=True, help="Tasks submitted at a time."),
        click.option("--progress/--no-progress", default=True, help="Report progress on standard error."),
    )


def run_options(command: Command) -> Command:
    """`where_options`, and how a run treats what another one left."""
    return where_options(
        together(
            command,
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
    if log is not None and given["progress"]:
        given["progress"] = log.progress
    return given


def together(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Give a command several options, in this order."""
    for option in reversed(options):
        command = option(command)
    return command
