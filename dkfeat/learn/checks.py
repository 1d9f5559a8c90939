"""Checks before a training: task and classes of the labels, class weights, features of other shards, and memory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.config.train import LEAST_WEIGHT, MOST_WEIGHT, REAL_LOSSES
from dkfeat.errors import ConfigError, InputError, PlanError, SpecConflictError
from dkfeat.messages import counted, show_bytes
from dkfeat.store.manifest.manifest import labels_named
from dkfeat.store.manifest.metadata import differences
from dkfeat.validation import as_label, check_choice

if TYPE_CHECKING:
    from numpy.typing import NDArray


MOST_LABEL = 1e37
"""Largest label of a regression; predictions, which may be larger than the labels, are float32."""
MOST_FRACTIONS = 100
"""Most classes, if some are numbers with fractions, as quantities are, and the task is not given."""
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def check_row_weights(weights: NDArray[np.float64]) -> None:
    """Check that the weights of rows are 0 or within the bounds."""
    strange = weights[(weights != 0) & ~((weights >= LEAST_WEIGHT) & (weights <= MOST_WEIGHT))]
    if len(strange):
        raise InputError(
            f"a row has the weight {strange[0]}, but weights are 0 or from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}; "
            "multiply all of them by one number, which changes nothing else"
        )


def no_weight(n_rows: int) -> InputError:
    """Return the error for rows that all have the weight 0."""
    return InputError(f"the weights of all {n_rows:,} rows are 0; there is nothing to train on")


def available_bytes() -> int:
    """Return the memory that this process may use, in bytes: the machine's, or its container's limit if lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical


def check_fits(needed: int, what: str, advice: str, limit: int | None = None) -> None:
    """Raise an error if work does not fit in memory.

    Parameters
    ----------
    needed : int
        Peak memory of the work in bytes.
    what, advice : str
        Subject of the message, and the alternative that it offers.
    limit : int or None
        Maximum number of bytes; None: `available_bytes`.

    Raises
    ------
    PlanError
        If `needed` exceeds the limit; the message names both sizes.

    Examples
    --------
    >>> check_fits(3 << 30, "LIBLINEAR", "use SGD", limit=2 << 30)
    Traceback (most recent call last):
    ...
    dkfeat.errors.PlanError: LIBLINEAR needs about 3.0 GiB of memory, 2.0 GiB may be used; use SGD
    """
    limit = available_bytes() if limit is None else limit
    if needed > limit:
        raise PlanError(f"{what} needs about {show_bytes(needed)} of memory, {show_bytes(limit)} may be used; {advice}")


def task_of(data: Any, task: str, losses: tuple[str | None, ...] = ()) -> str:
    """Determine the task of the `LinearModel` from the labels of shards and the options of a training.

    Parameters
    ----------
    data : ShardDataset
    task : {"auto", "classification", "regression"}
    losses : tuple of str
        With "auto", a regression loss means regression.

    Raises
    ------
    ConfigError
        For a regression on words or lists of labels, and if labels have too many values to be classes.
    InputError
        If the shards hold no rows, or were made without labels.
    """
    given = data.spec["input"]
    check_choice(task, "task", ("auto", "classification", "regression"))
    if data.n_rows == 0:
        raise InputError("the training shards hold no rows; featurize a source with rows")
    if given.get("label", "") is None:
        raise InputError(
            "the training shards were made with label=None, so rows have no labels; "
            "featurize with label=COLUMN (--label COLUMN)"
        )
    regression = task == "regression" or (task == "auto" and any(loss in REAL_LOSSES for loss in losses))
    if regression and (given.get("multilabel") or given.get("classes")):
        kind = "words" if given.get("classes") else "a list for each row"
        raise ConfigError(f"the labels of these shards are {kind}, which are classes; no regression can be trained")
    if regression:
        return "regression"
    if data.classes is None:
        raise ConfigError(
            "the shards' labels take more than 10,000 values, too many for classes; if they are quantities, train a "
            "regression: task='regression' (--task regression)"
        )
    n_values = len(data.classes)
    if task == "auto" and n_values > MOST_FRACTIONS and any(label % 1 for label in data.classes):
        raise ConfigError(
            f"the labels are {n_values:,} numbers with fractions, as quantities are: train a regression, with "
            "task='regression' (--task regression), or classes, with task='classification' (--task classification)"
        )
    return "multilabel" if given.get("multilabel") else "binary" if len(data.classes) == 2 else "multiclass"


def classes_of(data: Any, task: str) -> NDArray[Any]:
    """Return the classes in ascending order; none for regression.

    Raises
    ------
    InputError
        If there are too few.
    """
    if task == "regression":
        return np.empty(0, np.float64)
    classes = np.asarray(data.classes)
    if task != "multilabel":
        check_several_classes(labels_named(data.classes, data.spec["input"]), data.n_rows)
    elif not len(classes):
        raise InputError(f"none of the {data.n_rows:,} rows has a label")
    return classes


