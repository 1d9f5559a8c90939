"""``dkfeat doctor``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from itertools import chain
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
    """Look at one thing after the other; what cannot even be imported is a finding too."""
    from dkfeat.doctor import Check

    for look in (
        _installation,
        _settings,
        _machine,
        _loops,
        partial(_stores, stores, options),
        partial(_cluster, scheduler, scheduler_file),
    ):
        try:
            yield from look()
        except ImportError as error:
            to_do = f"in a clone of dkfeat's repository: {sys.executable} -m pip install --force-reinstall ."
            yield Check(name="import", state="fail", found=str(error), to_do=to_do, exit_code=2)


def _installation() -> Iterator[Check]:
    from dkfeat.doctor.installation import check_installation

    return check_installation()


def _settings() -> Iterator[Check]:
    from dkfeat.doctor.settings import check_settings

    return check_settings()


def _machine() -> Iterator[Check]:
    from dkfeat.doctor.machine import check_machine

    return check_machine()


def _loops() -> Iterator[Check]:
    from dkfeat.doctor.loops import check_loops

    return check_loops()


def _stores(urls: tuple[str, ...], options: dict[str, Any] | None) -> Iterator[Check]:
    from dkfeat.doctor.store import check_store

    return chain.from_iterable(check_store(url, options) for url in urls)


def _cluster(scheduler: str | None, scheduler_file: str | None) -> Iterator[Check]:
    from dkfeat.doctor.cluster import check_cluster
    from dkfeat.doctor.settings import default_place

    if not scheduler and not scheduler_file:
        scheduler, scheduler_file = default_place()
    return check_cluster(scheduler, scheduler_file) if scheduler or scheduler_file else iter(())


def _show(check: Check) -> None:
    state = click.style(f"{check.state:<4}", fg=COLOURS[check.state], bold=check.state != "ok")
    click.echo(f"{state}  {check.name:<{WIDEST_NAME}}  {shown(check.found)}")
    if check.to_do:
        click.echo(f"{'':<{WIDEST_NAME + 6}}  → {shown(check.to_do)}")


def _worst(found: list[Check]) -> State:
    return max((check.state for check in found), key=list(COLOURS).index)
