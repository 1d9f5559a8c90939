"""Storage options on command lines and in job files: where credentials are named, never given."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from dkfeat.errors import ConfigError
from dkfeat.io.remote import is_secret

__all__ = ["parse_options", "resolve_options", "storage_option", "target_option"]

Command = TypeVar("Command", bound=Callable[..., Any])

VARIABLE = "env:"


class _Options(click.ParamType):
    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "=" not in str(value) or str(value).startswith("="):
            self.fail(f"{str(value).partition('=')[0]!r} is not of the form key=value", param, ctx)
        return value


def storage_option(what: str = "A setting of the store, of URLs") -> Callable[[Command], Command]:
    """Give a command ``--storage-option``, as often as wanted."""
    help_text = f"{what}, as in endpoint_url=http://host:9000; a credential by variable: secret=env:NAME. Repeatable."
    return click.option("--storage-option", "storage_options", type=_Options(), multiple=True, help=help_text)


def target_option(command: Command) -> Command:
    """Give a command ``--target-option``, as often as wanted."""
    help_text = "The same for the store of --out and --like."
    return click.option("--target-option", "target_options", type=_Options(), multiple=True, help=help_text)(command)


def parse_options(items: Sequence[str], flag: str) -> dict[str, Any] | None:
    """Storage options from texts of the form ``key=value``; a dot in a key leads into a mapping.

    Values ``true``, ``false``, ``null`` and numbers are meant as such. None if there are no texts.

    Raises
    ------
    ConfigError
        As `resolve_options`.

    Examples
    --------
    >>> parse_options(["retry_seconds=30", "client_kwargs.region_name=eu-west-1"], "--storage-option")
    {'retry_seconds': 30, 'client_kwargs': {'region_name': 'eu-west-1'}}
    """
    options: dict[str, Any] = {}
    for item in items:
        path, _, text = item.partition("=")
        *folders, key = path.split(".")
        inner = options
        for folder in folders:
            inner = inner.setdefault(folder, {})
            if not isinstance(inner, dict):
                message = f"{flag} {path}: {folder} is given as a value and as a mapping"
                raise ConfigError(message)
        inner[key] = text if is_secret(key) else _plain(text)
    return resolve_options(options, flag) if options else None


def resolve_options(options: Mapping[str, Any] | None, place: str) -> dict[str, Any] | None:
    """Storage options with ``env:NAME`` replaced by the value of that variable.

    Raises
    ------
    ConfigError
        If a variable is not set, or a credential is given by value: the command line of a process can be seen by all
        users of a machine, and a job file is kept.

    Examples
    --------
    >>> resolve_options({"endpoint_url": "http://host:9000"}, "storage_options")
    {'endpoint_url': 'http://host:9000'}
    >>> resolve_options({"secret": "abc"}, "storage_options")
    Traceback (most recent call last):
    dkfeat.errors.ConfigError: storage_options: secret is a credential; put it into a ... give its name, secret=env:NAME
    """
    if options is None:
        return None
    found: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            found[key] = resolve_options(value, place)
        elif isinstance(value, str) and value.startswith(VARIABLE):
            name = value.removeprefix(VARIABLE)
            if name not in os.environ:
                message = f"{place}: {key} is to be the environment variable {name}, which is not set"
                raise ConfigError(message)
            found[key] = os.environ[name]
        elif is_secret(str(key)) and value is not None:
            message = (
                f"{place}: {key} is a credential; put it into a variable of the environment and give its name, "
                f"{key}=env:NAME"
            )
            raise ConfigError(message)
        else:
            found[key] = value
    return found


def _plain(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if value is None or isinstance(value, bool | int | float) else text
