"""Choice of the runner that executes tasks, from a client or from settings."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import fields
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import dask
from dask.utils import parse_timedelta

import dkfeat
from dkfeat.config.execution import ExecutionConfig
from dkfeat.engine.clusters.local import local_cluster, share_cores
from dkfeat.engine.clusters.open import SharedCluster, as_cluster, open_cluster
from dkfeat.engine.resolve.defaults import fill_where
from dkfeat.engine.runners.local import GRAPH_TASKS, Runner, open_local
from dkfeat.errors import ClusterError, ConfigError
from dkfeat.messages import meant
from dkfeat.validation import check_integer

if TYPE_CHECKING:
    from distributed import Client


logger = logging.getLogger(__name__)


def check_report(path: str | PathLike[str]) -> Path:
    """Path of a report that can be made and written.

    Raises
    ------
    ConfigError
        Its folder is not there, it is a folder itself, or bokeh is not installed.
    """
    if not isinstance(path, str | PathLike):
        raise ConfigError(f"performance_report={path!r:.100}, but it must be the path of an HTML file")
    file = Path(fspath(path))
    if file.is_dir() or not file.parent.is_dir():
        problem = "it is a folder" if file.is_dir() else f"there is no folder {file.parent}"
        raise ConfigError(f"performance_report={str(file)!r}, but {problem}; name an HTML file to write")
    if find_spec("bokeh") is None:
        raise ConfigError(
            "a performance report needs bokeh, here and where the scheduler runs; pip install 'dkfeat[dashboard]'"
        )
    return file


@contextmanager
def performance_report(client: Client, path: str | PathLike[str]) -> Iterator[None]:
    """Write Dask's report of what a cluster does in the ``with`` block, one HTML file that needs no network.

    Where the report cannot be made, a warning is logged: it is no reason for a run to fail.
    """
    file = check_report(path)
    start = time.time()
    last_count = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.monitor.count)
    client.get_task_stream(start=0, stop=0)  # from now on the scheduler remembers what ran where
    try:
        yield
    finally:
        _write(client, file, start, last_count)


def _write(client: Client, file: Path, start: float, last_count: int) -> None:
    if client.status != "running":  # then something else is told already
        return
    staged = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        scheduler: Any = client.scheduler
        text = client.sync(
            scheduler.performance_report,
            start=start,
            last_count=last_count,
            code=f"dkfeat {dkfeat.__version__}",
            mode="inline",
        )
        staged.write_text(text, encoding="utf-8")
        staged.replace(file)
    except Exception as error:  # the scheduler may lack bokeh, be lost, or the disk be full
        staged.unlink(missing_ok=True)
        logger.warning("the performance report %s could not be made: %s: %s", file, type(error).__name__, error)


POLL_SECONDS = 0.1


def read_address(path: str | Path) -> str:
    """Read the address of a scheduler that was started with ``dask scheduler --scheduler-file``.

    Where the file is not there yet it is waited for, as long as Dask waits for a connection: scripts start a scheduler
    in the background and go on.

    Raises
    ------
    ClusterError
        The file does not appear.
    ConfigError
        It is no scheduler file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "scheduler.json"
    >>> _ = file.write_text('{"type": "Scheduler", "address": "tcp://10.0.0.1:8786"}')
    >>> read_address(file)
    'tcp://10.0.0.1:8786'
    """
    seconds = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect", "30s"), default="s")
    end = time.monotonic() + seconds
    while not (text := _text(path)):
        if time.monotonic() > end:
            raise ClusterError(
                f"no scheduler wrote {path} within {seconds:g} s; start one by "
                f"`dask scheduler --scheduler-file {path}`, on a file system that this machine sees"
            )
        time.sleep(POLL_SECONDS)
    if not _holds_address(text):  # perhaps half written
        time.sleep(10 * POLL_SECONDS)
        text = _text(path)
    if not _holds_address(text):
        raise ConfigError(
            f"{path} is no scheduler file, as `dask scheduler --scheduler-file` writes them: it holds no address"
        )
    return str(json.loads(text)["address"])


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the scheduler file {path} cannot be read: {error}") from error


def _holds_address(text: str) -> bool:
    try:
        content = json.loads(text)
    except ValueError:
        return False
    address = content.get("address") if isinstance(content, dict) else None
    return isinstance(address, str) and "://" in address


LOCAL = ("threads", "processes", "synchronous")
SCHEDULERS = (*LOCAL, "cluster")
SYNONYMS = {
    "sync": "synchronous",
    "single-threaded": "synchronous",
    "threading": "threads",
    "multiprocessing": "processes",
}
"""Other names that Dask has for its schedulers."""


def open_runner(client: Client | ExecutionConfig | None = None) -> AbstractContextManager[Runner]:
    """Choose where tasks run; it is started for a ``with`` block.

    Parameters
    ----------
    client : distributed.Client, ExecutionConfig or None
        Synchronous client of a running cluster, or the settings of where to run, a cluster to start among them, which
        may be given as a path, a `ClusterConfig` or a `SharedCluster`. None is ``ExecutionConfig()``: the active
        client, else Dask's configuration, else threads of this process.

    Returns
    -------
    opening : context manager
        Gives the `Runner`. Entering raises `ClusterError` if an address does not answer or a cluster does not start.

    Raises
    ------
    ConfigError
        For an unknown scheduler, an asynchronous client, a setting of the wrong type or out of range, or settings that
        do not go together.
    """
    config = client if isinstance(client, ExecutionConfig) else ExecutionConfig()
    given = {item.name: getattr(config, item.name) for item in fields(ExecutionConfig)}
    in_flight, report = given.pop("in_flight"), given.pop("performance_report")
    if in_flight is not None:
        in_flight = check_integer(in_flight, "in_flight", low=1)
    sizes: dict[str, Any] = {name: given.pop(name) for name in ("n_workers", "threads_per_worker", "memory_limit")}
    named = {"client": None if client is config else client, **given}
    where = _resolved_place(named, sizes, in_flight)
    in_flight, sizes = where["in_flight"], {name: where[name] for name in sizes}
    if where["cluster"] is None and where["scheduler_file"] is None and where["client"] is None:
        if where["scheduler"] in LOCAL:
            return _this_machine(where["scheduler"], sizes["n_workers"], in_flight, report)
        if where["scheduler"] == "cluster":
            share_cores(sizes["n_workers"], sizes["threads_per_worker"])
    if report is not None:
        check_report(report)
    shared = where["cluster"]
    if isinstance(shared, SharedCluster):
        return _open_client(shared.opened(), in_flight, report, shared.config.n_threads)
    if shared is not None:
        cluster = as_cluster(shared, **sizes)
        return _open_client(open_cluster(cluster), in_flight, report, cluster.n_threads)
    return _open_client(_opening(where, sizes, profile=report is not None), in_flight, report)


class LazyRunner:
    """A runner that is opened when it is first asked for, so that a run with nothing to do starts no cluster.

    It may be entered again within its own ``with`` block, and is closed at the end of the inner one.

    Parameters
    ----------
    client
        As for `open_runner`, and refused at once as there.
    """

    def __init__(self, client: Client | ExecutionConfig | None) -> None:
        self._opening, self._stack = open_runner(client), ExitStack()
        self._runner: Runner | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def get(self) -> Runner:
        """Open the runner, or give the one that is open."""
        if self._runner is None:
            self._runner = self._stack.enter_context(self._opening)
        return self._runner


def _resolved_place(named: Mapping[str, Any], sizes: Mapping[str, Any], in_flight: int | None) -> dict[str, Any]:
    """Fill in defaults and leave exactly one place; refuse settings that do not go together."""
    given = [name for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are given, but tasks run in one place; choose one")
    unsaid = not given and sizes["n_workers"] is None and sizes["memory_limit"] is None
    where = fill_where(
        {**named, **sizes, "in_flight": in_flight},
        elsewhere=named["client"] is not None or (unsaid and _active_client() is not None),
    )
    if where["cluster"] is not None:
        return where
    if where["scheduler_file"] is not None:
        if any(where[name] is not None for name in sizes):
            raise ConfigError(
                f"{', '.join(sizes)} belong to a cluster that is started, not to one behind a scheduler_file"
            )
        return where
    embedded = where["n_workers"] is not None or where["memory_limit"] is not None
    client, scheduler = _choose(where["client"], where["scheduler"], embedded=embedded)
    if scheduler != "cluster" and (where["threads_per_worker"] is not None or where["memory_limit"] is not None):
        raise ConfigError(
            f"threads_per_worker and memory_limit belong to scheduler='cluster', not to {scheduler or 'a client'!r}"
        )
    return {**where, "client": client, "scheduler": scheduler}


def _this_machine(
    scheduler: str, n_workers: int | None, in_flight: int | None, report: str | PathLike[str] | None
) -> AbstractContextManager[Runner]:
    if report is not None:
        raise ConfigError(
            f"a performance report is made of a cluster, not of {scheduler}; give n_workers, or a scheduler"
        )
    workers, _ = share_cores(1 if scheduler == "synchronous" else n_workers, None)
    return open_local(scheduler, workers, in_flight or GRAPH_TASKS)


def _opening(where: Mapping[str, Any], sizes: Mapping[str, Any], *, profile: bool) -> AbstractContextManager[Client]:
    """Choose what gives a client, once it is entered."""
    if where["client"] is not None:
        return nullcontext(where["client"])
    if where["scheduler"] == "cluster":
        return local_cluster(**sizes, profile=profile)
    return _connection(where["scheduler"], where["scheduler_file"])


@contextmanager
def _connection(scheduler: str | None, scheduler_file: str | PathLike[str] | None) -> Iterator[Client]:
    from dkfeat.engine.runners.distributed import connect

    with connect(scheduler if scheduler is not None else read_address(fspath(scheduler_file or ""))) as client:
        yield client


@contextmanager
def _open_client(
    opening: AbstractContextManager[Client],
    in_flight: int | None,
    report: str | PathLike[str] | None,
    asked_threads: int | None = None,
) -> Iterator[Runner]:
    from dkfeat.engine.runners.distributed import ClientRunner

    with opening as client, nullcontext() if report is None else performance_report(client, report):
        yield ClientRunner(client, in_flight, asked_threads)


def _choose(client: Client | None, scheduler: str | None, *, embedded: bool) -> tuple[Client | None, str | None]:
    if client is None and scheduler is None and not embedded:
        client = _active_client()
    if client is not None:
        if embedded:
            raise ConfigError("n_workers and memory_limit belong to an embedded cluster, not to a client")
        from distributed import Client  # whoever has a client has imported it

        if not isinstance(client, Client):
            raise ConfigError(f"client={client!r:.100}, but it must be a distributed.Client")
        if client.asynchronous:
            raise ConfigError("the client is asynchronous; pass one made with Client(..., asynchronous=False)")
        return client, None
    if scheduler is None and not embedded:
        configured = dask.config.get("scheduler", None)
        scheduler = configured if isinstance(configured, str) else None
    if scheduler is None:
        return None, "cluster" if embedded else "threads"
    name = SYNONYMS.get(scheduler, scheduler) if isinstance(scheduler, str) else ""
    if name not in SCHEDULERS and "://" not in name:
        known = ", ".join(repr(choice) for choice in SCHEDULERS)
        message = f"scheduler={scheduler!r}, but it must be one of {known} or an address such as 'tcp://10.0.0.1:8786'"
        raise ConfigError(message + meant(str(scheduler), SCHEDULERS))
    return None, name


def _active_client() -> Client | None:
    """Client that Dask would use: not one beside which ``dask.config.set(scheduler="threads")`` or the like holds."""
    configured = dask.config.get("scheduler", None)
    is_local = isinstance(configured, str) and SYNONYMS.get(configured, configured) in LOCAL
    if is_local or "distributed" not in sys.modules:  # else nobody can have made a client
        return None
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        return None
