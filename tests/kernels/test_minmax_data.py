"""The exact GMM kernel on the papers' data: a kernel machine on it reaches their accuracy."""

import lzma

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file
from sklearn.svm import SVC

from dkfeat.kernels import gmm


def load(folder, name, half, width):
    path = folder / name / f"{half}.svm.xz"
    with lzma.open(path) as file:
        return load_svmlight_file(file, n_features=width, zero_based=False)


@pytest.mark.data
@pytest.mark.parametrize(("name", "width", "paper"), [("satimage", 36, 90.40), ("spambase", 57, 94.17)])
def test_gmm__kernel_machine_meets_the_papers_accuracy(data_folder, name, width, paper):
    X, y = load(data_folder, name, "train", width)
    X_test, y_test = load(data_folder, name, "test", width)
    train, test = gmm(X), gmm(X_test, X)
    accuracies = [
        100 * np.mean(SVC(C=C, kernel="precomputed", cache_size=500).fit(train, y).predict(test) == y_test)
        for C in (0.1, 1, 10, 100, 1000)
    ]
    assert max(accuracies) >= paper - 0.5
