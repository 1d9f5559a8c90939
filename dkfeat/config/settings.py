"""Settings: frozen dataclasses whose fields declare each option, read strictly from plain values such as YAML gives."""

from __future__ import annotations

import re
import stat
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from dkfeat.errors import ConfigError
from dkfeat.messages import nearest

Positive = Annotated[int, "at least 1"]
"""Whole number of at least 1."""


class Settings:
    """Base of settings. An unknown key is an error that names the nearest key; values must have the declared type."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Check that fields of type `Positive` are at least 1."""
        for item in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass, but not this base class
            value = getattr(self, item.name)
            is_positive = re.search("Positive|at least 1", str(item.type))  # an evaluated type, or its text
            if is_positive and isinstance(value, int) and value < 1:
                raise ConfigError(f"{item.name}={value}, but it must be at least 1")

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
        check_keys(mapping, list(hints), place)
        values = {key: _read(value, hints[key], _path(place, key)) for key, value in mapping.items()}
        declared = fields(cls)  # type: ignore[arg-type]  # as above
        required = [item.name for item in declared if item.default is item.default_factory is MISSING]
        if missing := [name for name in required if name not in values]:
            raise ConfigError(f"{place or 'settings'}: {', '.join(missing)} must be given")
        with errors_at(place):
            return cls(**values)

    def to_mapping(self) -> dict[str, Any]:
        """Values of the fields by name, tuples as lists."""
        declared = fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass, but not this base class
        values = {item.name: getattr(self, item.name) for item in declared}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def check_keys(mapping: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    """Check that all keys are known; the error names the nearest one."""
    for key in mapping:
        if key not in known:
            raise ConfigError(f"{_path(place, key)}: unknown key; {nearest(str(key), known, 'keys')}")


def _path(place: str, key: object) -> str:
    return f"{place}.{key}" if place else str(key)


@contextmanager
def errors_at(place: str) -> Iterator[None]:
    """Put a file or a path of keys before the text of a ConfigError, unless the text already begins with it."""
    try:
        yield
    except ConfigError as error:
        if not place or str(error).startswith(f"{place}: "):
            raise
        raise ConfigError(f"{place}: {error}") from None


def one_of(name: str, value: Any, other: str, other_value: Any) -> None:
    """Check that exactly one of two settings is given."""
    if (value is None) == (other_value is None):
        which = "neither" if value is None else "both"
        raise ConfigError(f"{which} of `{name}` and `{other}` given; give exactly one of them")


def _read(value: Any, hint: Any, path: str) -> Any:
    """Convert a plain value to a type; mappings become settings, lists tuples."""
    choices = (hint, *typing.get_args(hint))
    inner = next((kind for kind in choices if isinstance(kind, type) and issubclass(kind, Settings)), None)
    if inner is None:
        return _convert(value, hint, path)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{path}: expected a list of keys and values, got {_shown(value, path)}")
        return tuple(inner.from_mapping(item, place=f"{path}[{index}]") for index, item in enumerate(value))
    return None if value is None and type(None) in choices else inner.from_mapping(value, place=path)


def _convert(value: Any, hint: Any, path: str) -> Any:
    """Check a plain value against a type by msgspec; lists become tuples."""
    import msgspec  # late: help pages do not need it

    from dkfeat.canonical import CONVERTING

    try:
        with CONVERTING:
            found = msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        expected, _, place = str(error).partition(" - at `$")
        if match := re.match(r"Expected `(.*)`, got", expected):
            kinds = [_NAMES.get(kind, kind) for kind in match[1].split(" | ")]
            expected = f"expected {' or '.join(dict.fromkeys(kinds))}"
        elif expected.startswith("Invalid enum"):
            literals = [kind for kind in (hint, *typing.get_args(hint)) if typing.get_origin(kind) is Literal]
            words = [word for kind in literals for word in typing.get_args(kind)]
            expected = f"expected {' or '.join(map(repr, words))}"
        place = place.rstrip("`")
        if re.fullmatch(r"(\[\d+\])+", place):  # the item of a list
            for index in re.findall(r"\d+", place):
                value = value[int(index)]
        raise ConfigError(f"{path}{place}: {expected}, got {_shown(value, path)}") from None
    return tuple(found) if isinstance(found, list) and hint is not Any else found


_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "null": "nothing",
    "array": "a list",
    "object": "keys and values",
}
"""Words for msgspec's names of types."""


def _shown(value: Any, path: str) -> str:
    """Return a wrong value with its kind; of options of storages, and of mappings that may hold them, only the kind."""
    may_hold_secrets = isinstance(value, Mapping) or "_options" in path
    return _kind(value) if may_hold_secrets else f"{value!r:.100} ({_kind(value)})"


def _kind(value: Any) -> str:
    names = {bool: "bool", int: "int", float: "float", str: "str", type(None): "null", list: "array", tuple: "array"}
    return _NAMES.get(names.get(type(value), "object" if isinstance(value, Mapping) else ""), type(value).__name__)


MOST_BYTES = 16 << 20
"""Largest file of settings in bytes."""


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
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe may block when it is opened, and a device may have no end
            raise ValueError("it is not a regular file")
        if status.st_size > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
        return Path(path).read_bytes().decode("utf-8")
    except (OSError, ValueError) as error:  # the latter also: not UTF-8, or a path with a NUL
        raise ConfigError(f"{path}: cannot be read as {kind}: {error}") from error


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
        If the file cannot be read, is not YAML of plain values or repeats a key. The text starts with the file's name.
    """
    import yaml

    class StrictLoader(yaml.SafeLoader):
        """Safe loader that also rejects a key given twice, and numbers that are not written in decimal digits alone."""

        def construct_scalar(self, node: Any) -> Any:
            if node.tag in _OF_NUMBERS and re.search(r"[_:]|^[-+]?0[0-9a-z]", node.value):
                problem = f"{node.value} is a number with separators or of another base; write it in the digits 0 to 9"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            return super().construct_scalar(node)

        def compose_node(self, parent: Any, index: Any) -> Any:
            node: Any = super().compose_node(parent, index)
            if not hasattr(node, "size"):  # not an alias
                parts = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
                node.size = 1 + sum(getattr(part, "size", 0) for part in parts)
                if node.size > len(text) + 100_000:  # each level of nested aliases multiplies the values of the last
                    raise yaml.constructor.ConstructorError(None, None, "aliases repeat too much", node.start_mark)
            return node

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            for key, _ in node.value:  # yes, no, on and off are words
                key.tag = _TEXT if key.tag == _BOOL else key.tag
            keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != _MERGE]
            for index, key in enumerate(keys):
                if key in keys[:index]:
                    problem = f"key {key!r} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            return super().construct_mapping(node, deep)

    # as in YAML 1.2; in 1.1 a number with an exponent has a point and a sign
    StrictLoader.add_implicit_resolver(_OF_NUMBERS[1], re.compile(r"[-+]?[0-9]+\.?[0-9]*[eE][-+]?[0-9]+$"), None)
    text = read_text(path, kind)
    try:
        loader = StrictLoader(text)
        loader.deep_construct = True  # an alias within its own value is then an error
        content = loader.get_single_data()
    except RecursionError:
        raise ConfigError(f"{path}: cannot be read as {kind}: its values are nested too deeply") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:  # the others: values unlike their tags
        raise ConfigError(f"{path}: cannot be read as {kind}: {' '.join(str(error).split())}") from None
    return {} if content is None else content


_MERGE, _TEXT, _BOOL = (f"tag:yaml.org,2002:{name}" for name in ("merge", "str", "bool"))
_OF_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
