"""Defaults from Dask's configuration."""

from __future__ import annotations

import dask

from dkfeat.config import execution


def read_defaults() -> execution.DefaultsConfig:
    """Read the keys under ``dkfeat`` of Dask's configuration: its YAML files, its variables, and `dask.config.set`.

    Raises
    ------
    ConfigError
        For an unknown key or a value of another type.

    Examples
    --------
    >>> import dask
    >>> with dask.config.set({"dkfeat.n-workers": 4}):
    ...     read_defaults().n_workers
    4
    """
    return execution.DefaultsConfig.of_dask(dask.config.get("dkfeat", None))
