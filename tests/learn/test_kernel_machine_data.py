"""Exact kernel machines on small sets of the papers: beside scikit-learn's and the published accuracies."""

import lzma

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file
from sklearn.svm import SVC

from dkfeat import KernelMachine

pytestmark = pytest.mark.data

GMM = {"car": 98.50, "vowel": 90.91}
"""Accuracy in % on the split of these files, the best over C. The papers have 98.96 and 96.97 on splits of their own;
five random splits of vowel gave 90.9 to 95.5."""


def rows_of(folder):
    parts = []
    for name in ("train", "test"):
        with lzma.open(folder / f"{name}.svm.xz") as file:
            parts.append(load_svmlight_file(file))
    width = max(X.shape[1] for X, _ in parts)
    return [(np.pad(X.toarray(), ((0, 0), (0, width - X.shape[1]))), y) for X, y in parts]


def generalized_min_max(X, Y):
    """GMM kernel by its definition: each value is put into one of two columns by its sign."""
    X, Y = (np.hstack([np.maximum(rows, 0), np.maximum(-rows, 0)]) for rows in (X, Y))
    return np.array([np.minimum(x, Y).sum(axis=1) / np.maximum(x, Y).sum(axis=1) for x in X])


@pytest.mark.parametrize("name", GMM)
def test_machine__reaches_the_published_accuracy_as_scikit_learn_does(data_folder, name):
    (X, y), (X_test, y_test) = rows_of(data_folder / name)
    machine = KernelMachine("gmm", validation_fraction=0.2).fit(X, y)
    assert 100 * machine.score(X_test, y_test) == pytest.approx(GMM[name], abs=0.006)  # to the row
    peer = SVC(kernel="precomputed", C=machine.C_).fit(generalized_min_max(X, X), y)
    np.testing.assert_array_equal(machine.predict(X_test), peer.predict(generalized_min_max(X_test, X)))


def test_machine__chooses_the_width_of_the_rbf_kernel(data_folder):
    (X, y), (X_test, y_test) = rows_of(data_folder / "car")
    params = [{"gamma": gamma} for gamma in (1, 10, 100)]
    machine = KernelMachine("rbf_cosine", params, C=[10, 100, 1000], validation_fraction=0.2).fit(X, y)
    # the best on the test rows is 94.79 here and 94.91 in the paper; held-out rows choose nearly as well
    assert 93.5 < 100 * machine.score(X_test, y_test) < 95
    peer = SVC(kernel="precomputed", C=machine.C_).fit(cosine_rbf(X, X, machine), y)
    np.testing.assert_array_equal(machine.predict(X_test), peer.predict(cosine_rbf(X_test, X, machine)))


def cosine_rbf(X, Y, machine):
    X, Y = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, Y))
    return np.exp(-machine.kernel_params_["gamma"] * (1 - X @ Y.T))
