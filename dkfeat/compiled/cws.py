"""Consistent weighted sampling of sparse rows (GCWS, Algorithm 1 of "Linearized GMM Kernels and NRFF")."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["CodeMode", "encode", "sample", "signed_logs"]

CodeMode = Literal["injective", "signed", "mixed", "lowest"]


def signed_logs(values: NDArray, power: float = 1.0) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Logarithms of magnitudes times `power`, rounded to float32 once, and signs; a zero gives -inf."""
    values = np.asarray(values, np.float64)
    with np.errstate(divide="ignore"):
        logs = (np.log(np.abs(values)) * power).astype(np.float32)
    return logs, values < 0


def sample(
    indptr: NDArray, columns: NDArray, logs: NDArray[np.float32], negative: NDArray, n_components: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sampled coordinate ``2 * column + negative`` and level of each row and component; -1 and 0 for an empty row."""
    n = len(indptr) - 1
    coordinates = np.full((n, n_components), -1, np.int64)
    levels = np.zeros((n, n_components), np.int64)
    keys = 2 * np.asarray(columns, np.int64) + np.asarray(negative, np.int64)
    unique, rank = np.unique(keys, return_inverse=True)
    if not len(unique):
        return coordinates, levels
    u = (2 * np.random.default_rng(seed).integers(0, 1 << 23, (len(unique), 5, n_components)) + 1) * 2.0**-24
    r, c, beta = -np.log(u[:, 0] * u[:, 1]), -np.log(u[:, 2] * u[:, 3]), u[:, 4]
    for i in range(n):
        p = slice(indptr[i], indptr[i + 1])
        q = rank[p][np.isfinite(logs[p])]
        log = logs[p][np.isfinite(logs[p])]
        if len(q):
            t = np.floor(log[:, None] / r[q] + beta[q])
            a = np.log(c[q]) - r[q] * (t + 1 - beta[q])
            best = a.argmin(0)
            coordinates[i], levels[i] = unique[q][best], t[best, np.arange(n_components)]
    return coordinates, levels


def encode(
    indptr: NDArray,
    columns: NDArray,
    logs: NDArray[np.float32],
    negative: NDArray,
    n_components: int,
    seed: int,
    i_bits: int,
    t_bits: int,
    mode: CodeMode,
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Packed codes, uint8 of shape (n_rows, ceil(n_components * (i_bits + t_bits) / 8)), and the mask of empty rows."""
    i, t = sample(indptr, columns, logs, negative, n_components, seed)
    empty = i[:, 0] < 0 if n_components else np.zeros(len(i), bool)
    if mode == "signed":
        codes = (i >> 1) + (i & 1) * np.random.default_rng(seed).integers(0, 1 << i_bits, n_components)
    elif mode == "mixed":
        codes = ((i * 2654435761 + np.arange(n_components) * 40503) % (1 << 32)) >> 9
    else:
        codes = i
    codes = (codes % (1 << i_bits)) | ((t % (1 << t_bits)) << i_bits)
    codes[empty] = 0
    bits = (codes[:, :, None] >> np.arange(i_bits + t_bits)) & 1
    return np.packbits(bits.reshape(len(i), -1).astype(np.uint8), axis=1, bitorder="little"), empty
