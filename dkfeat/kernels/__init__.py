"""Exact kernel functions k(x, y), which the feature maps approximate."""

from dkfeat.kernels.dot_product import exponential_dot_product, maclaurin, polynomial, vovk_infinite, vovk_real
from dkfeat.kernels.minmax import egmm, gmm, resemblance
from dkfeat.kernels.rbf import rbf, rbf_cosine
from dkfeat.kernels.semigroup import exponential_semigroup, reciprocal_semigroup

__all__ = [
    "egmm",
    "exponential_dot_product",
    "exponential_semigroup",
    "gmm",
    "maclaurin",
    "polynomial",
    "rbf",
    "rbf_cosine",
    "reciprocal_semigroup",
    "resemblance",
    "vovk_infinite",
    "vovk_real",
]
