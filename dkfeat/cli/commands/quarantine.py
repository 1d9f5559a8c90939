"""``dkfeat quarantine``."""

from __future__ import annotations

from typing import Any

import click

from dkfeat.cli.group import DkfeatCommand
from dkfeat.cli.options.shared import output_options
from dkfeat.cli.options.storage import storage_option
from dkfeat.cli.output import answer, echo, note


@click.command(cls=DkfeatCommand)
@click.argument("target")
@storage_option("TARGET")
@output_options
def quarantine(target: str, storage_options: dict[str, Any] | None) -> None:
    """List the rows that were set aside when folder TARGET was made.

    Each line has the place of the row (file, line and column; of Parquet file,
    row group, row and column), what is wrong, and the row itself.

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
        answer(row.to_mapping())
        echo(f"{row.place}: {row.message}: {row.text}")
