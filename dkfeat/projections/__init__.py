"""Projections: linear operators x -> W x determined by a seed, which feature maps combine with a nonlinearity."""

from dkfeat.projections.dense import DenseProjection, Projection
from dkfeat.projections.structured import CirculantProjection, FastfoodProjection, OrthogonalProjection

__all__ = [
    "CirculantProjection",
    "DenseProjection",
    "FastfoodProjection",
    "OrthogonalProjection",
    "Projection",
]
