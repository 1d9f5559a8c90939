"""Job files: what they hold, and how their YAML is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dkfeat.config.defaults import DefaultsConfig
from dkfeat.config.featurize import FeaturizeConfig
from dkfeat.config.files import read_yaml
from dkfeat.config.predict import EvaluateConfig, PredictConfig
from dkfeat.config.settings import Settings, at_least
from dkfeat.config.train import TrainConfig
from dkfeat.errors import ConfigError

__all__ = ["JobConfig", "RunConfig", "load_config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig(Settings):
    """Where and how tasks run; nothing here changes a byte of the result."""

    scheduler: str | None = None
    """"threads", "processes", "synchronous", "cluster" (an embedded one) or an address. Left out: worker processes if
    `n_workers` or `memory_limit` is given, else what Dask is set to, else threads of this process."""
    scheduler_file: str | None = None
    """In its place: what `dask scheduler --scheduler-file` wrote."""
    cluster: str | None = None
    """In its place: file of a cluster that is started for the job, such as those of conf/cluster; the three settings
    below then stand in place of what it says."""
    n_workers: int | None = None
    """Threads or worker processes, by the scheduler, at least 1; left out: one for each core."""
    threads_per_worker: int | None = None
    """Threads in each worker, at least 1."""
    memory_limit: int | str | None = None
    """Bytes a worker process may hold; None: its share of the machine's memory."""
    in_flight: int | None = None
    """Tasks handed to the scheduler at a time, at least 1."""
    performance_report: str | None = None
    """HTML file for Dask's report of what the cluster did."""
    resume: bool = True
    """Go on with an interrupted run."""
    break_lock: str | None = None
    """Id of the run whose lock is to be taken over."""
    progress: bool = True
    """Report progress on standard error."""

    def __post_init__(self) -> None:
        for name in ("n_workers", "threads_per_worker", "in_flight"):
            value = getattr(self, name)
            if value is not None:
                at_least(name, value, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig(Settings):
    """What a job file holds: runs of featurize in order, training, predictions and evaluations, and where to run them.

    Examples
    --------
    >>> job = JobConfig.from_mapping({"featurize": [
    ...     {"source": {"urlpath": "day1.svm"}, "map": {"name": "gcws", "seed": 0}, "out": "features"}]})
    >>> job.featurize[0].map.params
    {'random_state': 0}
    >>> JobConfig.from_mapping({"featurise": []})
    Traceback (most recent call last):
    dkfeat.errors.ConfigError: featurise: unknown key; did you mean 'featurize'?
    """

    featurize: tuple[FeaturizeConfig, ...] = ()
    """Runs of featurize, in order."""
    train: TrainConfig | None = None
    """Training, after all of them."""
    predict: tuple[PredictConfig, ...] = ()
    """Runs of predict, in order."""
    evaluate: tuple[EvaluateConfig, ...] = ()
    """Runs of evaluate, in order."""
    run: RunConfig = field(default_factory=RunConfig)
    """Where and how tasks run."""


def load_config(path: str | Path, needs: str | None = None, defaults: DefaultsConfig | None = None) -> JobConfig:
    """Read a job file.

    Parameters
    ----------
    path : str or Path
        YAML of plain values.
    needs : str, optional
        Part that must be there, such as "featurize".
    defaults : DefaultsConfig, optional
        Says whether progress is reported where the file does not. All else is settled when tasks run.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not YAML of plain values, repeats a key, lacks the part, or holds settings that
        `JobConfig.from_mapping` refuses. The text starts with the file's name.
    """
    content = read_yaml(path, "a job file")
    try:
        job = JobConfig.from_mapping(content if defaults is None else _filled(content, defaults))
    except ConfigError as error:
        message = f"{path}: {error}"
        raise ConfigError(message) from None
    if needs is not None and not getattr(job, needs):
        message = f"{path}: lists nothing under `{needs}`"
        raise ConfigError(message)
    return job


def _filled(content: Any, defaults: DefaultsConfig) -> Any:
    """Fill in what plain values leave out; values of a wrong type are left for those who read them strictly."""
    if not isinstance(content, Mapping):
        return content
    filled = dict(content)
    if defaults.progress is not None and isinstance(filled.get("run", {}), Mapping):
        filled["run"] = {"progress": defaults.progress, **filled.get("run", {})}
    return filled
