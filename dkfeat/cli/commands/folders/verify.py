"""``dkfeat verify``: shards, sources and models compared with what was committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options.shared import execution_options, output_options, run_arguments
from dkfeat.cli.options.storage import holds_model, options_at, storage_option
from dkfeat.cli.output import echo, note, print_result, show_size
from dkfeat.messages import counted


@click.command(cls=DkfeatCommand)
@click.argument("target")
@heading("Checks")
@click.option("--inputs", multiple=True, metavar="SOURCE", help="Compare this source too. Repeatable.")
@storage_option("TARGET and SOURCE")
@execution_options
@output_options
@click.pass_context
def verify(
    ctx: click.Context, /, target: str, inputs: tuple[str, ...], storage_options: dict[str, Any] | None, **where: Any
) -> None:
    """Check every shard of a folder against its manifest, or the files of a model.

    Sizes, SHA-256, page checksums, row counts and fingerprints are compared; of
    a model, the SHA-256, shape and type of its weights. The exit status is 3 if
    anything is wrong. With --inputs, the source is read again, and the SHA-256 of
    each range is compared with the one in the manifest; the exit status is 4 if
    the source has changed. --progress shows that comparison only.

    For example:
      dkfeat verify features/train
      dkfeat verify features/days --inputs 'day-*.svm.gz'
      dkfeat verify model
      dkfeat verify features/train --json
    """
    record: dict[str, Any] = {}
    try:
        if not holds_model(target, storage_options):
            execution = run_arguments(ctx, where)
            _verify_shards(target, storage_options, execution, record)
            if inputs:
                _verify_inputs(target, inputs, storage_options, execution, record)
        elif inputs:
            raise click.UsageError(f"{target} is a model; --inputs is for the folder of shards that it was trained on")
        else:
            _verify_model(target, storage_options, record)
    finally:  # print the findings even if an error is raised
        if record:
            print_result(record)


def _verify_model(target: str, options: Mapping[str, Any] | None, record: dict[str, Any]) -> None:
    from dkfeat.errors import ConfigError, InputError, ShardError
    from dkfeat.learn.model import load_model

    record |= {"kind": "model", "target": target}
    try:
        model = load_model(target, storage_options=options)
        try:
            n_features = model.map.n_features_out
        except (ConfigError, InputError) as error:
            raise ShardError(f"{target}: {error}") from error
    except ShardError as error:
        record["problems"] = [str(error)]
        raise
    record |= {"classes": len(model.classes), "features": n_features, "problems": []}
    note(f"{target}: model of {len(model.classes):,} classes and {n_features:,} features, all as saved")


def _verify_shards(
    target: str, options: Mapping[str, Any] | None, where: dict[str, Any], record: dict[str, Any]
) -> None:
    from dkfeat.engine.dataset.dataset import open_shards
    from dkfeat.errors import ShardError

    data = open_shards(target, storage_options=options_at(target, options))
    report = data.verify(**where | {"progress": False})
    record |= {"kind": "shards", "target": target, "shards": report.n_shards, "size": report.n_bytes}
    record |= {"problems": report.problems, "not_listed": report.unlisted}
    _list("problem", report.problems)
    _list("not listed, ignored by readers", report.unlisted)
    if report.problems:
        raise ShardError(
            f"{target}: {len(report.problems):,} problems, listed on standard output; delete the shards named there "
            "and repeat the run that wrote them, which writes missing shards"
        )
    note(f"{target}: {counted(report.n_shards, 'shard')}, {show_size(report.n_bytes, 0)}, all as committed")
    environments = data.manifest.numeric_envs
    record["numeric_envs"] = environments
    if len(environments) > 1:
        note(
            f"{target}: processes of {len(environments):,} numeric environments made the shards, so the last bits of "
            "equal rows may differ between shards: " + "; ".join(environments)
        )


def _verify_inputs(
    target: str,
    source: tuple[str, ...],
    options: Mapping[str, Any] | None,
    where: dict[str, Any],
    record: dict[str, Any],
) -> None:
    from dkfeat.engine.dataset.verify_inputs import verify_inputs
    from dkfeat.engine.open import Target
    from dkfeat.errors import SpecConflictError

    at_target = options_at(target, options)
    report = verify_inputs(Target(target, storage_options=at_target), source, storage_options=options, **where)
    record["inputs"] = {"sources": report.n_sources, "ranges": report.n_pieces, "problems": report.problems}
    record["inputs"] |= {"touched": report.touched, "new": report.new}
    _list("problem", report.problems)
    _list("same bytes, but another modification time or version tag, so a run would fail", report.touched)
    _list("not committed yet", report.new)
    if report.problems:
        raise SpecConflictError(
            f"{target}: its source has changed, {len(report.problems):,} problems are listed on standard output"
        )
    note(f"{target}: {report.n_sources:,} sources, {report.n_pieces:,} ranges, all unchanged")


def _list(kind: str, lines: Iterable[str]) -> None:
    for line in lines:
        echo(f"{kind}: {line}")
