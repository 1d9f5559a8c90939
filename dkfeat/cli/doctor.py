"""``dkfeat doctor``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._help import heading
from dkfeat.cli._output import as_object, is_quiet, output_options
from dkfeat.cli._run_options import scheduler_file
from dkfeat.cli._show import shown
from dkfeat.cli._storage import parse_options, storage_option

if TYPE_CHECKING:
    from dkfeat.doctor import Check, State

__all__ = ["doctor"]

COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
WIDEST_NAME = len("temporary files")


@click.command(cls=DkfeatCommand)
@heading("What else is looked at")
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="A Dask scheduler and its workers. Left out: the one of `dkfeat config show`, if any.",
)
@scheduler_file
@click.option("--store", "stores", metavar="URL", multiple=True, help="A folder or URL for shards. Repeatable.")
@storage_option("A setting of the stores")
@output_options
@click.pass_context
def doctor(
    ctx: click.Context,
    scheduler: str | None,
    scheduler_file: str | None,
    stores: tuple[str, ...],
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Look whether dkfeat can work here, and say what to do where it cannot.

    Each line is ok, warn (it works, but not as well as it could) or fail. The
    exit status is 0 unless something fails; then it is the one that a run would
    end with. Loops that were never compiled on this machine are compiled, which
    takes a while and is kept. A store is tried with files of its own, which are
    deleted again; a scheduler, with a small task on each worker.

    For example:
      dkfeat doctor
      dkfeat doctor --scheduler tcp://10.0.0.1:8786 --store s3://bucket/features
    """
    if scheduler and scheduler_file:
        message = "--scheduler and --scheduler-file name a scheduler each; give one of them"
        raise click.UsageError(message, ctx)
    options = parse_options(storage_options, "--storage-option")
    found: list[Check] = []
    for check in _checks(scheduler, scheduler_file, stores, options):
        found.append(check)
        if not as_json and (check.state != "ok" or not is_quiet(ctx)):
            _show(check)
    failed = [check for check in found if check.state == "fail"]
    if as_json:
        as_object({"state": _worst(found), "checks": [asdict(check) for check in found]})
    elif not is_quiet(ctx):
        counts = Counter(check.state for check in found)
        click.echo(", ".join(f"{counts[state]} {state}" for state in COLOURS if counts[state]))
    if failed:
        ctx.exit(failed[0].exit_code)


def _checks(
    scheduler: str | None, scheduler_file: str | None, stores: tuple[str, ...], options: dict[str, Any] | None
) -> Iterator[Check]:
    """Look at one thing after the other; what is not asked for is not loaded either."""
    from dkfeat.doctor.installation import check_installation

    yield from check_installation()
    from dkfeat.doctor.settings import check_settings, default_place

    yield from check_settings()
    from dkfeat.doctor.machine import check_machine

    yield from check_machine()
    from dkfeat.doctor.loops import check_loops

    yield from check_loops()
    if stores:
        from dkfeat.doctor.store import check_store

        for store in stores:
            yield from check_store(store, options)
    if not scheduler and not scheduler_file:
        scheduler, scheduler_file = default_place()
    if scheduler or scheduler_file:
        from dkfeat.doctor.cluster import check_cluster

        yield from check_cluster(scheduler, scheduler_file)


def _show(check: Check) -> None:
    state = click.style(f"{check.state:<4}", fg=COLOURS[check.state], bold=check.state != "ok")
    click.echo(f"{state}  {check.name:<{WIDEST_NAME}}  {shown(check.found)}")
    if check.to_do:
        click.echo(f"{'':<{WIDEST_NAME + 6}}  → {shown(check.to_do)}")


def _worst(found: list[Check]) -> State:
    return max((check.state for check in found), key=list(COLOURS).index)
