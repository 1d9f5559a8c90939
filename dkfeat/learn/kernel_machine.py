"""Exact kernel support vector machines on small sets, the reference for linear models on features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted, validate_data

from dkfeat.config.train import DEFAULT_C, as_grid, check_fraction
from dkfeat.errors import ConfigError
from dkfeat.kernels import NamedKernel, named_kernel
from dkfeat.learn.checks import check_fits, check_several_classes
from dkfeat.learn.liblinear import best_of_grid, split_held_out
from dkfeat.validation import check_integer

PREDICTED_BYTES = 64 << 20
"""Kernel values computed at a time in a prediction, in bytes."""
ADVICE = "a kernel machine is for small sets: take fewer rows, or featurize and train a linear model"


class KernelMachine(ClassifierMixin, BaseEstimator):
    """Support vector machine with an exact kernel; C and the kernel's parameters are chosen on held-out rows.

    It holds the kernel values of all pairs of rows, 8 bytes each, so it suits at most some ten thousand rows. Its
    accuracy is the reference for a linear model on features of the same kernel.

    Parameters
    ----------
    kernel : str, default="gmm"
        Name of a function of `dkfeat.kernels`.
    kernel_params : mapping, list of mappings or None, default=None
        Parameters of the kernel, such as ``{"gamma": 0.5}``, or several such mappings, of which the best is chosen.
    C : float or sequence of float, default=(0.01, 0.1, 1, 10, 100)
        Weight of the losses against the penalty, above 0, or several values, of which the best is chosen.
    validation_fraction : float, default=0.1
        Share of the rows that is held out to choose among several candidates. The best one (of equal ones the one with
        the first mapping and the smallest C) is then fitted to all rows.
    random_state : int, default=0
        Seed of the held-out rows, at least 0.
    memory_limit : int or None, default=None
        Maximum memory in bytes; None: all that this machine or container has.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels in ascending order.
    C_ : float
        Chosen C.
    kernel_params_ : dict
        Chosen parameters of the kernel, with its defaults.
    grid_ : list of dict
        Held-out accuracy of each candidate; empty if there was only one.
    n_features_in_ : int
        Number of columns of the input.

    See Also
    --------
    dkfeat.compare : Comparison of feature maps with exact kernel machines.

    Notes
    -----
    Fits scikit-learn's ``SVC(kernel="precomputed")``, which trains several classes one against one.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.random.default_rng(0).normal(size=(80, 2)), np.tile([0, 1], 40)
    >>> X[y == 1] *= 4
    >>> machine = KernelMachine("rbf", [{"gamma": 0.1}, {"gamma": 1}], C=[1, 10], validation_fraction=0.3).fit(X, y)
    >>> bool(machine.score(X, y) > 0.8), len(machine.grid_)
    (True, 4)
    """

    def __init__(
        self,
        kernel: str = "gmm",
        kernel_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        C: float | Sequence[float] = DEFAULT_C,
        *,
        validation_fraction: float = 0.1,
        random_state: int = 0,
        memory_limit: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.C = C
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.memory_limit = memory_limit

    def fit(self, X: Any, y: Any, *, tell: Callable[[Mapping[str, Any]], object] | None = None) -> Self:
        """Choose C and kernel parameters, and fit the machine.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Labels of two classes or more.
        tell : callable or None
            Function that receives each entry of the grid when it is computed.

        Raises
        ------
        ConfigError
            For a setting out of range.
        InputError
            For rows that the kernel does not take, or rows of only one class.
        PlanError
            If the kernel values do not fit in memory; the message names their size.
        """
        kernels = self._kernels()
        grid_C = as_grid(self.C, "C")
        seed = check_integer(self.random_state, "random_state", low=0, high=2**64 - 1)
        fraction = check_fraction(self.validation_fraction)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=(np.float64, np.float32))
        check_several_classes(np.unique(y), len(y))
        has_choice = len(kernels) * len(grid_C) > 1
        check_fits(kernel_machine_bytes(len(y), has_choice=has_choice), "a kernel machine", ADVICE, self.memory_limit)
        best, self.C_, self.grid_, gram = kernels[0], grid_C[0], [], None
        if has_choice:
            held = split_held_out(y, fraction, seed)
            for kernel in kernels:
                gram = None  # frees the values of the previous kernel
                gram = kernel(X)
                train, test = gram[np.ix_(~held, ~held)], gram[np.ix_(held, ~held)]
                for C in grid_C:
                    accuracy = SVC(kernel="precomputed", C=C).fit(train, y[~held]).score(test, y[held])
                    self.grid_.append({"kernel_params": dict(kernel.params), "C": C, "accuracy": float(accuracy)})
                    if tell is not None:
                        tell(self.grid_[-1])
                del train, test
            entry = best_of_grid(self.grid_)
            best = next(kernel for kernel in kernels if dict(kernel.params) == entry["kernel_params"])
            self.C_ = entry["C"]
        if gram is None or best is not kernels[-1]:
            gram = None
            gram = best(X)
        self._machine = SVC(kernel="precomputed", C=self.C_).fit(gram, y)
        self._kernel, self.kernel_params_ = best, dict(best.params)
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

    def _kernels(self) -> list[NamedKernel]:
        given = self.kernel_params
        several = [given] if given is None or isinstance(given, Mapping) else list(given)
        if not several:
            raise ConfigError("kernel_params is an empty list; give one mapping of parameters or several, or None")
        return [named_kernel(self.kernel, params) for params in several]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def kernel_machine_bytes(n_samples: int, *, has_choice: bool) -> int:
    """Compute the bytes of kernel values in `KernelMachine.fit`: all pairs and, with a choice, a copy of most."""
    return 8 * n_samples**2 * (2 if has_choice else 1)
