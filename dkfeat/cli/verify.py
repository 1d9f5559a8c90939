"""``dkfeat verify``."""

from __future__ import annotations

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._show import show_bytes

__all__ = ["verify"]


@click.command(cls=DkfeatCommand)
@click.argument("target")
def verify(target: str) -> None:
    """Check every shard of a folder against its manifest.

    Sizes, SHA-256, page checksums, row counts and fingerprints are compared.
    The exit status is 3 if anything is wrong.

    For example:
      dkfeat verify features/train
    """
    from dkfeat.engine.dataset import open_shards
    from dkfeat.errors import ShardError

    report = open_shards(target).verify()
    for problem in report.problems:
        click.echo(f"problem: {problem}")
    for name in report.unlisted:
        click.echo(f"not listed, ignored by readers: {name}")
    if report.problems:
        message = (
            f"{target}: {len(report.problems):,} problems, listed on standard output; featurize again repairs shards"
        )
        raise ShardError(message)
    click.echo(f"{target}: {report.n_shards:,} shards, {show_bytes(report.n_bytes, 0)}, all as committed")
