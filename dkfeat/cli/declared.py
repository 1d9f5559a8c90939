"""Command-line options from declarations: fields of settings and sources, and parameters of feature maps.

A class declares each option once: its name, type, default and a text. The text is the string under a field of a
dataclass, or the parameter's paragraph in the docstring of the class. Classes of sources and maps are read from their
source code, since loading them takes longer than a help page.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

import dkfeat
from dkfeat.cli.group import Command, apply_options
from dkfeat.maps import CLASSES
from dkfeat.messages import nearest, read_number


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
            self.fail(f"there is no {str(value)!r}; {nearest(str(value), list(self.choices), 'choices')}", param, ctx)


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
        self, name: str, parse: Callable[[str], Any] = str, expected: str = "", words: Iterable[str] = ()
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


def numbers(kind: Callable[[str], Any], example: str) -> Text:
    """Parameter type of numbers separated by commas, as a tuple; error messages show the example."""
    return Text(
        "numbers",
        lambda text: tuple(read_number(item, kind) for item in text.split(",")),
        f"is not a list of numbers such as {example}",
    )


class _LocalPath(click.Path):
    """Path on this machine to write to; rejects an empty path, a URL, a file for a folder, and the reverse."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path unchanged if it is valid."""
        from dkfeat.filesystems.urls import is_url

        if not value:
            self.fail("the path is empty; give a name, or . for the current folder", param, ctx)
        if is_url(str(value)):
            self.fail(f"{value!r} is a URL, but this option writes to this machine only; give a path", param, ctx)
        return super().convert(value, param, ctx)


LOCAL_FILE = _LocalPath(dir_okay=False, readable=False)
"""Type of an option that names a file to write."""
LOCAL_FOLDER = _LocalPath(file_okay=False, readable=False)
"""Type of an option that names a folder to write into."""


UNKNOWN = object()
"""Default of a parameter whose source code does not state it as a constant."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """One option as its class declares it."""

    hint: Any
    """Type."""
    default: Any
    """Default; `MISSING` if there is none, `UNKNOWN` if it is not a constant."""
    text: str
    """Text under a field, or first sentence of a parameter's paragraph, as one line."""

    @property
    def summary(self) -> str:
        """First sentence, without remarks in parentheses."""
        text = re.sub(r" \((?:[^()]|\([^()]*\))*\)", "", self.text).replace("None:", "left out:")
        return re.split(r"(?<=\.)\s", text)[0]


class AnyMap:
    """Type of parameters that take a feature map."""


_IMPORT = re.compile(r"^from (dkfeat\.\S+) import (\([^)]*\)|.*)", re.MULTILINE)
_PARAMETER = re.compile(r"^(\w+(?:, \w+)*) : (.*)\n((?: {4}.*\n?|\n)+)", re.MULTILINE)


@cache
def declarations(place: str) -> dict[str, Declaration]:
    """Read the options that a class declares, without importing it.

    Parameters
    ----------
    place : str
        Module and class, as in ``dkfeat.maps.gcws:GCWSFeatures``.

    Returns
    -------
    found : dict of str to Declaration
        Fields of a dataclass, those of its base classes first.

    Examples
    --------
    >>> declarations("dkfeat.sources.libsvm.source:LibsvmSource")["dtype"].default
    'float32'
    """
    module, _, name = place.partition(":")
    text = _source_of(module)
    begin = max(text.find(f"\nclass {name}("), text.find(f"\nclass {name}:"))
    if begin < 0:  # a base class of another module
        imports = (origin for origin, names in _IMPORT.findall(text) if name in re.findall(r"\w+", names))
        return next((declarations(f"{origin}:{name}") for origin in imports), {})
    is_dataclass = text[:begin].rpartition("\n")[2].startswith("@dataclass")
    body = re.split(r"\n(?=\S)", text[begin + 1 :], maxsplit=1)[0]
    node = ast.parse(re.split(r"\n    (?=def |@)", body, maxsplit=1)[0]).body[0]  # methods take time to parse
    assert isinstance(node, ast.ClassDef)
    found: dict[str, Declaration] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name):
            found |= declarations(f"{module}:{base.id}")
    texts = {
        name: (kind, re.split(r"(?<=\.)\s", _one_line(text))[0])
        for names, kind, text in _PARAMETER.findall(ast.get_docstring(node) or "")
        for name in names.split(", ")
    }
    for item, after in zip(node.body, [*node.body[1:], None], strict=True):
        if is_dataclass and isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            kind, text = texts.get(item.target.id, ("", ""))
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = _one_line(str(after.value.value))
            hint = _hint(item.annotation)
            if hint is Any:  # the first type that the docstring has
                hint = _named(kind.partition(",")[0].partition(" ")[0])
            if typing.get_origin(hint) is not typing.ClassVar and text:
                found[item.target.id] = Declaration(hint, _default(item.value), text)
    return found


