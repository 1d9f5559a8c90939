"""Options of Parquet sources, named like the Python parameters they set."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dkfeat.cli._help import heading, together
from dkfeat.cli._values import Choice

__all__ = ["PARQUET_PARAMETERS", "parquet_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

PARQUET_PARAMETERS = ("features", "features_as", "label", "weight", "id", "keep", "filters")
"""Options that Parquet sources alone have."""

_COMPARISON = re.compile(r"\s*(.+?)\s*(==|!=|<=|>=|=|<|>|\snot\s+in\s|\sin\s)\s*(.+?)\s*", re.DOTALL)


class _Comparison(click.ParamType):
    name = "comparison"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        match = _COMPARISON.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is no comparison such as 'day >= 2026-11-20' or 'kind in a,b'", param, ctx)
        operator = " ".join(match[2].split())
        values = [_value(text) for text in match[3].split(",")] if operator.endswith("in") else _value(match[3])
        return match[1], operator, values


def parquet_options(command: Command) -> Command:
    """Give a command the options that say which columns of Parquet files are read as what."""
    return together(
        command,
        heading("How rows are read"),
        click.option(
            "--format",
            type=Choice(["auto", "libsvm", "parquet"]),
            default="auto",
            show_default=True,
            help="auto: parquet for names in .parquet and folders of such files.",
        ),
        heading("Columns of Parquet files"),
        click.option(
            "--features",
            multiple=True,
            metavar="NAMES",
            callback=_names,
            help="Columns of features, as in a,b. Left out: all of numbers without another use. Repeatable.",
        ),
        click.option(
            "--features-as",
            type=Choice(["auto", "columns", "vector", "sparse"]),
            default="auto",
            show_default=True,
            help="A column for each, one of vectors, or sparse pairs.",
        ),
        click.option("--label", default="label", show_default=True, metavar="NAME", help="Column of labels."),
        click.option("--no-label", is_flag=True, help="Rows have no labels, and get 0."),
        click.option("--weight", metavar="NAME", help="Column of weights, kept in shards."),
        click.option("--id", metavar="NAME", help="Column kept in shards as id."),
        click.option(
            "--keep",
            multiple=True,
            metavar="NAMES",
            callback=_names,
            help="More columns kept in shards. Repeatable.",
        ),
        click.option(
            "--filters",
            type=_Comparison(),
            multiple=True,
            help="Rows to read, as in 'day >= 2026-11-20' or 'kind in a,b'. Repeatable: all must hold.",
        ),
    )


def _names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...] | None:  # noqa: ARG001 - click's signature
    """Split names at commas; a column with a comma in its name is left to Python and job files."""
    names = tuple(name.strip() for text in value for name in text.split(","))
    return names or (None if param.name == "features" else ())


def _value(text: str) -> Any:
    """Read a number, true, false or a quoted text as such, anything else as text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text.strip()
    return value if isinstance(value, str | int | float) else text.strip()
