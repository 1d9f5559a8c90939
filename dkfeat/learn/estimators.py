"""Estimators of scikit-learn: trained models as pipelines, for programs that serve rows, and exact kernel machines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import Pipeline
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.validation import check_is_fitted, validate_data

from dkfeat.errors import ConfigError, InputError
from dkfeat.learn.checks import check_fits, check_several_classes
from dkfeat.learn.model import LinearModel, load_model
from dkfeat.validation import check_columns, check_real


class TrainedLinear(BaseEstimator):
    """Last step of `load_pipeline`: the weights of a `LinearModel`, applied to rows transformed by its map.

    Parameters
    ----------
    model : LinearModel
        Trained model.

    Attributes
    ----------
    classes_, coef_, intercept_ : ndarray
        Classes and weights of the `LinearModel`.
    n_features_in_ : int
        Number of columns of the map's output.
    """

    def __init__(self, model: LinearModel) -> None:
        self.model = model

    classes_ = property(attrgetter("model.names"), doc="Labels in ascending order; none for regression.")
    coef_ = property(attrgetter("model.coef"), doc="Weights of shape ``(1 or n_classes, n_features_in_)``.")
    intercept_ = property(attrgetter("model.intercept"), doc="Intercept of each row of `coef_`.")
    n_features_in_ = property(lambda self: int(self.coef_.shape[1]), doc="Number of columns of the map's output.")

    def fit(self, X: Any, y: Any = None) -> NoReturn:  # noqa: ARG002 - scikit-learn's signature
        """Raise an error, because the weights come from `dkfeat.train`.

        Raises
        ------
        ConfigError
            Always.
        """
        raise ConfigError(
            "this pipeline serves a trained model and cannot be fitted; train another one by dkfeat.train"
        )

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Compute scores of rows transformed by the map; see `LinearModel.decision_function`."""
        if len(getattr(X, "shape", ())) != 2:
            raise InputError(f"features have shape {getattr(X, 'shape', None)}, but they need rows and columns")
        check_columns(X.shape[1], self.n_features_in_, type(self).__name__)
        return self.model.score_features(X)

    def predict(self, X: Any) -> Any:
        """Predict for rows transformed by the map; see `LinearModel.predict`."""
        return self.model.named(self.model.label(self.decision_function(X)))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Compute probabilities of the classes, for a model trained with log_loss; see `LinearModel.predict_proba`."""
        return self.model.probabilities(self.decision_function(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy of the predictions, or R² for regression, as scikit-learn defines them."""
        measure = r2_score if self.model.task == "regression" else accuracy_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        if self.model.task == "regression":
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        else:
            multilabel = self.model.task == "multilabel"
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(multi_label=multilabel)
        return tags


