"""Runner on a distributed cluster."""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from distributed import CancelledError, Client, Future, WorkerPlugin, as_completed, get_worker
from distributed.comm.core import CommClosedError
from distributed.protocol.serialize import deserialize_bytes, serialize_bytes
from distributed.scheduler import KilledWorker

import dkfeat
from dkfeat.engine.runners.base import Batches, Homes, Task, run_batch
from dkfeat.engine.runners.defaults import read_defaults
from dkfeat.errors import ClusterError, DkfeatError
from dkfeat.messages import counted, logger_of

if TYPE_CHECKING:
    Numbered = tuple[int, Any]


logger = logger_of(__name__)

BATCH_SECONDS = 0.5
"""Duration to which short splits are joined in one task of the scheduler, whose own cost is some milliseconds."""

MOST_IN_BATCH = 256
"""Maximum number of splits in a batch."""

REFRESH_SECONDS = 2.0
"""Interval for updating the number of threads, which bounds the tasks in flight, and for looking for lost workers."""

POLL_SECONDS = 0.01
"""Interval for polling results while workers are watched."""

NO_WORKER_SECONDS = 600
"""Time that a run waits without any worker unless ``dkfeat.no-worker-seconds`` is set."""

WARN_SECONDS = 60.0
"""Interval of warnings while a run waits without any worker."""

GATHER_SECONDS = 30.0
"""Initial timeout for gathering results, in seconds; doubled after each timeout."""

MOST_GATHERED = 64
"""Maximum number of results of the scheduler's tasks that are gathered at a time, which bounds the driver's memory."""

MOST_TRIES = 10
"""Maximum number of times that a task is sent to workers, some of which are lost meanwhile."""

IDLE_BYTES = 250 << 20
"""Memory of a worker process before its first task, mostly modules and compiled code."""

TERMINATE = 0.95
"""Share of the memory limit at which the nanny terminates a worker."""


class TaskPlugin(WorkerPlugin):
    """Worker plugin that sends a task to every worker of a cluster, also to those that join later.

    The task is not scattered, because scattered data are lost with their last holder, and late workers lack them.
    """

    def __init__(self, name: str, task: Task) -> None:
        self.name, self.task, self.version = name, task, dkfeat.__version__


def run_on_worker(packed: bytes) -> tuple[float, list[Any]]:
    """Run the task of a plugin on a batch of items; return the duration in seconds and the result of each.

    The name of the plugin and the items, the only data that are sent with each call, are pickled separately, because
    a scheduler would unpickle arguments, and be blocked for seconds by the imports that this needs.
    """
    name, items = deserialize_bytes(packed)
    plugins = get_worker().plugins
    plugin: Any = plugins.get(name)
    if plugin is None:
        raise ClusterError(f"this worker has no task of the run {name}, which has ended or was cancelled")
    if plugin.version != dkfeat.__version__:  # a worker that joined after the check of all workers
        raise ClusterError(_other_versions(plugin.version, {get_worker().address: dkfeat.__version__}))
    return run_batch(plugin.task, items, lambda: name not in plugins)


