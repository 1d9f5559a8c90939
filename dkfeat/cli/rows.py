"""Options for reading rows and for feature maps, made from the declarations of source formats and maps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.declared import (
    Choice,
    Declaration,
    Text,
    alternatives,
    declarations,
    flag_of,
    given_flags,
    kind_of,
    words_of,
)
from dkfeat.cli.group import Command, apply_options, heading, late
from dkfeat.cli.options import storage_option
from dkfeat.encoders import CLASSES as ALL_ENCODERS
from dkfeat.encoders import encoder_class
from dkfeat.errors import ConfigError
from dkfeat.maps import CLASSES, map_class
from dkfeat.messages import nearest
from dkfeat.sources.formats import FORMATS, as_source

if TYPE_CHECKING:
    from dkfeat.config import MapConfig
    from dkfeat.maps import FeatureMap
    from dkfeat.sources.base import Source


OF_RUNS = ("urlpath", "storage_options", "on_bad_row", "max_bad_rows", "kept_types", "classes", "as_words", "encoder")
"""Fields of sources that other options or the files state."""
HIDDEN = ("max_line_bytes",)
ENCODERS = {name: place for name, place in ALL_ENCODERS.items() if name != "text"}
"""Module and class of each encoder with options; n-grams are columns of a table."""

_COMPARISON = re.compile(r"\s*(.+?)\s*(==|!=|<=|>=|=|<|>|\snot\s+in\s|\sin\s)\s*(\S.*?)\s*", re.DOTALL)
_ITEM = r"""\s*("(?:[^"\\]|\\.)*"|[^",\s](?:[^",]*[^",\s])?)\s*"""
_ITEMS = re.compile(f"{_ITEM}(?:,{_ITEM})*", re.DOTALL)
_QUOTED = "'=<>!~[({"  # a text that begins with one of these must be in double quotes
_NO_COMPARISON = (
    "is no comparison such as 'day >= 2026-11-20' or 'kind in a,b'; a text that is empty or begins with a bracket or "
    "an operator must be in double quotes, as in 'kind in \"[a]\",b'"
)


def declared_by(classes: Mapping[str, str]) -> dict[str, dict[str, Declaration]]:
    """Return the declarations of each option, by the names of the maps in `CLASSES` or formats in `FORMATS`."""
    found: dict[str, dict[str, Declaration]] = {}
    for name, place in classes.items():
        for option, declaration in declarations(place).items():
            found.setdefault(option, {})[name] = declaration
    return found


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


def _help_of(name: str, declared: Mapping[str, Declaration]) -> str:
    """Summary of an option; where classes have different ones, the first clause of each, or its choices."""
    first = next(iter(declared.values())).summary
    if len({(str(item.hint), item.summary) for item in declared.values()}) == 1:
        return first
    choices = {of: words_of(alternatives(item.hint)) for of, item in declared.items()}
    if all(choices.values()):
        parts = "; ".join(f"{of}: {', '.join(words)}" for of, words in choices.items())
        return f"{name.replace('_', ' ').capitalize()}; {parts}."
    clauses: dict[str, list[str]] = {}
    for of, item in declared.items():
        clause = re.split(r"[,:;.](?= |$)", item.summary)[0]
        clauses.setdefault(clause[:1].lower() + clause[1:], []).append(of)
    if len(clauses) == 1:
        return first
    return "; ".join(f"{', '.join(of)}: {clause}" for clause, of in clauses.items()) + "."


def _option(name: str, declared: Mapping[str, Declaration], classes: Mapping[str, str]) -> Any:
    """Make the option that some of the classes declare."""
    first, *others = declared.values()
    default = first.default  # if it is False, the option is a flag, whatever else other classes have
    hints = [hint for item in (first, *others * (default is not False)) for hint in alternatives(item.hint)]
    kind = kind_of(hints, default)
    if set(hints) == {str}:
        kind["metavar"] = "NAME"
    if classes is FORMATS and isinstance(default, str):
        kind |= {"default": default, "show_default": True}
    text = _help_of(name, declared)
    defaults: dict[str, list[str]] = {}
    for of, item in declared.items():
        shown = f"{item.default:g}" if isinstance(item.default, float) else str(item.default).lower()
        defaults.setdefault(shown, []).append(of)
    if 1 < len(declared) < len(classes) and ": " not in text:
        text = f"{text.removesuffix('.')} ({', '.join(declared)})."
    if kind.get("metavar") == "NAMES":
        text += " Separated by commas; repeatable."
    elif "multiple" in kind:
        text += " Repeatable."
    elif classes is CLASSES and "is_flag" not in kind:  # classes may have different ones, so click has none
        of_class = [f"{', '.join(of)}: {value}" for value, of in defaults.items()]
        text += f"  [default: {'; '.join(of_class) if len(defaults) > 1 else next(iter(defaults))}]"
    elif [*declared] == ["scale"]:  # which is used if the option is given
        text += "  [default: none]"
    flag = flag_of(name.removesuffix("s") if text.endswith(" Repeatable.") else name)
    return click.option(flag, name, help=text, hidden=name in HIDDEN, **kind)


def _options_of(
    classes: Mapping[str, str], titles: tuple[str, str], special: Mapping[str, Sequence[Any]], first: Any
) -> list[Any]:
    """Make the options of all classes: those of several under one heading, then those of each under its own."""
    title, title_of_one = titles
    sections: dict[str, list[Any]] = {title: [first], **{f"{title_of_one} {name}": [] for name in classes}}
    for name, declared in declared_by(classes).items():
        if name not in OF_RUNS:
            options = special.get(name) or [_option(name, declared, classes)]
            is_shared = len(declared) > 1 or name in HIDDEN
            sections[title if is_shared else f"{title_of_one} {next(iter(declared))}"] += options
    return [part for text, options in sections.items() if options for part in (heading(text), *options)]


@late
def source_options(command: Command) -> Command:
    """Give a command the options for reading rows, including ``--storage-option``; `make_source` takes them."""
    label = _help_of("label", declared_by(FORMATS)["label"])
    special = {
        "query_id": [
            click.option("--query-id", is_flag=True, help="Keep query ids: qid:n in text, the column qid in Parquet."),
            click.option("--query-column", metavar="NAME", help="Keep this Parquet column as query ids."),
        ],
        "label": [
            click.option("--label", metavar="NAME", default="label", show_default=True, help=label),
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
    made = _options_of(FORMATS, ("Reading rows", "Format"), special, kinds)
    return apply_options(command, *made, heading("Reading rows"), storage_option())


def source_flags() -> tuple[str, ...]:
    """Return the names of the options for reading rows, except storage options."""
    return ("format", *(name for name in declared_by(FORMATS) if name not in OF_RUNS), "query_column", "no_label")


def make_source(urlpath: tuple[str, ...], options: dict[str, Any]) -> Source:
    """Make the source of these paths, from the options of `source_options` and `bad_row_options`."""
    from dkfeat.engine.open import with_bad_rows

    given = {name: options[name] for name in source_flags() if options.get(name) not in (None, ())}
    if column := given.pop("query_column", None):
        given["query_id"] = column
    if given.pop("no_label", False):
        given["label"] = None
    source = as_source(list(urlpath), options.get("storage_options"), given.pop("format", "auto"), **given)
    made: Source = with_bad_rows(source, options.get("on_bad_row"), options.get("max_bad_rows"))
    return made


def rows_given(ctx: click.Context, source: tuple[str, ...], options: dict[str, Any]) -> Any:
    """Open SOURCE if it holds shards or predictions; otherwise make a source with the options of the command line.

    Raises
    ------
    click.UsageError
        If SOURCE holds shards and options for reading files were given.
    """
    from dkfeat.engine.dataset.dataset import ShardDataset, dataset_reader
    from dkfeat.engine.open import with_bad_rows

    reader = dataset_reader(source, options["storage_options"])
    if reader is None:
        return make_source(source, options)
    if given := given_flags(ctx, source_flags()):
        flags = ", ".join(given.values())
        raise click.UsageError(f"{source[0]} holds shards, which are read as they were made; leave out {flags}", ctx)
    return with_bad_rows(ShardDataset(reader, "sha256"), options.get("on_bad_row"))


@late
def map_options(command: Command) -> Command:
    """Give a command the options of the feature map and its parameters; `make_map` takes them."""
    name = click.option(
        "--map",
        "map_name",
        type=Choice(list(CLASSES), case_sensitive=False),
        metavar="NAME",
        default="gcws",
        show_default=True,
        help=f"Feature map: {', '.join(CLASSES)}.",
    )
    seed = click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random numbers.")
    return apply_options(command, *_options_of(CLASSES, ("Feature map",) * 2, {"random_state": [seed]}, name))


@late
def encoder_options(command: Command) -> Command:
    """Give a command the parameters of the encoders; `make_encoder` takes them."""
    declared = declared_by(ENCODERS)
    made = [_option(name, declared[name], ENCODERS) for name in declared if name != "random_state"]
    return apply_options(command, heading("Encoding of columns"), *made)


def make_encoder(options: Mapping[str, Any]) -> Any:
    """Make an unfitted encoder if one of the options of `encoder_options` is given; else "auto"."""
    given = {name: options[name] for name in declared_by(ENCODERS) if options.get(name) not in (None, ())}
    return build_encoder(given)


def build_encoder(params: Mapping[str, Any] | None) -> Any:
    """Make an unfitted encoder of these parameters; "auto" without any.

    Raises
    ------
    ConfigError
        If a parameter does not exist, or has a wrong value; the message suggests known names.
    """
    if not params:
        return "auto"
    declared = declared_by(ENCODERS)
    _check_known("the encoder", params, declared)
    names = [name for name in ENCODERS if all(name in declared[param] for param in params)]
    if not names:
        given = " and ".join(f"{param} ({flag_of(param)})" for param in params)
        raise ConfigError(f"{given} are parameters of different encoders; leave one out")
    encoder: Any = encoder_class(names[0])(**params)._given(params)
    encoder._checked_params()
    return encoder


def make_map(ctx: click.Context, out: str | None, like: str | None, options: dict[str, Any]) -> FeatureMap | None:
    """Make an unfitted map from the options of `map_options`; None if the map comes from `like` or the target.

    Parameters
    ----------
    ctx : click.Context
    out : str or None
        Target, if there is one; an existing one has the seed that is not given.
    like : str or None
    options : dict

    Raises
    ------
    click.UsageError
        If an option of the map is given together with ``--like``, or the map has no such parameter.
    """
    given = given_flags(ctx, ("map_name", "seed", *declared_by(CLASSES)))
    if like is not None and given:
        raise click.UsageError(
            f"the feature map with all parameters comes from --like {like}; leave out {', '.join(given.values())}", ctx
        )
    if like is not None:
        return None
    from dkfeat.config import MapConfig
    from dkfeat.engine.open import Target, binding_spec

    target = None if out is None else Target(out, storage_options=options["target_options"])
    exists = target is not None and binding_spec(target.open())[0] is not None
    if exists and not given:
        return None

    map_name = options["map_name"]
    own = ["seed" if name == "random_state" else name for name in declarations(CLASSES[map_name])]
    foreign = ", ".join(flag for name, flag in given.items() if name not in ("map_name", *own))
    if foreign:
        flags = {str(parameter.name): parameter.opts[0] for parameter in ctx.command.params}
        known = ", ".join(flags[name] for name in own)
        raise click.UsageError(f"the map {map_name} has no parameter {foreign}; it has {known}", ctx)
    parameters = {name: options[name] for name in own if name in given and name != "seed"}
    if "seed" in own and ("seed" in given or not exists):
        parameters["random_state"] = options["seed"]
    return build_map(MapConfig(name=map_name, params=parameters))


def build_map(config: MapConfig) -> FeatureMap:
    """Make the unfitted feature map that the settings name.

    Raises
    ------
    ConfigError
        If the map, or one of its parameters, does not exist; the message suggests known names.

    Examples
    --------
    >>> from dkfeat.config import MapConfig
    >>> build_map(MapConfig(name="gcws", params={"n_components": 64}))
    GCWSFeatures(n_components=64)
    """
    if config.name not in CLASSES:
        raise ConfigError(f"there is no map {config.name!r}; {nearest(config.name, list(CLASSES), 'maps')}")
    cls = map_class(config.name)
    _check_known(f"the map {config.name}", config.params, cls().get_params())
    return cls(**config.params)._given(config.params)


def _check_known(owner: str, params: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in params:
        if name not in known:
            raise ConfigError(f"{owner} has no parameter {name!r}; {nearest(name, sorted(known), 'parameters')}")
