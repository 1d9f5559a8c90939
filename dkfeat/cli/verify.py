"""``dkfeat verify``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._help import heading
from dkfeat.cli._output import as_object, note, output_options
from dkfeat.cli._run_options import run_arguments, where_options
from dkfeat.cli._show import holds_model, show_size, shown
from dkfeat.cli._storage import parse_options, storage_option
from dkfeat.wording import counted

__all__ = ["verify"]


@click.command(cls=DkfeatCommand)
@click.argument("target")
@heading("What is checked")
@click.option("--inputs", multiple=True, metavar="SOURCE", help="Compare this source too; may be given again.")
@storage_option("A setting of the store, of TARGET and of SOURCE")
@where_options
@output_options
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    target: str,
    inputs: tuple[str, ...],
    storage_options: tuple[str, ...],
    as_json: bool,
    **where: Any,
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
      dkfeat verify features/train --json
    """
    options = parse_options(storage_options, "--storage-option")
    known: dict[str, Any] = {}
    try:
        if holds_model(target, options):
            if inputs:
                message = f"{target} is a model; --inputs is for the folder of shards that it was trained on"
                raise click.UsageError(message)
            known |= {"kind": "model", "target": target}
            _verify_model(target, options, known, as_json=as_json)
        else:
            _verify_shards(target, options, known, as_json=as_json)
            if inputs:
                _verify_inputs(target, inputs, options, run_arguments(ctx, where), known, as_json=as_json)
    finally:  # what was found, whatever is raised for it
        if as_json and known:
            as_object(known)


def _verify_model(target: str, options: Mapping[str, Any] | None, known: dict[str, Any], *, as_json: bool) -> None:
    from dkfeat.errors import ConfigError, InputError, ShardError
    from dkfeat.learn.model import load_model

    try:
        model = load_model(target, storage_options=options)
        try:
            n_features = model.map.n_features_out
        except (ConfigError, InputError) as error:
            message = f"{target}: {error}"
            raise ShardError(message) from error
    except ShardError as error:
        known["problems"] = [str(error)]
        raise
    known |= {"classes": len(model.classes), "features": n_features, "problems": []}
    if not as_json:
        note(f"{target}: model of {len(model.classes):,} classes and {n_features:,} features, all as saved")


def _verify_shards(target: str, options: Mapping[str, Any] | None, known: dict[str, Any], *, as_json: bool) -> None:
    from dkfeat.engine.dataset import open_shards
    from dkfeat.errors import ShardError
    from dkfeat.io.remote import is_url

    report = open_shards(target, storage_options=options if is_url(target) else None).verify()
    known |= {"kind": "shards", "target": target, "shards": report.n_shards, "size": report.n_bytes}
    known |= {"problems": report.problems, "not_listed": report.unlisted}
    if not as_json:
        _list("problem", report.problems)
        _list("not listed, ignored by readers", report.unlisted)
    if report.problems:
        message = (
            f"{target}: {len(report.problems):,} problems, listed on standard output; delete the shards named there "
            "and run featurize again: it makes missing shards anew"
        )
        raise ShardError(message)
    if not as_json:
        note(f"{target}: {counted(report.n_shards, 'shard')}, {show_size(report.n_bytes, 0)}, all as committed")


def _verify_inputs(
    target: str,
    source: tuple[str, ...],
    options: Mapping[str, Any] | None,
    where: Mapping[str, Any],
    known: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    from dkfeat.engine.inputs import verify_inputs
    from dkfeat.errors import SpecConflictError
    from dkfeat.io.remote import is_url

    at_url = options if is_url(target) else None
    report = verify_inputs(target, source, storage_options=options, target_options=at_url, **where)
    known["inputs"] = {"sources": report.n_sources, "ranges": report.n_pieces, "problems": report.problems}
    known["inputs"] |= {"touched": report.touched, "new": report.new}
    if not as_json:
        _list("problem", report.problems)
        _list("same bytes, but another time of change, which a run would refuse", report.touched)
        _list("not committed yet", report.new)
    if report.problems:
        message = f"{target}: its source has changed, {len(report.problems):,} problems are listed on standard output"
        raise SpecConflictError(message)
    if not as_json:
        note(f"{target}: {report.n_sources:,} sources, {report.n_pieces:,} ranges, all as they were read")


def _list(what: str, lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(f"{what}: {shown(line)}")
