"""``dkfeat datasets``: public data sets for trying dkfeat out."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dkfeat.cli.declared import Choice
from dkfeat.cli.group import DkfeatCommand, DkfeatGroup, log_of
from dkfeat.cli.options import output_options
from dkfeat.cli.output import JSON, echo, is_given, is_quiet, note, print_result, table
from dkfeat.messages import show_bytes

if TYPE_CHECKING:
    from dkfeat.datasets import DatasetInfo


REPORT_SECONDS = {True: 0.2, False: 10.0}
"""Seconds between two progress reports, on a terminal and elsewhere."""


@click.group(cls=DkfeatGroup)
def datasets() -> None:
    """Download public data sets.

    They are part of the LIBSVM collection, and used in papers on kernels. Files
    are kept in ~/.cache/dkfeat (or $XDG_CACHE_HOME/dkfeat, or $DKFEAT_CACHE) and
    not downloaded again.

    For example:
      dkfeat datasets list
      dkfeat datasets fetch letter
    """


@datasets.command(name="list", cls=DkfeatCommand)
@click.option("--folder", metavar="DIR", help="Folder of the files, if not the cache folder.")
@output_options
def list_(folder: str | None) -> None:
    """List the data sets, and whether they are downloaded.

    Rows, columns and classes are as the collection states them. A data set
    without test rows is one file, which you can divide yourself.

    For example:
      dkfeat datasets list
      dkfeat datasets list --json | jq -r 'select(.rows.train > 1e6).name'
    """
    from dkfeat.datasets import DATASETS, cache_folder

    parent = Path(folder) if folder else cache_folder() / "datasets"
    rows: list[tuple[str, ...]] = [("name", "rows", "test rows", "columns", "classes", "here", "about")]
    for name, info in DATASETS.items():
        paths = {part: parent / name / file.name for part, file in info.files.items()}
        here = {part: str(path) for part, path in paths.items() if path.exists()}
        print_result(_known(info) | {"files": here})
        counts = [f"{info.train.rows:,}", "" if info.test is None else f"{info.test.rows:,}"]
        is_here = "" if not here else "yes" if len(here) == len(paths) else next(iter(here))
        rows.append((name, *counts, f"{info.n_features:,}", f"{info.n_classes:,}", is_here, info.title))
    table(rows, right=range(1, 5))
    if not is_given(JSON):
        note(err=True)
        note(f"`dkfeat datasets fetch NAME` downloads one to {parent}", err=True)


def _complete_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from dkfeat.datasets import DATASETS

    return [name for name in DATASETS if name.startswith(incomplete)]


@datasets.command(cls=DkfeatCommand)
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=_complete_names)
@click.option("--part", type=Choice(["train", "test"]), help="Fetch only one of the files.")
@click.option("--folder", metavar="DIR", help="Folder for the files, if not the cache folder.")
@click.option("--mirror", metavar="URL", help="Address to fetch from, if not the collection's.")
@click.option(
    "--retry-seconds",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    help="Seconds for which a connection without data is tried again.",
)
@output_options
@click.pass_context
def fetch(
    ctx: click.Context,
    names: tuple[str, ...],
    part: Literal["train", "test"] | None,
    folder: str | None,
    mirror: str | None,
    retry_seconds: float,
) -> None:
    """Download data sets that are not in the cache, and print the paths of their files.

    The same command continues an interrupted download. A file that exists is
    checked against its size and SHA-256, which are stored beside it. Without a
    network, the error names the file and the folder to put it in; behind a proxy,
    set https_proxy.

    For example:
      dkfeat datasets fetch letter satimage
      train=$(dkfeat datasets fetch letter --part train)
      dkfeat featurize "$train" --out features/train
    """
    from dkfeat.datasets import fetch as download
    from dkfeat.datasets import find_dataset

    for name in names:
        find_dataset(name)  # so that a wrong name is an error before the others are downloaded
    for name in names:
        with _Progress(ctx) as progress:
            one = download(
                name, part=part, folder=folder, mirror=mirror, retry_seconds=retry_seconds, progress=progress
            )
        print_result(_known(one.info) | {"files": {part: str(path) for part, path in one.paths.items()}})
        for path in one.files:
            echo(str(path), raw=True)  # scripts use it as it is


def _known(info: DatasetInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "title": info.title,
        "n_features": info.n_features,
        "n_classes": info.n_classes,
        "rows": {part: file.rows for part, file in info.files.items()},
        "page": info.page,
    }


class _Progress:
    """Progress of downloads on standard error: one line on a terminal, a line every few seconds elsewhere."""

    def __init__(self, ctx: click.Context) -> None:
        self._quiet, self._log = is_quiet(), log_of(ctx)
        self._is_terminal = self._log is None and sys.stderr.isatty()
        self._next, self._line = 0.0, ""

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._line:
            click.echo(err=True)

    def __call__(self, name: str, done: int, total: int | None) -> None:
        is_last = done == total
        if self._quiet or (time.monotonic() < self._next and not is_last):
            return
        self._next = time.monotonic() + REPORT_SECONDS[self._is_terminal]
        if self._log is not None:
            self._log("progress", stage="fetch", file=name, bytes=done, total_bytes=total)
            return
        line = f"{name}: {show_bytes(done)}" + ("" if total is None or is_last else f" of {show_bytes(total)}")
        click.echo(f"\r{line:<{len(self._line)}}" if self._is_terminal else line, err=True, nl=not self._is_terminal)
        self._line = line if self._is_terminal and not is_last else ""
        if self._is_terminal and is_last:
            click.echo(err=True)
