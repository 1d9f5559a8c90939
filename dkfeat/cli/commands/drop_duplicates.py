"""``dkfeat drop-duplicates``: copy shards without copies and near copies of rows."""

from __future__ import annotations

from typing import Any

import click

from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options.shared import break_lock_first, output_options, run_arguments, run_options, target_of
from dkfeat.cli.options.storage import options_at, storage_option, target_option
from dkfeat.cli.output import note, summary_of


@click.command("drop-duplicates", cls=DkfeatCommand)
@click.argument("shards")
@click.argument("duplicates")
@heading("Target")
@click.option("--out", required=True, metavar="DIR", help="Target: a folder or URL for the copy.")
@target_option
@heading("Reading shards")
@storage_option("SHARDS")
@run_options
@output_options
@click.pass_context
def drop_duplicates(
    ctx: click.Context,
    /,
    shards: str,
    duplicates: str,
    out: str,
    storage_options: dict[str, Any] | None,
    **options: Any,
) -> None:
    """Copy SHARDS without the duplicates in DUPLICATES.

    DUPLICATES is the folder that `dkfeat duplicates` wrote for SHARDS. Of each
    group of duplicates the first row is left. The copy is a data set like SHARDS:
    models are trained and evaluated on it in the same way. The same command again
    continues an interrupted run.

    For example:
      dkfeat duplicates features/train --out duplicates
      dkfeat drop-duplicates features/train duplicates --out features/distinct
      dkfeat train features/distinct --test features/test --out model
    """
    from dkfeat.engine.dataset.dataset import open_shards
    from dkfeat.neighbors import drop_duplicates as run

    data = open_shards(shards, storage_options=options_at(shards, storage_options))
    break_lock_first(out, options)
    manifest = run(data, duplicates, target_of(out, options), **run_arguments(ctx, options))
    dropped = data.n_rows - manifest.rows
    summary_of(manifest, "target", out, dropped=dropped)
    note(f"{dropped:,} of the {data.n_rows:,} rows of {shards} are left out")
