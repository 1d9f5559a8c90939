"""Functions that compute the variances, bounds and limits proved for the estimators in the papers.

One topic for each module: `fourier` (random Fourier features compared with GCWS), `circulant` (random Laplace features
from circulant matrices), `darts` (codes of darts), `bands` (pairs of rows that share a band of codes), `gmm` (the GMM
similarity of elliptical data) and `maclaurin` (dot-product kernels).
"""

from dkfeat.theory import bands, circulant, darts, fourier, gmm, maclaurin

__all__ = ["bands", "circulant", "darts", "fourier", "gmm", "maclaurin"]
