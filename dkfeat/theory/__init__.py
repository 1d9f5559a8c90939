"""What the papers prove of the estimators: variances, bounds and limits, as plain functions.

One topic a file: `fourier` (random Fourier features against GCWS), `circulant` (random Laplace features
from circulant matrices), `gmm` (the GMM similarity of elliptical data) and `maclaurin` (dot-product kernels).
"""

from dkfeat.theory import circulant, fourier, gmm, maclaurin

__all__ = ["circulant", "fourier", "gmm", "maclaurin"]
