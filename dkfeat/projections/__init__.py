"""Linear operators x -> W x, random and decided by a seed, that feature maps compose with a nonlinearity."""

from dkfeat.projections._base import Projection
from dkfeat.projections.circulant import CirculantProjection
from dkfeat.projections.dense import DenseProjection
from dkfeat.projections.fastfood import FastfoodProjection
from dkfeat.projections.orthogonal import OrthogonalProjection

__all__ = [
    "CirculantProjection",
    "DenseProjection",
    "FastfoodProjection",
    "OrthogonalProjection",
    "Projection",
]
