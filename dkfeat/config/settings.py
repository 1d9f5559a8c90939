"""How settings are read: strictly, from plain values, by the types that their dataclasses declare."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, Literal, Self

from dkfeat.errors import ConfigError
from dkfeat.wording import nearest

__all__ = ["Settings", "at_least", "one_of"]


class Settings:
    """Strict reading: unknown keys are refused with the nearest known one, values must have the declared type."""

    __slots__ = ()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, place: str = "") -> Self:
        """Read settings from plain values.

        Parameters
        ----------
        mapping : mapping of str to plain values
            As YAML or JSON give them.
        place : str
            Path of keys that leads here, for error messages.

        Raises
        ------
        ConfigError
            For an unknown key, a missing key or a value of another type; names the key path.
        """
        if not isinstance(mapping, Mapping):
            message = f"{place or 'settings'}: expected keys and values, got {_kind(mapping)}"
            raise ConfigError(message)
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for key, value in mapping.items():
            path = f"{place}.{key}" if place else str(key)
            if key not in hints:
                message = f"{path}: unknown key; {nearest(str(key), list(hints), 'keys')}"
                raise ConfigError(message)
            values[key] = _read(value, hints[key], path)
        missing = [name for name in _required(cls) if name not in values]
        if missing:
            message = f"{place or 'settings'}: {', '.join(missing)} must be given"
            raise ConfigError(message)
        try:
            return cls(**values)
        except ConfigError as error:
            message = f"{place}: {error}" if place else str(error)
            raise ConfigError(message) from None

    def to_mapping(self) -> dict[str, Any]:
        """Plain values that `from_mapping` reads back to an equal object."""
        declared = fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass, this base is none
        return {item.name: _plain(getattr(self, item.name)) for item in declared}


def at_least(name: str, value: int, least: int) -> None:
    """Refuse a smaller value."""
    if value < least:
        message = f"{name}={value}, but it must be at least {least}"
        raise ConfigError(message)


def one_of(name: str, value: Any, other: str, other_value: Any) -> None:
    """Refuse neither and both of two settings."""
    if (value is None) == (other_value is None):
        which = "neither" if value is None else "both"
        message = f"{which} of `{name}` and `{other}` given; name the rows by one of them"
        raise ConfigError(message)


def _read(value: Any, hint: Any, path: str) -> Any:
    """Check a plain value against a type hint; lists become tuples, mappings become settings."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Settings):
        return hint.from_mapping(value, place=path)
    if hint is Any:
        return value
    if hint is bool or hint is str:
        accepted = isinstance(value, hint)
    elif hint is int:
        accepted = isinstance(value, int) and not isinstance(value, bool)
    elif hint is float:
        accepted = isinstance(value, int | float) and not isinstance(value, bool)
        value = float(value) if accepted else value
    elif hint is type(None):
        accepted = value is None
    elif origin is Literal:
        accepted = any(value == choice and type(value) is type(choice) for choice in arguments)
    elif origin is Mapping:
        accepted = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    elif origin is tuple:
        accepted = isinstance(value, Sequence) and not isinstance(value, str)
        if accepted:
            return tuple(_read(item, arguments[0], f"{path}[{index}]") for index, item in enumerate(value))
    else:
        return _read_union(value, arguments, path)
    if not accepted:
        message = f"{path}: expected {_describe(hint)}, got {value!r} ({_kind(value)})"
        raise ConfigError(message)
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
    message = f"{path}: expected {expected}, got {value!r} ({_kind(value)})"
    raise ConfigError(message)


def _required(cls: type) -> list[str]:
    return [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"a list of {_describe(typing.get_args(hint)[0])}"
    if isinstance(hint, types.UnionType):
        return " or ".join(_describe(choice) for choice in typing.get_args(hint))
    names = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
        type(None): "nothing",
        Any: "values",
    }
    return names.get(hint, "keys and values")


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "nothing"}
    return names.get(type(value), "a list" if isinstance(value, list | tuple) else type(value).__name__)


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.to_mapping()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
