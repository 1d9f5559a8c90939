"""Runner on a distributed cluster."""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import dask
import numpy as np
from distributed import CancelledError, Client, Future, WorkerPlugin, as_completed, get_worker
from distributed.comm.core import CommClosedError
from distributed.protocol.pickle import dumps
from distributed.protocol.serialize import deserialize_bytes, serialize_bytes
from distributed.scheduler import KilledWorker

import dkfeat
from dkfeat.config.settings import errors_at
from dkfeat.engine.clusters.local import TERMINATE, check_least
from dkfeat.engine.runners.base import MOST_FOLDED, Batches, Task, Tree, probe, run_batch
from dkfeat.engine.runners.defaults import read_defaults
from dkfeat.errors import ClusterError, DkfeatError
from dkfeat.messages import counted, logger_of, show_bytes

if TYPE_CHECKING:
    Batch = tuple[tuple[Any, Any], ...]
    """Items with their positions, or nodes with their places."""


logger = logger_of(__name__)

BATCH_SECONDS = 0.5
"""Duration to which short splits are joined in one task of the scheduler, whose own cost is some milliseconds."""

MOST_IN_BATCH = 256
"""Maximum number of splits in a batch."""

GROUPS = 4
"""Minimum number of tasks of a fold for each thread, unless there are fewer items; later ones balance the load."""

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

MOST_PUNCTUAL = 300
"""Number of workers beyond which that time grows in proportion, as the scheduler asks for fewer heartbeats of each."""

ANSWER_SECONDS, SHORT_SECONDS = 0.5, 0.05
"""Time that a run waits for answers of all workers, one of which may hang; and if one is known to hang."""

PLUGIN_SECONDS = 10.0
"""Time that a task waits for the plugin of its run, and the driver for the codes of workers after an error."""

GATHER_SECONDS = 40.0
"""Initial timeout for gathering results, in seconds; doubled after each timeout."""

MOST_SENT = 1 << 30
"""Bytes of rows in memory beyond which a run warns that they are sent to workers."""
LOADED = "store them in Parquet files, or as a Dask DataFrame whose partitions the workers load"

MOST_GATHERED = 64
"""Maximum number of results of the scheduler's tasks that are gathered at a time, which bounds the driver's memory."""

IDLE_BYTES = 330 << 20
"""Memory of a worker process that has run a task of two rows, mostly modules and compiled code: measured, 326 MiB."""

MORE_MEMORY = (
    "raise their memory_limit or, if they read a source, lower its blocksize (after `dkfeat abort`, as the batch is "
    "planned)"
)
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
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.bin")]):
        digest.update(b"%s %d " % (path.relative_to(root).as_posix().encode(), path.stat().st_size))
        digest.update(path.read_bytes())
    return f"{dkfeat.__version__} (code {digest.hexdigest()[:12]})"


def _agree(found: Any, expected: Any) -> bool:
    """Return True if codes are equal, or features up to the last bits, which may differ between machines."""
    if found.shape != expected.shape or np.issubdtype(expected.dtype, np.integer):
        return np.array_equal(found, expected)
    atol = 1e-3 * float(np.abs(expected).max(initial=0.0))
    return np.allclose(found, expected, rtol=1e-3, atol=atol, equal_nan=True)


class Node(NamedTuple):
    """Step of a fold: to return the shared value, to run and join items, to join results, or to return an element."""

    step: Literal["shared", "items", "join", "element"]
    item: Any = None
    inputs: Sequence[Any] = ()
    """The shared value, or results that it takes, which are known on the worker."""

    @property
    def description(self) -> str:
        """Description of the items, in messages."""
        if self.step != "items":
            return f"the step {self.step!r} of a sum"
        return " to ".join(dict.fromkeys(described(item) for item in (self.item[0], self.item[-1])))


def _run_node(
    task: Callable[..., Any], join: Callable[[Any, Any], Any], node: Node, stopped: Callable[[], bool]
) -> Any:
    if node.step == "items":
        tree = Tree(len(node.item))
        for place, item in enumerate(node.item):
            tree.fold(place, task(item, stopped, *node.inputs), join)
        return tree.root
    if node.step == "join":
        return join(*node.inputs)
    return node.inputs[0] if node.step == "shared" else node.inputs[0][node.item]


class _SilentError(Exception):
    """A worker that is silent has results that others wait for."""


