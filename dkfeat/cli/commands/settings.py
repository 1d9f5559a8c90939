"""``dkfeat doctor`` and ``config``: the machine, and settings files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.declared import option_of
from dkfeat.cli.group import DkfeatCommand, DkfeatGroup, heading
from dkfeat.cli.options import output_options
from dkfeat.cli.output import echo, is_quiet, note, print_result
from dkfeat.config import ExecutionConfig
from dkfeat.messages import printable

if TYPE_CHECKING:
    from dkfeat.doctor import Check, State


COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
WIDEST_NAME = len("compiled loops ")


@click.command(cls=DkfeatCommand)
@heading("Scheduler")
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Check this Dask scheduler and its workers. Left out: the default of Dask's configuration.",
)
@option_of(ExecutionConfig, "scheduler_file", metavar="FILE")
@output_options
@click.pass_context
def doctor(ctx: click.Context, /, **options: Any) -> None:
    """Check this machine or a cluster, and suggest remedies.

    Each line is ok, warn (runs work, but slower or less safely) or fail (runs end
    with an error). The exit status is that of this error, otherwise 0. Loops are
    compiled if their cache is empty, which takes a while. A scheduler is checked
    with a small task on each worker. A target is checked by each run.

    For example:
      dkfeat doctor
      dkfeat doctor --scheduler tcp://10.0.0.1:8786
    """
    if options["scheduler"] and options["scheduler_file"]:
        raise click.UsageError("--scheduler and --scheduler-file name a scheduler each; give one of them", ctx)
    found: list[Check] = []
    for check in _checks(**options):
        found.append(check)
        if check.state != "ok" or not is_quiet():
            _show(check)
    failed = [check for check in found if check.state == "fail"]
    worst = max((check.state for check in found), key=list(COLOURS).index)
    print_result({"state": worst, "checks": [asdict(check) for check in found]})
    counts = Counter(check.state for check in found)
    note(", ".join(f"{counts[state]} {state}" for state in COLOURS if counts[state]))
    if failed:
        ctx.exit(failed[0].exit_code)


def _checks(scheduler: str | None, scheduler_file: str | None) -> Iterator[Check]:
    """Run the checks in order; a failed import gives a check that fails, the last one."""
    from dkfeat.doctor import Check

    try:
        from dkfeat.doctor.checks import check_cluster, check_machine

        yield from check_machine()
        yield from check_cluster(scheduler, scheduler_file)
    except ImportError as error:
        to_do = f"in a clone of dkfeat's repository: {sys.executable} -m pip install --force-reinstall ."
        yield Check("import", "fail", str(error), to_do, exit_code=2)


def _show(check: Check) -> None:
    state = click.style(f"{check.state:<4}", fg=COLOURS[check.state], bold=check.state != "ok")
    echo(f"{state}  {check.name:<{WIDEST_NAME}}  {printable(check.found)}", raw=True)
    if check.to_do:
        echo(f"{'':<{WIDEST_NAME + 6}}  → {check.to_do}")


@click.group(cls=DkfeatGroup)
def config() -> None:
    """Check settings files.

    Defaults are the keys under `dkfeat` in Dask's configuration, as in the file
    ~/.config/dask/dkfeat.yaml:

      dkfeat:
        n-workers: 4
        memory-limit: 4GiB

    or environment variables, as in DASK_DKFEAT__N_WORKERS=4. Command lines, job
    files and arguments in Python override them. The variable DASK_CONFIG names
    another folder or file. `dask config get dkfeat` shows the values.

    For example:
      dkfeat config check conf/nightly.yaml conf/cluster/slurm.yaml
    """


@config.command(cls=DkfeatCommand)
@click.argument("files", nargs=-1, required=True)
@output_options
def check(files: tuple[str, ...]) -> None:
    """Check job files and cluster files, without running anything.

    Keys, types and ranges are checked, and maps and sources are constructed. No
    data is read, and no path is looked up. The command ends with status 2 at the
    first invalid file.

    For example:
      dkfeat config check conf/nightly.yaml
      dkfeat config check conf/*.yaml conf/cluster/*.yaml
    """
    for path in files:
        record, text = _check(path)
        print_result({"file": path, **record})
        note(f"{path}: {text}")


def _check(path: str) -> tuple[dict[str, Any], str]:
    from dkfeat.cli.commands.run import SECTIONS, load_job
    from dkfeat.config.execution import read_cluster
    from dkfeat.config.settings import errors_at, read_yaml
    from dkfeat.engine.clusters.local import check_memory

    content = read_yaml(path, "a job file or a cluster file")
    with errors_at(path):
        if isinstance(content, Mapping) and "kind" in content:
            cluster = read_cluster(content)
            check_memory(cluster.memory_limit)
            return {"kind": "cluster", "cluster": cluster.kind}, f"valid cluster file of kind {cluster.kind}"
        job = load_job(path)
        check_memory(job.run.memory_limit)
    parts = {name: getattr(job, name) for name in SECTIONS}
    counts = {name: len(part) if isinstance(part, tuple) else int(part is not None) for name, part in parts.items()}
    listed = ", ".join(f"{name} {n}" for name, n in counts.items() if n)
    return {"kind": "job", **counts}, f"valid job file with {listed}" if listed else "valid job file without steps"
