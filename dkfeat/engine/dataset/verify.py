"""Check of all shards of a data set, by tasks of a runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dkfeat.blocks import SourceFile, Split
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.runners.local import Stopped
from dkfeat.engine.runners.open import open_runner
from dkfeat.store.manifest.records import ShardEntry
from dkfeat.store.shards.reader import Checked, Report, ShardReader, check_shards, open_reader, report_of
from dkfeat.store.storage.base import DATA, Storage

if TYPE_CHECKING:
    from distributed import Client

    from dkfeat.config import ExecutionConfig

MOST_SHARDS, MOST_BYTES = 64, 64 << 20
"""Maximum number of shards, and of their bytes, that a task checks; a larger shard has a task of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group(Split):
    """Consecutive shards, as a split for the runner."""

    entries: tuple[ShardEntry, ...]


@dataclass(frozen=True, slots=True)
class _CheckTask:
    """Task that checks the shards of a group."""

    shards: ShardReader
    """Reader with a manifest without records."""

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> Checked:
        assert isinstance(split, _Group)
        return check_shards(self.shards, _until(stopped, split.entries))


def _until(stopped: Callable[[], bool], entries: Sequence[ShardEntry]) -> Iterator[ShardEntry]:
    for entry in entries:
        if stopped():
            raise Stopped
        yield entry


def verify_shards(
    storage: Storage, client: Client | ExecutionConfig | None, progress: bool | Callable[[ProgressState], object]
) -> Report:
    """Check all shards and sidecar files of a data set; see `dkfeat.store.shards.reader.verify`."""
    shards = open_reader(storage)
    task = _CheckTask(ShardReader(storage, shards.spec, shards.manifest.without_records()))
    groups = [*_groups(shards)]
    found: dict[int, Checked] = {}
    labels = set[int | float]()
    with (
        open_runner(client) as runner,
        Progress(progress).stage("verify", total_tasks=len(groups), total_bytes=shards.manifest.size) as stage,
    ):

        def done(split: Split, result: Checked) -> None:
            labels.update(result.labels)  # joined now, because each task may find ten thousand
            found[split.number] = replace(result, labels=frozenset())
            stage.advance(rows=sum(entry.rows for entry in groups[split.number].entries), source_bytes=split.stop)

        runner.run(task, groups, done)
    in_order = [found[number] for number in sorted(found)]
    return report_of(shards, [*in_order, Checked(problems=(), n_bytes=0, labels=frozenset(labels))])


def _groups(shards: ShardReader) -> Iterator[_Group]:
    """Yield groups of consecutive shards."""
    held: list[ShardEntry] = []
    number = n_bytes = 0
    for entry in shards.manifest.shards:
        if held and (len(held) == MOST_SHARDS or n_bytes + entry.size > MOST_BYTES):
            yield _group(shards.storage, number, held, n_bytes)
            held, number, n_bytes = [], number + 1, 0
        held.append(entry)
        n_bytes += entry.size
    if held:
        yield _group(shards.storage, number, held, n_bytes)


def _group(storage: Storage, number: int, entries: Sequence[ShardEntry], n_bytes: int) -> _Group:
    first = entries[0]
    file = SourceFile(name=first.name, url=f"{storage.url}/{DATA}/{first.name}", size=first.size)
    return _Group(number=number, file=file, start=0, stop=n_bytes, entries=tuple(entries))