def run_on_worker(packed: bytes, *inputs: Any) -> tuple[float, list[Any]] | tuple[()]:
    """Run the task of a plugin on a batch of items; return the duration in seconds and the result of each.

    A batch with inputs is one item that takes them: a node, or a split whose rows are on a worker. A worker that hung
    when the plugin was sent lacks it, and returns an empty tuple; then the plugin comes with the batch.

    The name of the plugin and the items, the only data that are sent with each call, are pickled separately, because
    a scheduler would unpickle arguments, and be blocked for seconds by the imports that this needs.
    """
    name, sent, expected, items = deserialize_bytes(packed)
    if inputs and isinstance(items[0], Node):
        items = [items[0]._replace(inputs=[result for _, [result] in inputs])]
    elif inputs:
        items = [replace(items[0], rows=inputs[0])]
    worker, end = get_worker(), time.monotonic() + PLUGIN_SECONDS
    plugins: dict[str, Any] = worker.plugins
    if sent is not None and name not in plugins:
        plugins.setdefault(name, sent)
    while (plugin := plugins.get(name)) is None:
        if time.monotonic() > end:
            return ()
        time.sleep(POLL_SECONDS)
    if plugin.code != code():
        raise ClusterError(f"worker {worker.address} runs other code of dkfeat than the driver")
    if expected is not None and not plugin.is_probed:
        if not _agree(probe(plugin.checked_task), expected):
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

    def run(self, task: Task, items: Sequence[Any], done: Callable[[Any, Any], None]) -> None:
        """See `Runner.run`."""
        with self._submissions(task) as submissions:
            submissions.drive(items, done)

    def hold(self, values: Sequence[Any]) -> Sequence[Any]:
        """See `Runner.hold`; futures are computed again if they were lost with a worker."""
        return cast("Sequence[Any]", self.client.compute(list(values)))

    def fold(
        self, task: Callable[..., Any], shared: Any, items: Sequence[Any], join: Callable[[Any, Any], Any]
    ) -> Iterator[Any]:
        """See `Runner.fold`."""
        with self._submissions(partial(_run_node, task, join)) as submissions:
            results = submissions.fold(shared, items)
            del shared
            yield from results

    @contextmanager
    def _submissions(self, task: Task) -> Iterator[_Submissions]:
        """Send a task to all workers, for the ``with`` block, which submits items; translate errors."""
        name, scheduler = f"dkfeat-{secrets.token_hex(8)}", cast("Any", self.client.scheduler)
        try:
            if self.client.status != "running":
                raise ClusterError(_lost(f"the client is {self.client.status}"))
            for address, worker in _workers(self.client).items():
                if limit := worker["memory_limit"]:
                    with errors_at(f"worker {address}"):
                        check_least(limit, show_bytes(limit))
            plugin = TaskPlugin(name, task)
            try:
                self._tell(scheduler.register_worker_plugin, plugin=dumps(plugin), name=name, idempotent=False)
                expected = probe(task)  # while workers import what the task needs
                with closing(_Submissions(self.client, (name, plugin, expected), self.warned)) as submissions:
                    yield submissions
            finally:
                # running tasks stop at their next piece when the plugin is removed
                with suppress(ValueError):  # the scheduler has not received it
                    self._tell(scheduler.unregister_worker_plugin, name=name)
        except Exception as error:
            if isinstance(error, DkfeatError) and not isinstance(error, ClusterError):
                raise
            self._check_code(error)
            if isinstance(error, ClusterError):
                raise
            lost = CommClosedError | TimeoutError if self.client.status == "running" else OSError | RuntimeError
            if isinstance(error, lost | CancelledError):
                raise ClusterError(_lost(error)) from error
            raise

    def _check_code(self, error: Exception) -> None:
        """Raise an error, in place of another one, if workers have other code, or none to compare."""
        found = self._tell(self.client.run, code, on_error="return", asynchronous=True, seconds=PLUGIN_SECONDS) or {}
        others = [
            f"{other if isinstance(other, str) else f'no digest ({other})'} on {address}"
            for address, other in found.items()
            if other != code() and not isinstance(other, OSError)  # a worker may be lost meanwhile
        ]
        if others:
            raise ClusterError(
                f"the driver runs dkfeat {code()}, but workers run other code, which might make other features: "
                f"{', '.join(others[:3])}; install the same for driver and workers, and start them again"
            ) from error

    def _tell(self, call: Callable[..., Any], *what: Any, seconds: float | None = None, **how: Any) -> Any:
        """Send a message to workers, and return their answers; None if they are incomplete after a limited time."""
        loop: Any = self.client.loop
        seconds = seconds or (SHORT_SECONDS if self.warned else ANSWER_SECONDS)
        with suppress(OSError, CancelledError):  # the time is up, or a worker or the client is lost
            if self.client.status == "running":
                return asyncio.run_coroutine_threadsafe(call(*what, **how), loop.asyncio_loop).result(seconds)
        return None


