"""Defaults from Dask's configuration, and the origin of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import dask

from dkfeat.config import execution

NAMESPACE = "dkfeat"
VARIABLES = "DASK_DKFEAT__"
"""Prefix of the environment variables that set a key, such as ``DASK_DKFEAT__N_WORKERS=4``."""
INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"
"""Variable with which Dask passes its configuration to processes that it starts."""


def read_defaults() -> execution.DefaultsConfig:
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
    return execution.DefaultsConfig.of_dask(dask.config.get(NAMESPACE, None), lambda key: origins().get(key, ""))


def origins() -> dict[str, str]:
    """Return the origin of each key that is set: a file, an environment variable, or this process.

    The empty key stands for the whole of ``dkfeat``.
    """
    files = dask.config.collect_yaml(dask.config.paths, return_paths=True)
    sources = [(content, str(path)) for path, content in files]
    if INHERITED in os.environ:
        sources.append((dask.config.deserialize(os.environ[INHERITED]), "the process that started this one"))
    variables = {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}
    for name, value in variables.items():
        sources.append((dask.config.collect_env({name: value}), f"environment variable {name}"))
    found: dict[str, tuple[Any, str]] = {}
    for content, origin in sources:
        found |= {key: (value, origin) for key, value in _keys(content).items()}
    now = _keys({NAMESPACE: dask.config.get(NAMESPACE, None)})
    return {key: found[key][1] if found.get(key, ())[:1] == (now[key],) else "this process" for key in now}


def _keys(content: Any) -> dict[str, Any]:
    """Return the values below ``dkfeat`` by their keys, and the whole section by the empty key."""
    if not isinstance(content, Mapping) or NAMESPACE not in content:
        return {}
    section = content[NAMESPACE]
    keys = section if isinstance(section, Mapping) else {}
    return {"": section, **{str(key).replace("_", "-"): value for key, value in keys.items()}}
