"""Settings: frozen dataclasses whose fields declare each option, read strictly from plain values such as YAML gives."""

from __future__ import annotations

import math
import stat
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from dkfeat.errors import ConfigError
from dkfeat.messages import nearest


@dataclass(frozen=True, slots=True)
class Minimum:
    """Smallest value that a field may have, stated in its type."""

    value: int


Positive = Annotated[int, Minimum(1)]
"""Whole number of at least 1."""
_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "nothing"}
"""Names of the types of plain values in messages."""


class Settings:
    """Base of settings. An unknown key is an error that names the nearest key; values must have the declared type."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Check the bounds that the types of the fields state."""
        cls: Any = type(self)
        for name, least in _bounds(cls).items():
            value = getattr(self, name)
            if isinstance(value, int):
                at_least(name, value, least)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, place: str = "") -> Self:
        """Read settings from plain values.

        Parameters
        ----------
        mapping : mapping of str to plain values
            Values as YAML or JSON gives them.
        place : str
            Path of keys to these settings, for error messages.

        Raises
        ------
        ConfigError
            For an unknown key, a missing key or a value of another type; names the key path.
        """
        if not isinstance(mapping, Mapping):
            raise ConfigError(f"{place or 'settings'}: expected keys and values, got {_kind(mapping)}")
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for key, value in mapping.items():
            path = f"{place}.{key}" if place else str(key)
            if key not in hints:
                raise ConfigError(f"{path}: unknown key; {nearest(str(key), list(hints), 'keys')}")
            values[key] = _read(value, hints[key], path)
        missing = [name for name in _required(cls) if name not in values]
        if missing:
            raise ConfigError(f"{place or 'settings'}: {', '.join(missing)} must be given")
        with errors_at(place):
            return cls(**values)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values that `from_mapping` reads back to an equal object."""
        declared = fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass, but not this base class
        return {item.name: _plain(getattr(self, item.name)) for item in declared}


@contextmanager
def errors_at(place: str) -> Iterator[None]:
    """Put a file or a path of keys before the text of a ConfigError, unless the text already begins with it."""
    try:
        yield
    except ConfigError as error:
        if not place or str(error).startswith(f"{place}: "):
            raise
        raise ConfigError(f"{place}: {error}") from None


def at_least(name: str, value: int, least: int) -> None:
    """Raise an error for a smaller value."""
    if value < least:
        raise ConfigError(f"{name}={value}, but it must be at least {least}")


def one_of(name: str, value: Any, other: str, other_value: Any) -> None:
    """Check that exactly one of two settings is given."""
    if (value is None) == (other_value is None):
        which = "neither" if value is None else "both"
        raise ConfigError(f"{which} of `{name}` and `{other}` given; give exactly one of them")


def _read(value: Any, hint: Any, path: str) -> Any:
    """Check a plain value against a type hint; lists become tuples, mappings become settings."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Settings):
        return hint.from_mapping(value, place=path)
    if hint is Any:
        return value
    if hint in _NAMES:  # in Python, true and false are whole numbers too
        kinds = (int, float) if hint is float else hint
        accepted = isinstance(value, kinds) and isinstance(value, bool) == (hint is bool)
        value = float(value) if accepted and hint is float else value
    elif origin is Literal:
        accepted = any(value == choice and type(value) is type(choice) for choice in arguments)
    elif origin is Mapping:
        accepted = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    elif origin in (tuple, Sequence):
        accepted = isinstance(value, Sequence) and not isinstance(value, str)
        if accepted:
            return tuple(_read(item, arguments[0], f"{path}[{index}]") for index, item in enumerate(value))
    else:
        return _read_union(value, arguments, path)
    if not accepted:
        raise ConfigError(f"{path}: expected {_describe(hint)}, got {value!r:.100} ({_kind(value)})")
    return value


def _read_union(value: Any, choices: tuple[Any, ...], path: str) -> Any:
    settings = [hint for hint in choices if isinstance(hint, type) and issubclass(hint, Settings)]
    if settings and value is not None:
        return settings[0].from_mapping(value, place=path)
    for hint in choices:
        try:
            return _read(value, hint, path)
        except ConfigError:
            continue
    expected = " or ".join(_describe(hint) for hint in choices)
    raise ConfigError(f"{path}: expected {expected}, got {value!r:.100} ({_kind(value)})")


