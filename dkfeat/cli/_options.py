"""Options about how rows are read, named like the Python parameters they set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dkfeat.cli._help import heading, together
from dkfeat.cli._parquet_options import PARQUET_PARAMETERS
from dkfeat.cli._storage import parse_options
from dkfeat.cli._values import Choice, Words
from dkfeat.cli.build import source_of

if TYPE_CHECKING:
    from dkfeat.io.source import Source

__all__ = ["make_source", "source_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

SOURCE_PARAMETERS = (
    "n_features",
    "zero_based",
    "blocksize",
    "dtype",
    "multilabel",
    "query_id",
    "labels",
    "label_dtype",
    "max_line_bytes",
)


class _Labels(click.ParamType):
    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(item) for item in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as -1,1", param, ctx)


class _Auto(Words):
    name = "auto|true|false"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return {"auto": "auto", "true": True, "false": False}[str(value).lower()]
        except KeyError:
            self.fail(f"{value!r} is neither auto nor true nor false", param, ctx)


def source_options(command: Command) -> Command:
    """How rows are read."""
    return together(
        command,
        heading("How rows are read"),
        click.option("--n-features", type=click.IntRange(min=1), help="Columns. Left out: settled by a scan."),
        click.option(
            "--zero-based",
            type=_Auto("auto", "true", "false"),
            default="auto",
            show_default=True,
            help="Is the first column 0?",
        ),
        click.option(
            "--blocksize",
            default="64MiB",
            show_default=True,
            help="Text, or rows of Parquet in memory, that a task reads at a time.",
        ),
        click.option(
            "--dtype", type=Choice(["float32", "float64"]), default="float32", show_default=True, help="Of values."
        ),
        click.option("--multilabel", is_flag=True, help="Labels are lists: 1,5,7."),
        click.option("--query-id", is_flag=True, help="Keep qid:n, of Parquet the column qid."),
        click.option("--query-column", metavar="NAME", help="Parquet: another column of query ids to keep."),
        click.option("--labels", type=_Labels(), help="Allowed labels, as in -1,1; any other is an error."),
        click.option(
            "--label-dtype",
            type=Choice(["auto", "int64", "float64"]),
            default="auto",
            show_default=True,
            help="Of labels; auto: int64 where all are whole numbers.",
        ),
        click.option("--max-line-bytes", default="256MiB", help="Bytes of the longest row.", hidden=True),
    )


def make_source(urlpath: tuple[str, ...], options: dict[str, Any]) -> Source:
    """Source of the paths given, from the options of `source_options` and `parquet_options`."""
    names = ("format", *SOURCE_PARAMETERS, *PARQUET_PARAMETERS)
    given = {name: options[name] for name in names if options.get(name) not in (None, ())}
    if options.get("query_column"):
        given["query_id"] = options["query_column"]
    if options.get("no_label"):
        given["label"] = None
    return source_of(urlpath, given, parse_options(options.get("storage_options", ()), "--storage-option"))
