"""Runner on a distributed cluster."""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from distributed import CancelledError, Client, Future, WorkerPlugin, as_completed, get_worker
from distributed.comm.core import CommClosedError
from distributed.protocol.pickle import dumps
from distributed.protocol.serialize import deserialize_bytes, serialize_bytes
from distributed.scheduler import KilledWorker, heartbeat_interval

import dkfeat
from dkfeat.config.settings import errors_at
from dkfeat.engine.clusters.local import check_memory
from dkfeat.engine.runners.base import Batches, Homes, Task, run_batch
from dkfeat.engine.runners.defaults import read_defaults
from dkfeat.errors import ClusterError, DkfeatError
from dkfeat.messages import counted, logger_of, show_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbered = tuple[int, Any]


logger = logger_of(__name__)

BATCH_SECONDS = 0.5
"""Duration to which short splits are joined in one task of the scheduler, whose own cost is some milliseconds."""

MOST_IN_BATCH = 256
"""Maximum number of splits in a batch."""

REFRESH_SECONDS = 2.0
"""Interval for updating the number of threads, which bounds the tasks in flight, and for looking for lost and silent
workers; on many workers it is longer."""

POLL_SECONDS = 0.01
"""Interval for polling results while workers are watched."""

NO_WORKER_SECONDS = 600
"""Time that a run waits without any worker unless ``dkfeat.no-worker-seconds`` is set."""

WARN_SECONDS = 10.0
"""Time after which a run warns that no worker can run its tasks; doubled after each warning."""

MOST_LOSSES = 10
"""Number of times that each worker, on average, may be lost or restarted while no task ends."""

SILENT_SECONDS = 30.0
"""Time without a heartbeat, counted from the newest one of all workers, after which other workers get the tasks."""

ANSWER_SECONDS, SHORT_SECONDS = 0.5, 0.05
"""Time that a run waits for answers of all workers, one of which may hang; and if one is known to hang."""

PLUGIN_SECONDS = 10.0
"""Time that a task waits for the plugin of its run, and the driver for the answer of a worker that lacked it."""

MOST_TRIES = 10
"""Maximum number of times that a run sends its plugin again to a worker that lacks it."""

GATHER_SECONDS = 40.0
"""Initial timeout for gathering results, in seconds; doubled after each timeout."""

MOST_GATHERED = 64
"""Maximum number of results of the scheduler's tasks that are gathered at a time, which bounds the driver's memory."""

IDLE_BYTES = 250 << 20
"""Memory of a worker process before its first task, mostly modules and compiled code."""

TERMINATE = 0.95
"""Share of the memory limit at which the nanny terminates a worker."""

MORE_MEMORY = "raise their memory_limit or lower blocksize (after `dkfeat abort`, as the batch is planned)"
"""Remedy for workers whose memory runs out."""

NO_WORKER = ("the scheduler has heard of no worker", "start workers")
"""State without workers, and the remedy."""


class TaskPlugin(WorkerPlugin):
    """Worker plugin that sends a task to every worker of a cluster, also to those that join later.

    The task is not scattered, because scattered data are lost with their last holder, and late workers lack them.
    """

    def __init__(self, name: str, task: Task) -> None:
        # workers of versions that compare only these look for `task` and `version`, and fail
        self.name, self.checked_task, self.code, self.is_probed = name, task, code(), False


