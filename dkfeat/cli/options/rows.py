"""Options for reading rows and for feature maps, made from the declarations of source formats and maps."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from dkfeat.cli.group import apply_options, heading, late
from dkfeat.cli.jobs import build_map
from dkfeat.cli.options.declared import (
    AnyMap,
    Choice,
    Declaration,
    Text,
    alternatives,
    declarations,
    flag_of,
    given_flags,
    kinds_of,
    numbers,
    words,
)
from dkfeat.cli.options.shared import storage_option
from dkfeat.maps import CLASSES
from dkfeat.messages import nearest
from dkfeat.sources.formats import FORMATS, as_source

if TYPE_CHECKING:
    from dkfeat.maps import FeatureMap
    from dkfeat.sources.base import Source

Command = TypeVar("Command", bound=Callable[..., Any])

OF_RUNS = ("urlpath", "storage_options", "on_bad_row", "max_bad_rows", "kept_types")
"""Fields of sources that other options or the first file state."""
HIDDEN = ("max_line_bytes",)

_COMPARISON = re.compile(r"\s*(.+?)\s*(==|!=|<=|>=|=|<|>|\snot\s+in\s|\sin\s)\s*(\S.*?)\s*", re.DOTALL)
_ITEM = r"""\s*("(?:[^"\\]|\\.)*"|[^",\s](?:[^",]*[^",\s])?)\s*"""
_ITEMS = re.compile(f"{_ITEM}(?:,{_ITEM})*", re.DOTALL)
_QUOTED = "'=<>!~[({"  # a text that begins with one of these must be in double quotes
_NO_COMPARISON = (
    "is no comparison such as 'day >= 2026-11-20' or 'kind in a,b'; a text that is empty or begins with a bracket or "
    "an operator must be in double quotes, as in 'kind in \"[a]\",b'"
)


@cache
def declared_by(registry: Literal["maps", "formats"]) -> dict[str, dict[str, Declaration]]:
    """Return the declarations of each option, by the names of the maps or formats that have it."""
    found: dict[str, dict[str, Declaration]] = {}
    for name, place in (CLASSES if registry == "maps" else FORMATS).items():
        for option, declaration in declarations(place).items():
            found.setdefault(option, {})[name] = declaration
    return found


def _label(text: str) -> int | float:
    from dkfeat.validation import as_label  # late: loads SciPy, which help pages do not need

    return as_label(text)


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


def _named_number(text: str) -> tuple[str, float | list[float]]:
    name, _, number = text.partition("=")
    if "," in number:
        return name, [float(item) for item in number.split(",")]
    return name, int(number) if number.lstrip("+-").isdigit() else float(number)


def _names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG001 - click's signature
    """Split names at commas; a column with a comma in its name can only be used from Python and job files."""
    return tuple(name.strip() for text in value for name in text.split(","))


def _comparison(text: str) -> tuple[str, str, Any]:
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise ValueError(text)
    column, operator, value = match[1], " ".join(match[2].split()), match[3]
    if not operator.endswith("in"):
        return column, operator, _value(value)
    items = _ITEMS.fullmatch(value) and re.findall(_ITEM, value)
    if not items:
        raise ValueError(text)
    return column, operator, list(map(_value, items))


def _value(text: str) -> Any:
    """Convert a number, true, false or a text in double quotes as JSON does; other text is only stripped.

    Raises
    ------
    ValueError
        For text that must be in double quotes: an operator was misspelt, or a list or text has the syntax of SQL.
    """
    if text[0] in _QUOTED:
        raise ValueError(text)
    try:
        value = json.loads(text)
    except ValueError:
        if text[0] == '"':
            raise
        return text.strip()
    if value is None:
        raise ValueError(text)
    return value


def _kind_of(declared: Mapping[str, Declaration]) -> dict[str, Any]:
    """Keywords of `click.option` for the types that an option has in several classes."""
    first, *_ = declared.values()
    hints = [hint for item in declared.values() for hint in alternatives(item.hint)]
    choices = list(dict.fromkeys(word for hint in kinds_of(hints, Literal) for word in typing.get_args(hint)))
    if alternatives(first.hint) == [bool] and first.default is False:
        return {"is_flag": True}
    if AnyMap in hints:
        expected = 'is neither a map such as gcws nor a mapping such as \'{"map": "laplace", "params": {"beta": 0.5}}\''
        return {"type": Text("map|json", _inner_map, expected, CLASSES)}
    if kinds_of(hints, Mapping):
        expected = "is not a parameter such as gamma=0.5 or coefficients=1,0,2"
        return {"type": Text("name=number", _named_number, expected), "multiple": True}
    items = [typing.get_args(hint)[0] for hint in kinds_of(hints, Sequence)]
    if str in items:
        return {"multiple": True, "metavar": "NAMES", "callback": _names}
    if float in items:
        return {"type": numbers(float, "0,1,0.5; functions are for Python only")}
    if kinds_of(hints, tuple):
        return {"type": numbers(_label, "-1,1")}
    if int in hints and choices:
        expected = f"is neither a whole number nor {' nor '.join(choices)}"
        parse = lambda text: text if text in choices else int(text)  # noqa: E731
        return {"type": Text("|".join(["number", *choices]), parse, expected, choices)}
    if bool in hints:
        return {"type": words({**{word: word for word in choices}, "true": True, "false": False})}
    if choices:
        are_equal = len({str(alternatives(item.hint)) for item in declared.values()}) == 1
        return {"type": Choice(choices) if are_equal else Text("text", words=choices)}
    kind = next((kind for kind in (str, int, float) if kind in hints), str)
    return {"type": kind, **({"metavar": "NAME"} if hints == [str] else {})}


def _help_of(name: str, declared: Mapping[str, Declaration]) -> str:
    """Summary of an option; where classes have different ones, the first clause of each, or its choices."""
    if len({(str(item.hint), item.summary) for item in declared.values()}) == 1:
        return next(iter(declared.values())).summary
    choices = {of: kinds_of(alternatives(item.hint), Literal) for of, item in declared.items()}
    if all(choices.values()):
        parts = "; ".join(f"{of}: {', '.join(typing.get_args(hint))}" for of, (hint,) in choices.items())
        return f"{name.replace('_', ' ').capitalize()}; {parts}."
    clauses: dict[str, list[str]] = {}
    for of, item in declared.items():
        clause = re.split(r"[,:;.](?= |$)", item.summary)[0]
        clauses.setdefault(clause[:1].lower() + clause[1:], []).append(of)
    if len(clauses) == 1:
        return next(iter(declared.values())).summary
    return "; ".join(f"{', '.join(of)}: {clause}" for clause, of in clauses.items()) + "."


def _options_of(
    registry: Literal["maps", "formats"], title: str, extra: Mapping[str, Sequence[Any]], first: Sequence[Any]
) -> list[Any]:
    """Make the options of all classes: those of several under one heading, then those of each under its own."""
    names = CLASSES if registry == "maps" else FORMATS
    sections: dict[str, list[Any]] = {"": list(first), **{name: [] for name in names}}
    for name, declared in declared_by(registry).items():
        if name in OF_RUNS:
            continue
        if name in extra:
            options = list(extra[name])
        else:
            kind = _kind_of(declared)
            default = next(iter(declared.values())).default
            if registry == "formats" and isinstance(default, str):
                kind |= {"default": default, "show_default": True}
            is_pair = kind.get("multiple", False) and "callback" not in kind
            flag = flag_of(name.removesuffix("s") if is_pair else name)
            repeat = " Repeatable." if kind.get("multiple") else ""
            repeat = " Separated by commas; repeatable." if "callback" in kind else repeat
            text = _help_of(name, declared)
            if 1 < len(declared) < len(names) and ": " not in text:
                text = f"{text.removesuffix('.')} ({', '.join(declared)})."
            options = [click.option(flag, name, help=text + repeat, hidden=name in HIDDEN, **kind)]
        sections["" if len(declared) > 1 or name in HIDDEN else next(iter(declared))] += options
    of_one = "Feature map" if registry == "maps" else "Format"
    headed = {f"{of_one} {name}" if name else title: options for name, options in sections.items() if options}
    return [part for text, options in headed.items() for part in (heading(text), *options)]


@late
def source_options(command: Command) -> Command:
    """Give a command the options for reading rows, including ``--storage-option``; `make_source` takes them."""
    declared = declared_by("formats")
    extra = {
        "query_id": [
            click.option("--query-id", is_flag=True, help="Keep query ids: qid:n in text, the column qid in Parquet."),
            click.option("--query-column", metavar="NAME", help="Keep this Parquet column as query ids."),
        ],
        "label": [
            click.option(
                "--label", metavar="NAME", default="label", show_default=True, help=_help_of("label", declared["label"])
            ),
            click.option("--no-label", is_flag=True, help="Rows have no labels; 0 is stored."),
        ],
        "filters": [
            click.option(
                "--filters",
                type=Text("comparison", _comparison, _NO_COMPARISON),
                multiple=True,
                help="Rows to read, as in 'day >= 2026-11-20' or 'kind in a,b'. Repeatable: all must hold.",
            )
        ],
    }
    kinds = click.option(
        "--format",
        type=Choice(["auto", *FORMATS]),
        default="auto",
        show_default=True,
        help="Format of the files; auto: by their names, else LIBSVM text.",
    )
    made = _options_of("formats", "Reading rows", extra, [kinds])
    return apply_options(command, *made, heading("Reading rows"), storage_option())


def source_flags() -> tuple[str, ...]:
    """Return the names of the options for reading rows, except storage options."""
    return ("format", *(name for name in declared_by("formats") if name not in OF_RUNS), "query_column", "no_label")


def make_source(urlpath: tuple[str, ...], options: dict[str, Any]) -> Source:
    """Make the source of these paths, from the options of `source_options`."""
    given = {name: options[name] for name in source_flags() if options.get(name) not in (None, ())}
    if column := given.pop("query_column", None):
        given["query_id"] = column
    if given.pop("no_label", False):
        given["label"] = None
    return as_source(list(urlpath), options.get("storage_options"), given.pop("format", "auto"), **given)


def _map_name(text: str) -> str:
    name = text.lower()
    if name not in CLASSES:
        raise click.BadParameter(f"there is no map {text!r}; {nearest(name, list(CLASSES), 'maps')}")
    return name


@late
def map_options(command: Command) -> Command:
    """Give a command the options of the feature map and its parameters; `make_map` takes them."""
    name = click.option(
        "--map",
        "map_name",
        type=Text("name", _map_name, words=CLASSES),
        default="gcws",
        show_default=True,
        help=f"Feature map: {', '.join(CLASSES)}.",
    )
    seed = click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random numbers.")
    return apply_options(command, *_options_of("maps", "Feature map", {"random_state": [seed]}, [name]))


def make_map(
    ctx: click.Context, options: dict[str, Any], like: str | None, has_map: Callable[[], bool]
) -> FeatureMap | None:
    """Make an unfitted map from the options of `map_options`; None if the map comes from `like` or the target.

    Parameters
    ----------
    ctx : click.Context
    options : dict
    like : str or None
    has_map : callable
        Returns True if the target has a map already; called if no option of the map is given.

    Raises
    ------
    click.UsageError
        If an option of the map is given together with ``--like``, or the map has no such parameter.
    """
    given = given_flags(ctx, ("map_name", "seed", *declared_by("maps")))
    if like is not None and given:
        raise click.UsageError(
            f"the feature map with all parameters comes from --like {like}; leave out {', '.join(given.values())}", ctx
        )
    if like is not None or (not given and has_map()):
        return None
    from dkfeat.config import MapConfig

    map_name = options["map_name"]
    own = ["seed" if name == "random_state" else name for name in declarations(CLASSES[map_name])]
    foreign = ", ".join(flag for name, flag in given.items() if name not in ("map_name", *own))
    if foreign:
        flags = {str(parameter.name): parameter.opts[0] for parameter in ctx.command.params}
        known = ", ".join(flags[name] for name in own)
        raise click.UsageError(f"the map {map_name} has no parameter {foreign}; it has {known}", ctx)
    parameters = {name: options[name] for name in own if name in given and name != "seed"}
    for name, value in parameters.items():
        if isinstance(value, tuple):  # repeated names and numbers, or a list of numbers
            parameters[name] = dict(value) if isinstance(value[0], tuple) else list(value)
    if "seed" in own:
        parameters["random_state"] = options["seed"]
    return build_map(MapConfig(name=map_name, params=parameters))
