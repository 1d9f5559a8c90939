"""``dkfeat datasets``: public data sets to try things on."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dkfeat.cli._group import DkfeatCommand, DkfeatGroup, log_of
from dkfeat.cli._output import as_object, is_quiet, note, output_options
from dkfeat.cli._values import Choice
from dkfeat.wording import show_bytes

if TYPE_CHECKING:
    from dkfeat.datasets import DatasetInfo

__all__ = ["datasets"]

REPORT_SECONDS = {True: 0.2, False: 10.0}
"""Time between two reports of progress, on a terminal and elsewhere."""


@click.group(cls=DkfeatGroup)
def datasets() -> None:
    """Bring public data sets to this machine, to try things on.

    They are those of the LIBSVM collection that papers on kernels use. What is
    fetched is kept in ~/.cache/dkfeat (or $XDG_CACHE_HOME/dkfeat, or
    $DKFEAT_CACHE) and never fetched again.

    For example:
      dkfeat datasets list
      dkfeat datasets fetch letter
    """


@datasets.command(name="list", cls=DkfeatCommand)
@click.option("--folder", metavar="DIR", help="Where files are kept, if not in the cache folder.")
@output_options
def list_(folder: str | None, as_json: bool) -> None:
    """List the data sets that can be fetched, and those that are here.

    Rows, columns and classes are as the collection says; what has no test rows
    is one file, and yours to divide.

    For example:
      dkfeat datasets list
      dkfeat datasets list --json | jq -r 'select(.rows.train > 1e6).name'
    """
    from dkfeat.datasets import DATASETS, cache_folder

    place = Path(folder) if folder else cache_folder() / "datasets"
    rows: list[tuple[str, ...]] = [("name", "rows", "test rows", "columns", "classes", "here", "about")]
    for name, info in DATASETS.items():
        paths = {part: place / name / file.name for part, file in info.files.items()}
        here = {part: str(path) for part, path in paths.items() if path.exists()}
        if as_json:
            as_object(_known(info) | {"files": here})
        counts = [f"{info.train.rows:,}", "" if info.test is None else f"{info.test.rows:,}"]
        is_here = "" if not here else "yes" if len(here) == len(paths) else next(iter(here))
        rows.append((name, *counts, f"{info.n_features:,}", f"{info.n_classes:,}", is_here, info.title))
    if as_json:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers, is_here, title in rows:
        cells = [f"{text:>{width}}" for text, width in zip(numbers, widths[1:5], strict=True)]
        click.echo(f"{name:<{widths[0]}}  {'  '.join(cells)}  {is_here:<{widths[5]}}  {title}")
    note(f"\n`dkfeat datasets fetch NAME` brings one to {place}", err=True)


def _complete_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from dkfeat.datasets import DATASETS

    return [name for name in DATASETS if name.startswith(incomplete)]


@datasets.command(cls=DkfeatCommand)
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=_complete_names)
@click.option("--part", type=Choice(["train", "test"]), help="One of the files only.")
@click.option("--folder", metavar="DIR", help="Keep files below DIR rather than in the cache folder.")
@click.option("--mirror", metavar="URL", help="Fetch below this address rather than the collection's.")
@click.option(
    "--retry-seconds",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    help="How long connections that bring nothing are tried again.",
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
    as_json: bool,
) -> None:
    """Fetch data sets, or find them in the cache, and print the paths of their files.

    A download that breaks off is gone on with, by the same command too. A file
    that is here is checked against its size and SHA-256, which are kept beside
    it. Without a network the message says which file to put where; behind a
    proxy, set https_proxy.

    For example:
      dkfeat datasets fetch letter satimage
      train=$(dkfeat datasets fetch letter --part train)
      dkfeat featurize "$train" --out features/train
    """
    from dkfeat.datasets import fetch as bring
    from dkfeat.datasets import find_dataset

    for name in names:
        find_dataset(name)  # a wrong name is told before gigabytes are fetched for the others
    for name in names:
        with _Told(ctx) as told:
            one = bring(name, part=part, folder=folder, mirror=mirror, retry_seconds=retry_seconds, progress=told)
        if as_json:
            as_object(_known(one.info) | {"files": {part: str(path) for part, path in one.paths.items()}})
        else:
            for path in one.files:
                click.echo(str(path))


def _known(info: DatasetInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "title": info.title,
        "n_features": info.n_features,
        "n_classes": info.n_classes,
        "rows": {part: file.rows for part, file in info.files.items()},
        "page": info.page,
    }


class _Told:
    """Tells on standard error how far files are: in one line on a terminal, every few seconds elsewhere."""

    def __init__(self, ctx: click.Context) -> None:
        self._quiet, self._log = is_quiet(ctx), log_of(ctx)
        self._is_terminal = self._log is None and sys.stderr.isatty()
        self._next, self._line = 0.0, ""

    def __enter__(self) -> _Told:
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
