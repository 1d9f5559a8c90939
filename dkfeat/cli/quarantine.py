"""``dkfeat quarantine``."""

from __future__ import annotations

import json

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._storage import parse_options, storage_option

__all__ = ["quarantine"]


@click.command(cls=DkfeatCommand)
@click.argument("target")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
@storage_option("A setting of the store, of a TARGET at a URL")
def quarantine(target: str, as_json: bool, storage_options: tuple[str, ...]) -> None:
    """List the rows that were set aside when folder TARGET was made.

    A line tells where the row stands (file, line and column; of Parquet row
    group, row and column), what is wrong, and the row itself.

    For example:
      dkfeat featurize 'day-*.svm' --on-bad-row quarantine --out features/days
      dkfeat quarantine features/days
    """
    from dkfeat.engine.dataset import open_shards

    for row in open_shards(target, storage_options=parse_options(storage_options, "--storage-option")).quarantine():
        if as_json:
            click.echo(json.dumps(row.to_mapping()))
        else:
            click.echo(f"{row.place}: {row.message}: {row.text}")
