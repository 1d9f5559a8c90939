"""``dkfeat abort``, ``dkfeat clean`` and ``dkfeat break-lock``: the commands that delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from dkfeat.cli.group import DkfeatCommand, apply_options
from dkfeat.cli.options.declared import option_of
from dkfeat.cli.options.shared import output_options
from dkfeat.cli.options.storage import storage_option
from dkfeat.cli.output import note, print_result
from dkfeat.config import RunConfig
from dkfeat.messages import counted, show_bytes

Command = TypeVar("Command", bound=Callable[..., Any])


def _options(command: Command) -> Command:
    return apply_options(
        command,
        click.argument("target"),
        storage_option("TARGET"),
        click.option("--dry-run", is_flag=True, help="Only list what would be deleted."),
        option_of(RunConfig, "break_lock", metavar="RUN_ID"),
    )


@click.command(cls=DkfeatCommand)
@_options
@output_options
def abort(target: str, dry_run: bool, break_lock: str | None, storage_options: Mapping[str, Any] | None) -> None:
    """Abort a batch in TARGET that was interrupted and cannot be finished.

    The plan of the batch and its shards are deleted. Committed shards stay; if
    there are none, the next run may have other settings. Use it if sources or
    settings must change; otherwise run the same featurize command again, which
    finishes the batch. While a run holds TARGET, this command ends with an error.

    For example:
      dkfeat abort features/days --dry-run
      dkfeat abort features/days
    """
    from dkfeat.store.commit.maintenance import abort as run

    done = run(target, dry_run=dry_run, break_lock=break_lock, storage_options=storage_options)
    print_result({"target": target, "batch": done.number, "removed": done.removed, "dry_run": dry_run})
    if done.number is None:
        note(f"{target}: no batch is unfinished; nothing to abort")
        return
    _list(done.removed, dry_run=dry_run)
    verb = "would be aborted" if dry_run else "is aborted"
    note(f"{target}: batch {done.number:,} {verb}, with {counted(len(done.removed) - 1, 'shard')}")


@click.command(cls=DkfeatCommand)
@_options
@click.option("--set-aside", is_flag=True, help="Also delete damaged shards that runs have set aside.")
@output_options
def clean(
    target: str, dry_run: bool, break_lock: str | None, set_aside: bool, storage_options: Mapping[str, Any] | None
) -> None:
    """Delete leftovers of dead runs in TARGET: unlisted shards and temporary files.

    Only files that no manifest or plan lists are deleted, and only if their names
    are of the form that dkfeat gives. Other files and folders are only listed.

    For example:
      dkfeat clean features/days --dry-run
      dkfeat clean features/days
    """
    from dkfeat.store.commit.maintenance import clean as run

    done = run(target, set_aside=set_aside, dry_run=dry_run, break_lock=break_lock, storage_options=storage_options)
    record = {"target": target, "removed": done.removed, "size": done.size, "refused": done.refused}
    print_result(record | {"dry_run": dry_run})
    _list(done.removed, dry_run=dry_run)
    for name in done.refused:
        note(f"left alone, not made by dkfeat: {name}")
    if not done.removed:
        note(f"{target}: nothing to delete")
        return
    verb = "would be deleted" if dry_run else "deleted"
    note(f"{target}: {counted(len(done.removed), 'file')}, {show_bytes(done.size)}, {verb}")


@click.command("break-lock", cls=DkfeatCommand)
@click.argument("target", metavar="DIR")
@click.argument("run_id")
@storage_option("DIR")
@output_options
def break_lock(target: str, run_id: str, storage_options: Mapping[str, Any] | None) -> None:
    """Remove the lock on DIR that run RUN_ID on another host left behind.

    A run locks its target. If its host fails, the lock stays, and other runs end
    with an error that names RUN_ID; `dkfeat status DIR` shows it too. Make sure
    that the run has ended: two runs must not write to one target. The lock of a
    run that has ended on this host is removed without this command.

    For example:
      dkfeat break-lock features/days 7f3a9c
    """
    from dkfeat.store.commit.maintenance import break_lock as run

    broken = run(target, run_id, target_options=storage_options)
    print_result({"target": target, "run_id": run_id, "broken": broken})
    note(f"{target}: the lock of run {run_id} is removed" if broken else f"{target}: there is no lock")


def _list(names: Iterable[str], *, dry_run: bool) -> None:
    for name in names:
        note(f"{'would delete' if dry_run else 'deleted'}: {name}")
