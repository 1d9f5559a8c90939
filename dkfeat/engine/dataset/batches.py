"""Batches of a data set's rows, read shard by shard and shuffled in a bounded buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dkfeat.blocks import PackedCodes, RowBlock
from dkfeat.engine.dataset.prefetch import prefetch_calls
from dkfeat.engine.dataset.rows import RowsCache, block_of, join_blocks
from dkfeat.engine.tasks.landmarks import load_map
from dkfeat.errors import ConfigError
from dkfeat.io.shards.columns import RESERVED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.io.manifest.manifest import ShardEntry
    from dkfeat.io.shards.reader import ShardReader
    from dkfeat.maps import FeatureMap


class DatasetRows:
    """Reads rows of shards; a small value that tasks carry.

    Parameters
    ----------
    shards : ShardReader
    verify : {"sha256", "size"}
        What is compared when a shard is first read.
    cache_bytes : int
        Bytes of encoded rows that stay in memory.
    """

    def __init__(self, shards: ShardReader, verify: Literal["sha256", "size"], cache_bytes: int = 0) -> None:
        self.reader, self.verify = shards, verify
        self._cache = RowsCache(cache_bytes)

    @cached_property
    def map(self) -> FeatureMap:
        """The fitted map that made the features."""
        return load_map(self.reader.spec["map"], self.reader.storage)

    @cached_property
    def classes(self) -> NDArray[Any] | None:
        """Sorted label set, or None beyond 10,000 labels."""
        labels = self.reader.manifest.labels
        return None if labels is None else np.array(labels, dtype=self.reader.spec["input"]["label_dtype"])

    def parts(self, query_id: bool, weight: bool, kept: bool) -> tuple[str, ...]:
        """Names of what is asked beside features and labels.

        Raises
        ------
        ConfigError
            The data set does not have it.
        """
        spec = self.reader.spec
        if spec["output"]["layout"] == "predictions":
            url = self.reader.storage.url
            raise ConfigError(f"{url} holds predictions, not features; any Parquet reader reads {url}/data")
        has_weights = "weight" in self.reader.manifest.schema
        for asked, there, what in (
            (query_id, spec["input"]["query_id"], "queries"),
            (weight, has_weights, "weights"),
        ):
            if asked and not there:
                raise ConfigError(f"{what} are asked, but the source was read without them")
        return tuple(name for name, asked in (("qid", query_id), ("weight", weight), ("kept", kept)) if asked)

    def of_shard(self, entry: ShardEntry, parts: Sequence[str]) -> RowBlock:
        """Rows of a shard."""
        n_bytes = max(entry.size, entry.rows * int(self.reader.spec["output"]["row_bytes"]))
        return self._cache.get((entry.name, *parts), n_bytes, lambda: self._read(entry, parts))

    def of_shards(self, entries: Sequence[ShardEntry], parts: Sequence[str]) -> RowBlock:
        """Rows of several shards, joined."""
        return join_blocks([self.of_shard(entry, parts) for entry in entries])

    def as_batch(self, rows: RowBlock, decode: bool, parts: Sequence[str]) -> tuple[Any, ...]:
        """Turn rows into what a caller asked for."""
        features = rows.X
        if decode and isinstance(features, PackedCodes):
            features = self.map.decode(features)
        return (features, rows.y, *(getattr(rows, part) for part in parts))

    def batches(
        self,
        n_rows: int,
        rng: np.random.Generator | None,
        held: int,
        decode: bool,
        parts: Sequence[str],
        shards: Sequence[int] | None,
        loaders: int,
    ) -> Iterator[tuple[Any, ...]]:
        """Go once over all rows, see `ShardDataset.batches`; without `rng`, and with `held` 0, in their order."""
        entries = self.reader.manifest.shards
        firsts = np.cumsum([0, *(entry.rows for entry in entries)]).tolist()
        places = [place for place in (range(len(entries)) if shards is None else shards) if entries[place].rows]
        order = places if rng is None else [places[at] for at in rng.permutation(len(places))]
        calls = (partial(self._numbered, entries[at], firsts[at], parts) for at in order)
        read = prefetch_calls(calls, threads=loaders)
        for batch in cut_batches(read, n_rows, kept=held, rng=rng):
            yield self.as_batch(batch, decode, parts)

    def _numbered(self, entry: ShardEntry, first: int, parts: Sequence[str]) -> RowBlock:
        return replace(self.of_shard(entry, parts), number=np.arange(first, first + entry.rows))

    def _read(self, entry: ShardEntry, parts: Sequence[str]) -> RowBlock:
        kept = [name for name in self.reader.manifest.schema if name not in RESERVED] if "kept" in parts else []
        data = self.reader.read(entry, self.verify, only=("encoded", "label", *parts, *kept))
        return block_of(data, self.classes)


def cut_batches(
    shards: Iterable[RowBlock], rows: int, *, kept: int = 0, rng: np.random.Generator | None = None
) -> Iterator[RowBlock]:
    """Cut shards into batches.

    Parameters
    ----------
    shards : iterable of RowBlock
        Taken one after another.
    rows : int
        Rows in a batch, at least 1; the last batch may have fewer.
    kept : int
        Rows that stay in the buffer while more shards come, from which batches are drawn.
    rng : numpy.random.Generator or None
        Draws the order within the buffer; None keeps the order in which rows come.

    Yields
    ------
    batch : RowBlock
        Each row is in exactly one. At most about ``2 * kept`` rows and two shards are held.
    """
    enough = kept + max(rows, kept // 2)  # many small shards are joined at once
    parts: list[RowBlock] = []
    held = 0
    for shard in shards:
        parts.append(shard)
        held += shard.n_rows
        del shard
        if held >= enough:
            take = _mixed(parts, rng)
            batches = (held - kept) // rows
            for start in range(0, batches * rows, rows):
                yield take(start, start + rows)
            parts.append(take(batches * rows, held))
            held -= batches * rows
            del take
    if held:
        take = _mixed(parts, rng)
        for start in range(0, held, rows):
            yield take(start, min(start + rows, held))


def _mixed(parts: list[RowBlock], rng: np.random.Generator | None) -> Callable[[int, int], RowBlock]:
    """Join and empty the parts; give what takes a range of their rows, with `rng` in an order that it draws."""
    rows = join_blocks(parts)
    parts.clear()
    if rng is None:
        return lambda start, stop: rows.take(slice(start, stop))
    order = rng.permutation(rows.n_rows)
    return lambda start, stop: rows.take(order[start:stop])
