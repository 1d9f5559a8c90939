"""Functions that compute the variances, bounds and limits proved for the estimators in the papers.

One topic for each module: `fourier` (random Fourier features compared with GCWS), `circulant` (random Laplace features
from circulant matrices), `gmm` (the GMM similarity of elliptical data), `bands` (near rows found by bands of codes),
`maclaurin` (dot-product kernels) and `minhash` (similarity sketches of sets).
"""

from dkfeat.theory import bands, circulant, fourier, gmm, maclaurin, minhash

__all__ = ["bands", "circulant", "fourier", "gmm", "maclaurin", "minhash"]
