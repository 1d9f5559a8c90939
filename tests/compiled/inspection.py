"""Machine code of compiled loops, for tests of their arithmetic."""

import numba

from dkfeat.compiled import jit as _jit


def assembly(loop):
    """Assembly of a loop for all types it was called with, compiled anew: what comes from a cache cannot be read."""
    fresh = numba.njit(**_jit._FLAGS)(loop.py_func)
    for signature in loop.signatures:
        fresh.compile(signature)
    return "".join(fresh.inspect_asm().values())
