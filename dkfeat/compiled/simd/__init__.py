"""Vectors in registers as numba types, and how they are lowered to LLVM."""
