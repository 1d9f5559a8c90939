"""Exact kernel machines on small sets."""

import dask
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import dkfeat
from dkfeat.errors import ConfigError, InputError, PlanError
from dkfeat.learn.estimators import KernelMachine


@pytest.fixture(scope="module")
def rows():
    X, y = load_digits(return_X_y=True)
    return X[:300] / 16, y[:300], X[300:500] / 16, y[300:500]


def min_max(X, Y):
    """GMM kernel of rows without negative values, a pair at a time."""
    return np.array([[np.minimum(x, y).sum() / np.maximum(x, y).sum() for y in Y] for x in X])


def test_machine__is_the_svm_of_the_kernel(rows):
    X, y, X_test, _ = rows
    machine = KernelMachine("gmm", C=10.0).fit(X, y)
    peer = SVC(kernel="precomputed", C=10.0).fit(min_max(X, X), y)
    np.testing.assert_array_equal(machine.predict(X_test), peer.predict(min_max(X_test, X)))
    np.testing.assert_array_equal(machine.predict(csr_matrix(X_test)), peer.predict(min_max(X_test, X)))


@pytest.mark.data
@pytest.mark.parametrize(("name", "C", "accuracy"), [("car", 100.0, 98.50), ("vowel", 10.0, 90.91)])
def test_machine__keeps_its_accuracy_on_sets_of_the_papers(data_folder, name, C, accuracy):
    """The papers have 98.96 and 96.97 % on splits of their own."""
    train, test = (str(data_folder / name / f"{part}.svm.xz") for part in ("train", "test"))
    X, y = dask.compute(*dkfeat.read_libsvm(train))
    X_test, y_test = dask.compute(*dkfeat.read_libsvm(test, n_features=X.shape[1]))
    machine = KernelMachine("gmm", C=C).fit(X, y)
    assert 100 * machine.score(X_test, y_test) == pytest.approx(accuracy, abs=0.006)  # to the row


def test_machine__predicts_in_parts_as_at_once(rows, monkeypatch):
    X, y, X_test, _ = rows
    machine = KernelMachine("rbf", {"gamma": 0.1}, C=10.0).fit(X, y)
    whole = machine.predict(X_test)
    monkeypatch.setattr("dkfeat.learn.estimators.PREDICTED_BYTES", 8 * 300 * 7)
    np.testing.assert_array_equal(machine.predict(X_test), whole)


def test_machine__scikit_learn_chooses_c_and_kernel_parameters(rows):
    X, y, X_test, y_test = rows
    grid = {"kernel_params": [{"gamma": 1e-6}, {"gamma": 0.05}, {"gamma": 1e3}], "C": [1e-4, 10.0]}
    search = GridSearchCV(KernelMachine("rbf"), grid, cv=3).fit(X, y)
    assert search.best_params_ == {"kernel_params": {"gamma": 0.05}, "C": 10.0}
    assert search.score(X_test, y_test) > 0.85


def test_machine__refuses_by_size_and_by_setting(rows):
    X, y, *_ = rows
    limit = 8 * len(y) ** 2
    with pytest.raises(PlanError, match=r"a kernel machine needs about 703\.1 KiB"):
        KernelMachine(memory_limit=limit - 1).fit(X, y)
    KernelMachine(memory_limit=limit).fit(X, y)
    with pytest.raises(ConfigError, match="kernel='gm'"):
        KernelMachine("gm").fit(X, y)
    with pytest.raises(ConfigError, match="C=0, but it must be a finite number above 0"):
        KernelMachine(C=0).fit(X, y)
    with pytest.raises(InputError, match="two classes"):
        KernelMachine().fit(X, np.ones(len(y)))