@cache
def code() -> str:
    """Version of this process's dkfeat with a digest of its modules, in hexadecimal: equal code makes equal bytes."""
    root, digest = Path(dkfeat.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(b"%s %d " % (path.relative_to(root).as_posix().encode(), path.stat().st_size))
        digest.update(path.read_bytes())
    return f"{dkfeat.__version__} (code {digest.hexdigest()[:12]})"


def _agree(found: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Return True if codes are equal, or features up to the last bits, which may differ between machines."""
    if found.shape != expected.shape or np.issubdtype(expected.dtype, np.integer):
        return np.array_equal(found, expected)
    atol = 1e-3 * float(np.abs(expected).max(initial=0.0))
    return np.allclose(found, expected, rtol=1e-3, atol=atol, equal_nan=True)


def run_on_worker(packed: bytes) -> tuple[float, list[Any]] | str:
    """Run the task of a plugin on a batch of items; return the duration in seconds and the result of each.

    A worker that hung when the plugin was sent does not have it, and returns its address.

    The name of the plugin and the items, the only data that are sent with each call, are pickled separately, because
    a scheduler would unpickle arguments, and be blocked for seconds by the imports that this needs.
    """
    name, expected, items = deserialize_bytes(packed)
    worker, end = get_worker(), time.monotonic() + PLUGIN_SECONDS
    plugins: Mapping[str, Any] = worker.plugins
    while (plugin := plugins.get(name)) is None:
        if time.monotonic() > end:
            return worker.address
        time.sleep(POLL_SECONDS)
    if plugin.code != code():
        raise ClusterError(_other_code(plugin.code, {worker.address: code()}))
    if expected is not None and not plugin.is_probed:
        if not _agree(plugin.checked_task.probe(), expected):
            raise ClusterError(
                f"worker {worker.address} makes other features of the same rows by the same code than the driver; "
                "`dkfeat doctor` compares the versions; leave this worker out, or install the same packages for both"
            )
        plugin.is_probed = True
    return run_batch(plugin.checked_task, items, lambda: name not in plugins)


@dataclass(frozen=True, slots=True)
class ClientRunner:
    """The cluster behind a distributed client."""

    client: Client
    in_flight: int | None = None
    expected_threads: int | None = None
    """Final number of threads of a cluster whose workers start one after another."""
    warned: set[str] = field(default_factory=set, init=False)
    """Addresses of workers that were reported as silent."""

    @property
    def description(self) -> str:
        """Number of workers and threads, for display."""
        threads = self.client.nthreads()
        return f"{counted(len(threads), 'worker process')} with {counted(sum(threads.values()), 'thread')}"

    @property
    def memory_limit(self) -> int | None:
        """Memory that a task may use, in bytes: that of the smallest worker without its modules, divided by threads."""
        shares = [
            max(0, int(TERMINATE * worker["memory_limit"]) - IDLE_BYTES) // worker["nthreads"]
            for worker in _workers(self.client).values()
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
        name, scheduler = f"dkfeat-{secrets.token_hex(8)}", cast("Any", self.client.scheduler)
        try:
            if self.client.status != "running":
                raise ClusterError(_lost(f"the client is {self.client.status}"))
            self._check_memory()
            plugin = TaskPlugin(name, task)
            try:
                self._tell_all(partial(_send, self.client, plugin))
                probe: Callable[[], Any] = getattr(task, "probe", lambda: None)
                expected = probe()  # while workers import what the task needs
                self._drive(_Submissions(self.client, plugin, expected, home, self.warned), items, done, home is None)
            finally:
                # running tasks stop at their next piece when the plugin is removed
                with suppress(ValueError):  # the scheduler has not received it
                    if self.client.status == "running":
                        self._tell_all(partial(scheduler.unregister_worker_plugin, name=name))
        except Exception as error:
            is_own = isinstance(error, DkfeatError)
            if (isinstance(error, ClusterError) or not is_own) and (others := self._other_code()):
                raise ClusterError(_other_code(code(), others)) from error
            if is_own or not isinstance(error, OSError | RuntimeError):
                raise
            if isinstance(error, CommClosedError | TimeoutError) or self.client.status != "running":
                raise ClusterError(_lost(error)) from error
            raise

    def run_everywhere(self, function: Callable[[], Any]) -> None:
        """See `Runner.run_everywhere`."""
        if self.client.status == "running":
            self._tell_all(partial(self.client.run, function, on_error="ignore", asynchronous=True))

    def _tell_all(self, call: Callable[[], Awaitable[Any]]) -> None:
        _tell(self.client, call, SHORT_SECONDS if self.warned else ANSWER_SECONDS)

    def _other_code(self) -> dict[str, Any]:
        """Return, by address, the code of workers that have other code, or the error if they have none to compare."""
        if self.client.status != "running":
            return {}
        ask = partial(self.client.run, code, on_error="return", asynchronous=True)
        found: dict[str, Any] = _tell(self.client, ask, PLUGIN_SECONDS) or {}
        # a worker may be lost meanwhile
        return {name: one for name, one in found.items() if one != code() and not isinstance(one, OSError)}

    def _check_memory(self) -> None:
        for address, worker in _workers(self.client).items():
            if worker["memory_limit"]:
                with errors_at(f"worker {address}"):
                    check_memory(f"{worker['memory_limit'] / 2**20:.0f} MiB")

    def _drive(self, tasks: _Submissions, items: Sequence[Any], done: Callable[[Any, Any], None], joined: bool) -> None:
        batches = Batches(list(enumerate(items)), BATCH_SECONDS, MOST_IN_BATCH if joined else 1)
        try:
            while True:
                tasks.refresh()
                window = self.in_flight or max(2, 2 * sum(tasks.threads.values()))
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


class _Submissions:
    """Submitted batches of a run that are not done, each with its preferred worker, if any.

    A task that prefers a lost worker runs on another one. If there is no other worker at that moment, the scheduler
    never runs the task, even if workers join later: distributed 2026.8 forgets that other workers are allowed
    (``bulk_schedule_unrunnable_after_adding_worker``). Such tasks are submitted again, for any worker, and so are those
    of a worker that is silent: it hangs, is stopped or cannot be reached, but the scheduler keeps it for minutes. If it
    goes on, their second results are ignored.
    """

    def __init__(self, client: Client, plugin: TaskPlugin, expected: Any, home: Homes | None, warned: set[str]) -> None:
        self._client, self._plugin, self._home, self._warned = client, plugin, home, warned
        self._header = plugin.name, expected
        self._no_worker_seconds = read_defaults().no_worker_seconds or NO_WORKER_SECONDS
        self.pending: dict[Future, tuple[Numbered, ...]] = {}
        self.threads: dict[str, int] = {}
        """Threads of each worker that is not silent."""
        self._silent: list[str] = []
        self._refreshed, self._newest = -math.inf, 0.0
        self._changed = self._heard = time.monotonic()
        self._stalled: tuple[str, str] | None = None
        self._completed = as_completed(loop=client.loop, raise_errors=False)
        self._homes: dict[Any, frozenset[str]] = {}
        self._n_submitted, self._n_sent = count(), Counter[str]()
        self._timeout = GATHER_SECONDS
        self._lost_before: float | None = None  # time of the last loss before the last result; None: not yet known

    def submit(self, batches: Sequence[tuple[Numbered, ...]], *, anywhere: bool = False) -> None:
        """Submit batches, by one message for all of them that prefer the same worker."""
        homes = {} if anywhere or not batches or self._home is None else self._home(self.threads)
        others = frozenset(self.threads) if self._silent else frozenset()
        by_home: defaultdict[frozenset[str], list[tuple[Numbered, ...]]] = defaultdict(list)
        for batch in batches:
            chosen = homes.get(batch[0][0])
            by_home[others if chosen is None else frozenset((chosen,))].append(batch)
        for home, group in by_home.items():
            keys = [f"{self._plugin.name}-{next(self._n_submitted):06d}" for _ in group]
            if home:
                self._homes.update(dict.fromkeys(keys, home))
            futures = self._client.map(
                run_on_worker,
                [serialize_bytes((*self._header, [item for _, item in batch])) for batch in group],
                key=keys,
                pure=False,
                workers=sorted(home) or None,
                allow_other_workers=bool(home),
            )
            self.pending.update(zip(futures, group, strict=True))
            self._completed.update(futures)

    def next_results(self) -> list[tuple[tuple[Numbered, ...], float, list[Any]]]:
        """Wait for results, and remove their batches from the pending ones; of each, return also the duration."""
        while True:
            ready = self._next_futures()
            try:
                values = self._gather([future for future in ready if future.status == "finished"])
            except TimeoutError:  # results are large and the network slow, or a worker hangs or is just lost
                self._timeout *= 2
                values = {}
                self._refreshed = -math.inf
                self.refresh()
            for address in {value for value in values.values() if isinstance(value, str)}:
                self._send_again(address)
            found = []
            for future in ready:
                if (value := values.get(future)) is not None:
                    batch = self.pending.pop(future)
                    if isinstance(value, str):
                        self.submit([batch])
                    else:
                        found.append((batch, *value))
                elif future.status in ("error", "cancelled") and future in self.pending:
                    self._handle_error(future)
                elif future in self.pending:  # its worker was lost with the result, or the time was too short
                    self._completed.add(future)
            if found:
                self._lost_before = None
                return found

    def _send_again(self, address: str) -> None:
        """Send the plugin to a worker that lacks it, since it hung; errors of the plugin there are raised."""
        if self._n_sent[address] == MOST_TRIES:
            raise ClusterError(f"worker {address} did not take its task, after {MOST_TRIES} tries; see its log")
        self._n_sent[address] += 1
        _tell(self._client, partial(_send, self._client, self._plugin, address), PLUGIN_SECONDS)

    def _gather(self, futures: Sequence[Future]) -> dict[Future, tuple[float, list[Any]] | str]:
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
                f"because memory ran out; check the workers' logs, {MORE_MEMORY}, and run again"
            ) from error
        except CancelledError as error:
            raise ClusterError(_lost(error)) from error

    def _next_futures(self) -> list[Future]:
        """Wait for futures, as long as workers can run tasks and for a limited time if none can."""
        warn_after = WARN_SECONDS
        while not self._completed.has_ready():
            time.sleep(POLL_SECONDS)
            self.refresh()
            idle = self._refreshed - self._heard
            if idle < WARN_SECONDS:
                warn_after = WARN_SECONDS
            if idle <= min(warn_after, self._no_worker_seconds):
                continue
            state, remedy = self._stalled or NO_WORKER
            text = f"{state} for {idle:.0f} s; {self._waiting()}"
            if idle > warn_after:
                warn_after = max(2 * warn_after, idle)
                logger.warning("%s; %s, or the run ends after %g s", text, remedy, self._no_worker_seconds)
            else:
                raise ClusterError(
                    f"{text}; what is complete is kept: to continue, {remedy} and run the same call again; to wait "
                    "longer, set dkfeat.no-worker-seconds in Dask's configuration"
                )
        ready: list[Future] = []
        while self._completed.has_ready() and len(ready) < MOST_GATHERED:
            future = next(self._completed)
            if future in self.pending:  # else it was submitted again
                ready.append(future)
        return ready

    def _check_losses(self, workers: Mapping[str, Any]) -> None:
        """Raise an error if workers are lost or restarted again and again while no task ends."""
        events = [event for event in self._client.get_events("all") if event[1].get("action") == "remove-worker"]
        lost = [when for when, event in events if not event.get("expected")]
        if self._lost_before is None:
            self._lost_before = max(lost, default=0.0)
        losses = sum(when > self._lost_before for when in lost)
        if losses >= MOST_LOSSES * max(len(workers), 1):
            raise ClusterError(
                f"workers were lost or restarted {losses} times while no task ended, perhaps because memory ran out; "
                f"{self._waiting()}; check the workers' logs, {MORE_MEMORY}, and run again"
            )

    def _waiting(self) -> str:
        _, first = min((batch[0] for batch in self.pending.values()), key=lambda item: item[0])
        return f"{counted(len(self.pending), 'submitted task')} wait, such as {described(first)}"

    def refresh(self) -> None:
        """Update the workers and resubmit tasks of lost and silent ones, unless this was done just before."""
        now = time.monotonic()
        if now - self._refreshed < max(REFRESH_SECONDS, len(self.threads) / 100):
            return
        workers = _workers(self._client)
        self._check_losses(workers)
        seen = {address: worker["last_seen"] for address, worker in workers.items()}
        newest = max(seen.values(), default=0.0)
        limit = max(SILENT_SECONDS, 10 * heartbeat_interval(len(seen)))
        if newest != self._newest:
            self._newest, self._changed = newest, now
        self._silent = [address for address in seen if newest - seen[address] > limit]
        others = {name: worker for name, worker in workers.items() if name not in self._silent}
        self.threads = {name: worker["nthreads"] for name, worker in others.items()}
        self._stalled = _stalled(others)
        if self._stalled is None and now - self._changed < limit:
            self._heard = now
        for address in self._silent:
            if address not in self._warned:
                self._warned.add(address)
                logger.warning(
                    "worker %s has sent no heartbeat for %.0f s; other workers get its tasks until it goes on: see its "
                    "log, and stop it if it hangs",
                    address,
                    newest - seen[address],
                )
        self._refreshed = now
        self._resubmit()

    def _resubmit(self) -> None:
        """Resubmit tasks whose worker is silent, or is lost and no other worker runs them."""
        homes, threads = self._homes, self.threads.keys()
        away = {future.key for future in self.pending if future.key in homes and homes[future.key].isdisjoint(threads)}
        running = self._client.processing() if away or self._silent else {}
        held = self._client.has_what(self._silent) if self._silent else {}
        silent = {key for name in self._silent for key in (*running.get(name, ()), *held.get(name, ()))}
        away -= {key for name in threads for key in running.get(name, ())}
        for future in list(self.pending):
            if future.key in silent or (future.key in away and future.status not in ("finished", "error")):
                self.submit([self.pending.pop(future)], anywhere=True)
                self._client.cancel([future])


async def _send(client: Client, plugin: TaskPlugin, *workers: str) -> None:
    """Send a plugin to all workers, also to those that join later, or to some that lack it."""
    scheduler: Any = client.scheduler
    message = {"plugin": dumps(plugin), "name": plugin.name}
    if workers:
        await scheduler.broadcast(msg={"op": "plugin-add", **message}, workers=workers)
    else:
        await scheduler.register_worker_plugin(**message, idempotent=False)


def _tell(client: Client, call: Callable[[], Awaitable[Any]], seconds: float) -> Any:
    """Send a message to workers, and return their answers; None if they are incomplete after a limited time."""
    loop: Any = client.loop

    async def send() -> Any:
        return await call()

    with suppress(OSError, CancelledError):  # the time is up, or a worker or the client is lost
        return asyncio.run_coroutine_threadsafe(send(), loop.asyncio_loop).result(seconds)
    return None


def described(item: Any) -> str:
    """Describe an item, for messages: by its own ``description``, if it has one."""
    return str(getattr(item, "description", item))


def _other_code(driver: str, workers: Mapping[str, Any]) -> str:
    some = ", ".join(
        f"{found if isinstance(found, str) else f'no digest ({found})'} on {address}"
        for address, found in list(workers.items())[:3]
    )
    return (
        f"the driver runs dkfeat {driver}, but workers run other code, which might make other features: {some}; "
        "install the same for driver and workers, and start them again"
    )


def _workers(client: Client) -> dict[str, Any]:
    """Return the scheduler's records of all workers, by address."""
    scheduler: Any = client.scheduler
    found: dict[str, Any] = client.sync(scheduler.identity, n_workers=-1)["workers"]
    return found


def _stalled(workers: Mapping[str, Any]) -> tuple[str, str] | None:
    """Describe why no worker can run a task, and the remedy; None if one can or does."""
    if not workers:
        return NO_WORKER
    used = []
    for address, worker in workers.items():
        metrics = worker["metrics"]
        if worker["status"] != "paused" or metrics["task_counts"].get("executing"):
            return None
        used.append(f"{show_bytes(metrics['memory'])} of {show_bytes(worker['memory_limit'])} on {address}")
    state = f"all workers have been paused by Dask, because their memory is nearly full ({', '.join(used[:3])}),"
    return state, MORE_MEMORY


def _lost(error: BaseException | str) -> str:
    return (
        f"the Dask scheduler was lost or cancelled the run ({error}); committed data are kept; "
        "to continue, run the same call again on a running cluster"
    )