@cache
def _source_of(module: str) -> str:
    path = Path(dkfeat.__file__).parent.joinpath(*module.split(".")[1:])
    file = path.with_suffix(".py")
    return (file if file.exists() else path / "__init__.py").read_text(encoding="utf-8")


def _hint(node: ast.expr | None) -> Any:
    """Return the type that a hint in source code names, without running any code of it."""
    match node:
        case ast.Name(id=name):
            return _named(name)
        case ast.Constant(value=value):  # None, an ellipsis, or a choice of Literal
            return value
        case ast.Subscript(value=kind, slice=inner):
            return _hint(kind)[_hint(inner)]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _hint(left) | _hint(right)
        case ast.Tuple(elts=items):
            return tuple(map(_hint, items))
        case ast.List(elts=items):
            return list(map(_hint, items))
    return Any


def _named(name: str) -> Any:
    return AnyMap if name == "FeatureMap" else getattr(typing, name, getattr(builtins, name, Any))


def _default(node: ast.expr | None) -> Any:
    if node is None:
        return MISSING
    if isinstance(node, ast.Call):  # field(default=...)
        return next((_default(item.value) for item in node.keywords if item.arg == "default"), UNKNOWN)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNKNOWN


def _one_line(text: str) -> str:
    return " ".join(re.sub(r":math:|[`\\]", "", text).split())


def option_of(settings: type, name: str, *flags: str, **given: Any) -> Callable[[Command], Command]:
    """Make an option from a field: the flag is the field's name, the help is the text under the field.

    The type determines the kind of option, see `kind_of`; a tuple or sequence gives an option that may be repeated.

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
    >>> from dkfeat.config import RunConfig
    >>> @click.command
    ... @option_of(RunConfig, "n_workers")
    ... @option_of(RunConfig, "scheduler")
    ... def show(**options):
    ...     print(sorted(options.items()))
    >>> show(["--n-workers", "7"], standalone_mode=False)
    [('n_workers', 7), ('scheduler', None)]
    """
    default = next(field.default for field in fields(settings) if field.name == name)
    hints = alternatives(_hints(settings)[name])
    repeated = [typing.get_args(hint)[0] for hint in hints if typing.get_origin(hint) in (tuple, Sequence)]
    made = kind_of(repeated or hints, default) | ({"multiple": True} if repeated else {})
    if default is MISSING:
        made["required"] = True
    elif default not in (None, (), False):
        made |= {"default": (default,) if repeated else default, "show_default": True}
    if "help" not in given:
        made["help"] = declarations(f"{settings.__module__}:{settings.__name__}")[name].text
    flag = flag_of(name)
    flag = f"{flag}/--no-{flag[2:]}" if made.get("type") is bool else flag
    return click.option(*(flags or [flag]), name, **{**made, **given})


def options_of(settings: type, *names: str) -> Callable[[Command], Command]:
    """Make the options of several fields, in this order."""
    return lambda command: apply_options(command, *(option_of(settings, name) for name in names))


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return "--" + name.replace("_", "-")


@cache
def _hints(settings: type) -> dict[str, Any]:
    return typing.get_type_hints(settings, include_extras=True)


def alternatives(hint: Any) -> list[Any]:
    """Return the types of a union except None, or the one type."""
    is_union = typing.get_origin(hint) in (Union, types.UnionType)
    return [choice for choice in (typing.get_args(hint) if is_union else [hint]) if choice is not type(None)]


def words_of(hints: Iterable[Any]) -> list[str]:
    """Return the words of all hints of the form ``Literal[...]``."""
    literals = [hint for hint in hints if typing.get_origin(hint) is Literal]
    return list(dict.fromkeys(word for hint in literals for word in typing.get_args(hint)))


