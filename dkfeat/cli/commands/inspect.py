"""Commands that show the content and the state of a folder of shards or a model, and reports about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.declared import LOCAL_FILE
from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options import holds_model, options_at, output_options, overwrite_option, storage_option
from dkfeat.cli.output import echo, facts, is_quiet, note, print_result, show_size, summary
from dkfeat.messages import counted, percent, printable

if TYPE_CHECKING:
    from dkfeat.store.commit.status import Status


LABELS_SHOWN, NAMES_SHOWN = 12, 5
_INTERNAL = {"manifest", "manifest_sha256", "n_features", "blocksize", "features_as", "kept_types", "spec_fp"}
"""Keys that only ``--json`` shows."""
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
    from dkfeat.neighbors import Neighbors
    from dkfeat.store.manifest.manifest import labels_named
    from dkfeat.store.manifest.metadata import encoder_shown

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
        "labels": None if manifest.labels is None else labels_named(manifest.labels, data.spec["input"]),
        "shards": len(manifest.shards),
        "size": manifest.size,
        "features": data.map.n_features_out,
        "encoder": encoder_shown(data.spec.get("encoder")),
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
    if data.layout == "neighbors":
        found = Neighbors.open(target, storage_options=options)
        record |= {"method": data.spec["neighbors"].get("method", "exact"), "recall": found.recall}
    return record


def _of_model(target: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    from dkfeat.learn.model import load_model
    from dkfeat.store.manifest.metadata import encoder_shown

    model = load_model(target, storage_options=options)
    encoder = None if model.encoder is None else model.encoder.to_spec()
    last = model.history[-1] if model.history else {}
    return {
        "kind": "model",
        "target": target,
        "labels": model.names.tolist(),
        "features": model.coef.shape[1],
        "encoder": encoder_shown(encoder),
        "map": dict(model.map_spec),
        "input": dict(model.input_spec),
        "training": {name: value for name, value in model.training.items() if name != "settings"},
        "test_accuracy": last.get("test_accuracy"),
        "manifest_sha256": model.manifest_sha256,
    }


def _readable(key: str, value: Any, record: Mapping[str, Any]) -> str:
    if key in _INTERNAL or (key == "numeric_envs" and len(value) == 1):
        return ""
    if key == "labels" and value is None:
        return "more than 10,000 values"
    if key == "map":
        width = {} if record["encoder"] else {"n_features": value["n_features"]}
        shown = {**width, **value.get("params", {}), "seed": value.get("seed")}
        return f"{value['map']} version {value['version']}: {_settings(shown)}"
    if key == "encoder" and value:
        left = f", {value['left_out']:,} left out" if value["left_out"] else ""
        own = {name: value[name] for name in value if name not in ("encoder", "version", "columns", "left_out")}
        columns = f"{counted(value['columns'], 'column')}{left}"
        return f"{value['encoder']} version {value['version']}: {columns}, {_settings(own)}"
    if key == "size":
        return show_size(value, record["rows"])
    if key == "input":
        has_base = value["kind"] == "libsvm"
        value = {name: item for name, item in value.items() if (has_base if name == "zero_based" else item)}
    if isinstance(value, Mapping):
        return _settings(
            {name: item for name, item in value.items() if name not in {*_INTERNAL, "grid", "calibration"}}
        )
    if isinstance(value, list):
        return _some(value, LABELS_SHOWN) if value else ""
    if isinstance(value, float):  # an accuracy, unless it is a recall
        return percent(value) if key == "recall" else f"{value:.2%}"
    return f"{value:,}" if isinstance(value, int) and (value or key == "rows") else str(value or "")


def _settings(values: Mapping[str, Any]) -> str:
    shown = {key: _some(value) if isinstance(value, list) else value for key, value in values.items() if value != []}
    return ", ".join(f"{key}={value}" for key, value in shown.items() if value is not None)


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
    from dkfeat.store.commit.status import status as read_status

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
            f"{batch.number:,}: {batch.splits_done:,} of {counted(batch.splits, 'split')} done, "
            f"{batch.splits_left:,} left; {counted(len(batch.shards), 'shard')} not yet listed"
        )
    planned = () if found.unfinished is None else found.unfinished.sources
    named = {"batch_sources": planned, "missing": found.missing, "not_listed": found.unlisted}
    return lines | {name: _some(names) for name, names in named.items() if names}


@click.command(cls=DkfeatCommand)
@click.argument("target")
@storage_option("TARGET")
@output_options
def files(target: str, storage_options: dict[str, Any] | None) -> None:
    """List the committed Parquet files of TARGET, one a line, in row order.

    Other files in TARGET/data are of a run in progress or interrupted, so give
    this list, not the folder, to other readers of Parquet.

    For example:
      dkfeat files features/days
      dkfeat files features/days --json | jq -r .files[]
    """
    from dkfeat.engine.dataset.dataset import open_shards

    paths = open_shards(target, storage_options=storage_options).paths
    print_result({"target": target, "files": paths})
    for path in paths:
        echo(printable(path), raw=True)


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
        echo(printable(f"{row.place}: {row.message}: {row.text}"), raw=True)


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
def report(run: str, source: tuple[str, ...], out: str, overwrite: bool, **options: Any) -> None:
    """Write a page about RUN, a folder of shards or predictions.

    The page shows the source and the settings, rows per second of each run, rows
    and bytes of shards, empty and bad rows, and the error of the kernel estimates
    beside the error that theory expects. It is a single file. A run in progress
    is not affected.

    Some rows of SOURCE are read again, for the kernel. Without SOURCE, the local
    files of the last run are read, if they are unchanged.

    For example:
      dkfeat report features/train
      dkfeat report features/days 'day-*.svm.gz' --out days.html
      dkfeat report s3://bucket/features s3://bucket/rows.svm --json
    """
    from dkfeat.engine.open import Target
    from dkfeat.report.run_report import run_report
    from dkfeat.store.outputs import check_outputs

    check_outputs([out], inputs=source, overwrite=overwrite)
    target = Target(run, storage_options=options_at(run, options["storage_options"]))
    if holds_model(run, target.storage_options):
        raise click.UsageError(f"{run} is a model; a report is about the folder of shards that it was trained on")
    options["random_state"] = options.pop("seed")
    found = run_report(target, list(source) or None, **options)
    record, shown = found.to_mapping(), {"report": out, "state": found.status.state}
    if "rows" in record:
        size = show_size(record["size"], record["rows"])
        shown |= {"rows": f"{record['rows']:,}", "shards": f"{record['shards']:,}, {size}"}
    shown |= {"warning": "; ".join(found.warnings)} if found.warnings else {}
    shown["kernel"] = found.kernel_note if found.kernel is None else found.kernel.pairs.describe()
    found.save(out, overwrite=overwrite)
    summary({**record, "report": out}, shown)
