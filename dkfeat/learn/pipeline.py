"""A trained model as a scikit-learn pipeline, for programs that serve single rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import Pipeline
from sklearn.utils import ClassifierTags, RegressorTags

from dkfeat.errors import ConfigError, InputError
from dkfeat.learn.model import LinearModel, load_model
from dkfeat.validation import check_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TrainedLinear", "load_pipeline"]


class TrainedLinear(BaseEstimator):
    """Last step of `load_pipeline`: the weights of a `LinearModel` over rows that its map has transformed.

    Parameters
    ----------
    model : LinearModel

    Attributes
    ----------
    classes_, coef_, intercept_ : ndarray
        As `LinearModel` has them.
    n_features_in_ : int
        Columns of the map's output.
    """

    def __init__(self, model: LinearModel) -> None:
        self.model = model

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels in ascending order; none for regression."""
        return self.model.classes

    @property
    def coef_(self) -> NDArray[Any]:
        """Weights of shape ``(1 or n_classes, n_features_in_)``."""
        return self.model.coef

    @property
    def intercept_(self) -> NDArray[Any]:
        """One for each row of `coef_`."""
        return self.model.intercept

    @property
    def n_features_in_(self) -> int:
        """Columns of the map's output."""
        return int(self.model.coef.shape[1])

    def fit(self, X: Any, y: Any = None) -> NoReturn:  # noqa: ARG002 - scikit-learn's signature
        """Refuse: the weights come from `dkfeat.train`.

        Raises
        ------
        ConfigError
            Always.
        """
        message = "this pipeline serves a trained model and cannot be fitted; train another one by dkfeat.train"
        raise ConfigError(message)

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Scores of rows that the map has transformed; see `LinearModel.decision_function`."""
        if len(getattr(X, "shape", ())) != 2:
            message = f"features of shape {getattr(X, 'shape', None)} came, but they need rows and columns"
            raise InputError(message)
        check_columns(X.shape[1], self.n_features_in_, type(self).__name__)
        return self.model.score_features(X)

    def predict(self, X: Any) -> Any:
        """Predictions for rows that the map has transformed; see `LinearModel.predict`."""
        return self.model.label(self.decision_function(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, for a model trained with log_loss; see `LinearModel.predict_proba`."""
        return self.model.probabilities(self.decision_function(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of the predictions, for regression the coefficient of determination R², as scikit-learn has them."""
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
    """Make a scikit-learn pipeline of a trained model: its feature map, then its weights.

    For programs that take scikit-learn estimators, above all those that serve single rows: tables of the map are
    cached, so rows after the first take well below a millisecond where the map is `GCWSFeatures` of 512 components.
    The pipeline pickles.

    Parameters
    ----------
    model : LinearModel, str or path
        Trained by `dkfeat.train`, or the folder or URL that it was saved in.
    storage_options : mapping or None
        For a URL, as `dkfeat.load_model` takes them.

    Returns
    -------
    pipeline : sklearn.pipeline.Pipeline
        Steps ``map`` and ``linear``; the latter has ``coef_``, ``intercept_`` and ``classes_``. ``predict``,
        ``decision_function`` and ``predict_proba`` give what the model's give. It is trained: ``fit`` refuses.

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
    loaded = model if isinstance(model, LinearModel) else load_model(model, storage_options=storage_options)
    return Pipeline([("map", loaded.map), ("linear", TrainedLinear(loaded))])