def check_several_classes(classes: Sequence[Any], n_rows: int) -> None:
    """Raise an error if rows have fewer than two different labels."""
    if len(classes) < 2:
        only = ", ".join(map(str, classes)) or "none"
        raise InputError(f"a classifier needs labels of two classes or more; all {n_rows:,} rows have the label {only}")


def class_weights(
    given: str | Mapping[str, float] | None, names: Sequence[Any], counts: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Compute the weight of each class from the option of a solver; None if all are 1.

    Parameters
    ----------
    given : "balanced", mapping of str to float, or None
    names : sequence of n_classes numbers or words
        Classes, as `labels_named` gives them.
    counts : ndarray of shape (n_classes,)
        Rows of each class.

    Examples
    --------
    >>> class_weights("balanced", [3, 4], np.array([10, 30])).round(2).tolist()
    [2.0, 0.67]
    >>> class_weights({"yes": 5.0}, ["no", "yes"], np.array([10, 30])).tolist()
    [1.0, 5.0]
    """
    if given is None:
        return None
    if isinstance(given, str):
        return np.asarray(counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1)), dtype=np.float64)
    numbers = {name: number for number, name in enumerate(names)}  # of Python, which compare exactly
    weights: dict[int, float] = {}
    for label, weight in given.items():
        name: Any = label
        if not isinstance(names[0], str):
            with suppress(ValueError):
                name = as_label(label)
        if name not in numbers:
            some = ", ".join(map(str, names[:10]))
            raise ConfigError(f"class_weight names the label {label}, but the classes are {some}")
        if numbers[name] in weights:
            raise ConfigError(f"class_weight gives the label {name} twice; give each label one weight")
        weights[numbers[name]] = weight
    return np.array([weights.get(number, 1.0) for number in range(len(names))])


def check_continues(model: Any, data: Any, where: str) -> None:
    """Check that training can continue from a model on opened shards: of its map and encoder, with no other labels.

    `where` names the shards in the message.

    Raises
    ------
    SpecConflictError
        If not; the message says what differs.
    """
    check_same_features(model.spec, data.spec, shards=where, owner="the model's", like="MODEL")
    if model.task == "regression":
        return
    new = [] if data.classes is None else np.setdiff1d(data.classes, model.classes).tolist()
    lacks = model.task == "multilabel" and data.classes is not None and len(data.classes) < len(model.classes)
    if new or lacks:
        what = f"has no class for {counted(len(new), 'label')}, such as {new[0]}" if new else "has further labels"
        raise SpecConflictError(f"{where}: the model {what}; train a new model on rows with all labels")


def check_same_features(
    expected: Mapping[str, Any],
    spec: Mapping[str, Any],
    *,
    shards: str,
    owner: str,
    like: str,
    options: Sequence[str] = ("n_features", "zero_based", "multilabel"),
) -> None:
    """Check that shards have the features that a model or its training shards have.

    Parameters
    ----------
    expected : mapping
        Keys ``map``, ``input`` and any ``encoder``: specs, and options by which the training rows were read.
    spec : mapping
        Spec of the shards.
    shards, owner, like : str
        For the message: name of the shards, owner of the expected features, and value of ``like=`` that gives rows the
        same features.
    options : sequence of str
        Input options that must be equal if both specs have them.

    Raises
    ------
    SpecConflictError
        If the shards were made by another map or encoder, or from rows that were read with other options.

    Examples
    --------
    >>> model, other = ({"map": {"seed": seed}, "input": {}} for seed in (0, 9))
    >>> check_same_features(model, other, shards="out/shards", owner="the model's", like="MODEL")
    Traceback (most recent call last):
    ...
    dkfeat.errors.SpecConflictError: out/shards: made by another map than the model's, map.seed: 9 there, 0 asked; ...
    """
    for key in ("map", "encoder"):
        ours, theirs = (json.loads(json.dumps(values.get(key))) for values in (expected, spec))
        if lines := differences(theirs, ours, key):
            lines = [line for line in lines if line.startswith(f"{key}.{key}:")] or lines  # not all of other parameters
            differing = f"{'; '.join(lines)}; featurize their rows with like={like} (--like {like})"
            raise SpecConflictError(f"{shards}: made by another {key} than {owner}, {differing}")
    words, others = ([*values["input"].get("classes", ())] for values in (expected, spec))
    if words != others and None not in (values["input"].get("label", "") for values in (expected, spec)):
        labels, trained = (f"the words {', '.join(names)[:100]}" if names else "numbers" for names in (others, words))
        raise SpecConflictError(
            f"{shards}: labels are {labels}, {owner} are {trained}; convert the column of labels first"
        )
    is_of_kind = expected["input"].get("kind") == spec["input"].get("kind")  # an index base is that of a format
    for key in options if is_of_kind else [key for key in options if key != "zero_based"]:
        wanted, found = expected["input"].get(key), spec["input"].get(key)
        if None not in (wanted, found) and wanted != found:
            raise SpecConflictError(
                f"{shards}: rows were read with {key}={found!r}, {owner} with {key}={wanted!r}; "
                f"featurize them with like={like} (--like {like})"
            )
