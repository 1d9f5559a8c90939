"""``dkfeat verify``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._help import heading
from dkfeat.cli._run_options import run_arguments, where_options
from dkfeat.cli._show import holds_model, show_size, shown
from dkfeat.cli._storage import parse_options, storage_option

__all__ = ["verify"]


@click.command(cls=DkfeatCommand)
@click.argument("target")
@heading("What is checked")
@click.option("--inputs", multiple=True, metavar="SOURCE", help="Compare this source too; may be given again.")
@storage_option("A setting of the store, of TARGET and of SOURCE")
@where_options
@click.pass_context
def verify(
    ctx: click.Context, /, target: str, inputs: tuple[str, ...], storage_options: tuple[str, ...], **where: Any
) -> None:
    """Check every shard of a folder against its manifest, or the files of a model.

    Sizes, SHA-256, page checksums, row counts and fingerprints are compared; of
    a model, the SHA-256, shape and type of its weights. The exit status is 3 if
    anything is wrong. With --inputs the source is read again and compared with
    what the shards were made from, byte by byte; 4 if it is no longer that. The
    options of schedulers and progress are for that second part.

    For example:
      dkfeat verify features/train
      dkfeat verify features/days --inputs 'day-*.svm.gz'
      dkfeat verify model
    """
    options = parse_options(storage_options, "--storage-option")
    if holds_model(target, options):
        if inputs:
            message = f"{target} is a model; --inputs is for the folder of shards that it was trained on"
            raise click.UsageError(message)
        _verify_model(target, options)
    else:
        _verify_shards(target, options)
        if inputs:
            _verify_inputs(target, inputs, options, run_arguments(ctx, where))


def _verify_model(target: str, options: Mapping[str, Any] | None) -> None:
    from dkfeat.errors import ConfigError, InputError, ShardError
    from dkfeat.learn.model import load_model

    model = load_model(target, storage_options=options)
    try:
        n_features = model.map.n_features_out
    except (ConfigError, InputError) as error:
        message = f"{target}: {error}"
        raise ShardError(message) from error
    click.echo(f"{target}: model of {len(model.classes):,} classes and {n_features:,} features, all as saved")


def _verify_shards(target: str, options: Mapping[str, Any] | None) -> None:
    from dkfeat.engine.dataset import open_shards
    from dkfeat.errors import ShardError
    from dkfeat.io.remote import is_url

    report = open_shards(target, storage_options=options if is_url(target) else None).verify()
    for problem in report.problems:
        click.echo(f"problem: {shown(problem)}")
    for name in report.unlisted:
        click.echo(f"not listed, ignored by readers: {shown(name)}")
    if report.problems:
        message = (
            f"{target}: {len(report.problems):,} problems, listed on standard output; delete the shards named there "
            "and run featurize again: it makes missing shards anew"
        )
        raise ShardError(message)
    click.echo(f"{target}: {report.n_shards:,} shards, {show_size(report.n_bytes, 0)}, all as committed")


def _verify_inputs(
    target: str, source: tuple[str, ...], options: Mapping[str, Any] | None, where: Mapping[str, Any]
) -> None:
    from dkfeat.engine.inputs import verify_inputs
    from dkfeat.errors import SpecConflictError
    from dkfeat.io.remote import is_url

    at_url = options if is_url(target) else None
    report = verify_inputs(target, source, storage_options=options, target_options=at_url, **where)
    for problem in report.problems:
        click.echo(f"problem: {shown(problem)}")
    for name in report.touched:
        click.echo(f"same bytes, but another time of change, which a run would refuse: {shown(name)}")
    for name in report.new:
        click.echo(f"not committed yet: {shown(name)}")
    if report.problems:
        message = f"{target}: its source has changed, {len(report.problems):,} problems are listed on standard output"
        raise SpecConflictError(message)
    click.echo(f"{target}: {report.n_sources:,} sources, {report.n_pieces:,} ranges, all as they were read")
