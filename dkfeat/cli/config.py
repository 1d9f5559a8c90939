"""``dkfeat config``: the defaults that hold here, and whether files of settings are right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dkfeat.cli._group import DkfeatCommand, DkfeatGroup
from dkfeat.cli._output import as_object, note, output_options
from dkfeat.cli._show import shown

__all__ = ["config"]

ELSE = {
    "scheduler": "threads",
    "n-workers": "one for each core",
    "threads-per-worker": "1",
    "memory-limit": "a worker's share of all memory",
    "in-flight": "twice the threads",
    "blocksize": "64MiB",
    "progress": "true",
}
"""What holds where nothing is set."""


@click.group(cls=DkfeatGroup)
def config() -> None:
    """Show the defaults that hold here; check files of settings.

    Defaults are the keys under `dkfeat` in Dask's configuration, as in the file
    ~/.config/dask/dkfeat.yaml:

      dkfeat:
        n-workers: 4
        memory-limit: 4GiB
        blocksize: 32MiB

    or in variables, DASK_DKFEAT__N_WORKERS=4. What a command line, a job file or
    an argument in Python says counts more. The variable DASK_CONFIG names another
    folder or file.

    For example:
      dkfeat config show
      dkfeat config check conf/nightly.yaml conf/cluster/slurm.yaml
    """


@config.command(cls=DkfeatCommand)
@output_options
def show(as_json: bool) -> None:
    """Show each default, and where it was set.

    For example:
      dkfeat config show
      DASK_DKFEAT__SCHEDULER=tcp://10.0.0.1:8786 dkfeat config show
    """
    from dkfeat.engine.defaults import configuration_files, origins, read_defaults

    values, where = read_defaults().to_mapping(), origins()
    settings = {}
    for name, value in values.items():
        key = name.replace("_", "-")
        settings[key] = {"value": value, "from": where.get(key) if value is not None else None}
    files = configuration_files()
    if as_json:
        as_object({"settings": settings, "places": files})
        return
    processes = any(settings[key]["value"] is not None for key in ("n-workers", "memory-limit"))
    own = ELSE | {"scheduler": "worker processes"} if processes else ELSE
    rows = [("setting", "value", "set by"), *(_row(key, own, **entry) for key, entry in settings.items())]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for key, value, origin in rows:
        click.echo(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {origin}".rstrip())
    note("\nDask reads YAML files in these places, the last counts most; then variables:")
    for path in files:
        note(f"  {path}{'' if Path(path).exists() else '  (not there)'}")


@config.command(cls=DkfeatCommand)
@click.argument("files", nargs=-1, required=True)
@output_options
def check(files: tuple[str, ...], as_json: bool) -> None:
    """Check job files and cluster files, without running anything.

    Keys, types and ranges are checked, and that maps and sources can be made of
    them. No data is read, and nothing is said of paths. The exit status is 2 at
    the first file that is wrong.

    For example:
      dkfeat config check conf/nightly.yaml
      dkfeat config check conf/*.yaml conf/cluster/*.yaml
    """
    for path in files:
        known = _check(path)
        if as_json:
            as_object({"file": path, **known})
        else:
            note(f"{shown(path)}: {_told(known)}")


def _check(path: str) -> dict[str, Any]:
    from dkfeat.cli.build import build_map, build_source, load_job
    from dkfeat.config.cluster import read_cluster
    from dkfeat.config.files import read_yaml
    from dkfeat.errors import ConfigError

    content = read_yaml(path, "a job file or a cluster file")
    try:
        if isinstance(content, Mapping) and "kind" in content:
            return {"kind": "cluster", "cluster": read_cluster(content).kind}
        job = load_job(path)
        for part in job.featurize:
            build_source(part.source)
            if part.map is not None:
                build_map(part.map)
        for source in (*(part.source for part in job.predict), *(part.source for part in job.evaluate)):
            if source is not None:
                build_source(source)
    except ConfigError as error:
        message = str(error) if str(error).startswith(f"{path}: ") else f"{path}: {error}"
        raise ConfigError(message) from None
    runs = {name: len(getattr(job, name)) for name in ("featurize", "predict", "evaluate")}
    return {"kind": "job", "train": int(job.train is not None), **runs}


def _told(known: Mapping[str, Any]) -> str:
    if known["kind"] == "cluster":
        return f"a cluster of kind {known['cluster']}, all right"
    parts = [f"{name} {known[name]}" for name in ("featurize", "train", "predict", "evaluate") if known[name]]
    return f"a job of {', '.join(parts)}, all right" if parts else "a job of nothing, all right"


def _row(key: str, own: Mapping[str, str], **entry: Any) -> tuple[str, str, str]:
    value = entry["value"]
    if value is None:
        return key, own.get(key, "-"), ""
    return key, shown(str(value).lower() if isinstance(value, bool) else str(value)), shown(entry["from"] or "")
