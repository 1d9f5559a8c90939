"""``dkfeat featurize``, which turns rows into shards, and ``dkfeat plan``, which shows what a run would do."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from dkfeat.cli.declared import option_of
from dkfeat.cli.group import Command, DkfeatCommand, apply_options, heading
from dkfeat.cli.options import (
    bad_row_options,
    on_bad_row,
    output_options,
    progress_of,
    run_arguments,
    run_options,
    target_of,
    target_option,
)
from dkfeat.cli.output import echo, print_result, summary_of
from dkfeat.cli.rows import encoder_options, make_encoder, make_map, make_source, map_options, source_options
from dkfeat.config import FeaturizeConfig
from dkfeat.messages import in_flags


def _target(command: Command, *, required: bool = True) -> Command:
    return apply_options(
        command,
        click.argument("source", nargs=-1, required=True),
        heading("Target"),
        option_of(
            FeaturizeConfig,
            "out",
            metavar="DIR",
            required=required,
            help="Target: a folder, or its URL. Missing parents of a relative folder are made.",
        ),
        option_of(FeaturizeConfig, "like", metavar="DIR"),
        option_of(FeaturizeConfig, "layout"),
        target_option,
    )


@click.command(cls=DkfeatCommand)
@_target
@option_of(FeaturizeConfig, "delta")
@map_options
@source_options
@encoder_options
@heading("Bad rows and changed files")
@bad_row_options
@option_of(FeaturizeConfig, "on_changed_source")
@run_options
@click.pass_context
def featurize(ctx: click.Context, /, source: tuple[str, ...], out: str, like: str | None, **options: Any) -> None:
    """Turn rows of LIBSVM text, Parquet or JSON lines into feature shards.

    SOURCE is one or more files, globs or fsspec URLs. Text may be compressed by
    gz, bz2, xz or zst; a folder of Parquet files is read as one data set. The
    same command again continues an interrupted run, and does nothing when all is
    done. New files are added to existing shards with the map of these shards, so
    options of a map can be left out.

    For example:
      dkfeat featurize train.svm.xz --n-components 512 --out features/train
      dkfeat featurize test.svm.xz --like features/train --out features/test
      dkfeat featurize 'day-*.svm.gz' --n-workers 8 --out features/days
      dkfeat featurize rows.parquet --label y --keep name --out features/rows
      dkfeat featurize d.jsonl --label y --text body='word 1-2' --map dart --out d

    Parquet readers can read DIR/data as it is once DIR/_SUCCESS exists.
    """
    from dkfeat.engine.featurize import featurize as run

    feature_map = make_map(ctx, out, like, options)
    manifest = run(
        make_source(source, options),
        target_of(out, options),
        feature_map,
        like=like,
        encoder=make_encoder(options),
        layout=options["layout"],
        delta=options["delta"],
        **run_arguments(ctx, options),
    )
    summary_of(manifest, "target", out, empty_rows=manifest.n_empty_rows)


@click.command(cls=DkfeatCommand)
@partial(_target, required=False)
@click.option(
    "--scan", "with_scan", is_flag=True, help="Scan the source, to find the number of rows and unset options."
)
@map_options
@source_options
@encoder_options
@on_bad_row
@output_options
@click.pass_context
def plan(
    ctx: click.Context, /, source: tuple[str, ...], out: str | None, like: str | None, with_scan: bool, **options: Any
) -> None:
    """Show what `featurize` would do, without doing it.

    Names and sizes of files are read, with --scan the rows too; nothing is
    written. With --scan the plan shows how each column of a table is encoded,
    and why.

    For example:
      dkfeat plan train.svm.xz --n-components 512 --out features/train
      dkfeat plan rows.parquet --label y --scan
      dkfeat plan 'day-*.svm.gz' --like features/days --out features/days --json
    """
    from dkfeat.engine.plan import plan as make_plan

    feature_map = make_map(ctx, out, like, options)
    made = make_plan(
        make_source(source, options),
        None if out is None else target_of(out, options),
        feature_map,
        like=like,
        encoder=make_encoder(options),
        layout=options["layout"],
        scan=with_scan,
        progress=progress_of(ctx),
    )
    record = {
        **{name: getattr(made, name) for name in ("target", "blocksize", "needs_scan", "needs_landmarks")},
        "files": len(made.files),
        "source_size": made.source_bytes,
        "tasks": len(made.tasks),
        "task_memory": made.projected_bytes,
        "rows": made.n_rows,
        "size": made.output_bytes,
        "features": None if made.spec is None else made.spec["output"]["n_features_out"],
        "needs_encoder": made.needs_encoder,
        "columns": None if made.columns is None else made.columns.rows(),
        "scale_warning": made.scale_warning,
        "advice": made.advice,
    }
    print_result(record)
    for line in made.describe().split("\n"):
        echo(in_flags(line))
