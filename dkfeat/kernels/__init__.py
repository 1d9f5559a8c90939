"""Kernel functions k(x, y), exact: what the feature maps approximate."""

from dkfeat.kernels.minmax import gmm

__all__ = ["gmm"]
