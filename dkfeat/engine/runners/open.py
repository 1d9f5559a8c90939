"""Choice of the runner that executes tasks, from a client or from settings."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import dask
from dask.utils import parse_timedelta

import dkfeat
from dkfeat.config.execution import SCHEDULERS, ExecutionConfig
from dkfeat.config.settings import errors_at, read_text
from dkfeat.engine.clusters.local import check_memory, local_cluster, share_cores
from dkfeat.engine.clusters.open import SharedCluster, as_cluster, open_cluster
from dkfeat.engine.runners.defaults import read_defaults
from dkfeat.engine.runners.local import GRAPH_TASKS, Runner, open_local
from dkfeat.errors import ClusterError, ConfigError
from dkfeat.html import MARK
from dkfeat.messages import meant
from dkfeat.store.outputs import check_outputs, write_output
from dkfeat.validation import check_integer

if TYPE_CHECKING:
    from distributed import Client


logger = logging.getLogger(__name__)


def check_report(path: str | PathLike[str]) -> Path:
    """Check that a performance report can be made and written to this path.

    Raises
    ------
    ConfigError
        If the folder of the file is missing, the path is a folder, the file may not be replaced, or bokeh is not
        installed.
    """
    if not isinstance(path, str | PathLike):
        raise ConfigError(f"performance_report={path!r:.100}, but it must be the path of an HTML file")
    file = Path(fspath(path))
    if file.is_dir() or not file.parent.is_dir():
        problem = "it is a folder" if file.is_dir() else f"there is no folder {file.parent}"
        raise ConfigError(f"performance_report={str(file)!r}, but {problem}; name an HTML file to write")
    with errors_at("performance_report"):
        (file,) = check_outputs([file])
    if find_spec("bokeh") is None:
        raise ConfigError(
            "a performance report needs bokeh, here and where the scheduler runs; pip install 'dkfeat[dashboard]'"
        )
    return file


@contextmanager
def performance_report(client: Client, path: str | PathLike[str]) -> Iterator[None]:
    """Write Dask's report of what a cluster does in the ``with`` block, one HTML file that needs no network.

    If the report cannot be made, a warning is logged and the run continues.
    """
    file = check_report(path)
    start = time.time()
    last_count = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.monitor.count)
    client.get_task_stream(start=0, stop=0)  # makes the scheduler record tasks from now on
    try:
        yield
    finally:
        _write(client, file, start, last_count)


def _write(client: Client, file: Path, start: float, last_count: int) -> None:
    if client.status != "running":  # another error is being raised
        return
    try:
        scheduler: Any = client.scheduler
        text = client.sync(
            scheduler.performance_report,
            start=start,
            last_count=last_count,
            code=f"dkfeat {dkfeat.__version__}",
            mode="inline",
        )
        write_output(file, text.replace("<head>", f"<head>\n{MARK}", 1))
    except Exception as error:  # the scheduler may lack bokeh, be lost, or the disk be full
        logger.warning("the performance report %s could not be made: %s: %s", file, type(error).__name__, error)


POLL_SECONDS = 0.1
QUIET_SECONDS = 2.0
"""Seconds after which a wait for a scheduler file is reported."""


def read_address(path: str | Path) -> str:
    """Read the address of a scheduler that was started with ``dask scheduler --scheduler-file``.

    A missing or empty file is waited for, up to Dask's connection timeout, because scripts often start a scheduler in
    the background just before; a warning reports the wait.

    Raises
    ------
    ClusterError
        If the file does not appear.
    ConfigError
        If it cannot be read, or is not a scheduler file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "scheduler.json"
    >>> _ = file.write_text('{"type": "Scheduler", "address": "tcp://10.0.0.1:8786"}')
    >>> read_address(file)
    'tcp://10.0.0.1:8786'
    """
    seconds = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect", "30s"), default="s")
    begin, reported = time.monotonic(), False
    while (address := _address_in(path)) == "":
        waited = time.monotonic() - begin
        if not reported and waited > QUIET_SECONDS:
            reported = True
            logger.warning("waiting for up to %g s for a scheduler to write %s", seconds, path)
        if waited > seconds:
            raise ClusterError(
                f"no scheduler wrote {path} within {seconds:g} s; start one by "
                f"`dask scheduler --scheduler-file {path}`, on a file system that this machine sees"
            )
        time.sleep(POLL_SECONDS)
    if address is None:  # the file may be incomplete
        time.sleep(10 * POLL_SECONDS)
        address = _address_in(path)
    if not address:
        raise ConfigError(
            f"{path} is no scheduler file, as `dask scheduler --scheduler-file` writes them: it holds no address"
        )
    return address


def _address_in(path: str | Path) -> str | None:
    """Read the address in a scheduler file; "" if the file is missing or empty, None if it holds no address."""
    try:
        text = read_text(path, "a scheduler file")
    except ConfigError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return ""
        raise
    if not text:
        return ""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    address = content.get("address") if isinstance(content, dict) else None
    return address if isinstance(address, str) and "://" in address else None


*LOCAL, _ = SCHEDULERS
SYNONYMS = {
    "sync": "synchronous",
    "single-threaded": "synchronous",
    "threading": "threads",
    "multiprocessing": "processes",
}
"""Dask's other names of its schedulers."""
WHERE_OPTIONS, SIZES = ("scheduler", "scheduler_file", "cluster"), ("n_workers", "threads_per_worker", "memory_limit")
"""Settings that choose where tasks run, at most one of which may be given, and the size of a cluster to start."""


