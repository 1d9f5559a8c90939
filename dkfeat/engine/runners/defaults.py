"""Defaults from Dask's configuration, and the origin of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import dask

from dkfeat.config.execution import DefaultsConfig

NAMESPACE = "dkfeat"
VARIABLES = "DASK_DKFEAT__"
"""Prefix of the environment variables that set a key, such as ``DASK_DKFEAT__N_WORKERS=4``."""
INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"
"""Variable with which Dask passes its configuration to processes that it starts."""


def read_defaults() -> DefaultsConfig:
    """Read the keys under ``dkfeat`` of Dask's configuration: its YAML files, its variables, and `dask.config.set`.

    Raises
    ------
    ConfigError
        For an unknown key or a value of another type; the message has the origin of the key, if known.

    Examples
    --------
    >>> import dask
    >>> with dask.config.set({"dkfeat.n-workers": 4}):
    ...     read_defaults().n_workers
    4
    """

    def origin(key: str) -> str:
        return origins().get(key, "")

    return DefaultsConfig.of_dask(dask.config.get(NAMESPACE, None), origin)


def origins() -> dict[str, str]:
    """Return the origin of each key that is set: a file, an environment variable, or this process.

    The empty key stands for the whole of ``dkfeat``.
    """
    found: dict[str, tuple[Any, str]] = {}
    for path, content in dask.config.collect_yaml(dask.config.paths, return_paths=True):
        _note(found, content, str(path))
    if INHERITED in os.environ:
        _note(found, dask.config.deserialize(os.environ[INHERITED]), "the process that started this one")
    for name, value in os.environ.items():
        if name.startswith(VARIABLES):
            content = dask.config.collect_env({name: value})
            _note(found, content, f"environment variable {name}")
    now: dict[str, tuple[Any, str]] = {}
    _note(now, {NAMESPACE: dask.config.get(NAMESPACE, None)}, "this process")
    unchanged = {key for key in now if key in found and found[key][0] == now[key][0]}
    return {key: (found if key in unchanged else now)[key][1] for key in now}


def _note(found: dict[str, tuple[Any, str]], content: Any, origin: str) -> None:
    """Record the value and the origin of each key below ``dkfeat``, and of the whole section."""
    if isinstance(content, Mapping) and NAMESPACE in content:
        section = content[NAMESPACE]
        found[""] = (section, origin)
        if isinstance(section, Mapping):
            found |= {str(key).replace("_", "-"): (value, origin) for key, value in section.items()}


def configuration_files() -> list[str]:
    """Return the folders and files from which Dask reads YAML; later ones override earlier ones."""
    return list(map(str, dask.config.paths))
