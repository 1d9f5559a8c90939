"""Settings of a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dkfeat.config.settings import Settings, at_least
from dkfeat.errors import ConfigError

__all__ = ["TrainConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(Settings):
    """One run of `dkfeat.train`."""

    shards: str
    """Folder of training shards."""
    test: str | None = None
    """Folder of shards that are scored only."""
    validation: str | None = None
    """Folder of shards that choose among alphas, losses and epochs."""
    validation_fraction: float | None = None
    """Instead: the share of the rows held out for that, in (0, 1); None: the trainer's own choice."""
    out: str | None = None
    """Where the model is saved."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """What labels are; auto: classes, unless the loss is one for regression."""
    solver: Literal["sgd", "liblinear"] = "sgd"
    """Shard by shard, or with all features in memory."""
    C: float | tuple[float, ...] | None = None
    """For liblinear: weight of the losses or several, above 0; None: the trainer's own choice."""
    loss: str | tuple[str, ...] | None = None
    """Loss or several, by the names in `dkfeat.train`; None: the trainer's own choice."""
    alpha: float | tuple[float, ...] | None = None
    """Strength of the l2 penalty or several, above 0; None: the trainer's own choice."""
    epochs: int | None = None
    """Passes over the shards, at least 1; None: the trainer's own choice."""
    average: bool | None = None
    """Average the weights over the steps; None: the trainer's own choice."""
    class_weight: str | Mapping[str, Any] | None = None
    """"balanced", or weights by label; None: 1."""
    refit: bool = False
    """Train what the held-out rows chose once more, on all rows."""
    patience: int | None = None
    """Epochs without a better held-out score after which training stops, at least 1; None: all epochs are trained."""
    checkpoint: str | None = None
    """Local folder in which the state is saved, and from which an interrupted training goes on."""
    resume: bool = True
    """False begins anew whatever the checkpoint holds."""
    shuffle_rows: int | None = None
    """Rows mixed together, at least 1; None: the trainer's own choice."""
    loaders: int = 1
    """Shards read at the same time, at least 1."""
    parts: int | None = None
    """Parts trained side by side where `run` says, averaged after each epoch, at least 1; None: one descent."""
    random_state: int = 0
    """Seed of the row order and of the rows held out."""
    storage_options: Mapping[str, Any] | None = None
    """For shards at URLs; a credential is given as ``env:NAME``, the name of a variable."""

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "shuffle_rows", "loaders", "parts"):
            value = getattr(self, name)
            if value is not None:
                at_least(name, value, 1)
        for alpha in self.alpha if isinstance(self.alpha, tuple) else (self.alpha,):
            if alpha is not None and not 0 < alpha < float("inf"):
                message = f"alpha={alpha}, but the penalty's strength must be positive and finite"
                raise ConfigError(message)
