"""Rows of a committed data set: no more of its columns than are asked, shard by shard, in batches or all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dkfeat.blocks import PackedCodes
from dkfeat.engine.landmarks import load_map
from dkfeat.engine.prefetch import prefetch_calls
from dkfeat.engine.rows import ShardRows
from dkfeat.engine.rows_cache import RowsCache
from dkfeat.engine.shuffle import cut_batches
from dkfeat.errors import ConfigError
from dkfeat.io.columns import RESERVED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.io.entries import ShardEntry
    from dkfeat.io.reader import ShardReader
    from dkfeat.maps import FeatureMap

__all__ = ["DatasetRows"]


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
            message = f"{url} holds predictions, not features; any Parquet reader reads {url}/data"
            raise ConfigError(message)
        has_weights = "weight" in self.reader.manifest.schema
        for asked, there, what in (
            (query_id, spec["input"]["query_id"], "queries"),
            (weight, has_weights, "weights"),
        ):
            if asked and not there:
                message = f"{what} are asked, but the source was read without them"
                raise ConfigError(message)
        return tuple(name for name, asked in (("qid", query_id), ("weight", weight), ("kept", kept)) if asked)

    def of_shard(self, entry: ShardEntry, parts: Sequence[str]) -> ShardRows:
        """Rows of a shard."""
        n_bytes = max(entry.size, entry.rows * int(self.reader.spec["output"]["row_bytes"]))
        return self._cache.get((entry.name, *parts), n_bytes, lambda: self._read(entry, parts))

    def of_shards(self, entries: Sequence[ShardEntry], parts: Sequence[str]) -> ShardRows:
        """Rows of several shards, joined."""
        return ShardRows.joined([self.of_shard(entry, parts) for entry in entries])

    def handed(self, rows: ShardRows, decode: bool, parts: Sequence[str]) -> tuple[Any, ...]:
        """Turn rows into what a caller asked for."""
        features = rows.encoded
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
            yield self.handed(batch, decode, parts)

    def _numbered(self, entry: ShardEntry, first: int, parts: Sequence[str]) -> ShardRows:
        return self.of_shard(entry, parts).numbered(first)

    def _read(self, entry: ShardEntry, parts: Sequence[str]) -> ShardRows:
        kept = [name for name in self.reader.manifest.schema if name not in RESERVED] if "kept" in parts else []
        data = self.reader.read(entry, self.verify, only=("encoded", "label", *parts, *kept))
        return ShardRows.of(data, self.classes)
