"""What a notebook shows of a feature map: its kernel, what a row costs, and how far an estimate will be off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dkfeat.errors import DkfeatError
from dkfeat.html import card
from dkfeat.maps._kernel_estimates import settled_copy
from dkfeat.wording import show_bytes

if TYPE_CHECKING:
    from dkfeat.maps._base import FeatureMap
    from dkfeat.maps._kernel_facts import KernelFacts

__all__ = ["error_shown", "map_card"]

_LONGEST = 120
"""Characters of a parameter that are shown."""


def map_card(features: FeatureMap) -> str:
    """HTML of a map, fitted or not; one whose parameters are wrong says what is wrong with them."""
    params = features.get_params(deep=False)
    is_fitted = features.__sklearn_is_fitted__()
    note = f"fitted to {features.n_features_in_:,} columns, seed {features.seed_}" if is_fitted else "not fitted"
    try:
        facts = _facts(features, is_fitted)
    except (DkfeatError, ValueError, TypeError) as error:  # a repr does not raise
        facts = {"not usable": _short(str(error))}
    shown = {name: _short(repr(value)) for name, value in params.items()}
    return card(type(features).__name__, facts, note=note, details={"Parameters": shown})


def error_shown(facts: KernelFacts) -> str:
    """Tell the expected error of one estimate, for the kernel value it is told at."""
    if facts.variance_at is None:
        return "depends on the rows: kernel_pairs(X) measures it"
    error = float(np.sqrt(facts.variance_at(np.array([facts.typical]))[0]))
    bound = f"{facts.bound} " if facts.bound else ""
    note = f", {facts.note}" if facts.note else ""
    return f"{bound}{error:.3g} (one standard error) where the kernel is {facts.typical:.3g}{note}"


def _facts(features: FeatureMap, is_fitted: bool) -> dict[str, str]:
    settled = settled_copy(features)
    kernel = settled._kernel_facts()
    if settled.__sklearn_is_fitted__():
        k = int(settled.to_spec()["params"]["n_components"])
        sizes = _sizes(settled, k, is_fitted)
    else:  # it needs rows
        k = settled.get_params(deep=False)["n_components"]
        sizes = {"columns of features": "at most k", "bytes a row": f"at most {4 * k:,}, stored and in memory"}
    return {"kernel": kernel.name, "components k": f"{k:,}", **sizes, "error of an estimate": error_shown(kernel)}


def _sizes(settled: FeatureMap, k: int, is_fitted: bool) -> dict[str, str]:
    columns, stored = settled.n_features_out, settled.encoded_row_bytes
    if settled.layout == "codes":
        dense = f"as features {show_bytes(8 * k)} sparse, {show_bytes(4 * columns)} dense"
        return {
            "columns of features": f"{columns:,}, {k:,} of them 1",
            "bytes a row": f"{stored:,} as stored codes; {dense}",
        }
    width = settled.n_features_in_  # of an unfitted map a stand-in
    if not is_fitted and columns - k >= width:
        own = columns - width
        return {
            "columns of features": f"{own:,} and those of the input",
            "bytes a row": f"{4 * own:,} and 4 for each column of the input, stored and in memory",
        }
    return {"columns of features": f"{columns:,}", "bytes a row": f"{stored:,}, stored and in memory"}


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