class _Submissions:
    """Submitted batches of a run that are not done.

    The tasks of a worker that is silent are submitted again, for the others: it hangs, is stopped or cannot be reached,
    but the scheduler keeps it for minutes. If it goes on, their second results are ignored.
    """

    def __init__(self, client: Client, plugin: tuple[str, TaskPlugin, Any], warned: set[str]) -> None:
        self._client, self._warned = client, warned
        self._name, self._plugin, self._expected = plugin
        self._sent: TaskPlugin | None = None
        """The plugin, if a worker lacked it."""
        self._no_worker_seconds = read_defaults().no_worker_seconds or NO_WORKER_SECONDS
        self._pending: dict[Future, Batch] = {}
        self._keeps = False
        """True while results stay on workers, as futures."""
        self._begins_again = False
        """True while a fold begins again if a worker falls silent that has some of it."""
        self._inputs: dict[Any, list[Any]] = {}
        """Results that each submitted node takes, as futures or values."""
        self._places: dict[Any, str | None] = {}
        """Workers for submitted nodes that run items."""
        self._threads: dict[str, int] = {}
        """Threads of each worker that is not silent."""
        self._silent: list[str] = []
        self._refreshed, self._newest = -math.inf, 0.0
        self._changed = self._heard = time.monotonic()
        self._stalled: tuple[str, str] | None = None
        self._completed = as_completed(loop=client.loop, raise_errors=False)
        self._n_submitted = count()
        self._timeout = GATHER_SECONDS
        self._lost_before: float | None = None  # time of the last loss before the last result; None: not yet known

    def close(self) -> None:
        """Cancel what is pending."""
        with suppress(OSError, CancelledError):
            if self._pending and self._client.status == "running":
                self._client.cancel(list(self._pending))

    def drive(self, items: Sequence[Any], done: Callable[[Any, Any], None]) -> None:
        """Submit all items in batches, as many as are wanted at a time, and pass on each item with its result."""
        rows = [item.rows for item in items if hasattr(item, "rows")]
        if (size := sum(getattr(part, "nbytes", 0) for part in rows)) > MOST_SENT:
            logger.warning("%s of rows in memory are sent to the workers in each pass; %s", show_bytes(size), LOADED)
        batches = Batches(list(enumerate(items)), BATCH_SECONDS, 1 if rows else MOST_IN_BATCH)
        while True:
            self._refresh()
            self._submit(batches.take(self._window - len(self._pending), self._window))
            if not self._pending:
                return
            for batch, seconds, results in self._next_results():
                batches.measured(len(batch), seconds)
                for (_, item), result in zip(batch, results, strict=True):
                    done(item, result)

    def fold(self, shared: Any, items: Sequence[Any]) -> Iterator[Any]:
        """See `Runner.fold`. Dask makes results again that were lost with a worker."""
        self._sent = self._plugin  # results on workers are not seen, so none may be that of a worker without the plugin
        self._refresh()
        self._begins_again, root, result = True, None, None
        while root is None:
            try:
                root = self._joined(shared, items)
                result = self._element(root, 0)
            except _SilentError:
                root = None
                self.close()
                self._pending.clear()
        self._begins_again = False
        del shared  # before the driver gets the second element
        yield result
        del result
        yield self._element(root, 1)

    def _element(self, root: Future, element: int) -> Any:
        """Return an element of a result."""
        self._inputs = {(-1, 0): [root]}
        self._submit([(((-1, 0), Node("element", element)),)])
        [(_, _, [result])] = self._next_results()
        return result

    def _joined(self, shared: Any, items: Sequence[Any]) -> Future:
        """Run and join all items; return the last result.

        The shared value is the result of a first node, so that workers get it from each other.
        """
        # not packed: arrays travel without copies
        self._keeps, self._inputs = True, {(-1, 0): [(0.0, [shared])]}
        most = len(items) // (GROUPS * max(1, sum(self._threads.values())))
        size = min(MOST_FOLDED, 2 ** max(0, most.bit_length() - 1))  # joined as in a tree of all items
        groups = [items[start : start + size] for start in range(0, len(items), size)]
        tree, left, ready = Tree(len(groups)), enumerate(groups), list[Any]()
        try:
            self._submit([(((-1, 0), Node("shared")),)])
            self._inputs.clear()
            self._places.clear()
            [(_, _, [start])] = self._next_results()
            while tree.root is None:
                self._refresh()
                for place, group in islice(left, max(0, self._window - len(self._pending) - len(ready))):
                    self._inputs[0, place] = [start]
                    self._places[0, place] = self._idlest()
                    ready.append((((0, place), Node("items", group)),))
                self._submit(ready)
                ready = []
                for ((node, _),), _, [future] in self._next_results():
                    del self._inputs[node]
                    self._places.pop(node, None)
                    if (found := tree.add(node, future)) is not None:
                        self._inputs[found[0]] = found[1]
                        ready.append(((found[0], Node("join")),))
        finally:
            self._keeps = False
        root: Future = tree.root
        return root

    def _idlest(self) -> str | None:
        """Return the worker that has least to do for its threads; Dask would take those that hold the shared value."""
        busy = Counter(self._places.values())
        return min(self._threads, key=lambda worker: busy[worker] / self._threads[worker], default=None)

    @property
    def _window(self) -> int:
        """Number of batches that are submitted at a time."""
        return max(2, 2 * sum(self._threads.values()))

    def _submit(self, batches: Sequence[Batch]) -> None:
        """Submit batches by one message, for workers that are not silent."""
        header = self._name, self._sent, self._expected
        packed = [serialize_bytes((*header, [item for _, item in batch])) for batch in batches]
        keys = [f"{self._name}-{next(self._n_submitted):06d}" for _ in batches]
        chosen: dict[str, Any] = {}
        if self._silent and self._threads:
            chosen = {"workers": list(self._threads), "allow_other_workers": True}
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
            if self._inputs:
                submit, futures = partial(self._client.submit, run_on_worker, pure=False, **chosen), []
                for ((node, _),), pack, key in zip(batches, packed, keys, strict=True):
                    place = self._places.get(node)
                    chosen = {} if place is None else {"workers": [place], "allow_other_workers": True}
                    futures.append(submit(pack, *self._inputs[node], key=key, **chosen))
            else:
                rows = [getattr(item, "rows", None) for batch in batches for _, item in batch]
                held = [rows] if any(isinstance(each, Future) for each in rows) else []  # then a batch is one item
                futures = self._client.map(run_on_worker, packed, *held, key=keys, pure=False, **chosen)
        self._pending.update(zip(futures, batches, strict=True))
        self._completed.update(futures)

    def _next_results(self) -> list[tuple[Batch, float, list[Any]]]:
        """Wait for results, and remove their batches from the pending ones; of each, return also the duration."""
        while True:
            ready = self._next_futures()
            finished = [future for future in ready if future.status == "finished"]
            try:
                values = {each: (0.0, [each]) for each in finished} if self._keeps else self._gather(finished)
            except TimeoutError:  # results are large and the network slow, or a worker hangs or is just lost
                self._timeout *= 2
                values, self._refreshed = {}, -math.inf
                self._refresh()
            found = []
            for future in ready:
                if values.get(future):
                    found.append((self._pending.pop(future), *values[future]))
                elif future in values:
                    self._sent = self._plugin
                    self._submit([self._pending.pop(future)])
                elif future.status in ("error", "cancelled") and future in self._pending:
                    self._handle_error(future)
                elif future in self._pending:  # its worker was lost with the result, or the time was too short
                    self._completed.add(future)
            if found:
                self._lost_before = None
                return found

    def _gather(self, futures: Sequence[Future]) -> dict[Future, Any]:
        """Gather results by one message; those of futures that fail meanwhile are left out."""
        gather = partial(self._client.gather, dict(enumerate(futures)), errors="skip", asynchronous=True)
        values = self._client.sync(gather, callback_timeout=self._timeout) if futures else {}
        return {futures[position]: value for position, value in values.items() if value is not None}

    def _handle_error(self, future: Future) -> None:
        """Raise the error of a batch, unless its splits can be submitted one by one to find the one that fails."""
        batch = self._pending.pop(future)
        try:
            future.result()
        except KilledWorker as error:
            if len(batch) > 1:
                self._submit([(item,) for item in batch])
                return
            raise ClusterError(
                f"{described(batch[0][1])}: {error.allowed_failures + 1} workers died while they ran it, perhaps "
                f"because memory ran out; check the workers' logs, {MORE_MEMORY}, and run again"
            ) from error

    def _next_futures(self) -> list[Future]:
        """Wait for futures, as long as workers can run tasks and for a limited time if none can."""
        warn_after = WARN_SECONDS
        while not self._completed.has_ready():
            time.sleep(POLL_SECONDS)
            self._refresh()
            idle, (state, remedy) = self._refreshed - self._heard, self._stalled or NO_WORKER
            if idle <= min(warn_after, self._no_worker_seconds):
                continue
            text = f"{state} for {idle:.0f} s; {self._waiting()}"
            if idle > self._no_worker_seconds:
                raise ClusterError(
                    f"{text}; what is complete is kept: to continue, {remedy} and run the same call again; to wait "
                    "longer, set dkfeat.no-worker-seconds in Dask's configuration"
                )
            warn_after = 2 * idle
            logger.warning("%s; %s, or the run ends after %g s", text, remedy, self._no_worker_seconds)
        ready: list[Future] = []
        while self._completed.has_ready() and len(ready) < MOST_GATHERED:
            future = next(self._completed)
            if future in self._pending:  # else it was submitted again
                ready.append(future)
        return ready

    def _waiting(self) -> str:
        _, first = min((batch[0] for batch in self._pending.values()), key=lambda item: item[0])
        return f"{counted(len(self._pending), 'submitted task')} wait, such as {described(first)}"

    def _refresh(self) -> None:
        """Update the workers and resubmit tasks of lost and silent ones, unless this was done just before."""
        now = time.monotonic()
        if now - self._refreshed < max(REFRESH_SECONDS, len(self._threads) / 100):
            return
        self._refreshed, workers = now, _workers(self._client)
        self._check_losses(len(workers))
        seen = {address: worker["last_seen"] for address, worker in workers.items()}
        newest = max(seen.values(), default=0.0)
        limit = SILENT_SECONDS * max(1.0, len(seen) / MOST_PUNCTUAL)
        self._silent = [address for address, last in seen.items() if newest - last > limit]
        for address in self._silent:
            del workers[address]
            if address not in self._warned:
                self._warned.add(address)
                logger.warning(
                    "worker %s has sent no heartbeat for %.0f s; other workers get its tasks until it goes on: see its "
                    "log, and stop it if it hangs",
                    address,
                    newest - seen[address],
                )
        self._threads = {name: worker["nthreads"] for name, worker in workers.items()}
        self._stalled = _stalled(workers)
        if newest != self._newest:
            self._newest, self._changed = newest, now
        if self._stalled is None and now - self._changed < limit:
            self._heard = now
        self._resubmit()

    def _check_losses(self, n_workers: int) -> None:
        """Raise an error if workers are lost or restarted again and again while no task ends."""
        events = [(when, event) for when, event in self._client.get_events("all") if not event.get("expected")]
        lost = [when for when, event in events if event.get("action") == "remove-worker"]
        if self._lost_before is None:
            self._lost_before = max(lost, default=0.0)
        losses = sum(when > self._lost_before for when in lost)
        if losses >= MOST_LOSSES * max(n_workers, 1):
            raise ClusterError(
                f"workers were lost or restarted {losses} times while no task ended, perhaps because memory ran out; "
                f"{self._waiting()}; check the workers' logs, {MORE_MEMORY}, and run again"
            )

    def _resubmit(self) -> None:
        """Resubmit tasks that a silent worker runs, or whose results it holds, if there are others."""
        if self._silent and self._threads:
            running, held = self._client.processing(), self._client.has_what(self._silent)
            keys = {key for found in (running, held) for name in self._silent for key in found.get(name, ())}
            if self._begins_again and any(str(key).startswith(self._name) for key in keys):
                raise _SilentError
            lost = [future for future in self._pending if future.key in keys]
            self._submit([self._pending.pop(future) for future in lost])
            self._client.cancel(lost)


def described(item: Any) -> str:
    """Describe an item, for messages: by its own ``description``, if it has one."""
    return str(getattr(item, "description", item))


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
