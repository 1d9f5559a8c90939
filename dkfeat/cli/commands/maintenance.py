"""Commands that check folders of shards and models, and clean up what dead runs left in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.group import Command, DkfeatCommand, apply_options, heading
from dkfeat.cli.options import execution_options, holds_model, options_at, output_options, run_arguments, storage_option
from dkfeat.cli.output import echo, note, print_result, show_size
from dkfeat.messages import counted, show_bytes

if TYPE_CHECKING:
    from dkfeat.engine.open import Target


@click.command(cls=DkfeatCommand)
@click.argument("target", nargs=-1, required=True)
@heading("Checks")
@click.option("--inputs", multiple=True, metavar="SOURCE", help="Compare this source too. Repeatable.")
@storage_option("TARGET and SOURCE")
@execution_options
@click.pass_context
def verify(ctx: click.Context, /, target: tuple[str, ...], inputs: tuple[str, ...], **where: Any) -> None:
    """Check every shard of a folder against its manifest, or the files of a model.

    Sizes, SHA-256, page checksums, row counts and fingerprints are compared; of
    a model, the SHA-256, shape and type of its weights. The exit status is 3 if
    anything is wrong. With --inputs, the source is read again, and the SHA-256 of
    each range is compared with the one in the manifest; the exit status is 4 if
    the source has changed. --progress shows that comparison only. Of several
    folders, the first that is damaged ends the command.

    For example:
      dkfeat verify features/train
      dkfeat verify features/days --inputs 'day-*.svm.gz'
      dkfeat verify features/train features/test model
      dkfeat verify features/train --json
    """
    from dkfeat.engine.open import Target

    storage_options = where.pop("storage_options")
    for folder in target:
        record: dict[str, Any] = {"target": folder, "problems": []}
        try:
            if not holds_model(folder, storage_options):
                execution = run_arguments(ctx, where)
                shards = Target(folder, storage_options=options_at(folder, storage_options))
                _verify_shards(shards, execution, record)
                if inputs:
                    _verify_inputs(shards, inputs, execution | {"storage_options": storage_options}, record)
            elif inputs:
                raise click.UsageError(f"{folder} is a model; --inputs is for the shards that it was trained on")
            else:
                _verify_model(folder, storage_options, record)
        finally:  # print the findings even if an error is raised
            if "kind" in record:
                print_result(record)


def _verify_model(target: str, options: Mapping[str, Any] | None, record: dict[str, Any]) -> None:
    from dkfeat.errors import ConfigError, InputError, ShardError
    from dkfeat.learn.model import load_model

    record["kind"] = "model"
    try:
        model = load_model(target, storage_options=options)
        n_features = model.map.n_features_out
    except (ConfigError, InputError, ShardError) as error:
        record["problems"] = [str(error)]
        raise error if isinstance(error, ShardError) else ShardError(f"{target}: {error}") from error
    record |= {"classes": len(model.classes), "features": n_features}
    classes, features = counted(len(model.classes), "class"), counted(n_features, "feature")
    note(f"{target}: model of {classes} and {features}, all as saved")


def _verify_shards(target: Target, where: dict[str, Any], record: dict[str, Any]) -> None:
    from dkfeat.engine.dataset.dataset import open_shards
    from dkfeat.errors import ShardError

    data = open_shards(target.path, storage_options=target.storage_options)
    report = data.verify(**where | {"progress": False})
    record |= {"kind": "shards", "shards": report.n_shards, "size": report.n_bytes}
    record |= {"problems": report.problems, "not_listed": report.unlisted}
    _list("problem", report.problems)
    _list("not listed, ignored by readers", report.unlisted)
    if report.problems:
        is_of_shard = any("/data/part-" in problem for problem in report.problems)
        advice = "; delete the shards named there and repeat the run that wrote them, which writes missing shards"
        raise ShardError(
            f"{target.path}: {counted(len(report.problems), 'problem')}, listed on standard output"
            + advice * is_of_shard
        )
    note(f"{target.path}: {counted(report.n_shards, 'shard')}, {show_size(report.n_bytes, 0)}, all as committed")
    environments = data.manifest.numeric_envs
    record["numeric_envs"] = environments
    if len(environments) > 1:
        note(
            f"{target.path}: processes of {len(environments):,} numeric environments made the shards, so the last bits "
            "of equal rows may differ between shards: " + "; ".join(environments)
        )


def _verify_inputs(target: Target, source: tuple[str, ...], where: dict[str, Any], record: dict[str, Any]) -> None:
    from dkfeat.engine.dataset.verify import verify_inputs
    from dkfeat.errors import SpecConflictError

    report = verify_inputs(target, source, **where)
    record["inputs"] = {"sources": report.n_sources, "ranges": report.n_pieces, "problems": report.problems}
    record["inputs"] |= {"touched": report.touched, "new": report.new}
    _list("problem", report.problems)
    _list("same bytes, but another modification time or version tag, so a run would fail", report.touched)
    _list("not committed yet", report.new)
    if report.problems:
        problems = counted(len(report.problems), "problem", "is", "are")
        raise SpecConflictError(f"{target.path}: its source has changed; {problems} listed on standard output")
    sources, ranges = counted(report.n_sources, "source"), counted(report.n_pieces, "range")
    note(f"{target.path}: {sources}, {ranges}, unchanged")


def _list(kind: str, lines: Iterable[str]) -> None:
    for line in lines:
        echo(f"{kind}: {line}")


def _cleaning_options(command: Command) -> Command:
    return apply_options(
        command,
        click.argument("target"),
        storage_option("TARGET"),
        click.option("--dry-run", is_flag=True, help="Only list what would be deleted."),
    )


def _list_deleted(names: Iterable[str], dry_run: bool) -> None:
    for name in names:
        note(f"{'would delete' if dry_run else 'deleted'}: {name}")


@click.command(cls=DkfeatCommand)
@_cleaning_options
@output_options
def abort(target: str, dry_run: bool, storage_options: Mapping[str, Any] | None) -> None:
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

    done = run(target, dry_run=dry_run, storage_options=storage_options)
    print_result({"target": target, "batch": done.number, "removed": done.removed, "dry_run": dry_run})
    if done.number is None:
        note(f"{target}: no batch is unfinished; nothing to abort")
        return
    _list_deleted(done.removed, dry_run)
    n_shards = sum(name.startswith("data/") for name in done.removed)
    verb = "would be aborted" if dry_run else "is aborted"
    note(f"{target}: batch {done.number:,} {verb}, with {counted(n_shards, 'shard')}")


@click.command(cls=DkfeatCommand)
@_cleaning_options
@click.option("--set-aside", is_flag=True, help="Also delete damaged shards that runs have set aside.")
@output_options
def clean(target: str, dry_run: bool, set_aside: bool, storage_options: Mapping[str, Any] | None) -> None:
    """Delete leftovers of dead runs in TARGET: unlisted shards and temporary files.

    Only files that no manifest or plan lists are deleted, and only if their names
    are of the form that dkfeat gives. Other files and folders are only listed.

    For example:
      dkfeat clean features/days --dry-run
      dkfeat clean features/days
    """
    from dkfeat.store.commit.maintenance import clean as run

    done = run(target, set_aside=set_aside, dry_run=dry_run, storage_options=storage_options)
    record = {"target": target, "removed": done.removed, "size": done.size, "refused": done.refused}
    print_result(record | {"dry_run": dry_run})
    _list_deleted(done.removed, dry_run)
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
