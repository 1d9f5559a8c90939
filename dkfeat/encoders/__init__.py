"""Encoders: estimators that make rows ready for feature maps, sparse rows of tables, or rows of scaled columns.

They are loaded when first used: `CLASSES` can be read without loading scikit-learn and numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dkfeat.encoders._base import Encoder

CLASSES = {
    "table": "dkfeat.encoders.table:TableEncoder",
    "text": "dkfeat.encoders.text:Text",
    "scale": "dkfeat.encoders.scale:ColumnScale",
}
"""Module and class of each encoder, by its name in specs."""


def encoder_class(name: str) -> type[Encoder]:
    """Load the class of an encoder by its name in specs."""
    module, cls = CLASSES[name].split(":")
    loaded: type[Encoder] = getattr(importlib.import_module(module), cls)
    return loaded
