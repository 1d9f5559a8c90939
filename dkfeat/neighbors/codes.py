"""Codes of the rows of a data set, from its shards or from an index of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dkfeat.blocks import PackedCodes
from dkfeat.errors import ConfigError
from dkfeat.maps._sampled import SampledMap

if TYPE_CHECKING:
    from dkfeat.blocks import Split
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.store.shards.reader import ShardReader

_ROWS = 65_536  # rows of a shard that are compared at a time


def sampled_map(data: ShardDataset) -> SampledMap:
    """Return the map of a data set, which must be of codes.

    Raises
    ------
    ConfigError
        If the map is not locality sensitive, or the shards hold its features expanded.
    """
    fitted = data.map if data.has_features else None
    if not isinstance(fitted, SampledMap) or data.layout != "codes":
        what = data.layout if fitted is None else f"features of the map {fitted.name!r} in the layout {data.layout!r}"
        raise ConfigError(
            f"{data.shards.storage.url} holds {what}, but near rows are found by equal codes; "
            "featurize with gcws or dart in the layout 'codes'"
        )
    return fitted


def numbered_codes(data: ShardDataset, split: Split) -> tuple[int, PackedCodes]:
    """Read the codes of a shard, a split of `ShardSource`; return the number of its first row, and the codes."""
    entry = data.manifest.shards[split.number]
    return first_row(data, split), data.shards.read(entry, data.verifies, only=("encoded",)).X


def first_row(data: ShardDataset, split: Split) -> int:
    """Return the number of the first row of a shard, a split of `ShardSource`."""
    return int(data.first_rows[split.number])


def code_blocks(data: ShardDataset, split: Split, index: ShardReader | None) -> Iterator[tuple[int, PackedCodes]]:
    """Yield blocks of a shard's rows: the number of the first row, and the codes, from an index if there is one."""
    if index is None:
        first, codes = numbered_codes(data, split)
        for at in range(0, split.stop, _ROWS):
            yield first + at, PackedCodes(codes.codes[at : at + _ROWS], codes.empty[at : at + _ROWS])
        return
    first = first_row(data, split)
    for entry in index.manifest.shards:
        if entry.source == split.file.name:
            for position, codes in index.map_index(entry):
                yield first + entry.range[0] + position, codes
