"""``dkfeat quarantine``."""

from __future__ import annotations

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._output import as_object, note, output_options
from dkfeat.cli._storage import parse_options, storage_option

__all__ = ["quarantine"]


@click.command(cls=DkfeatCommand)
@click.argument("target")
@storage_option("A setting of the store, of a TARGET at a URL")
@output_options
def quarantine(target: str, as_json: bool, storage_options: tuple[str, ...]) -> None:
    """List the rows that were set aside when folder TARGET was made.

    A line tells where the row stands (file, line and column; of Parquet row
    group, row and column), what is wrong, and the row itself.

    For example:
      dkfeat featurize 'day-*.svm' --on-bad-row quarantine --out features/days
      dkfeat quarantine features/days
      dkfeat quarantine features/days --json | jq -r .message | sort | uniq -c
    """
    from dkfeat.engine.dataset import open_shards

    data = open_shards(target, storage_options=parse_options(storage_options, "--storage-option"))
    if not data.manifest.n_bad_rows:
        note(f"{target}: no rows were set aside", err=True)
    for row in data.quarantine():
        if as_json:
            as_object(row.to_mapping())
        else:
            click.echo(f"{row.place}: {row.message}: {row.text}")
