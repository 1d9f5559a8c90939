"""A linear model together with the feature map it was trained on: predictions from raw rows or from codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit, log_expit, softmax

from dkfeat.blocks import PackedCodes, take_rows
from dkfeat.errors import ConfigError, InputError, ShardError
from dkfeat.html import card
from dkfeat.io.manifest.manifest import labels_shown
from dkfeat.learn.model_files import read_model, write_model
from dkfeat.learn.score import Score, predictions_of
from dkfeat.messages import counted, show_bytes

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.maps._base import FeatureMap


TASKS = ("binary", "multiclass", "multilabel", "regression")

SHOWN_EPOCHS = 20
"""Epochs of the history that a notebook shows."""
SCORED_BYTES = 32 << 20
"""Features decoded at a time while scoring."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearModel:
    """Linear model over the features of one map.

    The scores of a row are ``coef @ features + intercept``, where the features are those of ``map.transform``, ones as
    they are: whatever training scales is already in the weights. What they mean is the `task`:

    ========== ==================================== ====================================================
    task       rows of `coef`                       prediction
    ========== ==================================== ====================================================
    binary     one, positive for the second class   label of the score's sign
    multiclass one for each class                   label of the largest score
    multilabel one for each class                   indicator matrix: all classes with a positive score
    regression one                                  the score
    ========== ==================================== ====================================================

    Examples
    --------
    >>> import numpy as np
    >>> from dkfeat import GCWSFeatures
    >>> gcws = GCWSFeatures(n_components=2, i_bits=1, random_state=0).fit_width(1)
    >>> model = LinearModel(map_spec=gcws.to_spec(), classes=np.array([-1, 1]),
    ...                     coef=np.array([[-1, 1, -1, 1]]), intercept=np.array([0.5]))
    >>> model.predict(np.array([[3.0], [-3.0]]))
    array([-1,  1])
    """

    map_spec: Mapping[str, Any]
    """Spec of the feature map, as ``map.to_spec()`` gives it."""
    classes: NDArray[Any]
    """Labels in ascending order, int64 or float64, shape (n_classes,): at least two, multi-label at least one, for
    regression none."""
    coef: NDArray[np.floating[Any]]
    """Weights of shape (1 or n_classes, n_features_out), see above."""
    intercept: NDArray[np.floating[Any]]
    """One for each row of `coef`."""
    task: str = ""
    """One of `TASKS`; empty stands for "binary" with two classes and for "multiclass" with more."""
    input_spec: Mapping[str, Any] = field(default_factory=dict)
    """Options by which the source of the training rows was read, as ``LibsvmSource.to_mapping()`` gives it."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Loss, alpha, epochs, average and random_state that made the weights."""
    history: tuple[Mapping[str, Any], ...] = ()
    """One entry an epoch: its number, rows seen and the held-out accuracy, a fraction, if there were test shards."""
    manifest_sha256: str | None = None
    """Hash of the canonical JSON of the training shards' list."""
    map_arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    """Arrays of ``map.fitted_arrays()``: the landmarks that the spec of a Nyström map names by their hash."""

    def __post_init__(self) -> None:
        classes = np.ascontiguousarray(self.classes)
        # Fortran order: the transpose, which scoring multiplies by, is then contiguous
        coef = np.asfortranarray(self.coef, dtype=np.float32)
        intercept = np.ascontiguousarray(self.intercept, dtype=np.float32)
        task = self.task or ("binary" if len(classes) == 2 else "multiclass")
        rows = len(classes) if task in ("multiclass", "multilabel") else 1
        _check_classes(task, classes)
        if coef.ndim != 2 or coef.shape[0] != rows or intercept.shape != (rows,):
            raise InputError(
                f"a {task} model of {len(classes)} classes needs weights of {rows} rows and {rows} intercepts, "
                f"got shapes {coef.shape} and {intercept.shape}"
            )
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise InputError(
                "the weights are not all finite float32 numbers; scale the labels of a regression down, or the columns "
                "of the source up"
            )
        for name, array in (("classes", classes), ("coef", coef), ("intercept", intercept)):
            kept = array.view()  # the caller's own array stays writable
            kept.flags.writeable = False
            object.__setattr__(self, name, kept)
        object.__setattr__(self, "task", task)

    def __repr__(self) -> str:
        features = counted(self.coef.shape[1], "feature")
        classes = f", {counted(len(self.classes), 'class')}" if len(self.classes) else ""
        return f"LinearModel({self.task!r}{classes}, {features} of {self.map_spec['map']})"

    def _repr_html_(self) -> str:
        # a model that predicts needs no Dask
        from dkfeat.engine.dataset.dataset import map_shown

        n_rows, n_columns = self.coef.shape
        facts: dict[str, Any] = {
            "task": self.task,
            "classes": labels_shown(self.classes.tolist()),
            "map": map_shown(self.map_spec),
            "weights": f"{n_rows:,} by {n_columns:,}, {show_bytes(self.coef.nbytes)}",
        }
        if self.history:
            last = self.history[-1]
            facts["epochs"] = f"{len(self.history):,}"
            if last.get("test_accuracy") is not None:
                facts["test accuracy"] = f"{last['test_accuracy']:.2%}"
        is_long = len(self.history) > SHOWN_EPOCHS
        heading = f"History: the last {SHOWN_EPOCHS} of {len(self.history):,}" if is_long else "History"
        training = {key: str(value) for key, value in self.training.items()}
        details: dict[str, Any] = {"Training": training, heading: list(self.history[-SHOWN_EPOCHS:])}
        return card("LinearModel", facts, details=details)

    @classmethod
    def of_shards(cls, data: ShardDataset, **facts: Any) -> LinearModel:
        """Model of the map and rows of opened shards."""
        return cls(
            map_spec=data.map.to_spec(),
            map_arrays=data.map.fitted_arrays(),
            input_spec=data.spec["input"],
            manifest_sha256=data.manifest.sha256,
            **facts,
        )

    @cached_property
    def map(self) -> FeatureMap:
        """The fitted feature map, made from its spec and, where it has some, its landmarks."""
        # scikit-learn and numba come with the maps; a model that is only inspected needs neither
        from dkfeat.maps import from_spec

        fitted = from_spec(self.map_spec, self.map_arrays)
        if fitted.n_features_out != self.coef.shape[1]:
            raise InputError(
                f"the map gives {fitted.n_features_out:,} features, the weights are for {self.coef.shape[1]:,}"
            )
        return fitted

    @property
    def classes_(self) -> NDArray[Any]:
        """`classes`, under scikit-learn's name."""
        return self.classes

    @property
    def coef_(self) -> NDArray[np.floating[Any]]:
        """`coef`, under scikit-learn's name."""
        return self.coef

    @property
    def intercept_(self) -> NDArray[np.floating[Any]]:
        """`intercept`, under scikit-learn's name."""
        return self.intercept

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Scores of rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features), or PackedCodes
            Raw rows, or rows that the model's map has encoded.

        Returns
        -------
        scores : ndarray of float32
            Shape (n_samples,) for two classes, positive for the second, and for regression; (n_samples, n_classes) for
            more classes and for lists of labels.

        Raises
        ------
        InputError
            For rows of another width, or codes of another number of bytes a row.
        """
        if not isinstance(X, PackedCodes):
            X = self.map.encode(X)
        elif X.codes.shape[1:] != (self.map.encoded_row_bytes,):
            expected = self.map.encoded_row_bytes
            raise InputError(f"codes of shape {X.codes.shape} came, but the model's map packs {expected} bytes a row")
        held = 8 * getattr(self.map, "n_components", 1) if self.map.layout == "codes" else self.map.encoded_row_bytes
        most = max(1, SCORED_BYTES // held)
        parts = [take_rows(X, slice(start, start + most)) for start in range(0, X.shape[0], most)] or [X]
        return np.concatenate([self.score_features(self.map.decode(part)) for part in parts])

    def score_features(self, features: Any) -> NDArray[np.float32]:
        """Scores of rows that the model's map has transformed, as `decision_function` gives them."""
        scores = np.asarray(features @ self.coef.T, dtype=np.float32) + self.intercept
        return scores[:, 0] if self.task in ("binary", "regression") else scores

    def predict(self, X: Any) -> Any:
        """Predictions for rows; see `decision_function` for what X may be.

        Returns
        -------
        predictions : ndarray of shape (n_samples,), or csr_matrix of uint8, shape (n_samples, n_classes)
            Labels of the type of `classes`; for lists of labels their indicator matrix, as shards give it; for
            regression float32 numbers.
        """
        return self.label(self.decision_function(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, for a model trained with log_loss.

        Two classes: the logistic function of the score. More are trained one against the rest: the logistic function of
        each class's score, divided by their sum, as scikit-learn's ``SGDClassifier`` does it; with lists of labels it
        is not divided, as each label has a probability of its own.

        Parameters
        ----------
        X
            As for `decision_function`.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            Columns as in `classes`; each row sums to 1, except with lists of labels.

        Raises
        ------
        ConfigError
            If the model was trained with another loss, whose scores are no probabilities.
        InputError
            As from `decision_function`.
        """
        return self.probabilities(self.decision_function(X))

    @property
    def has_probabilities(self) -> bool:
        """True for a model trained with log_loss, whose scores stand for probabilities."""
        return self.task != "regression" and self.training.get("loss") == "log_loss"

    def probabilities(self, scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Probabilities that belong to scores, as `predict_proba` gives them, which see."""
        if not self.has_probabilities:
            loss = self.training.get("loss")
            raise ConfigError(f"probabilities need a model trained with loss='log_loss', this one has loss={loss!r}")
        scores = scores.astype(np.float64)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        if self.task == "multilabel":
            independent: NDArray[np.float64] = expit(scores)
            return independent
        # the softmax of logarithms is that quotient, without 0 / 0 where all are tiny
        probabilities: NDArray[np.float64] = softmax(log_expit(scores), axis=1)
        return probabilities

    def score(self, X: Any, y: Any) -> float:
        """Share of rows that get their own label; for regression the coefficient of determination R².

        With lists of labels a row counts if all of its labels are right and none is missing, as scikit-learn has it.

        Parameters
        ----------
        X
            As for `decision_function`.
        y : array of shape (n_samples,), or indicator matrix of shape (n_samples, n_classes)
            Labels; one that the model does not know counts as a miss.

        Raises
        ------
        InputError
            For no rows, or another number of labels than of rows.
        """
        predicted = self.predict(X)
        own = y if issparse(y) else np.asarray(y)
        if own.shape != predicted.shape or not own.shape[0]:
            raise InputError(
                f"labels of shape {own.shape} came where predictions have shape {predicted.shape}; "
                "give the labels of one or more rows"
            )
        score = Score(self.task)
        score.add(predicted, own)
        return float("nan") if score.value is None else score.value

    def label(self, scores: NDArray[np.float32]) -> Any:
        """Predictions that belong to scores, as `predict` gives them; equal scores go to the lower label."""
        return predictions_of(self.task, self.classes, scores)

    def save(self, folder: str | PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> None:
        """Write the model into a folder, or to a URL such as ``s3://bucket/model`` with the options of its store.

        On disk: ``model.json``, and the weights and intercepts as plain ``.npy`` files that it names by their hash; the
        landmarks of a Nyström map beside them.
        An earlier model there is replaced in one step, by the rename of the new ``model.json``, in a store by one
        request: a reader, or a reader after a crash, finds the whole old model or the whole new one. Saving again is
        safe.

        Raises
        ------
        ConfigError
            If the folder holds something that is not a model.
        OSError
            If the files cannot be written; a `CommitError` where that can be told beforehand.
        """
        facts = {
            "map": dict(self.map_spec),
            "input": dict(self.input_spec),
            "classes": self.classes.tolist(),
            "task": self.task,
            "training": dict(self.training),
            "history": [dict(entry) for entry in self.history],
            "manifest_sha256": self.manifest_sha256,
        }
        arrays = {"coef": self.coef, "intercept": self.intercept}
        write_model(folder, facts, arrays, self.map_arrays, storage_options)


def load_model(folder: str | PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> LinearModel:
    """Read a model that `LinearModel.save` wrote.

    Parameters
    ----------
    folder : str or path
        Where it was saved: a folder or a URL.
    storage_options : mapping or None
        For a URL, as fsspec takes them.

    Returns
    -------
    model : LinearModel

    Raises
    ------
    SourceNotFoundError
        If there is no model.
    ShardError
        If a file is damaged: its hash, shape or type is not what ``model.json`` says, or that cannot be a model.
    SpecConflictError
        If a newer dkfeat wrote it.
    """
    facts, arrays, map_arrays = read_model(folder, storage_options)
    kind = np.float64 if any(isinstance(label, float) for label in facts["classes"]) else np.int64
    try:
        return LinearModel(
            map_spec=facts["map"],
            map_arrays=map_arrays,
            input_spec=facts["input"],
            classes=np.array(facts["classes"], dtype=kind),
            coef=arrays["coef"],
            intercept=arrays["intercept"],
            task=facts["task"],
            training=facts["training"],
            history=tuple(facts["history"]),
            manifest_sha256=facts["manifest_sha256"],
        )
    except (TypeError, ValueError, OverflowError) as error:  # the files are whole, but what they say cannot be
        raise ShardError(f"{folder}: not a model that dkfeat saved: {error}") from error


def _check_classes(task: str, classes: NDArray[Any]) -> None:
    if task not in TASKS:
        raise InputError(f"task={task!r}, but a model's task is one of {', '.join(TASKS)}")
    least, most = {"binary": (2, 2), "multiclass": (2, None), "multilabel": (1, None), "regression": (0, 0)}[task]
    if (
        classes.ndim != 1
        or len(classes) < least
        or (most is not None and len(classes) > most)
        or (len(classes) and classes.dtype not in (np.int64, np.float64))
        or not (np.diff(classes) > 0).all()
    ):
        wanted = {0: "none", 1: "one or more", 2: "two or more" if most is None else "two"}[least]
        raise InputError(
            f"classes of a {task} model must be {wanted} ascending int64 or float64 labels, got {classes!r:.200}"
        )