@cache
def _bounds(cls: type) -> dict[str, int]:
    """Smallest values of the fields whose types state one, alone or as an alternative to None."""
    found = {}
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        for choice in (hint, *typing.get_args(hint)):
            for extra in getattr(choice, "__metadata__", ()):
                if isinstance(extra, Minimum):
                    found[name] = extra.value
    return found


def _required(cls: type) -> list[str]:
    return [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(hint))
    if typing.get_origin(hint) in (tuple, Sequence):
        return f"a list of {_describe(typing.get_args(hint)[0])}"
    if isinstance(hint, types.UnionType):
        choices = typing.get_args(hint)
        return " or ".join(_describe(choice) for choice in choices if choice is not int or float not in choices)
    return _NAMES.get(hint, "values" if hint is Any else "keys and values")


def _kind(value: Any) -> str:
    return _NAMES.get(type(value), "a list" if isinstance(value, list | tuple) else type(value).__name__)


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.to_mapping()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


MOST_BYTES = 16 << 20
"""Largest file of settings in bytes."""
MOST_VALUES = 1_000_000
"""Largest number of values in a file of settings, each counted as often as aliases repeat it."""


def read_text(path: str | Path, kind: str) -> str:
    """Read a small regular file of text.

    Parameters
    ----------
    path : str or Path
    kind : str
        Kind of file that is expected, for the error, such as "a job file".

    Raises
    ------
    ConfigError
        If the file cannot be read, is a pipe, a device or a folder, or is larger than `MOST_BYTES`. The text starts
        with the file's name; the cause is the error of the operating system, if there is one.
    """
    data, fault = b"", ""
    try:
        if stat.S_ISREG(Path(path).stat().st_mode):
            with Path(path).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        else:  # a pipe may block when it is opened, and a device may have no end
            fault = "it is not a regular file"
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:  # the latter: not UTF-8, or a path with a NUL
        raise ConfigError(f"{path}: cannot be read as {kind}: {error}") from error
    if len(data) > MOST_BYTES:
        fault = f"it is larger than {MOST_BYTES >> 20} MiB"
    if fault:
        raise ConfigError(f"{path}: cannot be read as {kind}: {fault}")
    return text


def read_yaml(path: str | Path, kind: str) -> Any:
    """Read a YAML file of plain values.

    Parameters
    ----------
    path : str or Path
    kind : str
        Kind of file that is expected, for the error, such as "a job file".

    Returns
    -------
    content
        Usually a mapping; an empty one for an empty file.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not YAML of plain values, repeats a key or has more than `MOST_VALUES` values.
        The text starts with the file's name.
    """
    import yaml

    class StrictLoader(yaml.SafeLoader):
        """Safe loader that also rejects a key given twice."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != _MERGE]
            for index, key in enumerate(keys):
                if key in keys[:index]:
                    problem = f"key {key!r} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            return super().construct_mapping(node, deep)

    text = read_text(path, kind)
    try:
        loader = StrictLoader(text)
        node = loader.get_single_node()
        if node is None:
            return {}
        if _n_values(node, {}) > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values, or an alias within its own value")
        content = loader.construct_document(node)
    except RecursionError:
        raise ConfigError(f"{path}: cannot be read as {kind}: its values are nested too deeply") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:  # the others: values unlike their tags
        raise ConfigError(f"{path}: cannot be read as {kind}: {' '.join(str(error).split())}") from None
    return {} if content is None else content


_MERGE = "tag:yaml.org,2002:merge"


def _n_values(node: Any, known: dict[int, float]) -> float:
    """Count the values of a YAML node, those behind aliases too; infinite if a node contains itself."""
    if id(node) not in known:
        known[id(node)] = math.inf
        inner = chain.from_iterable(node.value) if node.id == "mapping" else node.value if node.id == "sequence" else ()
        known[id(node)] = 1 + sum(_n_values(item, known) for item in inner)
    return known[id(node)]
