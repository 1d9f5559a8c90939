"""Defaults of a user or a site: the keys under ``dkfeat`` in Dask's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from dkfeat.config.settings import Settings, at_least
from dkfeat.errors import ConfigError
from dkfeat.wording import nearest

__all__ = ["DefaultsConfig"]

PLACES = ("scheduler", "scheduler_file", "cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultsConfig(Settings):
    """What holds where neither a command line, a job file nor an argument says otherwise."""

    scheduler: str | None = None
    """Where tasks run, as `RunConfig.scheduler`."""
    scheduler_file: str | None = None
    """In its place: what ``dask scheduler --scheduler-file`` wrote."""
    cluster: str | None = None
    """In its place: file of a cluster that is started for each run."""
    n_workers: int | None = None
    """Threads or worker processes on this machine, at least 1."""
    threads_per_worker: int | None = None
    """Threads in each worker process on this machine, at least 1."""
    memory_limit: int | str | None = None
    """Bytes that a worker process on this machine may hold."""
    in_flight: int | None = None
    """Tasks handed to the scheduler at a time, at least 1."""
    blocksize: int | str | None = None
    """Text, or rows of Parquet in memory, that a task reads at a time; for data sets that are new."""
    progress: bool | None = None
    """Whether progress is reported; for commands and job files."""

    def __post_init__(self) -> None:
        places = [name for name in PLACES if getattr(self, name) is not None]
        if len(places) > 1:
            message = f"{' and '.join(map(_dashed, places))} are given, but tasks run in one place; set one"
            raise ConfigError(message)
        for name in ("n_workers", "threads_per_worker", "in_flight"):
            value = getattr(self, name)
            if value is not None:
                at_least(name, value, 1)

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Names of the settings as Dask's configuration has them, with dashes."""
        return tuple(_dashed(item.name) for item in fields(cls))

    @classmethod
    def of_dask(cls, mapping: Any, origin: Callable[[str], str] = lambda key: "") -> Self:  # noqa: ARG005 - no more is known
        """Read what stands under ``dkfeat`` in Dask's configuration, with dashes or underscores.

        Parameters
        ----------
        mapping : mapping of str to plain values
            None counts as empty.
        origin : callable
            Tells, for an error, where a key was set; "" if that is not known.

        Raises
        ------
        ConfigError
            For an unknown key, with the nearest known one, or a value of another type.

        Examples
        --------
        >>> DefaultsConfig.of_dask({"n-workers": 4}).n_workers
        4
        >>> DefaultsConfig.of_dask({"memory-limt": "4GiB"})
        Traceback (most recent call last):
        dkfeat.errors.ConfigError: dkfeat.memory-limt: unknown key in Dask's configuration; did you mean 'memory-limit'?
        """
        if not isinstance(mapping, Mapping | None):
            message = f"dkfeat: expected keys and values in Dask's configuration, got {mapping!r:.100}"
            raise ConfigError(message + _said(origin("")))
        values, known = {}, cls.keys()
        for key, value in (mapping or {}).items():
            name = _dashed(str(key))
            if name not in known:
                message = f"dkfeat.{key}: unknown key in Dask's configuration; {nearest(name, known, 'keys')}"
                raise ConfigError(message + _said(origin(name)))
            try:
                cls.from_mapping({name.replace("-", "_"): value})
            except ConfigError as error:
                message = f"dkfeat.{str(error).replace(name.replace('-', '_'), name)}"
                raise ConfigError(message + _said(origin(name))) from None
            values[name.replace("-", "_")] = value
        return cls.from_mapping(values, place="dkfeat in Dask's configuration")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _said(origin: str) -> str:
    return f" (set by {origin})" if origin else ""
