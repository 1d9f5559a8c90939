"""Functions that compute the variances, bounds and limits proved for the estimators in the papers.

One topic for each module: `fourier` (random Fourier features compared with GCWS), `gmm` (rates at which codes
agree), `bands` (near rows found by bands of codes) and `minhash` (similarity sketches of sets).
"""

from dkfeat.theory import bands, fourier, gmm, minhash

__all__ = ["bands", "fourier", "gmm", "minhash"]
