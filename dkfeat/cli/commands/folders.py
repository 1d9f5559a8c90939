"""Commands about folders of shards and models: their content and state, reports, checks, and cleaning up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dkfeat.cli.declared import LOCAL_FILE, given_flags, option_of
from dkfeat.cli.group import DkfeatCommand, apply_options, heading
from dkfeat.cli.options import (
    execution_options,
    holds_model,
    options_at,
    output_options,
    overwrite_option,
    run_arguments,
    storage_option,
)
from dkfeat.cli.output import echo, facts, is_quiet, note, print_result, show_size, summary
from dkfeat.config import RunConfig
from dkfeat.messages import counted, show_bytes

if TYPE_CHECKING:
    from dkfeat.engine.open import Target
    from dkfeat.store.commit.maintenance import Status


Command = TypeVar("Command", bound=Callable[..., Any])

LABELS_SHOWN, NAMES_SHOWN = 12, 5
UNFINISHED = 4


@click.command(cls=DkfeatCommand)
@click.argument("target")
@storage_option("TARGET")
@output_options
def inspect(target: str, storage_options: dict[str, Any] | None) -> None:
    """Describe TARGET, a folder of shards or a model.

    For example:
      dkfeat inspect features/train
      dkfeat inspect model --json
    """
    describe = _of_model if holds_model(target, storage_options) else _of_shards
    record = describe(target, storage_options)
    print_result(record)
    shown = {key: _readable(key, value, record) for key, value in record.items()}
    facts(**{key: value for key, value in shown.items() if value})


def _of_shards(target: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    from dkfeat.engine.dataset.dataset import open_shards

    data = open_shards(target, storage_options=options)
    manifest = data.manifest
    record = {
        "kind": "shards",
        "target": target,
        "rows": manifest.rows,
        "empty_rows": manifest.n_empty_rows,
        "nonzeros": manifest.nnz if manifest.nnz or manifest.n_empty_rows == manifest.rows else None,
        "bad_rows": manifest.n_bad_rows,
        "bad_rows_by_reason": manifest.bad_rows,
        "bad_rows_by_source": {source.name: source.n_bad_rows for source in manifest.sources if source.n_bad_rows},
        "labels": None if manifest.labels is None else list(manifest.labels),
        "shards": len(manifest.shards),
        "size": manifest.size,
        "features": data.map.n_features_out,
        "map": dict(data.spec["map"]),
        "input": dict(data.spec["input"]),
        "layout": data.spec["output"]["layout"],
        "drop_duplicates": data.spec.get("drop_duplicates"),
        "sources": [source.name for source in manifest.sources],
        "no_final_newline": manifest.unterminated,
        "manifest": manifest.number,
        "numeric_envs": list(manifest.numeric_envs),
    }
    if not data.has_features:
        record["columns"] = list(manifest.schema)
        of_features = {"features", *(() if "label" in manifest.schema else ("labels", "nonzeros", "empty_rows"))}
        record = {key: value for key, value in record.items() if key not in of_features}
    return record


def _of_model(target: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    from dkfeat.learn.model import load_model

    model = load_model(target, storage_options=options)
    last = model.history[-1] if model.history else {}
    return {
        "kind": "model",
        "target": target,
        "labels": model.classes.tolist(),
        "features": model.coef.shape[1],
        "map": dict(model.map_spec),
        "input": dict(model.input_spec),
        "training": dict(model.training),
        "test_accuracy": last.get("test_accuracy"),
        "manifest_sha256": model.manifest_sha256,
    }


def _readable(key: str, value: Any, record: Mapping[str, Any]) -> str:
    if key == "labels" and value is None:
        return "more than 10,000 values"
    if key == "map":
        shown = {"n_features": value["n_features"], **value.get("params", {}), "seed": value.get("seed")}
        return f"{value['map']} version {value['version']}: {_settings(shown)}"
    if key == "size":
        return show_size(value, record["rows"])
    if isinstance(value, Mapping):
        return _settings(value)
    if isinstance(value, list):
        return "" if not value and key == "no_final_newline" else _some(value, LABELS_SHOWN)
    if isinstance(value, float):  # an accuracy
        return f"{value:.2%}"
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items() if value is not None)


def _some(names: Sequence[Any], most: int = NAMES_SHOWN) -> str:
    more = ", …" if len(names) > most else ""
    return f"{len(names):,} ({', '.join(map(str, names[:most]))}{more})"


@click.command(cls=DkfeatCommand)
@click.argument("target")
@click.option("--check", is_flag=True, help="Exit with 3 if TARGET is damaged, with 4 if it is not complete.")
@storage_option("TARGET")
@output_options
@click.pass_context
def status(ctx: click.Context, /, target: str, check: bool, storage_options: dict[str, Any] | None) -> None:
    """Show the state of TARGET: running, damaged, unfinished, empty or complete.

    Nothing is written, and a run in progress is not affected. The exit
    status is 0 in any state, unless --check is given.

    For example:
      dkfeat status features/days
      dkfeat status features/days --check --quiet && dkfeat train features/days
    """
    from dkfeat.errors import ShardError
    from dkfeat.store.commit.maintenance import status as read_status

    found = read_status(target, storage_options=storage_options)
    print_result(found.to_mapping())
    if not is_quiet():
        facts(**_of_state(found))
    if check and found.state == "damaged":
        missing = f"{len(found.missing):,} committed shards are missing or have another size"
        raise ShardError(f"{target}: {missing}, such as {found.missing[0]}")
    if check and found.state != "complete":
        ctx.exit(UNFINISHED)


def _of_state(found: Status) -> dict[str, str]:
    lines = {"target": found.target, "state": f"{found.state}: {found.meaning}"}
    if found.committed is not None:
        last = found.committed
        lines |= {
            "last_commit": f"batch {last.number:,} at {last.at} by run {last.run_id}",
            "rows": f"{last.rows:,}",
            "shards": f"{last.shards:,}, {show_size(last.size, last.rows)}",
            "sources": f"{last.sources:,}",
        }
    if found.holder is not None:
        holder = found.holder
        alive = {True: "running", False: "ended without removing its lock", None: "running, or ended on that host"}
        lines["lock"] = f"run {holder.run_id}, host {holder.host}, pid {holder.pid}, since {holder.since}: "
        lines["lock"] += alive[holder.alive]
    if found.last_run is not None and found.last_run.outcome not in ("committed", "running"):
        run = found.last_run
        lines["last_run"] = f"{run.outcome} at {run.ended} with {counted(run.shards, 'shard')}, run {run.run_id}"
        lines["last_run"] += f": {run.error}" * bool(run.error)
    if found.unfinished is not None:
        batch = found.unfinished
        lines["batch"] = (
            f"{batch.number:,}: {batch.splits_done:,} of {batch.splits:,} splits done, {batch.splits_left:,} left; "
            f"{counted(len(batch.shards), 'shard')} not yet listed"
        )
    planned = () if found.unfinished is None else found.unfinished.sources
    named = {"batch_sources": planned, "missing": found.missing, "not_listed": found.unlisted}
    return lines | {name: _some(names) for name, names in named.items() if names}


@click.command(cls=DkfeatCommand)
@click.argument("target")
@storage_option("TARGET")
@output_options
def quarantine(target: str, storage_options: dict[str, Any] | None) -> None:
    """List the bad rows that were left out of the shards in TARGET.

    Each line has the position of the row (file, line and column; for Parquet
    file, row group, row and column), the error, and the row itself.

    For example:
      dkfeat featurize 'day-*.svm' --on-bad-row quarantine --out features/days
      dkfeat quarantine features/days
      dkfeat quarantine features/days --json | jq -r .message | sort | uniq -c
    """
    from dkfeat.engine.dataset.dataset import open_shards

    data = open_shards(target, storage_options=storage_options)
    if not data.manifest.n_bad_rows:
        note(f"{target}: no rows were set aside", err=True)
    for row in data.quarantine():
        print_result(row.to_mapping())
        echo(f"{row.place}: {row.message}: {row.text}")


@click.command(cls=DkfeatCommand)
@click.argument("run")
@click.argument("source", nargs=-1)
@heading("Report")
@click.option(
    "--out",
    type=LOCAL_FILE,
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="File of the page; an earlier page is replaced.",
)
@overwrite_option
@click.option(
    "--pair-rows",
    type=click.IntRange(min=0),
    default=256,
    show_default=True,
    help="Rows whose pairs are compared with the exact kernel; 0 for none.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the choice of rows.")
@storage_option("RUN and SOURCE")
@output_options
@click.pass_context
def report(ctx: click.Context, /, run: str, source: tuple[str, ...], out: str, overwrite: bool, **options: Any) -> None:
    """Write a page about RUN, a folder of shards, predictions or duplicates.

    The page shows the source and the settings, rows per second over time, rows
    and bytes of each shard, labels, empty and bad rows, and the error of the
    kernel estimates beside the error that theory expects. It is a single file. A
    run in progress is not affected.

    For a folder that `dkfeat duplicates` wrote, the page shows sizes of groups,
    similarities, and pairs of rows side by side.

    Some rows of SOURCE are read again, for the kernel or the pairs. Without
    SOURCE, the local files of the last run are read, if they are unchanged.

    For example:
      dkfeat report features/train
      dkfeat report features/days 'day-*.svm.gz' --out days.html
      dkfeat report s3://bucket/features s3://bucket/rows.svm --json
      dkfeat report duplicates --out duplicates.html
    """
    from dkfeat.engine.open import Target
    from dkfeat.report.duplicates_report import duplicates_report, holds_duplicates
    from dkfeat.report.run_report import run_report
    from dkfeat.store.outputs import check_outputs

    check_outputs([out], inputs=source, overwrite=overwrite)
    if holds_duplicates(run):
        if given := ", ".join(given_flags(ctx, ("pair_rows", "seed")).values()):
            raise click.UsageError(
                f"{given} is for kernel estimates of shards, but {run} holds duplicates; leave it out"
            )
        found: Any = duplicates_report(run, list(source) or None, storage_options=options["storage_options"])
        rows = found.source_note or ("side by side" if found.samples else "no pairs")
        record, shown = found.to_mapping(), {"report": out, **found.figures, "samples": rows}
    else:
        target = Target(run, storage_options=options_at(run, options["storage_options"]))
        if holds_model(run, target.storage_options):
            raise click.UsageError(f"{run} is a model; a report is about the folder of shards that it was trained on")
        options["random_state"] = options.pop("seed")
        found = run_report(target, list(source) or None, **options)
        record, shown = found.to_mapping(), {"report": out, "state": found.status.state}
        if "rows" in record:
            size = show_size(record["size"], record["rows"])
            shown |= {"rows": f"{record['rows']:,}", "shards": f"{record['shards']:,}, {size}"}
        shown["kernel"] = found.kernel_note if found.kernel is None else found.kernel.pairs.describe()
    found.save(out, overwrite=overwrite)
    summary({**record, "report": out}, shown)


@click.command(cls=DkfeatCommand)
@click.argument("target")
@heading("Checks")
@click.option("--inputs", multiple=True, metavar="SOURCE", help="Compare this source too. Repeatable.")
@storage_option("TARGET and SOURCE")
@execution_options
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
    from dkfeat.engine.open import Target

    record: dict[str, Any] = {"target": target, "problems": []}
    try:
        if not holds_model(target, storage_options):
            execution = run_arguments(ctx, where)
            shards = Target(target, storage_options=options_at(target, storage_options))
            _verify_shards(shards, execution, record)
            if inputs:
                _verify_inputs(shards, inputs, execution | {"storage_options": storage_options}, record)
        elif inputs:
            raise click.UsageError(f"{target} is a model; --inputs is for the folder of shards that it was trained on")
        else:
            _verify_model(target, storage_options, record)
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
    note(f"{target}: model of {len(model.classes):,} classes and {n_features:,} features, all as saved")


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
        raise ShardError(
            f"{target.path}: {len(report.problems):,} problems, listed on standard output; delete the shards named "
            "there and repeat the run that wrote them, which writes missing shards"
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
        raise SpecConflictError(
            f"{target.path}: its source has changed, {len(report.problems):,} problems are listed on standard output"
        )
    note(f"{target.path}: {report.n_sources:,} sources, {report.n_pieces:,} ranges, all unchanged")


def _list(kind: str, lines: Iterable[str]) -> None:
    for line in lines:
        echo(f"{kind}: {line}")


def _cleaning_options(command: Command) -> Command:
    return apply_options(
        command,
        click.argument("target"),
        storage_option("TARGET"),
        click.option("--dry-run", is_flag=True, help="Only list what would be deleted."),
        option_of(RunConfig, "break_lock", metavar="RUN_ID"),
    )


def _list_deleted(names: Iterable[str], dry_run: bool) -> None:
    for name in names:
        note(f"{'would delete' if dry_run else 'deleted'}: {name}")


@click.command(cls=DkfeatCommand)
@_cleaning_options
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
    _list_deleted(done.removed, dry_run)
    verb = "would be aborted" if dry_run else "is aborted"
    note(f"{target}: batch {done.number:,} {verb}, with {counted(len(done.removed) - 1, 'shard')}")


@click.command(cls=DkfeatCommand)
@_cleaning_options
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
