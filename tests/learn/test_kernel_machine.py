"""Exact kernel machines on small sets."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from dkfeat.errors import ConfigError, InputError, PlanError
from dkfeat.learn.kernel_machine import KernelMachine, kernel_machine_bytes


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
    assert machine.grid_ == []


def test_machine__predicts_in_parts_as_at_once(rows, monkeypatch):
    X, y, X_test, _ = rows
    machine = KernelMachine("rbf", {"gamma": 0.1}, C=10.0).fit(X, y)
    whole = machine.predict(X_test)
    monkeypatch.setattr("dkfeat.learn.kernel_machine.PREDICTED_BYTES", 8 * 300 * 7)
    np.testing.assert_array_equal(machine.predict(X_test), whole)


def test_machine__chooses_c_and_kernel_parameters(rows):
    X, y, X_test, y_test = rows
    gammas = [{"gamma": 1e-6}, {"gamma": 0.05}, {"gamma": 1e3}]
    seen = []
    machine = KernelMachine("rbf", gammas, C=[1e-4, 10.0], validation_fraction=0.2).fit(X, y, tell=seen.append)
    assert (machine.kernel_params_, machine.C_) == ({"gamma": 0.05}, 10.0)
    assert len(machine.grid_) == len(seen) == 6
    assert machine.score(X_test, y_test) > 0.85
    again = KernelMachine("rbf", {"gamma": 0.05}, C=10.0).fit(X, y)
    np.testing.assert_array_equal(machine.predict(X_test), again.predict(X_test))


def test_machine__refuses_by_size_and_by_setting(rows):
    X, y, *_ = rows
    limit = kernel_machine_bytes(len(y), has_choice=True) - 1
    with pytest.raises(PlanError, match=r"a kernel machine needs about 1\.4 MiB"):
        KernelMachine(memory_limit=limit).fit(X, y)
    KernelMachine(C=1.0, memory_limit=limit).fit(X, y)
    with pytest.raises(ConfigError, match="kernel='gm'"):
        KernelMachine("gm").fit(X, y)
    with pytest.raises(ConfigError, match="empty list"):
        KernelMachine(kernel_params=[]).fit(X, y)
    with pytest.raises(ConfigError, match="validation_fraction=1, but it must be below 1"):
        KernelMachine(validation_fraction=1).fit(X, y)
    with pytest.raises(InputError, match="two classes"):
        KernelMachine().fit(X, np.ones(len(y)))