@dataclass(frozen=True, slots=True)
class ClientRunner:
    """The cluster behind a distributed client."""

    client: Client
    in_flight: int | None = None
    expected_threads: int | None = None
    """Final number of threads of a cluster whose workers start one after another."""

    @property
    def description(self) -> str:
        """Number of workers and threads, for display."""
        threads = self.client.nthreads()
        return f"{counted(len(threads), 'worker process')} with {counted(sum(threads.values()), 'thread')}"

    @property
    def memory_limit(self) -> int | None:
        """Memory that a task may use, in bytes: that of the smallest worker without its modules, divided by threads."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        shares = [
            max(0, int(TERMINATE * worker["memory_limit"]) - IDLE_BYTES) // worker["nthreads"]
            for worker in workers
            if worker["memory_limit"]
        ]
        return min(shares, default=None)

    @property
    def n_threads(self) -> int:
        """Number of tasks that run at a time when all workers have started."""
        return self.expected_threads or int(sum(self.client.nthreads().values()))

    def run(
        self, task: Task, items: Sequence[Any], done: Callable[[Any, Any], None], home: Homes | None = None
    ) -> None:
        """See `Runner.run`."""
        name = f"dkfeat-{secrets.token_hex(8)}"
        try:
            if self.client.status != "running":
                raise ClusterError(_lost(f"the client is {self.client.status}"))
            self._check_versions()
            self._register(TaskPlugin(name, task))
            try:
                self._drive(name, list(enumerate(items)), done, home)
            finally:
                # running tasks stop at their next piece when the plugin is removed
                with suppress(OSError, CancelledError):
                    if self.client.status == "running":
                        self.client.unregister_worker_plugin(name)
        except DkfeatError:
            raise
        except (OSError, RuntimeError) as error:
            if isinstance(error, CommClosedError | TimeoutError) or self.client.status != "running":
                raise ClusterError(_lost(error)) from error
            raise

    def _register(self, plugin: TaskPlugin) -> None:
        for tries in range(1, MOST_TRIES + 1):
            try:
                self.client.register_plugin(plugin, name=plugin.name)
                return
            except CommClosedError:  # a worker was lost meanwhile; the others still need the plugin
                if tries == MOST_TRIES or self.client.status != "running":
                    raise

    def run_everywhere(self, function: Callable[[], Any]) -> None:
        """See `Runner.run_everywhere`."""
        with suppress(OSError, CancelledError, TimeoutError):
            if self.client.status == "running":
                self.client.run(function, on_error="ignore")

    def _check_versions(self) -> None:
        versions = {}
        for address, found in self.client.run(_version, on_error="return").items():
            if isinstance(found, ImportError):
                raise ClusterError(
                    f"workers cannot import dkfeat ({found}); install version {dkfeat.__version__} on them"
                ) from found
            if isinstance(found, str):  # else the worker was lost, or raised an error that its tasks will raise, too
                versions[address] = found
        others = {address: found for address, found in versions.items() if found != dkfeat.__version__}
        if others:
            raise ClusterError(_other_versions(dkfeat.__version__, others))

    def _drive(
        self, name: str, items: Sequence[Numbered], done: Callable[[Any, Any], None], home: Homes | None
    ) -> None:
        tasks = _Submissions(self.client, name, home)
        batches = Batches(items, BATCH_SECONDS, MOST_IN_BATCH if home is None else 1)
        window, read = self._window(), time.monotonic()
        try:
            while True:
                if time.monotonic() - read > REFRESH_SECONDS:
                    window, read = self._window(), time.monotonic()
                tasks.submit(batches.take(window - len(tasks.pending), window))
                if not tasks.pending:
                    return
                for batch, seconds, results in tasks.next_results():
                    batches.measured(len(batch), seconds)
                    for (_, item), result in zip(batch, results, strict=True):
                        done(item, result)
        except BaseException:
            with suppress(OSError, CancelledError):
                if self.client.status == "running":
                    self.client.cancel(list(tasks.pending))
            raise

    def _window(self) -> int:
        return self.in_flight or max(2, 2 * sum(self.client.nthreads().values()))


class _Submissions:
    """Submitted batches of a run that are not done, each with its preferred worker, if any.

    A task that prefers a lost worker runs on another one. If there is no other worker at that moment, the scheduler
    never runs the task, even if workers join later: distributed 2026.8 forgets that other workers are allowed
    (``bulk_schedule_unrunnable_after_adding_worker``). Such tasks are submitted again, for any worker.
    """

    def __init__(self, client: Client, name: str, home: Homes | None) -> None:
        self._client, self._name, self._home = client, name, home
        self._no_worker_seconds = read_defaults().no_worker_seconds or NO_WORKER_SECONDS
        self.pending: dict[Future, tuple[Numbered, ...]] = {}
        self._completed = as_completed(loop=client.loop, raise_errors=False)
        self._homes: dict[Any, str] = {}
        self._n_submitted = count()
        self._timeout = GATHER_SECONDS

    def submit(self, batches: Sequence[tuple[Numbered, ...]], *, anywhere: bool = False) -> None:
        """Submit batches, by one message for all of them that prefer the same worker."""
        homes = {} if anywhere or not batches or self._home is None else self._home(self._client.nthreads())
        by_home: defaultdict[str | None, list[tuple[Numbered, ...]]] = defaultdict(list)
        for batch in batches:
            by_home[homes.get(batch[0][0])].append(batch)
        for home, group in by_home.items():
            keys = [f"{self._name}-{next(self._n_submitted):06d}" for _ in group]
            if home is not None:
                self._homes.update(dict.fromkeys(keys, home))
            futures = self._client.map(
                run_on_worker,
                [serialize_bytes((self._name, [item for _, item in batch])) for batch in group],
                key=keys,
                pure=False,
                workers=home,
                allow_other_workers=home is not None,
            )
            self.pending.update(zip(futures, group, strict=True))
            self._completed.update(futures)

    def next_results(self) -> list[tuple[tuple[Numbered, ...], float, list[Any]]]:
        """Wait for results, and remove their batches from the pending ones; of each, return also the duration."""
        while True:
            ready = self._next_futures()
            try:
                values = self._gather([future for future in ready if future.status == "finished"])
            except TimeoutError:  # results are large and the network slow, or a worker is just lost
                self._timeout *= 2
                values = {}
            found = [(self.pending.pop(future), *value) for future, value in values.items()]
            for future in ready:
                if future in values:
                    continue
                if future.status in ("error", "cancelled"):
                    self._handle_error(future)
                else:  # its worker was lost with the result, or the time was too short: it will complete again
                    self._completed.add(future)
            if found:
                return found

    def _gather(self, futures: Sequence[Future]) -> dict[Future, tuple[float, list[Any]]]:
        """Gather results by one message; those of futures that fail meanwhile are left out."""

        async def gather() -> Any:
            named = dict(enumerate(futures))
            return await self._client.gather(named, errors="skip", asynchronous=True)

        values = self._client.sync(gather, callback_timeout=self._timeout) if futures else {}
        return {futures[position]: value for position, value in values.items() if value is not None}

    def _handle_error(self, future: Future) -> None:
        """Raise the error of a batch, unless its splits can be submitted one by one to find the one that fails."""
        batch = self.pending.pop(future)
        try:
            future.result()
        except KilledWorker as error:
            if len(batch) > 1:
                self.submit([(item,) for item in batch])
                return
            raise ClusterError(
                f"{described(batch[0][1])}: {error.allowed_failures + 1} workers died while they ran it, perhaps "
                "because memory ran out; check the workers' logs, raise their memory_limit or lower blocksize (after "
                "`dkfeat abort`, as the batch is planned), and run again"
            ) from error
        except CancelledError as error:
            raise ClusterError(_lost(error)) from error

    def _next_futures(self) -> list[Future]:
        """Wait for futures, as long as there are workers and for a limited time without any."""
        checked = alone = warned = time.monotonic()
        while not self._completed.has_ready():
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            if now - checked <= REFRESH_SECONDS:
                continue
            checked, threads = now, self._client.nthreads()
            if threads:
                alone = warned = now
                self._resubmit(threads)
            elif now - alone > self._no_worker_seconds:
                raise ClusterError(
                    f"{self._awaited(now - alone)}; what is complete is kept: to continue, start workers and run the "
                    "same call again; to wait longer, set dkfeat.no-worker-seconds in Dask's configuration"
                )
            elif now - warned > WARN_SECONDS:
                warned = now
                logger.warning(
                    "%s; the run ends after %g s without any worker",
                    self._awaited(now - alone),
                    self._no_worker_seconds,
                )
        ready: list[Future] = []
        while self._completed.has_ready() and len(ready) < MOST_GATHERED:
            future = next(self._completed)
            if future in self.pending:  # else it was submitted again
                ready.append(future)
        return ready

    def _awaited(self, seconds: float) -> str:
        _, first = min((batch[0] for batch in self.pending.values()), key=lambda item: item[0])
        tasks = counted(len(self.pending), "submitted task")
        return f"the scheduler has had no worker for {seconds:.0f} s; {tasks} wait, such as {described(first)}"

    def _resubmit(self, threads: Mapping[str, int]) -> None:
        """Resubmit tasks whose worker is lost and that no other worker runs."""
        homes = self._homes
        lost = [future for future in self.pending if future.key in homes and homes[future.key] not in threads]
        running = {key for keys in self._client.processing().values() for key in keys} if lost else set()
        for future in lost:
            if future.key in running or future.status in ("finished", "error"):
                continue
            self.submit([self.pending.pop(future)], anywhere=True)
            self._client.cancel([future])


def described(item: Any) -> str:
    """Describe an item, for messages: by its own ``description``, if it has one."""
    return str(getattr(item, "description", item))


def _version() -> str:
    return dkfeat.__version__


def _other_versions(driver: str, workers: dict[str, str]) -> str:
    some = ", ".join(f"{version} on {address}" for address, version in list(workers.items())[:3])
    return f"the driver runs dkfeat {driver}, but workers run another version: {some}; install the same on all"


def _lost(error: BaseException | str) -> str:
    return (
        f"the Dask scheduler was lost or cancelled the run ({error}); committed data are kept; "
        "to continue, run the same call again on a running cluster"
    )
