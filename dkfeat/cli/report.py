"""``dkfeat report``."""

from __future__ import annotations

from typing import Any

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._help import heading
from dkfeat.cli._output import output_options, summary
from dkfeat.cli._show import holds_model, show_size
from dkfeat.cli._storage import parse_options, storage_option
from dkfeat.cli._values import LOCAL_FILE

__all__ = ["report"]


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
    help="The page; replaced if it is there.",
)
@click.option(
    "--pair-rows",
    type=click.IntRange(min=0),
    default=256,
    show_default=True,
    help="Rows whose pairs are compared with the exact kernel; 0: none.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the rows that are drawn."
)
@storage_option("A setting of the store, of RUN and of SOURCE")
@output_options
def report(
    run: str,
    source: tuple[str, ...],
    out: str,
    pair_rows: int,
    seed: int,
    as_json: bool,
    storage_options: tuple[str, ...],
) -> None:
    """Write a page about the runs that made RUN, a folder of shards.

    The page shows source and settings, rows a second over time, rows and bytes
    of each shard, labels, empty rows and rows set aside, and how far estimates of
    the kernel are from exact values, beside the error that theory expects. It is
    one file that needs no other. A run that goes on is not disturbed.

    For the kernel some rows of SOURCE are read again; left out, files of this
    machine are read where the last run found them.

    For example:
      dkfeat report features/train
      dkfeat report features/days 'day-*.svm.gz' --out days.html
      dkfeat report s3://bucket/features s3://bucket/rows.svm --json
    """
    from dkfeat.io.remote import is_url
    from dkfeat.report.run_report import run_report

    options = parse_options(storage_options, "--storage-option")
    if holds_model(run, options if is_url(run) else None):
        message = f"{run} is a model; a report is about the folder of shards that it was trained on"
        raise click.UsageError(message)
    found = run_report(
        run,
        list(source) or None,
        pair_rows=pair_rows,
        random_state=seed,
        storage_options=options,
        target_options=options if is_url(run) else None,
    )
    found.save(out)
    known = found.to_mapping()
    shown: dict[str, Any] = {"report": out, "state": known["state"]}
    if "rows" in known:
        shown |= {
            "rows": f"{known['rows']:,}",
            "shards": f"{known['shards']:,}, {show_size(known['size'], known['rows'])}",
        }
    shown["kernel"] = found.kernel_note if found.kernel is None else found.kernel.pairs.describe()
    summary({**known, "report": out}, shown, as_json=as_json)
