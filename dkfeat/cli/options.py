"""Options that several commands share: execution of tasks, output, and storage options.

A credential among storage options is given as the name of a variable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.declared import Text, option_of, options_of
from dkfeat.cli.group import OUTPUT, Command, apply_options, heading, log_of
from dkfeat.cli.output import JSON, QUIET, is_quiet
from dkfeat.config import ExecutionConfig, FeaturizeConfig, RunConfig
from dkfeat.config.execution import SCHEDULERS
from dkfeat.config.train import SOLVERS, split_solver_options
from dkfeat.errors import ConfigError

if TYPE_CHECKING:
    from dkfeat.cli.output import LogLines
    from dkfeat.engine.open import Target


VARIABLE = "env:"


def _option(flag: str, name: str, text: str) -> Callable[[Command], Command]:
    def parse(ctx: click.Context, _: click.Parameter, value: Sequence[str]) -> dict[str, Any] | None:
        try:
            return parse_options(value, flag)
        except ConfigError as error:
            raise click.UsageError(str(error), ctx) from None

    return click.option(flag, name, metavar="KEY=VALUE", multiple=True, callback=parse, help=text)


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
    from dkfeat.store.manifest.metadata import MODEL_FILE
    from dkfeat.store.manifest.model_folder import open_model_folder

    return open_model_folder(target, storage_options).size(MODEL_FILE) is not None


def parse_options(items: Sequence[str], flag: str) -> dict[str, Any] | None:
    """Parse storage options of the form ``key=value``; a dot in a key leads into a mapping.

    Values ``true``, ``false``, ``null`` and numbers are converted. Returns None if `items` is empty.

    Raises
    ------
    ConfigError
        If an item has another form, or a key is given twice or both as a value and as a mapping; and for the reasons of
        `resolve_options`.

    Examples
    --------
    >>> parse_options(["retry_seconds=30", "client_kwargs.region_name=eu-west-1"], "--storage-option")
    {'retry_seconds': 30, 'client_kwargs': {'region_name': 'eu-west-1'}}
    """
    from dkfeat.filesystems.urls import is_secret

    options: dict[str, Any] = {}
    for item in items:
        path, has_value, text = item.partition("=")
        *folders, key = path.split(".")
        if not path or not has_value:
            raise ConfigError(f"{flag}: {path!r} is not of the form key=value")
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


def make_solver(name: str, options: dict[str, Any]) -> Any:
    """Make the solver of this name in `SOLVERS`; its fields are removed from `options`.

    Raises
    ------
    ConfigError
        For an option out of range or of another solver.
    """
    names = dict.fromkeys(field.name for kind in SOLVERS.values() for field in fields(kind))
    values = {key: options.pop(key) for key in names if key in options}
    values = {key: value[0] if isinstance(value, tuple) and len(value) == 1 else value for key, value in values.items()}
    kind, chosen = split_solver_options(name, {key: None if value == () else value for key, value in values.items()})
    return kind(**chosen)


on_bad_row = option_of(FeaturizeConfig, "on_bad_row")


def bad_row_options(command: Command) -> Command:
    """Give a command the options for bad rows."""
    return apply_options(command, on_bad_row, option_of(FeaturizeConfig, "max_bad_rows", default="1%", metavar="N"))


def execution_options(command: Command) -> Command:
    """Give a command the fields of `ExecutionConfig`, ``--progress`` and `output_options`; see `run_arguments`."""
    of = partial(option_of, ExecutionConfig)
    return apply_options(
        command,
        heading("Where tasks run"),
        of("scheduler", type=Text("text", words=SCHEDULERS)),
        of("scheduler_file", metavar="FILE"),
        of("cluster", metavar="FILE"),
        options_of(ExecutionConfig, "n_workers", "threads_per_worker", "memory_limit"),
        heading(OUTPUT),
        progress_option(),
        output_options,
    )


def progress_option(text: str | None = None) -> Callable[[Command], Command]:
    """Give a command ``--progress``."""
    return option_of(RunConfig, "progress", **({} if text is None else {"help": text}))


def run_options(command: Command) -> Command:
    """Give a command `execution_options` and ``--resume``."""
    return execution_options(apply_options(command, heading("Interrupted runs"), option_of(RunConfig, "resume")))


def run_arguments(ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """Make the keyword arguments of a run from those of the options above that the command has."""
    given = ExecutionConfig.gather(options)
    return {"client": given["client"], "progress": progress_of(ctx, wanted=options["progress"])}


def target_of(out: str, options: Mapping[str, Any]) -> Target:
    """Make the target of a run from ``--out`` and the options above that the command has."""
    from dkfeat.engine.open import Target

    names = {"target_options": "storage_options", "resume": "resume", "on_changed_source": "on_changed_source"}
    return Target(out, **{field: options[name] for name, field in names.items() if name in options})


def progress_of(ctx: click.Context, line: Callable[[LogLines], Any] | None = None, *, wanted: bool = True) -> Any:
    """Return the argument ``progress`` of a run: False, True, or with ``--log-format json`` a function for log lines.

    Parameters
    ----------
    ctx : click.Context
    line : callable or None
        Returns this function for a log. None: the function that logs the progress of tasks.
    wanted : bool
        Value of ``--progress``.
    """
    log = log_of(ctx)
    if not wanted or is_quiet():
        return False
    return True if log is None else log.progress if line is None else line(log)


def _flag(key: str) -> dict[str, Any]:
    """Return the keyword arguments of a flag that is stored in click's context and not passed to commands."""

    def keep(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[key] = True

    return {"is_flag": True, "is_eager": True, "expose_value": False, "callback": keep}


quiet_option = click.option(
    "-q",
    "--quiet",
    **_flag(QUIET),
    help="Print no progress and no summary, only warnings, errors and requested results.",
)
_json_option = click.option(
    "--json", "as_json", **_flag(JSON), help="Print JSON: one object, or one per line for lists."
)


overwrite_option = click.option(
    "--overwrite",
    is_flag=True,
    help="Replace existing files that are not an earlier result; an input is never replaced.",
)
"""Give a command the flag ``--overwrite``."""


def output_options(command: Command) -> Command:
    """Give a command ``--json`` and ``--quiet``."""
    return apply_options(command, heading(OUTPUT), _json_option, quiet_option)
