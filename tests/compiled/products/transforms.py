import numpy as np

from dkfeat.compiled.jit import aligned, kernel
from dkfeat.compiled.products.hadamard import transform_at


@kernel
def _transform_all(rows, factors, n, out):
    for at in range(0, rows.shape[0], n):
        transform_at(rows, at, factors, 0, out, at, n, n)


def hadamard_rows(rows, factors):
    """Compute ``(rows * factors) @ H`` of float32 rows in C order, H with entries +-1."""
    out = aligned(rows.size, np.float32).reshape(rows.shape)
    _transform_all(rows.ravel(), factors, rows.shape[1], out.ravel())
    return out
