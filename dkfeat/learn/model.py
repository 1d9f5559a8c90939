"""Linear model together with the feature map that it was trained on: predictions, and the files of its folder."""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit, log_expit

from dkfeat.archives import pack_arrays, unpack_array
from dkfeat.blocks import PackedCodes
from dkfeat.canonical import dumps, parse_object, typed
from dkfeat.errors import ConfigError, InputError, ShardError, SourceNotFoundError, SpecConflictError
from dkfeat.filesystems.urls import local_path
from dkfeat.learn.scores import Entry, Score, predictions_of
from dkfeat.messages import counted
from dkfeat.store.manifest.manifest import columns_besides_features
from dkfeat.store.manifest.metadata import (
    ARRAY_NAME,
    FORMAT_OF_TABLES,
    MODEL_FILE,
    Named,
    SpecInput,
    SpecMap,
    differences,
    kind_of,
    read_sidecar,
    show_kind,
    sidecar_name,
    sidecars_of,
)
from dkfeat.store.manifest.model_folder import (
    LocalFolder,
    check_model_folder,
    model_files,
    open_model_folder,
    parse_model_file,
    read_model_file,
    seal_model_file,
)
from dkfeat.store.outputs import check_outside
from dkfeat.store.storage.base import Storage, read_required
from dkfeat.validation import check_in_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.config.train import SGD, Liblinear
    from dkfeat.encoders._base import Encoder
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.maps._base import FeatureMap


FORMAT = 1
ARRAYS = ("coef", "intercept")


def model_text(target: Storage) -> bytes:
    """Return the bytes of ``model.json``, or raise `SourceNotFoundError` if there is none."""
    text = read_model_file(target)
    if text is None:
        kind = kind_of(target)
        raise SourceNotFoundError(
            f"{target.url} holds {f'{show_kind(kind)}, not a' if kind else 'no'} model ({MODEL_FILE} is missing); "
            f"make one by `dkfeat train SHARDS --out {target.url}`"
        )
    return text


class ListedArray(TypedDict):
    """File of an array, as ``model.json`` lists it."""

    file: str
    sha256: str
    shape: list[int]


class _Listed(TypedDict):
    arrays: dict[str, ListedArray]


class Facts(_Listed):
    """Content of ``model.json`` beside the format."""

    map: SpecMap
    input: SpecInput
    classes: list[int | float]
    task: str
    training: dict[str, Any]
    history: list[Entry]
    manifest_sha256: str | None


def files_of(target: Storage) -> set[str]:
    """Return the names of the files that ``model.json`` lists; none if it is missing or damaged."""
    try:
        values = parse_object(read_model_file(target) or b"{}", MODEL_FILE)
        names = {entry["file"] for entry in typed(values, _Listed, MODEL_FILE)["arrays"].values()}
        kept = {sidecar_name(kind, sha256) for kind, sha256 in sidecars_of(values).items()}
    except ShardError:
        return set()
    return kept | {name for name in names if ARRAY_NAME.fullmatch(name)}


def read_array(target: Storage, name: str, entry: ListedArray | None) -> Any:
    """Read and check the file of an array; raise `ShardError` if it is not as listed."""
    if entry is None or not ARRAY_NAME.fullmatch(entry["file"]) or not entry["file"].startswith(f"{name}-"):
        raise ShardError(f"{target.url}/{MODEL_FILE}: {name} is not listed under a file name that dkfeat writes")
    path = f"{target.url}/{entry['file']}"
    data = read_required(target, entry["file"], f"{MODEL_FILE} lists it; train again or restore it from a copy")
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise ShardError(f"{path}: its SHA-256 is not the one that {MODEL_FILE} lists; the file was changed or damaged")
    try:
        array = unpack_array(data, path)
    except Exception as fault:  # numpy raises many kinds of exceptions for crafted headers
        raise ShardError(f"{path}: not an array that dkfeat writes: {str(fault)[:200]}") from None
    if list(array.shape) != entry["shape"] or array.dtype != np.float32:
        raise ShardError(
            f"{path}: holds {array.dtype} of shape {array.shape}, {MODEL_FILE} says float32 of {entry['shape']}"
        )
    return array


