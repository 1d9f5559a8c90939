"""``dkfeat abort`` and ``dkfeat clean``: the commands that delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._output import as_object, note, output_options
from dkfeat.cli._show import shown
from dkfeat.cli._storage import parse_options, storage_option
from dkfeat.wording import counted, show_bytes

__all__ = ["abort", "clean"]

Command = TypeVar("Command", bound=Callable[..., Any])


def _options(command: Command) -> Command:
    for option in (
        output_options,
        click.option("--break-lock", metavar="RUN_ID", help="Take over the lock of this run of another host."),
        click.option("--dry-run", is_flag=True, help="Only tell what would be deleted."),
        storage_option("A setting of the store, of a TARGET at a URL"),
        click.argument("target"),
    ):
        command = option(command)
    return command


@click.command(cls=DkfeatCommand)
@_options
def abort(target: str, dry_run: bool, break_lock: str | None, storage_options: tuple[str, ...], as_json: bool) -> None:
    """Give up the batch in TARGET that was interrupted and cannot be finished.

    Its plan and the shards that it left are deleted; what is committed stays,
    and where nothing is, the next run may have other settings. It is for a batch
    whose sources or settings have to change: where they are as they were, the
    same run again finishes it. A run that goes on is not touched.

    For example:
      dkfeat abort features/days --dry-run
      dkfeat abort features/days
    """
    from dkfeat.io.maintenance import abort as run

    options = parse_options(storage_options, "--storage-option")
    done = run(target, dry_run=dry_run, break_lock=break_lock, storage_options=options)
    if as_json:
        as_object({"target": target, "batch": done.number, "removed": done.removed, "dry_run": dry_run})
        return
    if done.number is None:
        note(f"{target}: no batch is unfinished; nothing to give up")
        return
    _list(done.removed, dry_run=dry_run)
    verb = "would be given up" if dry_run else "is given up"
    note(f"{target}: batch {done.number:,} {verb}, with {counted(len(done.removed) - 1, 'shard')}")


@click.command(cls=DkfeatCommand)
@_options
@click.option("--set-aside", is_flag=True, help="Delete damaged shards too that runs have set aside.")
def clean(
    target: str,
    dry_run: bool,
    break_lock: str | None,
    set_aside: bool,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Delete what dead runs left in TARGET: stray shards and temporary files.

    Only files go whose names are dkfeat's own and that neither a manifest nor a
    plan lists. Foreign files, links and folders are named and left alone.

    For example:
      dkfeat clean features/days --dry-run
      dkfeat clean features/days
    """
    from dkfeat.io.maintenance import clean as run

    options = parse_options(storage_options, "--storage-option")
    done = run(target, set_aside=set_aside, dry_run=dry_run, break_lock=break_lock, storage_options=options)
    if as_json:
        known = {"target": target, "removed": done.removed, "size": done.size, "refused": done.refused}
        as_object(known | {"dry_run": dry_run})
        return
    _list(done.removed, dry_run=dry_run)
    for name in done.refused:
        note(f"left alone, not made by dkfeat: {shown(name)}")
    if not done.removed:
        note(f"{target}: nothing to delete")
        return
    verb = "would be deleted" if dry_run else "deleted"
    note(f"{target}: {counted(len(done.removed), 'file')}, {show_bytes(done.size)}, {verb}")


def _list(names: Iterable[str], *, dry_run: bool) -> None:
    for name in names:
        note(f"{'would delete' if dry_run else 'deleted'}: {shown(name)}")
