"""``dkfeat report``: a page about a folder of shards and its runs, or about the duplicates in it."""

from __future__ import annotations

from typing import Any

import click

from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options.declared import given_flags
from dkfeat.cli.options.shared import output_options, overwrite_option
from dkfeat.cli.options.storage import holds_model, options_at, storage_option
from dkfeat.cli.options.types import LOCAL_FILE
from dkfeat.cli.output import show_size, summary


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
def report(
    ctx: click.Context,
    /,
    run: str,
    source: tuple[str, ...],
    out: str,
    overwrite: bool,
    pair_rows: int,
    seed: int,
    storage_options: dict[str, Any] | None,
) -> None:
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
    from dkfeat.report.duplicates_report import holds_duplicates
    from dkfeat.report.run_report import run_report
    from dkfeat.store.outputs import check_outputs

    check_outputs([out], inputs=source, overwrite=overwrite)
    if holds_duplicates(run):
        for flag in given_flags(ctx, ("pair_rows", "seed")).values():
            raise click.UsageError(
                f"{flag} is for kernel estimates of shards, but {run} holds duplicates; leave it out"
            )
        _report_duplicates(run, source, out, overwrite, storage_options)
        return
    options = options_at(run, storage_options)
    if holds_model(run, options):
        raise click.UsageError(f"{run} is a model; a report is about the folder of shards that it was trained on")
    found = run_report(
        run,
        list(source) or None,
        pair_rows=pair_rows,
        random_state=seed,
        storage_options=storage_options,
        target_options=options,
    )
    found.save(out, overwrite=overwrite)
    record = found.to_mapping()
    shown: dict[str, Any] = {"report": out, "state": record["state"]}
    if "rows" in record:
        size = show_size(record["size"], record["rows"])
        shown |= {"rows": f"{record['rows']:,}", "shards": f"{record['shards']:,}, {size}"}
    shown["kernel"] = found.kernel_note if found.kernel is None else found.kernel.pairs.describe()
    summary({**record, "report": out}, shown)


def _report_duplicates(
    run: str, source: tuple[str, ...], out: str, overwrite: bool, storage_options: dict[str, Any] | None
) -> None:
    from dkfeat.report.duplicates_report import duplicates_report

    found = duplicates_report(run, list(source) or None, storage_options=storage_options)
    found.save(out, overwrite=overwrite)
    rows = found.source_note or ("side by side" if found.samples else "no pairs")
    summary({**found.to_mapping(), "report": out}, {"report": out, **found.figures, "samples": rows})
