"""Exact kernel support vector machines on small sets, the reference for linear models on features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted, validate_data

from dkfeat.kernels import named_kernel
from dkfeat.learn.checks import check_fits, check_several_classes
from dkfeat.validation import check_real

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
