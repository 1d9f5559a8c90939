"""What a notebook shows of a linear model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dkfeat.engine.cards import map_shown
from dkfeat.html import card
from dkfeat.io.manifest_card import labels_shown
from dkfeat.wording import show_bytes

if TYPE_CHECKING:
    from dkfeat.learn.model import LinearModel

__all__ = ["model_card"]

_EPOCHS = 20


def model_card(model: LinearModel) -> str:
    """HTML of a model."""
    n_rows, n_columns = model.coef.shape
    facts: dict[str, Any] = {
        "task": model.task,
        "classes": labels_shown(model.classes.tolist()),
        "map": map_shown(model.map_spec),
        "weights": f"{n_rows:,} by {n_columns:,}, {show_bytes(model.coef.nbytes)}",
    }
    if model.history:
        last = model.history[-1]
        facts["epochs"] = f"{len(model.history):,}"
        facts |= {key.replace("_", " "): f"{last[key]:.2%}" for key in ("test_accuracy",) if last.get(key) is not None}
    heading = f"History: the last {_EPOCHS} of {len(model.history):,}" if len(model.history) > _EPOCHS else "History"
    training = {key: str(value) for key, value in model.training.items()}
    history = list(model.history[-_EPOCHS:])
    return card("LinearModel", facts, details={"Training": training, heading: history})