Options = Mapping[str, Any] | None


def check_target(folder: Any, storage_options: Options = None, checkpoint: Any = None) -> None:
    """Check, before training, that a model can be saved in a folder or at a URL. The check leaves no files behind.

    Raises
    ------
    ConfigError
        If the folder holds something that is not a model, is in a data set or another model, or contains the folder
        `checkpoint`.
    CommitError
        If files cannot be created there.
    """
    target = open_model_folder(folder, storage_options)
    check_outside(folder, storage_options, kind="a model")
    state, root = (None if each is None else local_path(os.fspath(each)) for each in (checkpoint, folder))
    if state is not None and root in (state, *state.parents):
        raise ConfigError(f"the checkpoint {checkpoint} is in the folder of the model, {folder}; choose another folder")
    check_model_folder(target)


def settings_of(solver: SGD | Liblinear, seed: int) -> dict[str, Any]:
    """Return the options of a training that determine its model besides the rows, for ``model.training``."""
    options = {item.name: (getattr(solver, item.name), item.default) for item in fields(solver)} | {"loaders": (1, 1)}
    given = {name: value for name, (value, default) in options.items() if value != default}
    return {"settings": {"solver": type(solver).__name__.lower(), "random_state": seed, **given}}


def check_replaces(folder: Any, storage_options: Options, map_spec: Mapping[str, Any], training: Any) -> None:
    """Check that a folder has no model of another map or of other settings; `training` may hold them.

    Raises
    ------
    SpecConflictError
        If it has; the message lists the differences.
    """
    target, existing = open_model_folder(folder, storage_options), dict[str, Any]()
    with suppress(ShardError):  # a damaged model may be replaced
        existing = parse_model_file(read_model_file(target) or b"", target.url)
    if "settings" in existing.get("training", {}) and "settings" in training and "init" not in training:
        asked = parse_object(dumps({"map": map_spec, "training": training["settings"]}), MODEL_FILE)
        continued = {key: "a model" for key in existing["training"] if key == "init"}
        found = {"map": existing["map"], "training": existing["training"]["settings"] | continued}
        for settings, others in ((asked, found), (found, asked)):
            settings["training"] = dict.fromkeys(others["training"], "the default") | settings["training"]
        if differing := "; ".join(differences(found, asked)):
            remedy = "use the same, pass overwrite=True (--overwrite), or choose another folder"
            raise SpecConflictError(f"{target.url} was made with other settings, {differing}; {remedy}")


