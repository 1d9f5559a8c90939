"""``dkfeat verify``, ``abort``, ``clean`` and ``break-lock``: checks of a folder, and cleaning up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from dkfeat.cli.declared import option_of
from dkfeat.cli.group import DkfeatCommand, apply_options, heading
from dkfeat.cli.options import (
    execution_options,
    holds_model,
    options_at,
    output_options,
    run_arguments,
    storage_option,
)
from dkfeat.cli.output import echo, note, print_result, show_size
from dkfeat.config import RunConfig
from dkfeat.messages import counted, show_bytes


@click.command(cls=DkfeatCommand)
@click.argument("target")
@heading("Checks")
@click.option("--inputs", multiple=True, metavar="SOURCE", help="Compare this source too. Repeatable.")
@storage_option("TARGET and SOURCE")
@execution_options
@output_options
@click.pass_context
def verify(
    ctx: click.Context, /, target: str, inputs: tuple[str, ...], storage_options: dict[str, Any] | None, **where: Any
) -> None:
    """Check every shard of a folder against its manifest, or the files of a model.

    Sizes, SHA-256, page checksums, row counts and fingerprints are compared; of
    a model, the SHA-256, shape and type of its weights. The exit status is 3 if
    anything is wrong. With --inputs, the source is read again, and the SHA-256 of
    each range is compared with the one in the manifest; the exit status is 4 if
    the source has changed. --progress shows that comparison only.

    For example:
      dkfeat verify features/train
      dkfeat verify features/days --inputs 'day-*.svm.gz'
      dkfeat verify model
      dkfeat verify features/train --json
    """
    record: dict[str, Any] = {}
    try:
        if not holds_model(target, storage_options):
            execution = run_arguments(ctx, where)
            _verify_shards(target, storage_options, execution, record)
            if inputs:
                _verify_inputs(target, inputs, storage_options, execution, record)
        elif inputs:
            raise click.UsageError(f"{target} is a model; --inputs is for the folder of shards that it was trained on")
        else:
            _verify_model(target, storage_options, record)
    finally:  # print the findings even if an error is raised
        if record:
            print_result(record)


def _verify_model(target: str, options: Mapping[str, Any] | None, record: dict[str, Any]) -> None:
    from dkfeat.errors import ConfigError, InputError, ShardError
    from dkfeat.learn.model import load_model

    record |= {"kind": "model", "target": target}
    try:
        model = load_model(target, storage_options=options)
        try:
            n_features = model.map.n_features_out
        except (ConfigError, InputError) as error:
            raise ShardError(f"{target}: {error}") from error
    except ShardError as error:
        record["problems"] = [str(error)]
        raise
    record |= {"classes": len(model.classes), "features": n_features, "problems": []}
    note(f"{target}: model of {len(model.classes):,} classes and {n_features:,} features, all as saved")


def _verify_shards(
    target: str, options: Mapping[str, Any] | None, where: dict[str, Any], record: dict[str, Any]
) -> None:
    from dkfeat.engine.dataset.dataset import open_shards
    from dkfeat.errors import ShardError

    data = open_shards(target, storage_options=options_at(target, options))
    report = data.verify(**where | {"progress": False})
    record |= {"kind": "shards", "target": target, "shards": report.n_shards, "size": report.n_bytes}
    record |= {"problems": report.problems, "not_listed": report.unlisted}
    _list("problem", report.problems)
    _list("not listed, ignored by readers", report.unlisted)
    if report.problems:
        raise ShardError(
            f"{target}: {len(report.problems):,} problems, listed on standard output; delete the shards named there "
            "and repeat the run that wrote them, which writes missing shards"
        )
    note(f"{target}: {counted(report.n_shards, 'shard')}, {show_size(report.n_bytes, 0)}, all as committed")
    environments = data.manifest.numeric_envs
    record["numeric_envs"] = environments
    if len(environments) > 1:
        note(
            f"{target}: processes of {len(environments):,} numeric environments made the shards, so the last bits of "
            "equal rows may differ between shards: " + "; ".join(environments)
        )


def _verify_inputs(
    target: str,
    source: tuple[str, ...],
    options: Mapping[str, Any] | None,
    where: dict[str, Any],
    record: dict[str, Any],
) -> None:
    from dkfeat.engine.dataset.verify import verify_inputs
    from dkfeat.engine.open import Target
    from dkfeat.errors import SpecConflictError

    at_target = options_at(target, options)
    report = verify_inputs(Target(target, storage_options=at_target), source, storage_options=options, **where)
    record["inputs"] = {"sources": report.n_sources, "ranges": report.n_pieces, "problems": report.problems}
    record["inputs"] |= {"touched": report.touched, "new": report.new}
    _list("problem", report.problems)
    _list("same bytes, but another modification time or version tag, so a run would fail", report.touched)
    _list("not committed yet", report.new)
    if report.problems:
        raise SpecConflictError(
            f"{target}: its source has changed, {len(report.problems):,} problems are listed on standard output"
        )
    note(f"{target}: {report.n_sources:,} sources, {report.n_pieces:,} ranges, all unchanged")


def _list(kind: str, lines: Iterable[str]) -> None:
    for line in lines:
        echo(f"{kind}: {line}")


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
    _list_deleted(done.removed, dry_run=dry_run)
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
    _list_deleted(done.removed, dry_run=dry_run)
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


def _list_deleted(names: Iterable[str], *, dry_run: bool) -> None:
    for name in names:
        note(f"{'would delete' if dry_run else 'deleted'}: {name}")