def load_pipeline(
    model: LinearModel | str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> Pipeline:
    """Make a scikit-learn pipeline from a trained model: the encoder of its table if any, its map, and its weights.

    The pipeline is for programs that take scikit-learn estimators, above all those that serve single rows. It caches
    tables of the map, so that each row after the first takes well below a millisecond with `GCWSFeatures` of 512
    components. The pipeline can be pickled.

    Parameters
    ----------
    model : LinearModel, str or path
        Model trained by `dkfeat.train`, or the folder or URL that it was saved in.
    storage_options : mapping or None
        Options of fsspec for a URL, as in `dkfeat.load_model`.

    Returns
    -------
    pipeline : sklearn.pipeline.Pipeline
        Steps ``encoder`` (for tables), ``map`` and ``linear``; the last has ``coef_``, ``intercept_`` and ``classes_``.
        ``predict``, ``decision_function`` and ``predict_proba`` return the same as the model's methods. The pipeline is
        trained already, and ``fit`` raises an error.

    Raises
    ------
    SourceNotFoundError, ShardError, SpecConflictError
        As from `dkfeat.load_model`.

    Examples
    --------
    >>> import numpy as np
    >>> from dkfeat import GCWSFeatures
    >>> gcws = GCWSFeatures(n_components=2, i_bits=1, random_state=0).fit_width(1)
    >>> model = LinearModel(map_spec=gcws.to_spec(), classes=np.array([-1, 1]),
    ...                     coef=np.array([[-1, 1, -1, 1]]), intercept=np.array([0.5]))
    >>> load_pipeline(model).predict(np.array([[3.0], [-3.0]]))
    array([-1,  1])
    """
    loaded = load_model(model, storage_options=storage_options)
    first = [] if loaded.encoder is None else [("encoder", loaded.encoder)]
    return Pipeline([*first, ("map", loaded.map), ("linear", TrainedLinear(loaded))])


PREDICTED_BYTES = 64 << 20
"""Kernel values computed at a time in a prediction, in bytes."""


class KernelMachine(ClassifierMixin, BaseEstimator):
    """Support vector machine with an exact kernel: scikit-learn's ``SVC`` on the kernel values of all pairs of rows.

    It holds these values in memory, 8 bytes each, so it suits at most some ten thousand rows. Its accuracy is the
    reference for a linear model on features of the same kernel. ``GridSearchCV`` chooses `C` and `kernel_params`.

    Parameters
    ----------
    kernel : str, default="gmm"
        Name of a function of `dkfeat.kernels`.
    kernel_params : mapping or None, default=None
        Parameters of the kernel, such as ``{"gamma": 0.5}``.
    C : float, default=1.0
        Weight of the losses against the penalty, above 0.
    memory_limit : int or None, default=None
        Maximum memory in bytes; None: all that this machine or container has.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels in ascending order.
    n_features_in_ : int
        Number of columns of the input.

    See Also
    --------
    dkfeat.compare : Comparison of feature maps with exact kernel machines.

    Notes
    -----
    ``SVC`` trains several classes one against one.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> X, y = np.random.default_rng(0).normal(size=(80, 2)), np.tile([0, 1], 40)
    >>> X[y == 1] *= 4
    >>> grid = {"kernel_params": [{"gamma": 0.1}, {"gamma": 1}], "C": [1, 10]}
    >>> GridSearchCV(KernelMachine("rbf"), grid).fit(X, y).score(X, y) > 0.8
    True
    """

    def __init__(
        self,
        kernel: str = "gmm",
        kernel_params: Mapping[str, Any] | None = None,
        C: float = 1.0,
        *,
        memory_limit: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.C = C
        self.memory_limit = memory_limit

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the machine.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Labels of two classes or more.

        Raises
        ------
        ConfigError
            For a setting out of range.
        InputError
            For rows that the kernel does not take, or rows of only one class.
        PlanError
            If the kernel values do not fit in memory; the message names their size.
        """
        # late imports: pipelines need neither
        from sklearn.svm import SVC

        from dkfeat.kernels import named_kernel

        self._kernel = named_kernel(self.kernel, self.kernel_params)
        C = check_real(self.C, "C", above=0)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=(np.float64, np.float32))
        check_several_classes(np.unique(y), len(y))
        check_gram_fits(len(y), limit=self.memory_limit)
        self._machine = SVC(kernel="precomputed", C=C).fit(self._kernel(X), y)
        self._support_rows, self._n_rows = X[self._machine.support_], len(y)
        self.classes_ = self._machine.classes_
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the labels of rows, from their kernel values with the support vectors, in bounded memory."""
        check_is_fitted(self, "classes_")
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=(np.float64, np.float32))
        step = max(1, PREDICTED_BYTES // (8 * self._n_rows))
        parts = []
        for start in range(0, X.shape[0], step):
            rows = X[start : start + step]
            values = np.zeros((rows.shape[0], self._n_rows))
            values[:, self._machine.support_] = self._kernel(rows, self._support_rows)
            parts.append(self._machine.predict(values))
        labels: NDArray[Any] = np.concatenate(parts)
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def check_gram_fits(n_samples: int, *, n_copies: int = 1, limit: int | None = None) -> None:
    """Raise a `PlanError` if the kernel values of all pairs of rows do not fit in memory, `limit` bytes if given."""
    advice = "a kernel machine is for small sets: take fewer rows, or featurize and train a linear model"
    check_fits(8 * n_samples**2 * n_copies, "a kernel machine", advice, limit)