TASKS: Mapping[str, tuple[int, float, str]] = {
    "binary": (2, 2, "two"),
    "multiclass": (2, math.inf, "two or more"),
    "multilabel": (1, math.inf, "one or more"),
    "regression": (0, 0, "none"),
}
"""Tasks, each with its minimum and maximum number of classes, and the allowed numbers in words."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearModel:
    """Linear model over the features of one map.

    The scores of a row are ``coef @ features + intercept``, where the features are the unscaled output of
    ``map.transform``: training folds its scaling into the weights. The meaning of the scores depends on the `task`:

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
    """Labels in ascending order, int64 or float64, shape (n_classes,): at least two, or at least one if rows have lists
    of labels, and none for regression."""
    coef: NDArray[np.floating[Any]]
    """Weights, shape (1 or n_classes, n_features_out)."""
    intercept: NDArray[np.floating[Any]]
    """Intercept of each row of `coef`."""
    task: str = ""
    """One of `TASKS`; empty means "binary" for two classes and "multiclass" for more."""
    input_spec: Mapping[str, Any] = field(default_factory=dict)
    """Options with which the training rows were read, as returned by ``LibsvmSource.to_mapping()``."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Loss, alpha, epochs, average, random_state and other options of the training."""
    history: tuple[Mapping[str, Any], ...] = ()
    """Entry of each epoch: number of the epoch, number of rows, and scores on held-out and test rows, if any."""
    manifest_sha256: str | None = None
    """SHA-256 of the manifest of the training shards, as canonical JSON."""
    map_arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    """Arrays returned by ``map._fitted_arrays()``: the landmarks whose hash is in the spec of a Nyström map."""
    encoder: Encoder | None = None
    """Fitted encoder of the training rows, through which the methods take rows; None if the map took numbers."""

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

    @classmethod
    def of_shards(cls, data: ShardDataset, **facts: Any) -> LinearModel:
        """Make a model with the map and the input options of opened shards."""
        return cls(
            map_spec=data.map.to_spec(),
            map_arrays=data.map._fitted_arrays(),
            encoder=data.encoder,
            input_spec=data.spec["input"],
            manifest_sha256=data.manifest.sha256,
            **facts,
        )

    @property
    def spec(self) -> dict[str, Any]:
        """Settings of the features, as in the spec of shards: the map, the options of the rows, and any encoder."""
        encoder = {} if self.encoder is None else {"encoder": self.encoder.to_spec()}
        return {**encoder, "map": dict(self.map_spec), "input": dict(self.input_spec)}

    @cached_property
    def map(self) -> FeatureMap:
        """Fitted feature map, made from its spec and, for a Nyström map, its landmarks."""
        # late import: loads scikit-learn and numba, which inspecting a model does not need
        from dkfeat.maps import from_spec

        fitted = from_spec(self.map_spec, self.map_arrays)
        if fitted.n_features_out != self.coef.shape[1]:
            raise InputError(
                f"the map gives {fitted.n_features_out:,} features, the weights are for {self.coef.shape[1]:,}"
            )
        return fitted

    @property
    def names(self) -> NDArray[Any]:
        """Classes as predictions have them, shape (n_classes,): words if labels were words, else `classes`."""
        words = self.input_spec.get("classes")
        return np.array(words)[self.classes] if words else self.classes

    def named(self, labels: Any) -> Any:
        """Return the names of labels of `label`; those of regression and of lists of labels have none."""
        if self.task in ("regression", "multilabel") or self.names is self.classes:
            return labels
        return self.names[np.searchsorted(self.classes, labels)]

    classes_ = property(attrgetter("names"), doc="`names`, under scikit-learn's name.")
    coef_ = property(attrgetter("coef"), doc="`coef`, under scikit-learn's name.")
    intercept_ = property(attrgetter("intercept"), doc="`intercept`, under scikit-learn's name.")

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Compute the scores of rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features), table, or PackedCodes
            Raw rows, or rows encoded by the model's map. With a `TableEncoder`, a data frame or Arrow table with the
            columns of the training table, or sparse rows that the encoder made.

        Returns
        -------
        scores : ndarray of float32
            Shape (n_samples,) for two classes, where positive scores mean the second class, and for regression;
            (n_samples, n_classes) for more classes and for lists of labels.

        Raises
        ------
        InputError
            For rows with another number of columns, or codes with another number of bytes per row.
        """
        X = self.numbers_by_name(X)
        if not isinstance(X, PackedCodes) and self.encoder is not None:
            X = self.encoder.rows_for_map(X, columns_besides_features(self.input_spec))
        return self.score_rows(X)

    def numbers_by_name(self, X: Any) -> Any:
        """Find the columns of a table by name if training read columns of numbers; return other rows unchanged."""
        check_in_memory(X)
        is_arrow = hasattr(X, "column_names") and not hasattr(X, "iloc")
        held = X.column_names if is_arrow else getattr(X, "columns", None)
        if held is None or self.input_spec.get("features_as") != "columns":
            return X
        places, names = {str(name): at for at, name in enumerate(held)}, self.input_spec["features"]
        if missing := [name for name in names if name not in places]:
            raise InputError(
                f"the table has no column {missing[0]!r}, which training rows had; its "
                f"columns: {', '.join(map(repr, [*places][:10]))}"
            )
        chosen = [places[name] for name in names]
        if hasattr(X, "iloc"):  # of pandas
            return X.iloc[:, chosen].to_numpy(na_value=np.nan)
        return np.asarray(X.select(chosen) if is_arrow else X[:, chosen])

    def score_rows(self, X: Any) -> NDArray[np.float32]:
        """Compute the scores of rows that have passed any encoder; see `decision_function`."""
        if not isinstance(X, PackedCodes):
            X = self.map.encode(X)
        elif X.codes.shape[1:] != (self.map.encoded_row_bytes,):
            expected = self.map.encoded_row_bytes
            raise InputError(f"codes have shape {X.codes.shape}, but the model's map packs {expected} bytes a row")
        return self.score_features(X)

    def score_features(self, features: Any) -> NDArray[np.float32]:
        """Compute the scores of rows encoded or transformed by the model's map; see `decision_function`."""
        if isinstance(features, PackedCodes):
            scores = self.map._weighted_sums(features, self.coef.T)
        else:
            scores = np.asarray(features @ self.coef.T, dtype=np.float32)
        scores = scores + self.intercept
        return scores[:, 0] if self.task in ("binary", "regression") else scores

    def predict(self, X: Any) -> Any:
        """Predict for rows; `X` is as in `decision_function`.

        Returns
        -------
        predictions : ndarray of shape (n_samples,), or csr_matrix of uint8, shape (n_samples, n_classes)
            Labels with the dtype of `names`; for lists of labels their indicator matrix; for regression float32
            numbers.
        """
        return self.named(self.label(self.decision_function(X)))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Compute the probabilities of the classes, for a model trained with log_loss or with validation rows.

        The scores of a model trained with a hinge loss are first mapped to log-odds by Platt's sigmoid, fitted to the
        scores of the validation rows, as by scikit-learn's ``CalibratedClassifierCV``.

        For two classes, the probability is the logistic function of the score. More classes are trained one against the
        rest: the logistic functions of their scores are divided by their sum, as in scikit-learn's ``SGDClassifier``.
        With lists of labels they are not divided, because each label has its own probability.

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
            If the model was trained with a hinge loss without validation rows, or for regression.
        InputError
            As from `decision_function`.
        """
        return self.probabilities(self.decision_function(X))

    @property
    def has_probabilities(self) -> bool:
        """True for a model trained with log_loss, and with a hinge loss if there were validation rows."""
        return self.task != "regression" and (self.training.get("loss") == "log_loss" or "calibration" in self.training)

    def probabilities(self, scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Turn scores into probabilities; see `predict_proba`."""
        if not self.has_probabilities:
            needed = "a model trained with loss='log_loss', or with validation rows"
            raise ConfigError(f"probabilities need {needed}; this one has loss={self.training.get('loss')!r} and none")
        scores = scores.astype(np.float64)
        if "calibration" in self.training:
            slopes, offsets = np.transpose(self.training["calibration"])
            scores = -(slopes * scores + offsets)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        if self.task == "multilabel":
            return np.asarray(expit(scores))
        logs = log_expit(scores)  # the quotient of their exponentials, shifted so that it is never 0 / 0
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def score(self, X: Any, y: Any) -> float:
        """Compute the accuracy; for regression the coefficient of determination R².

        With lists of labels, a row is correct if exactly its labels are predicted, as in scikit-learn.

        Parameters
        ----------
        X
            As for `decision_function`.
        y : array of shape (n_samples,), or indicator matrix of shape (n_samples, n_classes)
            Labels. Rows with a label that is not among the model's classes count as wrong.

        Raises
        ------
        InputError
            If there are no rows, or the numbers of labels and rows differ.
        """
        predicted = self.predict(X)
        y_true = y if issparse(y) else np.asarray(y)
        if y_true.shape != predicted.shape or not y_true.shape[0]:
            raise InputError(
                f"labels have shape {y_true.shape}, but predictions have shape {predicted.shape}; "
                "give the labels of one or more rows"
            )
        score = Score(self.task)
        score.add(predicted, y_true)
        return float("nan") if score.value is None else score.value

    def importances(self, rows: Any, *, background: Any = None) -> dict[Any, float]:
        """Rank columns by their contributions to the scores; `dkfeat.explain` tells more.

        Parameters
        ----------
        rows : array or sparse matrix of shape (n_samples, n_features), or table
            Rows as for `decision_function`, except codes.
        background : like `rows`, or None
            Rows whose mean contributions are the baseline; None: `rows`.

        Returns
        -------
        importances : dict
            Mean of ``abs(contribution - baseline)`` over rows and classes, by the name or number of the column, the
            largest first.

        Raises
        ------
        dkfeat.errors.DkfeatError
            As from `dkfeat.explain`.
        """
        from dkfeat.learn.explanation import explain_rows  # late: loads numba

        return explain_rows(self, rows, None if background is None else [background]).ranked()

    def label(self, scores: NDArray[np.float32]) -> Any:
        """Turn scores into predictions, `classes` in place of their `names`. Equal scores go to the lower label."""
        return predictions_of(self.task, self.classes, scores)

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False, storage_options: Options = None) -> None:
        """Write the model into a folder, or to a URL such as ``s3://bucket/model`` with options of fsspec.

        The folder has ``model.json``, which names the other files by their hash: weights and intercepts as plain
        ``.npy`` files, and the landmarks of a Nyström map. An earlier model is replaced in one step: by renaming the
        new ``model.json``, or by one request to an object store. Readers find either the whole old model or the whole
        new one, even after a crash. Saving again is safe.

        Parameters
        ----------
        folder : str or path
        overwrite : bool, default=False
            Replace a model of another map, or one that was trained with other settings, too. A model that continues
            another by ``init`` replaces any.
        storage_options : mapping or None

        Raises
        ------
        ConfigError
            If the folder holds something that is not a model.
        SpecConflictError
            If it holds a model of another map or of other settings, unless `overwrite` is True.
        OSError
            If the files cannot be written; a `CommitError` if the check before writing detects it.
        """
        check_target(folder, storage_options)
        if not overwrite:
            check_replaces(folder, storage_options, self.map_spec, self.training)
        facts: dict[str, Any] = {
            "format": FORMAT if self.encoder is None and self.names is self.classes else FORMAT_OF_TABLES,
            **self.spec,
            "classes": self.classes.tolist(),
            "task": self.task,
            "training": dict(self.training),
            "history": [dict(entry) for entry in self.history],
            "manifest_sha256": self.manifest_sha256,
        }
        target = open_model_folder(folder, storage_options)
        with target.saving() if isinstance(target, LocalFolder) else nullcontext(lambda: False) as is_alone:
            former, listed = files_of(target), {}
            for name in ARRAYS:
                buffer = io.BytesIO()
                np.save(buffer, getattr(self, name), allow_pickle=False)
                data = buffer.getvalue()
                digest = hashlib.sha256(data).hexdigest()
                file = f"{name}-{digest[:12]}.npy"
                listed[name] = ListedArray(file=file, sha256=digest, shape=list(getattr(self, name).shape))
                target.replace(file, data)
            kept = {entry["file"] for entry in listed.values()}
            arrays = {"landmarks": self.map_arrays}
            if self.encoder is not None:
                arrays["encoder"] = self.encoder._fitted_arrays()
            for kind, sha256 in sidecars_of(facts).items():
                name = sidecar_name(kind, sha256)
                target.replace(name, pack_arrays(arrays[kind]))
                kept.add(name)
            target.replace(MODEL_FILE, seal_model_file({**facts, "arrays": listed}))
            # if another training may be saving here, only the former model's files; else also those of killed ones
            for name in sorted((model_files(target.list("")) if is_alone() else former) - kept):
                target.remove(name)


