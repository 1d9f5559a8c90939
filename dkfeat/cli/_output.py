"""What a command prints: a summary for people or one JSON object for programs; nothing of it with ``--quiet``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from dkfeat.cli._help import TOLD, heading, together
from dkfeat.cli._show import facts

__all__ = ["as_object", "be_quiet", "is_quiet", "note", "output_options", "quiet_option", "summary"]

Command = TypeVar("Command", bound=Callable[..., Any])

QUIET = "dkfeat.quiet"
"""Where click's contexts, which share it, keep whether people want no summary and no progress."""


def be_quiet(ctx: click.Context) -> None:
    """Do as if ``--quiet`` were given."""
    ctx.meta[QUIET] = True


def _asked(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        be_quiet(ctx)


quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_asked,
    help="No progress and no summary: warnings, errors and what is asked for alone.",
)


_json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object, for programs; of a list one a line."
)


def output_options(command: Command) -> Command:
    """Give a command ``--json`` and ``--quiet``."""
    return together(command, heading(TOLD), _json_option, quiet_option)


def is_quiet(ctx: click.Context | None = None) -> bool:
    """Whether ``--quiet`` was given, to the command or to the group before it."""
    ctx = ctx or click.get_current_context(silent=True)
    return bool(ctx and ctx.meta.get(QUIET))


def summary(known: Mapping[str, Any], shown: Mapping[str, str], *, as_json: bool) -> None:
    """Tell what a command has done: `known` as an object, or else `shown` as two columns."""
    if as_json:
        as_object(known)
    elif not is_quiet():
        facts(**shown)


def note(text: str, *, err: bool = False) -> None:
    """Tell people a line that is no result."""
    if not is_quiet():
        click.echo(text, err=err)


def as_object(known: Mapping[str, Any]) -> None:
    """Print plain values as one line of JSON; a number that is none becomes null."""
    click.echo(json.dumps(_finite(known), sort_keys=True))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
