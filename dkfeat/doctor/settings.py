"""The defaults of this user or site: whether they can be read, and what they are."""

from __future__ import annotations

from collections.abc import Iterator

from dkfeat.config.defaults import DefaultsConfig
from dkfeat.doctor.check import Check
from dkfeat.engine.clusters import as_cluster
from dkfeat.engine.defaults import origins, read_defaults
from dkfeat.errors import ConfigError

__all__ = ["check_settings", "default_place"]

NAME = "settings"


def check_settings() -> Iterator[Check]:
    """Look at the keys under ``dkfeat`` of Dask's configuration, and at the cluster file that they name."""
    try:
        defaults = read_defaults()
        if defaults.cluster is not None:
            as_cluster(defaults.cluster)
    except ConfigError as error:
        to_do = "mend it there; `dkfeat config show` shows the places that are read"
        yield Check(name=NAME, state="fail", found=str(error), to_do=to_do, exit_code=error.exit_code)
        return
    places = origins()
    told = [
        f"{key} {value}" + (f" by {places[key]}" if key in places else "")
        for name, value in defaults.to_mapping().items()
        if value is not None and (key := name.replace("_", "-"))
    ]
    yield Check(name=NAME, state="ok", found="; ".join(told) or "no defaults are set")


def default_place() -> tuple[str | None, str | None]:
    """Address of the scheduler, or file that says it, of runs that name none; None where they run on this machine."""
    try:
        defaults = read_defaults()
    except ConfigError:  # `check_settings` tells it
        defaults = DefaultsConfig()
    address = defaults.scheduler
    return (address if address and "://" in address else None), defaults.scheduler_file