def open_runner(client: Client | ExecutionConfig | None = None) -> AbstractContextManager[Runner]:
    """Choose where tasks run, and start the runner for a ``with`` block.

    Parameters
    ----------
    client : distributed.Client, ExecutionConfig or None
        Synchronous client of a running cluster, or execution settings, whose cluster to start may be a path, a
        `ClusterConfig` or a `SharedCluster`. None is ``ExecutionConfig()``: the active client, else Dask's
        configuration, else threads of this process.

    Returns
    -------
    opening : context manager
        Yields the `Runner`. Entering raises `ClusterError` if no scheduler responds or a cluster does not start.

    Raises
    ------
    ConfigError
        For an unknown scheduler, an asynchronous client, a setting of the wrong type or out of range, or settings that
        exclude each other.
    """
    run = client if isinstance(client, ExecutionConfig) else ExecutionConfig()
    client = None if isinstance(client, ExecutionConfig) else client
    if run.in_flight is not None:
        check_integer(run.in_flight, "in_flight", low=1)
    given = [name for name in WHERE_OPTIONS if getattr(run, name) is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are given, but a run has one scheduler; choose one")
    if client is None and not given and run.n_workers is None and run.memory_limit is None:
        client = _active_client()
    run = fill_where(run, elsewhere=client is not None)
    sizes = {name: getattr(run, name) for name in SIZES}
    cluster: Any = run.cluster
    n_threads = None
    opening: AbstractContextManager[Client]
    if client is not None:
        _check_client(client)
        _check_sizes(run, "a client")
        opening = nullcontext(client)
    elif isinstance(cluster, SharedCluster):
        opening, n_threads = cluster.opened(), cluster.config.n_threads
    elif cluster is not None:
        config = as_cluster(cluster, **sizes)
        opening, n_threads = open_cluster(config), config.n_threads
    elif run.scheduler_file is not None:
        if any(value is not None for value in sizes.values()):
            raise ConfigError(
                f"{', '.join(SIZES)} belong to a cluster that is started, not to one behind a scheduler_file"
            )
        opening = _connection(None, run.scheduler_file)
    elif (scheduler := _scheduler(run)) == "cluster":
        share_cores(run.n_workers, run.threads_per_worker)  # checks the sizes before anything starts
        check_memory(run.memory_limit)
        opening = local_cluster(**sizes, profile=run.performance_report is not None)
    else:
        _check_sizes(run, scheduler)
        if scheduler in LOCAL:
            return _this_machine(scheduler, run)
        opening = _connection(scheduler)
    if run.performance_report is not None:
        check_report(run.performance_report)
    return _open_client(opening, run, n_threads)


def fill_where(run: ExecutionConfig, *, elsewhere: bool) -> ExecutionConfig:
    """Fill in omitted settings from Dask's configuration.

    The configured scheduler or cluster is used only if no setting determines where tasks run. The configured number and
    size of workers apply only to workers of this machine, not to a running cluster or to one with a cluster file.

    Parameters
    ----------
    run : ExecutionConfig
        Settings; None stands for an omitted one.
    elsewhere : bool
        True if tasks run on an existing client; then only `in_flight` is filled in.
    """
    defaults = read_defaults()
    if not elsewhere and all(getattr(run, name) is None for name in (*WHERE_OPTIONS, "n_workers", "memory_limit")):
        run = replace(run, **{name: getattr(defaults, name) for name in WHERE_OPTIONS})
    names = ["in_flight"]
    if not elsewhere and run.scheduler_file is None and run.cluster is None:
        if run.scheduler in (None, "cluster"):
            names += SIZES
        elif run.scheduler in ("threads", "processes"):
            names.append("n_workers")
    return replace(run, **{name: getattr(defaults, name) for name in names if getattr(run, name) is None})


class LazyRunner:
    """Runner that is opened at its first use, so that a run without tasks starts no cluster.

    It may be entered again within its own ``with`` block, and is closed at the end of the inner block.

    Parameters
    ----------
    client
        See `open_runner`; it is checked at once. Or a runner that is open, and that stays open until its own ``with``
        block ends.
    """

    def __init__(self, client: Client | ExecutionConfig | Runner | None) -> None:
        self._runner: Any = client if hasattr(client, "run_everywhere") else None
        self._opening: Any = None if self._runner is not None else open_runner(client)  # type: ignore[arg-type]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def get(self) -> Runner:
        """Open the runner, or return the one that is open."""
        if self._runner is None:
            self._runner = self._stack.enter_context(self._opening)
        runner: Runner = self._runner
        return runner


def _this_machine(scheduler: str, run: ExecutionConfig) -> AbstractContextManager[Runner]:
    if run.performance_report is not None:
        raise ConfigError(
            f"a performance report is made of a cluster, not of {scheduler}; give n_workers, or a scheduler"
        )
    workers, _ = share_cores(1 if scheduler == "synchronous" else run.n_workers, None)
    return open_local(scheduler, workers, run.in_flight or GRAPH_TASKS)


@contextmanager
def _connection(scheduler: str | None, scheduler_file: str | PathLike[str] = "") -> Iterator[Client]:
    from dkfeat.engine.runners.connect import connect

    with connect(read_address(fspath(scheduler_file)) if scheduler is None else scheduler) as client:
        yield client


@contextmanager
def _open_client(
    opening: AbstractContextManager[Client], run: ExecutionConfig, n_threads: int | None
) -> Iterator[Runner]:
    from dkfeat.engine.runners.distributed import ClientRunner

    report = run.performance_report
    with opening as client, nullcontext() if report is None else performance_report(client, report):
        yield ClientRunner(client, run.in_flight, n_threads)


def _check_client(client: object) -> None:
    from distributed import Client  # already imported by the owner of the client

    if not isinstance(client, Client):
        raise ConfigError(f"client={client!r:.100}, but it must be a distributed.Client")
    if client.asynchronous:
        raise ConfigError("the client is asynchronous; pass one made with Client(..., asynchronous=False)")


def _check_sizes(run: ExecutionConfig, where: str) -> None:
    if run.threads_per_worker is not None or run.memory_limit is not None:
        raise ConfigError(f"threads_per_worker and memory_limit belong to scheduler='cluster', not to {where!r}")


def _scheduler(run: ExecutionConfig) -> str:
    """Return the name or address of the scheduler for settings without a running cluster."""
    scheduler: Any = run.scheduler
    if scheduler is None and (run.n_workers is not None or run.memory_limit is not None):
        return "cluster"
    if scheduler is None:
        configured = dask.config.get("scheduler", None)
        scheduler = configured if isinstance(configured, str) else "threads"
    name = SYNONYMS.get(scheduler, scheduler) if isinstance(scheduler, str) else ""
    if name not in SCHEDULERS and "://" not in name:
        choices = ", ".join(repr(choice) for choice in SCHEDULERS)
        message = (
            f"scheduler={scheduler!r}, but it must be one of {choices} or an address such as 'tcp://10.0.0.1:8786'"
        )
        raise ConfigError(message + meant(str(scheduler), SCHEDULERS))
    return name


def _active_client() -> Client | None:
    """Return the client that Dask would use; None if, for example, ``dask.config.set(scheduler="threads")`` is set."""
    configured = dask.config.get("scheduler", None)
    is_local = isinstance(configured, str) and SYNONYMS.get(configured, configured) in LOCAL
    if is_local or "distributed" not in sys.modules:  # without this import there is no client
        return None
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        return None
