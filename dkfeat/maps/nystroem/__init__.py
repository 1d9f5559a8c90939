"""Nyström features: kernel values of rows with landmarks, and their product with a matrix."""

from dkfeat.maps.nystroem.features import NystroemFeatures

__all__ = ["NystroemFeatures"]
