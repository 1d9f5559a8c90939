"""Trained models as pipelines of scikit-learn, for programs that serve rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import Pipeline
from sklearn.utils import ClassifierTags, RegressorTags

from dkfeat.errors import ConfigError, InputError
from dkfeat.learn.model import LinearModel, load_model
from dkfeat.validation import check_columns


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
