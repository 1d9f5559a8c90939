"""YAML files of settings: plain values, and no key twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dkfeat.errors import ConfigError

__all__ = ["read_yaml"]


def read_yaml(path: str | Path, what: str) -> Any:
    """Read a YAML file of plain values.

    Parameters
    ----------
    path : str or Path
    what : str
        What the file should be, for the error, such as "a job file".

    Returns
    -------
    content
        Usually keys and values; an empty file gives no keys.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not YAML of plain values or repeats a key. The text starts with the file's name.
    """
    try:
        content = _StrictLoader(Path(path).read_text(encoding="utf-8")).get_single_data()
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = f"{path}: cannot be read as {what}: {' '.join(str(error).split())}"
        raise ConfigError(message) from None
    return {} if content is None else content


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, which also refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                message = f"key {key!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)
        return super().construct_mapping(node, deep)
