"""
Accuracy against the number of components
=========================================

Is a handwritten digit odd or even? `dkfeat.compare` trains the same linear classifier
on the features of several maps and sizes, on the raw columns, and with the exact
kernels. With more components the linear model comes close to the kernel machine.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.datasets import dump_svmlight_file, load_digits

import dkfeat
import dkfeat.plot

X, y = load_digits(return_X_y=True)
with TemporaryDirectory() as folder:
    path = Path(folder) / "digits.svm"
    dump_svmlight_file(X, y % 2, str(path), zero_based=False)
    comparison = dkfeat.compare(
        str(path),
        maps=["gcws", "nrff"],
        n_components=[16, 32, 64, 128, 256, 512],
        gamma=3.0,
        progress=False,
    )

dkfeat.plot.accuracy_against_k(comparison)
