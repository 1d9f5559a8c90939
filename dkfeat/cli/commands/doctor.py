"""``dkfeat doctor``: checks of the machine or a cluster."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.declared import option_of
from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options import output_options
from dkfeat.cli.output import echo, is_quiet, note, print_result
from dkfeat.config import ExecutionConfig
from dkfeat.messages import printable

if TYPE_CHECKING:
    from dkfeat.doctor import Check, State


COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
WIDEST_NAME = len("compiled loops ")


@click.command(cls=DkfeatCommand)
@heading("Scheduler")
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Check this Dask scheduler and its workers. Left out: the default of Dask's configuration.",
)
@option_of(ExecutionConfig, "scheduler_file", metavar="FILE")
@output_options
@click.pass_context
def doctor(ctx: click.Context, /, **options: Any) -> None:
    """Check this machine or a cluster, and suggest remedies.

    Each line is ok, warn (runs work, but slower or less safely) or fail (runs end
    with an error). The exit status is that of this error, otherwise 0. Loops are
    compiled if their cache is empty, which takes a while. A scheduler is checked
    with a small task on each worker. A target is checked by each run.

    For example:
      dkfeat doctor
      dkfeat doctor --scheduler tcp://10.0.0.1:8786
    """
    if options["scheduler"] and options["scheduler_file"]:
        raise click.UsageError("--scheduler and --scheduler-file name a scheduler each; give one of them", ctx)
    found: list[Check] = []
    for check in _checks(**options):
        found.append(check)
        if check.state != "ok" or not is_quiet():
            _show(check)
    failed = [check for check in found if check.state == "fail"]
    worst = max((check.state for check in found), key=list(COLOURS).index)
    print_result({"state": worst, "checks": [asdict(check) for check in found]})
    counts = Counter(check.state for check in found)
    note(", ".join(f"{counts[state]} {state}" for state in COLOURS if counts[state]))
    if failed:
        ctx.exit(failed[0].exit_code)


def _checks(scheduler: str | None, scheduler_file: str | None) -> Iterator[Check]:
    """Run the checks in order; a failed import gives a check that fails, the last one."""
    from dkfeat.doctor import Check

    try:
        from dkfeat.doctor.checks import check_cluster, check_machine

        yield from check_machine()
        yield from check_cluster(scheduler, scheduler_file)
    except ImportError as error:
        to_do = f"in a clone of dkfeat's repository: {sys.executable} -m pip install --force-reinstall ."
        yield Check("import", "fail", str(error), to_do, exit_code=2)


def _show(check: Check) -> None:
    state = click.style(f"{check.state:<4}", fg=COLOURS[check.state], bold=check.state != "ok")
    echo(f"{state}  {check.name:<{WIDEST_NAME}}  {printable(check.found)}", raw=True)
    if check.to_do:
        echo(f"{'':<{WIDEST_NAME + 6}}  → {check.to_do}")
