"""Settings of runs that apply a model: predictions and evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dkfeat.config.settings import Settings, one_of
from dkfeat.config.source import SourceConfig

__all__ = ["EvaluateConfig", "PredictConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictConfig(Settings):
    """One run of `dkfeat.predict`."""

    model: str
    """Folder of the model, or its URL."""
    out: str
    """Target folder."""
    source: SourceConfig | None = None
    """What is read, where it is text or Parquet; what it leaves open is the model's."""
    shards: str | None = None
    """Instead: folder of shards of the model's map."""
    scores: bool = True
    """Keep scores, and probabilities where the model has them."""
    on_bad_row: Literal["raise", "quarantine"] = "raise"
    """What a wrong row is: the end of the run, or set aside with its place."""
    max_bad_rows: int | float | str = 0.01
    """With "quarantine", the most rows set aside: a number, or a share such as 0.01 or "1%"."""
    storage_options: Mapping[str, Any] | None = None
    """For `shards` and `model` at a URL; a credential is given as ``env:NAME``, the name of a variable."""
    target_options: Mapping[str, Any] | None = None
    """For `out` at a URL, likewise."""

    def __post_init__(self) -> None:
        one_of("source", self.source, "shards", self.shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig(Settings):
    """One run of `dkfeat.evaluate`."""

    model: str
    """Folder of the model, or its URL."""
    out: str | None = None
    """Folder for the report: plots, evaluation.json and evaluation.html; None: figures are printed alone."""
    source: SourceConfig | None = None
    """What is read, where it is text or Parquet with labels; what it leaves open is the model's."""
    shards: str | None = None
    """Instead: folder of shards of the model's map, or of predictions that the model made."""
    storage_options: Mapping[str, Any] | None = None
    """For `shards` and `model` at a URL; a credential is given as ``env:NAME``, the name of a variable."""

    def __post_init__(self) -> None:
        one_of("source", self.source, "shards", self.shards)
