"""Settings of a run of featurize: its map, and what is made of which source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from dkfeat.config.settings import Settings
from dkfeat.config.source import SourceConfig
from dkfeat.errors import ConfigError

__all__ = ["FeaturizeConfig", "MapConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapConfig(Settings):
    """Which feature map, with which parameters."""

    name: str
    """Name of the map, such as "gcws"."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The map's parameters by name; the map itself checks them."""

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, place: str = "") -> Self:
        """Read settings from ``{name: ..., <parameter>: ...}``; `seed` is short for `random_state`."""
        if not isinstance(mapping, Mapping) or not isinstance(mapping.get("name"), str):
            message = f"{place or 'map'}: expected a `name`, such as gcws, beside the map's parameters"
            raise ConfigError(message)
        params = {str(key): value for key, value in mapping.items() if key != "name"}
        if "seed" in params:
            if "random_state" in params:
                message = f"{place or 'map'}: seed and random_state are the same setting; give one"
                raise ConfigError(message)
            params["random_state"] = params.pop("seed")
        seed = params.get("random_state")
        if seed is not None and (type(seed) is not int or not 0 <= seed < 2**64):
            key = "seed" if "seed" in mapping else "random_state"
            message = f"{place or 'map'}.{key}: expected a whole number from 0 to 2^64 - 1, got {seed!r}"
            raise ConfigError(message)
        return cls(name=mapping["name"], params=params)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values that `from_mapping` reads back to an equal object."""
        return {"name": self.name, **self.params}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturizeConfig(Settings):
    """One run of `dkfeat.featurize`."""

    source: SourceConfig
    """What is read."""
    out: str
    """Target folder."""
    map: MapConfig | None = None
    """The feature map; may be left out where `like` gives it."""
    like: str | None = None
    """Folder of shards or model whose settings are taken over."""
    layout: Literal["codes", "sparse", "dense"] | None = None
    """Shard layout; None: the map's own."""
    on_bad_row: Literal["raise", "quarantine"] = "raise"
    """What a wrong row is: the end of the run, or set aside with its place."""
    max_bad_rows: int | float | str = 0.01
    """With "quarantine", the most rows set aside: a number, or a share such as 0.01 or "1%"."""
    on_changed_source: Literal["raise", "keep"] = "raise"
    """What a committed file that changed or vanished is: the end of the run, or left with its rows as committed."""
    target_options: Mapping[str, Any] | None = None
    """For `out` and `like` at URLs; a credential is given as ``env:NAME``, the name of a variable."""

    def __post_init__(self) -> None:
        if self.map is None and self.like is None:
            message = "neither `map` nor `like` is given; name a feature map or a folder whose settings are taken over"
            raise ConfigError(message)
