"""Settings of where tasks run, and defaults of a user or a site, the keys under ``dkfeat`` in Dask's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from dkfeat.config.settings import Positive, Settings
from dkfeat.errors import ConfigError
from dkfeat.messages import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig(Settings):
    """Scheduler and workers of a run.

    At most one of `scheduler`, `scheduler_file` and `cluster` is given. Without any of them, the first of these that
    applies: worker processes, if `n_workers` or `memory_limit` is given; the active `distributed.Client`; Dask's
    configuration; threads of this process.
    """

    scheduler: str | None = None
    """Scheduler: threads, processes, synchronous, cluster (worker processes of this run) or an address. Left out:
    worker processes if their number or memory is given, else threads of this process."""
    scheduler_file: str | None = None
    """File of a running scheduler, written by ``dask scheduler --scheduler-file``."""
    cluster: str | None = None
    """File of a cluster to start, such as those of conf/cluster for SLURM, Kubernetes and SSH; the numbers below
    replace those of the file."""
    n_workers: Positive | None = None
    """Number of threads or worker processes. Left out: one for each core."""
    threads_per_worker: Positive | None = None
    """Threads in each worker process."""
    memory_limit: int | str | None = None
    """Memory of each worker process, as in 4GiB. Left out: an equal share of the machine's."""
    in_flight: Positive | None = None
    """Tasks submitted to the scheduler at a time. Left out: twice the threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionConfig(PlacementConfig):
    """Where tasks run; nothing here changes a byte of the result."""

    performance_report: str | None = None
    """HTML file for Dask's report of what the cluster did."""

    @classmethod
    def gather(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the options that are fields of this class by one, `client`.

        Examples
        --------
        >>> ExecutionConfig.gather({"resume": True, "n_workers": None})
        {'client': None, 'resume': True}
        """
        names = [item.name for item in fields(cls)]
        given = {name: options[name] for name in names if options.get(name) is not None}
        others = {name: value for name, value in options.items() if name not in names}
        return {"client": cls(**given) if given else None, **others}


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultsConfig(PlacementConfig):
    """Settings that hold where no command line, job file or argument says otherwise."""

    blocksize: int | str | None = None
    """Bytes of text, or of Parquet rows in memory, that a task reads at a time; for new data sets."""
    progress: bool | None = None
    """Report progress on standard error; for commands and job files."""

    def __post_init__(self) -> None:
        given = [name for name in ("scheduler", "scheduler_file", "cluster") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(map(_dashed, given))} are given, but tasks run in one place; set one")
        Settings.__post_init__(self)

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Names of the settings as Dask's configuration has them, with dashes."""
        return tuple(_dashed(item.name) for item in fields(cls))

    @classmethod
    def of_dask(cls, mapping: Any, origin: Callable[[str], str] = lambda key: "") -> Self:  # noqa: ARG005 - no more is known
        """Read the keys under ``dkfeat`` of Dask's configuration, with dashes or underscores.

        Parameters
        ----------
        mapping : mapping of str to plain values
            None counts as empty.
        origin : callable
            Gives the place where a key was set, for an error; "" if it is not known.

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

        def refuse(message: str, key: str) -> ConfigError:
            place = origin(key)
            return ConfigError(f"{message} (set by {place})" if place else message)

        if not isinstance(mapping, Mapping | None):
            raise refuse(f"dkfeat: expected keys and values in Dask's configuration, got {mapping!r:.100}", "")
        values, known = {}, cls.keys()
        for key, value in (mapping or {}).items():
            dashed = _dashed(str(key))
            name = dashed.replace("-", "_")
            if dashed not in known:
                hint = nearest(dashed, known, "keys")
                raise refuse(f"dkfeat.{key}: unknown key in Dask's configuration; {hint}", dashed)
            try:
                cls.from_mapping({name: value})
            except ConfigError as error:
                raise refuse(f"dkfeat.{str(error).replace(name, dashed)}", dashed) from None
            values[name] = value
        return cls.from_mapping(values, place="dkfeat in Dask's configuration")


def _dashed(name: str) -> str:
    return name.replace("_", "-")
