"""Options of Parquet sources, named like the Python parameters they set."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

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
    options = (
        click.option(
            "--format",
            type=click.Choice(["auto", "libsvm", "parquet"]),
            default="auto",
            show_default=True,
            help="auto: parquet for names in .parquet and folders of such files.",
        ),
        click.option(
            "--features",
            multiple=True,
            metavar="NAMES",
            callback=_names,
            help="Parquet: feature columns, as in a,b. Left out: all of numbers without another use. Repeatable.",
        ),
        click.option(
            "--features-as",
            type=click.Choice(["auto", "columns", "vector", "sparse"]),
            default="auto",
            show_default=True,
            help="Parquet: how features are told.",
        ),
        click.option("--label", default="label", show_default=True, metavar="NAME", help="Parquet: column of labels."),
        click.option("--no-label", is_flag=True, help="Parquet: rows have no labels, and get 0."),
        click.option("--weight", metavar="NAME", help="Parquet: column of weights, kept in shards."),
        click.option("--id", metavar="NAME", help="Parquet: column kept in shards as id."),
        click.option(
            "--keep",
            multiple=True,
            metavar="NAMES",
            callback=_names,
            help="Parquet: columns kept in shards. Repeatable.",
        ),
        click.option(
            "--filters",
            type=_Comparison(),
            multiple=True,
            help="Parquet: rows to read, as in 'day >= 2026-11-20' or 'kind in a,b'. Repeatable: all must hold.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


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
