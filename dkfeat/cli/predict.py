"""``dkfeat predict``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._help import heading
from dkfeat.cli._options import SOURCE_PARAMETERS, make_source, source_options
from dkfeat.cli._output import as_object, note, output_options, summary
from dkfeat.cli._parquet_options import PARQUET_PARAMETERS, parquet_options
from dkfeat.cli._run_options import RUN_PARAMETERS, bad_row_options, run_arguments, run_options
from dkfeat.cli._show import show_size
from dkfeat.cli._storage import parse_options, storage_option, target_option

if TYPE_CHECKING:
    from dkfeat.learn.model import LinearModel

__all__ = ["predict", "rows_given"]


@click.command(cls=DkfeatCommand)
@click.argument("model")
@click.argument("source", nargs=-1, required=True)
@heading("Where predictions go")
@click.option(
    "--out",
    metavar="DIR|FILE",
    help="Where predictions go: a folder or URL for all that is known of each row, or a file in .parquet, .csv or .txt "
    "for labels alone.  [default: labels on standard output]",
)
@click.option("--scores/--no-scores", default=True, show_default=True, help="Keep scores in the folder.")
@target_option
@source_options
@storage_option()
@parquet_options
@heading("Wrong rows")
@bad_row_options
@run_options
@output_options
@click.pass_context
def predict(
    ctx: click.Context, /, model: str, source: tuple[str, ...], out: str | None, as_json: bool, **options: Any
) -> None:
    """Predict for the rows of SOURCE with a trained model.

    SOURCE is LIBSVM text or Parquet files, featurized on the way by the model's
    own map and read as its training rows were, or a folder of shards that the
    same map made. A folder given by --out gets Parquet files with label,
    prediction, scores and where each row comes from, in parallel and committed as
    shards are: the same command again goes on where it stopped. Without a folder,
    labels go to standard output, one a line, or to a file. Where the rows come
    with labels that the model knows, their accuracy is told on standard error;
    `dkfeat evaluate` tells more.

    For example:
      dkfeat predict model new.svm > labels.txt
      dkfeat predict model 'new-*.svm.gz' --out labels.parquet
      dkfeat predict model 'day-*.parquet' --id name --out predictions
      dkfeat predict model features/test --out s3://bucket/predictions
    """
    from dkfeat.learn.model import load_model

    if out == "-":  # as many commands name standard output
        out = None
    loaded = load_model(model, storage_options=parse_options(options["storage_options"], "--storage-option"))
    rows = rows_given(ctx, source, options)
    if out is not None and _is_folder(out):
        _to_folder(ctx, loaded, rows, out, options, as_json=as_json)
    else:
        _refuse_folder_options(ctx)
        if out is None and as_json:
            message = "--json tells what became of --out; without it, labels go to standard output, one a line"
            raise click.UsageError(message, ctx)
        _to_file(loaded, rows, out, as_json=as_json)


def rows_given(ctx: click.Context, source: tuple[str, ...], options: dict[str, Any]) -> Any:
    """Shards or predictions, where that is what is there, else a source with the options of the command line.

    Raises
    ------
    click.UsageError
        Options that say how files are read are given with shards, for which they mean nothing.
    """
    from dkfeat.engine.dataset import ShardDataset
    from dkfeat.learn.prediction_source import dataset_reader

    reader = dataset_reader(source, parse_options(options["storage_options"], "--storage-option"))
    if reader is None:
        return make_source(source, options)
    names = ("format", *SOURCE_PARAMETERS, "query_column", *PARQUET_PARAMETERS, "no_label")
    given = [name for name in names if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        message = f"{source[0]} holds shards, which are read as they were made; leave out {flags}"
        raise click.UsageError(message, ctx)
    return ShardDataset(reader, "sha256")


def _is_folder(out: str) -> bool:
    from dkfeat.io.remote import is_url

    path = Path(out)
    return is_url(out) or path.is_dir() or out.endswith("/") or not (path.exists() or path.suffix)


def _to_folder(
    ctx: click.Context, model: LinearModel, rows: Any, out: str, options: dict[str, Any], *, as_json: bool
) -> None:
    from dkfeat.learn.predictions import predict as run

    target_options = parse_options(options["target_options"], "--target-option")
    given = run_arguments(ctx, options)
    manifest = run(model, rows, out, scores=options["scores"], target_options=target_options, **given)
    size = sum(entry.size for entry in manifest.shards)
    known = {
        "predictions": out,
        "rows": manifest.rows,
        "bad_rows": manifest.n_bad_rows,
        "shards": len(manifest.shards),
        "size": size,
        "manifest": manifest.number,
    }
    shown = {"rows": f"{manifest.rows:,}"}
    if manifest.n_bad_rows:
        shown["bad rows"] = f"{manifest.n_bad_rows:,}, see `dkfeat quarantine {out}`"
    summary(known, shown | {"size": show_size(size, manifest.rows), "predictions": out}, as_json=as_json)


def _refuse_folder_options(ctx: click.Context) -> None:
    """Refuse, where labels go to a file or standard output, what is for predictions into a folder alone."""
    names = {*RUN_PARAMETERS, "on_bad_row", "max_bad_rows", "scores", "target_options"} - {"progress"}
    flags = [
        parameter.opts[0]
        for parameter in ctx.command.params
        if parameter.name in names and ctx.get_parameter_source(parameter.name) is not ParameterSource.DEFAULT
    ]
    if flags:
        message = f"{', '.join(flags)} is for predictions into a folder; give --out DIR, or leave it out"
        raise click.UsageError(message, ctx)


def _to_file(model: LinearModel, rows: Any, out: str | None, *, as_json: bool) -> None:
    from dkfeat.learn.predict_file import predict_file

    outcome = predict_file(model, rows, sys.stdout if out is None else out)
    known = {"rows": outcome.n_rows, "known_rows": outcome.n_known, "accuracy": outcome.accuracy, "predictions": out}
    if as_json:
        as_object(known)
        return
    told = f"{outcome.n_rows:,} rows labelled"
    if outcome.accuracy is not None:
        told += f", accuracy {outcome.accuracy:.2%} on the {outcome.n_known:,} whose label the model knows"
    note(told, err=True)
