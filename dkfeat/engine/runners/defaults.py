"""Defaults from Dask's configuration."""

from __future__ import annotations

from collections.abc import Mapping

import dask

from dkfeat.config import DefaultsConfig
from dkfeat.config.settings import errors_at


def read_defaults() -> DefaultsConfig:
    """Read the keys under ``dkfeat`` of Dask's configuration: its YAML files, its variables, and `dask.config.set`.

    Raises
    ------
    ConfigError
        For an unknown key, with the nearest known one, or a value of another type.

    Examples
    --------
    >>> import dask
    >>> with dask.config.set({"dkfeat.n-workers": 4}):
    ...     read_defaults().n_workers
    4
    """
    given = dask.config.get("dkfeat", None)
    given = {} if given is None else given
    if isinstance(given, Mapping):
        given = {str(key).replace("-", "_"): value for key, value in given.items()}
    with errors_at("Dask's configuration"):
        return DefaultsConfig.from_mapping(given, place="dkfeat")
