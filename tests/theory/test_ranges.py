"""Values out of range, which every formula refuses."""

from functools import partial

import numpy as np
import pytest
from reproduction.theory import circulant, fourier, gmm, maclaurin

from dkfeat.theory import bands

ROW = np.array([0.3, 1.1])
covariance = partial(circulant.alternating_covariance, log_factor=circulant.reciprocal_log_factor)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fourier.rff_variance([0.0, 1.5], 1.0), r"rho=1\.5, but it must be from -1 to 1"),
        *((lambda gamma=gamma: fourier.nrff_variance(0.5, gamma), "gamma=.*above 0") for gamma in (0, np.nan, np.inf)),
        (lambda: fourier.gcws_variance(-0.1), r"similarity=-0\.1"),
        (lambda: fourier.gcws_variance(0.3, i_bits=0), "i_bits=0"),
        (lambda: gmm.f_infinity(0.5, 0.0), r"sigma=0\.0, but it must be above 0"),
        (lambda: gmm.f_infinity(0.5, np.inf), "sigma=inf, but it must be above 0 and finite"),
        (lambda: gmm.gmm_variance(0.5, 1.0), r"df=1\.0"),
        (lambda: gmm.gmm_variance(0.5, np.nan), "df=nan, but it must be above 1;"),
        *((lambda args=args: bands.choose_bands(*args), "but it must be") for args in ((0.0, 8), (1.1, 8), (0.5, 0))),
        *((lambda args=args: bands.choose_bands(0.5, 8, *args), "must be") for args in ((-1.0,), (0.0, 0.4))),
        (lambda: covariance([1.0, -1.0], n_mixtures=1), r"z=-1\.0, but it must be at least 0"),
        (lambda: covariance(ROW, n_mixtures=0), "n_mixtures=0"),
        (lambda: covariance(np.ones((2, 2)), n_mixtures=1), "z has shape"),
        (lambda: circulant.exponential_log_factor(1.0, beta=0.0), r"beta=0\.0"),
        (lambda: maclaurin.component_bound(np.exp, 1.0, 1.0), r"p=1\.0, but it must be a finite number above 1"),
        (lambda: maclaurin.component_bound(lambda t: 1 / (1 - t), 1.0, 2.0), r"f\(2\) = -1, so its series does not"),
        (lambda: maclaurin.component_bound(np.exp, 1.0, 2.0, "best"), "measure='best'"),
        (lambda: maclaurin.degree_probabilities([1.0, -1.0]), "coefficients=-1"),
        (lambda: maclaurin.component_variance([1.0, 1.0], [1.0, 0.0], ROW, ROW), "degree 1 has a coefficient"),
    ],
)
def test_formulas__refuse_values_out_of_range(call, text):
    with pytest.raises(ValueError, match=text):
        call()
