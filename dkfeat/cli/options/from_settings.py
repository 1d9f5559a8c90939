"""Command-line options made from settings, whose fields declare name, type, default and help once."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Literal, TypeVar, Union

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from dkfeat.cli.group import apply_options
from dkfeat.config.settings import Minimum
from dkfeat.messages import nearest

Command = TypeVar("Command", bound=Callable[..., Any])


def option_of(settings: type, name: str, *flags: str, **given: Any) -> Callable[[Command], Command]:
    """Make an option from a field: the flag is the field's name, the help is the text under the field.

    The type determines the kind of option: ``bool`` gives a flag, ``Literal`` a choice, ``Positive`` a whole number
    from 1, a tuple an option that may be repeated, ``str`` any text.

    Parameters
    ----------
    settings : type
        A dataclass.
    name : str
        One of its fields.
    *flags : str
        Flags in place of ``--name``.
    **given
        Keywords of `click.option` that override those made from the field.

    Examples
    --------
    >>> from dkfeat.config import SourceConfig
    >>> @click.command
    ... @option_of(SourceConfig, "n_features")
    ... @option_of(SourceConfig, "multilabel")
    ... def show(**options):
    ...     print(sorted(options.items()))
    >>> show(["--n-features", "7"], standalone_mode=False)
    [('multilabel', False), ('n_features', 7)]
    """
    default = next(field.default for field in fields(settings) if field.name == name)
    made = _kind_of(_hints(settings)[name], default)
    if default is MISSING:
        made["required"] = True
    elif default is not None and default != () and default is not False:
        is_one = made.get("multiple", False) and not isinstance(default, tuple)
        made |= {"default": (default,) if is_one else default, "show_default": True}
    if "help" not in given:
        made["help"] = help_of(settings, name)
    flag = name.replace("_", "-")
    flag = f"--{flag}/--no-{flag}" if made.get("type") is bool else f"--{flag}"
    return click.option(*(flags or [flag]), name, **{**made, **given})


def options_of(settings: type, *names: str) -> Callable[[Command], Command]:
    """Make the options of several fields, in this order."""
    return lambda command: apply_options(command, *(option_of(settings, name) for name in names))


def help_of(settings: type, name: str) -> str:
    """Text under a field, or the first sentence about it in the docstring of its class, as one line."""
    for cls in settings.__mro__:
        if cls.__module__.partition(".")[0] == "dkfeat":
            text = _texts_of(cls.__module__).get((cls.__name__, name))
            if text is not None:
                return text
    raise LookupError(f"{settings.__name__}.{name} has no text")


@cache
def _texts_of(module: str) -> dict[tuple[str, str], str]:
    """Texts of all fields of the classes of a module, read from its source, since Python does not keep them."""
    found = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for name, text in re.findall(r"^(\w+) : .*\n((?: {4}.*\n?)+)", ast.get_docstring(node) or "", re.MULTILINE):
            found[node.name, name] = re.split(r"(?<=\.)\s", text.strip())[0]
        for field, text in zip(node.body, node.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[node.name, ast.unparse(field.target)] = str(text.value.value)
    return {key: " ".join(text.replace("`", "").split()) for key, text in found.items()}


@cache
def _hints(settings: type) -> dict[str, Any]:
    return typing.get_type_hints(settings, include_extras=True)


def _kind_of(hint: Any, default: Any) -> dict[str, Any]:
    """Keywords of `click.option` for a type; None among alternatives stands for an option that is left out."""
    is_union = typing.get_origin(hint) in (Union, types.UnionType)
    choices = [choice for choice in (typing.get_args(hint) if is_union else [hint]) if choice is not type(None)]
    repeated = [typing.get_args(choice)[0] for choice in choices if typing.get_origin(choice) in (tuple, Sequence)]
    if repeated:
        return {**_kind_of(repeated[0], None), "multiple": True}
    if str in choices:
        return {"type": str}
    choice = choices[-1]
    if typing.get_origin(choice) is Literal:
        return {"type": Choice(typing.get_args(choice))}
    for extra in getattr(choice, "__metadata__", ()):
        if isinstance(extra, Minimum):
            return {"type": click.IntRange(min=extra.value)}
    return {"is_flag": True} if choice is bool and default is False else {"type": choice}


class Choice(click.Choice[str]):
    """Parameter type of a few words; the error for any other word names the nearest one.

    Examples
    --------
    >>> Choice(["squared_hinge", "hinge"]).convert("squared", None, None)
    Traceback (most recent call last):
    click.exceptions.BadParameter: there is no 'squared'; did you mean 'squared_hinge'?
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            raise click.BadParameter(
                f"there is no {str(value)!r}; {nearest(str(value), list(self.choices), 'choices')}", ctx, param
            ) from None


class Text(click.ParamType):
    """Parameter type of text with a custom parser, and words that shells complete.

    Parameters
    ----------
    name : str
        Shown in help pages in place of a value.
    parse : callable
        Returns the value; raises KeyError or ValueError for invalid text.
    expected : str
        End of the error message, after the invalid text, such as "is not a number".
    words : sequence of str
        Words that shells complete.

    Examples
    --------
    >>> kind = Text("number|log2", lambda text: text if text == "log2" else int(text), "is no number", ["log2"])
    >>> kind.convert("7", None, None), kind.convert("log2", None, None)
    (7, 'log2')
    """

    def __init__(
        self, name: str, parse: Callable[[str], Any] = str, expected: str = "", words: typing.Iterable[str] = ()
    ) -> None:
        self.name = name
        self._parse, self._expected, self._words = parse, expected, tuple(words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the text."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except (KeyError, ValueError):
            self.fail(f"{value!r} {self._expected}", param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002 - click's
        """Show the words as those of a choice, if the name consists of them."""
        return f"[{self.name}]" if set(self.name.split("|")) <= set(self._words) else None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        """Return the words that begin with `incomplete`."""
        return [CompletionItem(word) for word in self._words if word.startswith(incomplete)]


def given_flags(ctx: click.Context, names: Collection[str]) -> dict[str, str]:
    """Return the flags of the named options that the command line gives, by option name."""
    flags = {str(parameter.name): parameter.opts[0] for parameter in ctx.command.params if parameter.name in names}
    return {name: flag for name, flag in flags.items() if ctx.get_parameter_source(name) != ParameterSource.DEFAULT}


def words(values: Mapping[str, Any], expected: str) -> Text:
    """Parameter type of words, in upper or lower case, that are converted to these values."""
    return Text("|".join(values), lambda text: values[text.lower()], expected, values)


def numbers(kind: Callable[[str], float], example: str) -> Text:
    """Parameter type of numbers separated by commas, as a tuple; error messages show the example."""
    return Text(
        "numbers",
        lambda text: tuple(kind(item) for item in text.split(",")),
        f"is not a list of numbers such as {example}",
    )


class _LocalPath(click.Path):
    """Path on this machine to write to; rejects an empty path, a URL, a file for a folder, and the reverse."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path unchanged if it is valid."""
        from dkfeat.filesystems.urls import is_url, printable

        if not value:
            self.fail("the path is empty; give a name, or . for the current folder", param, ctx)
        if is_url(str(value)):
            self.fail(
                f"{printable(str(value))!r} is a URL, but this option writes to this machine only; give a path",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


LOCAL_FILE = _LocalPath(dir_okay=False, readable=False)
"""Type of an option that names a file to write."""
LOCAL_FOLDER = _LocalPath(file_okay=False, readable=False)
"""Type of an option that names a folder to write into."""
