"""Random Maclaurin features for dot-product kernels and their compositions."""

from dkfeat.maps.maclaurin.features import MaclaurinFeatures

__all__ = ["MaclaurinFeatures"]
