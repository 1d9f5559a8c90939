"""Storage options on command lines and in job files, where a credential is given as the name of a variable."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from dkfeat.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])

VARIABLE = "env:"


def _parsed(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, Any] | None:
    try:
        return parse_options(value, param.opts[0])
    except ConfigError as error:
        raise click.UsageError(str(error), ctx) from None


class _Options(click.ParamType):
    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "=" not in str(value) or str(value).startswith("="):
            self.fail(f"{str(value).partition('=')[0]!r} is not of the form key=value", param, ctx)
        return value


def storage_option(names: str = "SOURCE") -> Callable[[Command], Command]:
    """Give a command the repeatable ``--storage-option``; the command gets `storage_options`, a mapping or None.

    Parameters
    ----------
    names : str
        Arguments of the command that may be URLs.
    """
    text = (
        f"Storage setting for a URL as {names}, such as endpoint_url=http://host:9000; give a credential by an "
        "environment variable, as in secret=env:NAME. Repeatable."
    )
    return _option("--storage-option", "storage_options", text)


def _option(flag: str, name: str, text: str) -> Callable[[Command], Command]:
    return click.option(flag, name, type=_Options(), multiple=True, callback=_parsed, help=text)


target_option = _option(
    "--target-option", "target_options", "Storage setting for a URL as target, as in --storage-option. Repeatable."
)
"""Give a command the repeatable ``--target-option``; the command gets `target_options`, a mapping or None."""


def options_at(target: str, storage_options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the options if the target is a URL; a local folder takes none."""
    from dkfeat.filesystems.urls import is_url

    return storage_options if is_url(target) else None


def holds_model(target: str, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return True if a folder or URL holds a model rather than shards."""
    from dkfeat.store.manifest.model_folder import MODEL_FILE, open_model_folder

    return open_model_folder(target, storage_options).size(MODEL_FILE) is not None


def parse_options(items: Sequence[str], flag: str) -> dict[str, Any] | None:
    """Parse storage options of the form ``key=value``; a dot in a key leads into a mapping.

    Values ``true``, ``false``, ``null`` and numbers are converted. Returns None if `items` is empty.

    Raises
    ------
    ConfigError
        If a key is given twice, or both as a value and as a mapping; and for the reasons of `resolve_options`.

    Examples
    --------
    >>> parse_options(["retry_seconds=30", "client_kwargs.region_name=eu-west-1"], "--storage-option")
    {'retry_seconds': 30, 'client_kwargs': {'region_name': 'eu-west-1'}}
    """
    from dkfeat.filesystems.urls import is_secret

    options: dict[str, Any] = {}
    for item in items:
        path, _, text = item.partition("=")
        *folders, key = path.split(".")
        inner = options
        for folder in folders:
            inner = inner.setdefault(folder, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{flag} {path}: {folder} is given as a value and as a mapping")
        if key in inner:
            raise ConfigError(f"{flag} {path} is given twice; give each key once")
        inner[key] = text if is_secret(key) else _plain(text)
    return resolve_options(options, flag) if options else None


def resolve_options(options: Mapping[str, Any] | None, place: str) -> dict[str, Any] | None:
    """Replace ``env:NAME`` in storage options by the value of that variable.

    Raises
    ------
    ConfigError
        If a variable is not set, or a credential is given by value: all users of a machine can see the command line of
        a process, and job files are stored.

    Examples
    --------
    >>> resolve_options({"endpoint_url": "http://host:9000"}, "storage_options")
    {'endpoint_url': 'http://host:9000'}
    >>> resolve_options({"secret": "abc"}, "storage_options")
    Traceback (most recent call last):
    dkfeat.errors.ConfigError: storage_options: secret is a credential; put it into a ... give its name, secret=env:NAME
    """
    from dkfeat.filesystems.urls import is_secret

    if options is None:
        return None
    found: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            found[key] = resolve_options(value, place)
        elif isinstance(value, str) and value.startswith(VARIABLE):
            name = value.removeprefix(VARIABLE)
            if name not in os.environ:
                raise ConfigError(f"{place}: {key} names the environment variable {name}, which is not set")
            found[key] = os.environ[name]
        elif is_secret(str(key)) and value is not None:
            raise ConfigError(
                f"{place}: {key} is a credential; put it into a variable of the environment and give its name, "
                f"{key}=env:NAME"
            )
        else:
            found[key] = value
    return found


def _plain(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if value is None or isinstance(value, bool | int | float) else text