def kind_of(hints: Sequence[Any], default: Any = None) -> dict[str, Any]:
    """Keywords of `click.option` for the types that an option has, in one class or in several.

    ``bool`` gives a flag, ``Literal`` a choice, ``Positive`` a whole number from 1, a sequence of texts names separated
    by commas, a sequence of numbers or a tuple numbers separated by commas, ``str`` any text.
    """
    words = words_of(hints)
    items: dict[Any, Any] = {
        typing.get_origin(hint): typing.get_args(hint)[0] for hint in hints if typing.get_args(hint)
    }
    if all(hint is bool for hint in hints):
        return {"is_flag": True} if default is False else {"type": bool}
    if items.get(Sequence) is str:
        return {"multiple": True, "metavar": "NAMES", "callback": _names}
    if AnyMap in hints:
        expected = 'is neither a map such as gcws nor a mapping such as \'{"map": "laplace", "params": {"beta": 0.5}}\''
        return {"type": Text("map|json", _inner_map, expected, CLASSES)}
    if typing.Mapping[str, str] in hints:
        expected = "is not the name of a column with its n-grams, such as body='word 5'"
        return {"type": Text("column=ngrams", _named_text, expected), "multiple": True, "callback": _mapping}
    if Mapping in items:
        expected = "is not a parameter such as gamma=0.5 or coefficients=1,0,2"
        return {"type": Text("name=number", _named_number, expected), "multiple": True, "callback": _mapping}
    if items.get(Sequence) is float:
        return {"type": numbers(float, "0,1,0.5; functions are for Python only")}
    if tuple in items:
        return {"type": numbers(_label, "-1,1")}
    if words and int in hints:
        expected = f"is neither a whole number nor {' nor '.join(words)}"
        parse = lambda text: text if text in words else read_number(text, int)  # noqa: E731
        return {"type": Text("|".join(["number", *words]), parse, expected, words)}
    if words and bool in hints:
        values = {**{word: word for word in words}, "true": True, "false": False}
        expected = f"is none of {', '.join([*words, 'true'])} and false"
        return {"type": Text("|".join(values), lambda text: values[text.lower()], expected, values)}
    if words:
        return {"type": Choice(words) if len(set(hints)) == 1 else Text("text", words=words)}
    if typing.Annotated in items:  # Positive
        return {"type": click.IntRange(min=1)}
    return {"type": next((kind for kind in (str, int, float) if kind in hints), str)}


def _label(text: str) -> int | float | str:
    from dkfeat.validation import as_label  # late: loads SciPy, which help pages do not need

    try:
        return as_label(text)
    except ValueError:
        return text.strip()


def _inner_map(text: str) -> Mapping[str, Any]:
    """Read the name of a map with unbiased features, or any map as JSON."""
    if text in CLASSES:
        scales_output = declarations(CLASSES[text]).get("normalize", Declaration(None, None, "")).hint is bool
        return {"map": text, "params": {"normalize": False} if scales_output else {}}
    try:
        mapping = json.loads(text)
    except RecursionError:
        mapping = None
    if not isinstance(mapping, dict):
        raise ValueError(text)
    return mapping


def _named_text(text: str) -> tuple[str, str]:
    name, _, value = text.rpartition("=")  # names may have the sign, n-grams have none
    if not name:
        raise ValueError(text)
    return name, value


def _named_number(text: str) -> tuple[str, float | list[float]]:
    name, _, number = text.partition("=")
    if "," in number:
        return name, [read_number(item, float) for item in number.split(",")]
    return name, read_number(number, int if number.lstrip("+-").isdigit() else float)


def _mapping(ctx: click.Context, param: click.Parameter, value: tuple[tuple[str, Any], ...]) -> Any:  # noqa: ARG001 - click's signature
    """Join the pairs of a repeated option; None if there are none."""
    if len(found := dict(value)) < len(value):
        raise click.BadParameter(
            "a name is given twice; give it one value, which for n-grams may be a range: 'word 3-5'"
        )
    return found or None


def _names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG001 - click's signature
    """Split names at commas; a column with a comma in its name can only be used from Python and job files."""
    return tuple(name.strip() for text in value for name in text.split(","))


def given_flags(ctx: click.Context, names: Collection[str]) -> dict[str, str]:
    """Return the flags of the named options that the command line gives, by option name."""
    flags = {str(parameter.name): parameter.opts[0] for parameter in ctx.command.params if parameter.name in names}
    return {name: flag for name, flag in flags.items() if ctx.get_parameter_source(name) != ParameterSource.DEFAULT}
