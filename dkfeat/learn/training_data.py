"""What shards must be to be trained on: rows, labels of two classes, one map for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.learn.descent_settings import REAL_LOSSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.learn.sgd_options import Options

__all__ = ["check_same_features", "classes_of", "task_of"]


def task_of(data: Any, options: Options) -> str:
    """Task of the `LinearModel` that the options ask for.

    Parameters
    ----------
    data : ShardDataset
    options : Options

    Raises
    ------
    ConfigError
        For a regression on lists of labels, and where labels take too many values to be classes.
    InputError
        The shards hold no rows, or were made without labels.
    """
    given = data.spec["input"]
    if data.n_rows == 0:
        message = "the training shards hold no rows; featurize a source that does"
        raise InputError(message)
    if given.get("kind") == "parquet" and given.get("label") is None:
        message = "the training shards were made with label=None, so rows have no labels; featurize with label=COLUMN"
        raise InputError(message)
    regression = options.task == "regression" or (
        options.task == "auto" and options.losses is not None and any(loss in REAL_LOSSES for loss in options.losses)
    )
    if given.get("multilabel"):
        if regression:
            message = "these shards hold a list of labels for each row, which are classes; no regression can be trained"
            raise ConfigError(message)
        return "multilabel"
    if regression:
        return "regression"
    if data.classes is None:
        message = (
            "the shards' labels take more than 10,000 values, too many for classes; if they are quantities, train a "
            "regression: task='regression', --task regression"
        )
        raise ConfigError(message)
    return "binary" if len(data.classes) == 2 else "multiclass"


def classes_of(data: Any, task: str) -> NDArray[Any]:
    """Labels to tell apart, ascending; none for regression.

    Raises
    ------
    InputError
        There are not enough of them.
    ConfigError
        There are too many.
    """
    if task == "regression":
        return np.empty(0, np.float64)
    if data.classes is None:
        message = "the shards' labels take more than 10,000 values, more than can be trained"
        raise ConfigError(message)
    classes = np.asarray(data.classes)
    if task == "multilabel":
        if not len(classes):
            message = f"none of the {data.n_rows:,} rows has a label"
            raise InputError(message)
    elif len(classes) < 2:
        only = ", ".join(str(label) for label in classes.tolist()) or "none"
        message = f"a classifier needs labels of two classes or more; all {data.n_rows:,} rows have the label {only}"
        raise InputError(message)
    return classes


def check_same_features(data: Any, held_out: Any) -> None:
    """Check that held-out shards have the features of the training shards.

    Raises
    ------
    SpecConflictError
        They come from another map or were read by other input options.
    """
    if data.map.fingerprint() != held_out.map.fingerprint():
        ours, theirs = data.map.to_spec(), held_out.map.to_spec()
        other = ", ".join(
            f"{key} {ours.get(key)!r} and {theirs.get(key)!r}" for key in ours if ours[key] != theirs.get(key)
        )
        message = f"training and test shards come from different maps: {other}; featurize the test rows with like=TRAIN"
        raise SpecConflictError(message)
    for key in ("n_features", "zero_based", "multilabel"):
        ours, theirs = data.spec["input"].get(key), held_out.spec["input"].get(key)
        if ours != theirs:
            message = (
                f"training rows were read with {key}={ours!r}, test rows with {key}={theirs!r}; "
                "featurize the test rows with like=TRAIN"
            )
            raise SpecConflictError(message)
