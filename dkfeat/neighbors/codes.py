"""Codes of the rows of a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dkfeat.blocks import PackedCodes
from dkfeat.errors import ConfigError
from dkfeat.maps._sampled import SampledMap

if TYPE_CHECKING:
    from dkfeat.blocks import Split
    from dkfeat.engine.dataset.dataset import ShardDataset


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
    return sum(entry.rows for entry in data.manifest.shards[: split.number])
