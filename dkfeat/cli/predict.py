"""``dkfeat predict``."""

from __future__ import annotations

import sys

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._storage import parse_options, storage_option

__all__ = ["predict"]


@click.command(cls=DkfeatCommand)
@click.argument("model")
@click.argument("source", nargs=-1, required=True)
@click.option("--out", metavar="FILE", help="Where labels go: .parquet, .csv, anything else is text.")
@click.option("--blocksize", default="16MiB", show_default=True, help="Text or rows read at a time.")
@storage_option()
def predict(
    model: str, source: tuple[str, ...], out: str | None, blocksize: str, storage_options: tuple[str, ...]
) -> None:
    """Label the rows of LIBSVM or Parquet files with a trained model.

    Rows are featurized by the model's own map, block by block. Labels go to
    standard output, one a line, or to a file. Where the rows come with labels
    that the model knows, their accuracy is told on standard error.

    For example:
      dkfeat predict model new.svm > labels.txt
      dkfeat predict model 'new-*.svm.gz' --out labels.parquet
    """
    from dkfeat.learn.model import load_model
    from dkfeat.learn.predict import predict as run

    options = parse_options(storage_options, "--storage-option")
    to = sys.stdout if out is None else out
    outcome = run(load_model(model), source, out=to, blocksize=blocksize, storage_options=options)
    told = f"{outcome.n_rows:,} rows labelled"
    if outcome.accuracy is not None:
        told += f", accuracy {outcome.accuracy:.2%} on the {outcome.n_known:,} whose label the model knows"
    click.echo(told, err=True)
