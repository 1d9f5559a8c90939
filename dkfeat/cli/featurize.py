"""``dkfeat featurize`` and ``dkfeat plan``: the run, and what it would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dkfeat.cli._group import DkfeatCommand, log_of
from dkfeat.cli._help import heading, together
from dkfeat.cli._map_options import make_map, map_options
from dkfeat.cli._options import make_source, source_options
from dkfeat.cli._output import as_object, is_quiet, output_options, summary
from dkfeat.cli._parquet_options import parquet_options
from dkfeat.cli._run_options import bad_row_options, on_bad_row, run_arguments, run_options
from dkfeat.cli._show import show_size
from dkfeat.cli._storage import parse_options, storage_option, target_option
from dkfeat.cli._values import Choice

__all__ = ["featurize", "plan"]

Command = TypeVar("Command", bound=Callable[..., Any])


def _what_to_make(command: Command) -> Command:
    options = (
        click.argument("source", nargs=-1, required=True),
        heading("What is made"),
        click.option(
            "--out", required=True, metavar="DIR", help="Target: a folder (relative: made with its parents) or URL."
        ),
        click.option("--like", metavar="DIR", help="Shards or model whose map and input options are taken over."),
        click.option(
            "--layout",
            type=Choice(["codes", "sparse", "dense"]),
            help="How features are kept.  [default: as the map says]",
        ),
        target_option,
    )
    return together(command, *options)


@click.command(cls=DkfeatCommand)
@_what_to_make
@map_options
@source_options
@storage_option()
@parquet_options
@heading("Wrong rows and changed files")
@bad_row_options
@click.option(
    "--on-changed-source",
    type=Choice(["raise", "keep"]),
    default="raise",
    show_default=True,
    help="Where a committed file changed or is gone: end the run, or keep its rows as committed and go on.",
)
@run_options
@output_options
@click.pass_context
def featurize(
    ctx: click.Context, /, source: tuple[str, ...], out: str, like: str | None, as_json: bool, **options: Any
) -> None:
    """Turn rows of LIBSVM text or Parquet files into feature shards.

    SOURCE is one or more files, globs or fsspec URLs; gz, bz2, xz and zst
    files of text are read as they are, and so are folders of Parquet files. The
    same command again goes on where an interrupted run stopped, and does nothing
    when all is done. Shards that are there already have a map: without options of
    a map, new files get the same.

    For example:
      dkfeat featurize train.svm.xz --n-components 512 --out features/train
      dkfeat featurize test.svm.xz --like features/train --out features/test
      dkfeat featurize 'day-*.svm.gz' --n-workers 8 --out features/days
      dkfeat featurize rows.parquet --label y --keep name --out features/rows

    Parquet readers can read DIR/data as it is once DIR/_SUCCESS exists.
    """
    from dkfeat.engine.featurize import featurize as run
    from dkfeat.engine.specs import has_binding_spec

    to = parse_options(options["target_options"], "--target-option")
    feature_map = make_map(ctx, options, like, lambda: has_binding_spec(out, to))
    manifest = run(
        make_source(source, options),
        feature_map,
        out,
        like=like,
        layout=options["layout"],
        on_changed_source=options["on_changed_source"],
        target_options=to,
        **run_arguments(ctx, options),
    )
    size = sum(entry.size for entry in manifest.shards)
    known = {
        "target": out,
        "rows": manifest.rows,
        "empty_rows": manifest.n_empty_rows,
        "bad_rows": manifest.n_bad_rows,
        "shards": len(manifest.shards),
        "size": size,
        "manifest": manifest.number,
    }
    shown = {"rows": f"{manifest.rows:,}"}
    if manifest.n_bad_rows:
        shown["bad rows"] = f"{manifest.n_bad_rows:,}, see `dkfeat quarantine {out}`"
    shown |= {"shards": f"{len(manifest.shards):,}", "size": show_size(size, manifest.rows), "target": out}
    summary(known, shown, as_json=as_json)


@click.command(cls=DkfeatCommand)
@_what_to_make
@click.option("--scan", "with_scan", is_flag=True, help="Read the source first, to know rows and open options.")
@map_options
@source_options
@storage_option()
@on_bad_row
@parquet_options
@output_options
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    source: tuple[str, ...],
    out: str,
    like: str | None,
    with_scan: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Show what `featurize` would do, without doing it.

    Names and sizes are read, and with --scan the rows; nothing is written.

    For example:
      dkfeat plan train.svm.xz --n-components 512 --out features/train
      dkfeat plan 'day-*.svm.gz' --like features/days --out features/days --json
    """
    from dkfeat.engine.defaults import with_configured_blocksize
    from dkfeat.engine.plan import plan as make_plan
    from dkfeat.engine.quarantine import suggesting_quarantine
    from dkfeat.engine.scan import scan
    from dkfeat.engine.specs import has_binding_spec

    to = parse_options(options["target_options"], "--target-option")
    feature_map = make_map(ctx, options, like, lambda: has_binding_spec(out, to))
    asked = make_source(source, options)
    log = log_of(ctx)
    asked = asked.replaced(on_bad_row=options["on_bad_row"]) if asked.sets_aside else asked
    with suggesting_quarantine(asked):
        told = not is_quiet(ctx) and (log is None or log.progress)
        cut = asked if like is not None else with_configured_blocksize(asked)  # as a new target's source is
        found = scan(cut, progress=told) if with_scan else None
    made = make_plan(asked, feature_map, out, like=like, layout=options["layout"], scan=found, target_options=to)
    if not as_json:
        click.echo(made.describe())
        return
    known = {
        "target": made.target,
        "files": len(made.files),
        "source_size": made.source_bytes,
        "tasks": len(made.tasks),
        "task_memory": made.projected_bytes,
        "blocksize": made.blocksize,
        "rows": made.n_rows,
        "size": made.output_bytes,
        "needs_scan": made.needs_scan,
        "needs_landmarks": made.needs_landmarks,
        "features": None if made.spec is None else made.spec["output"]["n_features_out"],
    }
    as_object(known)
