"""``dkfeat doctor``: checks of this machine, of stores and of a cluster."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options.declared import option_of
from dkfeat.cli.options.shared import output_options
from dkfeat.cli.options.storage import storage_option
from dkfeat.cli.output import echo, is_quiet, note, print_result
from dkfeat.config import ExecutionConfig
from dkfeat.messages import shown

if TYPE_CHECKING:
    from dkfeat.doctor import Check, State


COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
WIDEST_NAME = len("temporary files")


@click.command(cls=DkfeatCommand)
@heading("Scheduler and stores")
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Check this Dask scheduler and its workers. Left out: the default of `dkfeat config show`.",
)
@option_of(ExecutionConfig, "scheduler_file", metavar="FILE")
@click.option(
    "--store", "stores", metavar="URL", multiple=True, help="Check this folder or URL for shards. Repeatable."
)
@storage_option("--store")
@output_options
@click.pass_context
def doctor(
    ctx: click.Context,
    scheduler: str | None,
    scheduler_file: str | None,
    stores: tuple[str, ...],
    storage_options: dict[str, Any] | None,
) -> None:
    """Check this machine, a cluster or a store, and suggest remedies.

    Each line is ok, warn (runs work, but slower or less safely) or fail (runs end
    with an error). The exit status is that of this error, otherwise 0. Loops are
    compiled if their cache is empty, which takes a while. A store is checked with
    files that are deleted again, a scheduler with a small task on each worker.

    For example:
      dkfeat doctor
      dkfeat doctor --scheduler tcp://10.0.0.1:8786 --store s3://bucket/features
    """
    if scheduler and scheduler_file:
        raise click.UsageError("--scheduler and --scheduler-file name a scheduler each; give one of them", ctx)
    found: list[Check] = []
    for check in _checks(scheduler, scheduler_file, stores, storage_options):
        found.append(check)
        if check.state != "ok" or not is_quiet():
            _show(check)
    failed = [check for check in found if check.state == "fail"]
    print_result({"state": _worst(found), "checks": [asdict(check) for check in found]})
    counts = Counter(check.state for check in found)
    note(", ".join(f"{counts[state]} {state}" for state in COLOURS if counts[state]))
    if failed:
        ctx.exit(failed[0].exit_code)


def _checks(
    scheduler: str | None, scheduler_file: str | None, stores: tuple[str, ...], options: dict[str, Any] | None
) -> Iterator[Check]:
    """Run the checks in order; a failed import gives a check that fails."""
    from dkfeat.doctor import Check

    checks: tuple[tuple[Any, ...], ...] = (
        ("machine", "check_machine"),
        *(("store", "check_store", url, options) for url in stores),
        ("cluster", "check_cluster", scheduler, scheduler_file),
    )
    for module, check, *arguments in checks:
        try:
            yield from getattr(import_module(f"dkfeat.doctor.{module}"), check)(*arguments)
        except ImportError as error:
            to_do = f"in a clone of dkfeat's repository: {sys.executable} -m pip install --force-reinstall ."
            yield Check("import", "fail", str(error), to_do, exit_code=2)


def _show(check: Check) -> None:
    state = click.style(f"{check.state:<4}", fg=COLOURS[check.state], bold=check.state != "ok")
    echo(f"{state}  {check.name:<{WIDEST_NAME}}  {shown(check.found)}", raw=True)
    if check.to_do:
        echo(f"{'':<{WIDEST_NAME + 6}}  → {check.to_do}")


def _worst(found: list[Check]) -> State:
    return max((check.state for check in found), key=list(COLOURS).index)