def load_model(
    folder: LinearModel | str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> LinearModel:
    """Read a model that `LinearModel.save` wrote.

    Parameters
    ----------
    folder : str, path or LinearModel
        Folder or URL of the model; a model is returned as it is.
    storage_options : mapping or None
        Options of fsspec for a URL.

    Returns
    -------
    model : LinearModel
        Equal to the saved model.

    Raises
    ------
    SourceNotFoundError
        If there is no model.
    ShardError
        If a file does not have the hash, shape or type in ``model.json``, or the values cannot be those of a model.
    SpecConflictError
        If a newer dkfeat wrote the model.
    """
    if isinstance(folder, LinearModel):
        return folder
    if not isinstance(folder, str | os.PathLike):
        raise ConfigError(f"the model is {folder!r:.100}, but it must be a LinearModel, or its folder or URL")
    target = open_model_folder(folder, storage_options)
    text = model_text(target)
    while True:
        try:
            return _read(target, text)
        except (ShardError, FileNotFoundError):
            now = model_text(target)
            if now == text:
                raise
            text = now  # another model was saved meanwhile, and the former model's files are gone


def _read(target: Storage, text: bytes) -> LinearModel:
    """Read and check the files that the text of a ``model.json`` lists."""
    where = f"{target.url}/{MODEL_FILE}"
    values = {"task": "", **parse_model_file(text, where)}  # models written before `task` existed are classifiers
    if isinstance(values.get("format"), int) and values["format"] > FORMAT_OF_TABLES:
        raise SpecConflictError(
            f"{where}: format {values['format']} was written by a newer dkfeat; this one reads up to {FORMAT_OF_TABLES}"
        )
    if values.get("format") not in (FORMAT, FORMAT_OF_TABLES):
        raise ShardError(f"{where}: not a model of format {FORMAT} or {FORMAT_OF_TABLES}")
    facts = typed(values, Facts, where)
    arrays = {name: read_array(target, name, facts["arrays"].get(name)) for name in ARRAYS}
    landmarks, labels = sidecars_of(values).get("landmarks"), facts["classes"]
    try:
        return LinearModel(
            map_spec=Named(values["map"], f"{where}: map"),
            map_arrays={} if landmarks is None else read_sidecar(target, "landmarks", landmarks, folder=""),
            encoder=_read_encoder(values, target),
            input_spec=values["input"],
            classes=np.array(labels, np.float64 if any(isinstance(label, float) for label in labels) else np.int64),
            task=facts["task"],
            training=facts["training"],
            history=tuple(values["history"]),
            manifest_sha256=facts["manifest_sha256"],
            **arrays,
        )
    except (TypeError, ValueError, OverflowError) as error:  # intact files with impossible values
        raise ShardError(f"{target.url}: not a model that dkfeat saved: {error}") from error


def _read_encoder(values: Mapping[str, Any], target: Storage) -> Encoder | None:
    if "encoder" not in values:
        return None
    from dkfeat.engine.tasks.landmarks import load_encoder  # late: other models do not need it

    return load_encoder(values, target)


def _check_classes(task: str, classes: NDArray[Any]) -> None:
    if task not in TASKS:
        raise InputError(f"task={task!r}, but a model's task is one of {', '.join(TASKS)}")
    least, most, wanted = TASKS[task]
    is_valid = (
        classes.ndim == 1
        and least <= len(classes) <= most
        and (not len(classes) or classes.dtype in (np.int64, np.float64))
        and (classes[1:] > classes[:-1]).all()
    )
    if not is_valid:
        raise InputError(
            f"classes of a {task} model must be {wanted} ascending int64 or float64 labels, got {classes!r:.200}"
        )
