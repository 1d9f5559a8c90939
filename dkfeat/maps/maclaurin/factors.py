"""Components of random Maclaurin features: their random degrees, and products of factors.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012, Alg. 1 and §5. A factor is a row's
sum of values with random signs or, for a compositional kernel, a feature of another map.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from dkfeat.compiled.jit import aligned, owned
from dkfeat.compiled.products.signs import (
    GROUP,
    SCRATCH_SIZE,
    Components,
    Features,
    multiply_dense_signs,
    multiply_sparse_signs,
)
from dkfeat.compiled.random import (
    COLUMNS,
    STREAM_MACLAURIN_DEGREE,
    STREAM_MACLAURIN_INNER,
    STREAM_MACLAURIN_SAMPLE,
    STREAM_MACLAURIN_SIGN,
    SUPERBLOCK,
    draw_words,
    packed_signs,
    signs_of_samples,
    transposed_signs,
)
from dkfeat.compiled.simd import LANES
from dkfeat.errors import ConfigError, InputError
from dkfeat.maps._base import FeatureMap
from dkfeat.maps._sampled import SampledMap
from dkfeat.maps.darts import DartFeatures
from dkfeat.maps.fourier import FourierFeatures
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.maps.laplace import LaplaceFeatures
from dkfeat.projections import columns_present

_MOST_FACTORS = 2**31


@dataclass(frozen=True, slots=True)
class Tile:
    """Blocks of components that are computed at a time, and the superblocks of signs that they need."""

    first_block: int
    last_block: int
    """End of the blocks, exclusive."""
    first_superblock: int
    n_superblocks: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Draws:
    """Degree and weight of each component, in descending order of degree, in blocks of 16."""

    degrees: NDArray[np.int64]
    """Number of factors of each component, shape (n_components,); also 0 if the drawn degree has no term."""
    scales: NDArray[np.float32]
    """Multiplier of each factor of a component, shape (16 * n_blocks,); 0 beyond the last component."""
    constants: NDArray[np.float32]
    """Initial value of each product, shape (16 * n_blocks,): 1, or the value of a component without factors."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """First factor of each block, and the total number of factors at the end, shape (n_blocks + 1,)."""
        return np.concatenate([[0], np.cumsum(LANES * self.degrees[::LANES])])

    def components(self, tile: Tile) -> Components:
        """Return the arguments of the compiled loops for a tile."""
        degrees = np.zeros(len(self.scales), np.float32)
        degrees[: len(self.degrees)] = self.degrees
        n_factors, origin = tile.n_superblocks * SUPERBLOCK, tile.first_superblock * SUPERBLOCK
        blocks = tile.first_block, tile.last_block
        return Components(self.starts, degrees, self.scales, self.constants, *blocks, n_factors, origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeLaw:
    """Law of the degrees, with size and seed of the draw: a small value, sent to workers instead of the draws."""

    weights: tuple[float, ...]
    """Probability P_n of each degree of the series."""
    terms: tuple[float, ...]
    """a_n R^(2n)."""
    radius: float
    """Radius R of the rows before they are multiplied by `scale`."""
    n_components: int
    seed: int


@lru_cache(maxsize=8)
def draw_degrees(law: DegreeLaw) -> Draws:
    r"""Draw a degree for each component and compute its weight.

    Parameters
    ----------
    law : DegreeLaw

    Returns
    -------
    draws : Draws
        A component of degree N is :math:`\sqrt{a_N / (k P_N)}` times its factors. Each factor is multiplied by the N-th
        root of this weight, so that no product overflows unless the feature does.
    """
    terms, weights, n_components = law.terms, law.weights, law.n_components
    words = np.empty((n_components, 4), np.uint32)
    draw_words(np.uint64(0), np.uint64(STREAM_MACLAURIN_DEGREE), np.uint64(law.seed), words)
    uniform = ((words[:, 0].astype(np.uint64) << np.uint64(21) | words[:, 1] >> np.uint32(11)) + 0.5) * 2.0**-53
    cumulative = np.cumsum(weights)
    drawn = np.searchsorted(cumulative, uniform, side="right")
    highest = np.flatnonzero(weights)[-1]
    if abs(cumulative[-1] - 1) < 1e-9:  # a sum slightly below 1 is due to rounding
        drawn = np.minimum(drawn, highest)
    shares, constants = np.zeros(len(terms) + 1), np.zeros(len(terms) + 1)
    for n in np.unique(drawn[drawn < len(terms)]).tolist():
        if terms[n] > 0:
            root = (math.log(terms[n]) - math.log(weights[n]) - math.log(n_components)) / 2
            shares[n] = math.exp(root / n) / law.radius if n else 0.0
            constants[n] = 1.0 if n else math.exp(root)
    drawn = np.minimum(drawn, len(terms))
    degrees = np.where(constants[drawn] > 0, drawn, 0)
    order = np.argsort(-degrees, kind="stable")
    if int(degrees.sum()) > _MOST_FACTORS:
        raise ConfigError(
            f"the drawn degrees have {int(degrees.sum()):,} factors in all, but at most {_MOST_FACTORS:,} are allowed; "
            "choose a smaller n_components, degree or radius"
        )
    padding = np.zeros(-n_components % LANES, np.float32)
    return Draws(
        degrees=degrees[order].astype(np.int64),
        scales=np.append(shares[drawn[order]].astype(np.float32), padding),
        constants=np.append(constants[drawn[order]].astype(np.float32), padding),
    )


_TILE = 2 * SUPERBLOCK
"""Factors whose sums for 16 rows, 256 KiB, stay in the second-level cache."""
_WHOLE_BYTES = 8 * 2**20
"""Maximum size of a table of signs that is cached."""
_KEPT = 8
"""Maximum number of cached tables."""
_TABLE_BYTES = 64 * 2**20
"""Maximum memory to draw tables that are not cached; rows and columns are split accordingly."""
_DRAW_BYTES = 128
"""Memory to draw the degree of a component, in bytes."""
_FULL = 8
"""Sparse rows with at least one nonzero per this many columns are faster as dense rows."""
_CELLS = 2**20
"""Number of values of sparse rows converted to dense ones at a time; rows stay sparse if 16 of them have more. Also the
maximum number of factors from an inner map held in memory at a time."""


def multiply_rows(
    X: Any,
    multipliers: NDArray[np.float32],
    draws: Draws,
    seed: int,
    out: NDArray[np.float32],
    to: int,
) -> NDArray[np.uint8]:
    """Write the features of rows to the last columns of `out`.

    Parameters
    ----------
    X : ndarray in C order or canonical csr_matrix of shape (n_samples, n_features), float32
    multipliers : ndarray of shape (n_samples,), float32
        Number by which each row is multiplied first: 1, or 1 / norm.
    draws : Draws
    seed : int
    out : ndarray of shape (n_samples, to + n_components), float32
    to : int
        First column to write.

    Returns
    -------
    overflowed : ndarray of shape (n_samples,), uint8
        1 for rows with a feature that overflows.
    """
    overflowed = np.zeros(X.shape[0], np.uint8)
    if not sp.issparse(X):
        _multiply_dense(owned(X), multipliers, draws, seed, out, to, overflowed)
    elif X.nnz * _FULL >= X.shape[0] * X.shape[1] and X.shape[1] * LANES <= _CELLS:
        n_rows = _CELLS // X.shape[1]
        for first in range(0, X.shape[0], n_rows):
            rows = slice(first, first + n_rows)
            _multiply_dense(X[rows].toarray(), multipliers[rows], draws, seed, out[rows], to, overflowed[rows])
    else:
        _multiply_sparse(X, multipliers, draws, seed, out, to, overflowed)
    return overflowed


def table_bytes(n_features: int, draws: Draws) -> int:
    """Compute the memory, in bytes, of tables for rows of `n_features` columns, of sums of 16 rows, and of draws."""
    tiles = list(_tiles(draws))
    sizes = [n_features * _bytes(tile) for tile in tiles]
    kept = sum(sorted(size for size in sizes if size <= _WHOLE_BYTES)[-_KEPT:])
    sums = 4 * LANES * SUPERBLOCK * max(tile.n_superblocks for tile in tiles)
    return 2 * kept + min(2 * max(sizes), _TABLE_BYTES) + sums + _DRAW_BYTES * len(draws.degrees)


def _multiply_dense(X: Any, multipliers: Any, draws: Draws, seed: int, out: Any, to: int, overflowed: Any) -> None:
    n_samples, n_features = X.shape
    scratch = aligned(SCRATCH_SIZE, np.float32)
    for tile in _tiles(draws):
        n_factors = tile.n_superblocks * SUPERBLOCK
        draw = _transposed if _is_kept(n_features, tile) else _transposed.__wrapped__
        n_rows, n_columns = _dense_steps(n_samples, n_features, tile)
        n_held = n_rows if n_columns < n_features else LANES
        totals, components = aligned(n_held * n_factors, np.float32), draws.components(tile)
        for first in range(0, n_samples, n_rows):
            rows = slice(first, first + n_rows)
            features = Features(out[rows].reshape(-1), to, out.shape[1], overflowed[rows])
            for column in range(0, n_features, n_columns):
                last = min(column + n_columns, n_features)
                signs = draw(column, last, tile.first_superblock, tile.n_superblocks, seed).reshape(-1)
                values = X[rows].reshape(-1)
                multiply_dense_signs(
                    values, multipliers[rows], n_features, column, last, signs, components, features, scratch, totals
                )
                del signs  # before the next table is drawn


def _dense_steps(n_samples: int, n_features: int, tile: Tile) -> tuple[int, int]:
    """Compute the number of rows and columns to process at a time: all, or multiples of 16 and of 64.

    If columns are split, half of the memory is for signs, both packed and transposed, and half for the sums of the
    rows.
    """
    n_columns = max(1, _TABLE_BYTES // (4 * _bytes(tile) * COLUMNS)) * COLUMNS
    if _is_kept(n_features, tile) or n_columns >= n_features:
        return max(1, n_samples), n_features
    n_rows = min(_TABLE_BYTES // (2 * LANES * 4 * tile.n_superblocks * SUPERBLOCK), -(-n_samples // LANES))
    return max(1, n_rows) * LANES, n_columns


def _multiply_sparse(X: Any, multipliers: Any, draws: Draws, seed: int, out: Any, to: int, overflowed: Any) -> None:
    indptr, indices = X.indptr.astype(np.int64), X.indices.astype(np.int64)
    n_features = X.shape[1]
    groups = indices // GROUP
    is_group_start = np.ones(len(indices), np.bool_)
    is_group_start[1:] = groups[1:] != groups[:-1]
    is_group_start[indptr[:-1][np.diff(indptr) > 0]] = True
    tiles = list(_tiles(draws))
    columns, positions = np.empty(0, np.int64), indices
    if X.shape[0] != 1 and any(not _is_kept(n_features, tile) for tile in tiles):
        columns, positions = columns_present(indices, n_features)
        if len(columns) * max(_bytes(tile) for tile in tiles) > _TABLE_BYTES:  # X has two rows or more here
            half = X.shape[0] // 2
            for rows in (slice(0, half), slice(half, None)):
                _multiply_sparse(X[rows], multipliers[rows], draws, seed, out[rows], to, overflowed[rows])
            return
    values, features = owned(X.data), Features(out.reshape(-1), to, out.shape[1], overflowed)

    def multiply(tile: Tile, entries: slice, bounds: Any, at: Any, signs: Any, totals: Any) -> None:
        """Multiply the entries of all rows, or some entries of a single row."""
        multiply_sparse_signs(
            bounds,
            at,
            is_group_start[entries],
            values[entries],
            multipliers,
            signs.reshape(-1).view(np.uint16),
            draws.components(tile),
            features,
            totals,
            entries.start > 0,
            entries.stop >= len(indices),
        )

    everything = slice(0, len(indices))
    for tile in tiles:
        totals = np.empty(tile.n_superblocks * SUPERBLOCK, np.float32)
        # tables are not assigned to a variable, so that each is freed before the next one is drawn
        if _is_kept(n_features, tile):
            multiply(
                tile,
                everything,
                indptr,
                indices,
                _packed(n_features, tile.first_superblock, tile.n_superblocks, seed),
                totals,
            )
        elif X.shape[0] != 1:
            multiply(tile, everything, indptr, positions, _drawn(columns, tile, seed), totals)
        else:
            for entries in _parts(is_group_start, _TABLE_BYTES // _bytes(tile)):
                at = indices[entries]
                bounds, positions = np.array([0, len(at)]), np.arange(len(at))
                multiply(tile, entries, bounds, positions, _drawn(at, tile, seed), totals)


def _parts(is_group_start: NDArray[np.bool_], most: int) -> Iterator[slice]:
    """Split the entries of a row between groups of columns, into parts of at most `most` entries; at least one part."""
    first, n_entries = 0, len(is_group_start)
    while first + most < n_entries:
        last = first + most
        while not is_group_start[last]:
            last -= 1
        yield slice(first, last)
        first = last
    yield slice(first, n_entries)


def _tiles(draws: Draws) -> Iterator[Tile]:
    """Group whole blocks into tiles of about `_TILE` factors."""
    starts = draws.starts
    n_blocks, block = len(starts) - 1, 0
    while block < n_blocks:
        first = int(starts[block]) // SUPERBLOCK
        until = int(np.searchsorted(starts, first * SUPERBLOCK + _TILE, side="right")) - 1
        until = min(max(until, block + 1), n_blocks)
        last = max(-(-int(starts[until]) // SUPERBLOCK), first + 1)
        yield Tile(block, until, first, last - first)
        block = until


def _bytes(tile: Tile) -> int:
    """Compute the size of the signs of one column, in bytes."""
    return tile.n_superblocks * SUPERBLOCK // 8


def _is_kept(n_features: int, tile: Tile) -> bool:
    return n_features * _bytes(tile) <= _WHOLE_BYTES


def _drawn(columns: NDArray[np.int64], tile: Tile, seed: int) -> NDArray[np.uint32]:
    return packed_signs(columns, tile.first_superblock, tile.n_superblocks, STREAM_MACLAURIN_SIGN, seed)


@lru_cache(maxsize=_KEPT)
def _packed(n_features: int, first: int, count: int, seed: int) -> NDArray[np.uint32]:
    return packed_signs(np.arange(n_features), first, count, STREAM_MACLAURIN_SIGN, seed)


@lru_cache(maxsize=_KEPT)
def _transposed(column: int, last: int, first: int, count: int, seed: int) -> NDArray[np.uint64]:
    return transposed_signs(packed_signs(np.arange(column, last), first, count, STREAM_MACLAURIN_SIGN, seed))


_INNER = {cls.name: cls for cls in (FourierFeatures, LaplaceFeatures, GCWSFeatures, DartFeatures)}
_FACTORS_BYTES = 24 * _CELLS
"""Maximum memory of these factors, in bytes: 4 for each and for its copy, and 16 for a full sample."""


def checked_inner(inner: Any, n_features: int) -> FeatureMap:
    """Make an unfitted inner map from an estimator's parameter, and check it.

    Parameters
    ----------
    inner : FeatureMap or mapping
        A map, or ``{"map": its name, "params": its parameters}`` as in a spec.
    n_features : int
        Number of columns of the rows.

    Raises
    ------
    dkfeat.errors.ConfigError
        If single features of the map are biased, or one of its parameters is out of range.
    """
    if isinstance(inner, Mapping):
        if set(inner) != {"map", "params"} or inner["map"] not in _INNER or not isinstance(inner["params"], Mapping):
            raise ConfigError(
                f"inner={dict(inner)!r}, but a mapping must be {{'map': name, 'params': parameters}} with a name among "
                f"{', '.join(map(repr, _INNER))}"
            )
        cls = _INNER[inner["map"]]
        unknown = sorted(set(inner["params"]) - set(cls._get_param_names()))
        if unknown:
            raise ConfigError(f"inner has the unknown settings {unknown} of {cls.__name__}; leave them out")
        inner = cls(**inner["params"])
    if type(inner) not in _INNER.values():
        names = ", ".join(cls.__name__ for cls in _INNER.values())
        raise ConfigError(f"inner={inner!r}, but its factors must be unbiased features; give one of {names}")
    unfitted: FeatureMap = clone(inner).set_params(random_state=0)
    params = unfitted.set_params(n_components=1).fit_width(n_features).to_spec()["params"]
    if isinstance(unfitted, FourierFeatures):
        if params["normalize"]:
            raise ConfigError(
                "inner=FourierFeatures(normalize=True) has biased features (NRFF), whose products are biased too; "
                "set normalize=False (RFF)"
            )
        if params["projection"] == "orthogonal":
            raise ConfigError(
                "inner=FourierFeatures(projection='orthogonal') has biased features (SORF), whose products are biased "
                "too; choose another projection"
            )
    return cast(FeatureMap, clone(unfitted))


def inner_mapping(inner: FeatureMap, n_features: int) -> dict[str, Any]:
    """Return the spec of an inner map: all of its parameters except those that the factors set."""
    params = clone(inner).fit_width(n_features).to_spec()["params"]
    del params["n_components"]
    return {"map": inner.name, "params": params}


def inner_bytes(inner: FeatureMap, n_features: int, n_components: int) -> int:
    """Bytes that `multiply_inner` needs besides rows and features, for a number of components per factor."""
    factor_map = clone(inner).set_params(n_components=n_components, random_state=0).fit_width(n_features)
    return _FACTORS_BYTES + factor_map._working_bytes


def multiply_inner(X: Any, inner: FeatureMap, draws: Draws, seed: int) -> NDArray[np.float32]:
    """Compute products of inner features.

    For each j, an inner map with a seed of its own makes factor j of all components that have one. So the factors of a
    component are independent, even if the features of one inner map are correlated.

    Parameters
    ----------
    X : array or CSR of shape (n_samples, n_features)
    inner : FeatureMap
    draws : Draws
    seed : int

    Returns
    -------
    features : ndarray of shape (n_samples, n_components), float32
    """
    n_samples, n_components = X.shape[0], len(draws.degrees)
    features = np.empty((n_samples, n_components), np.float32)
    features[:] = draws.constants[:n_components]
    depth = int(draws.degrees[0])
    for j, factor_seed in enumerate(_factor_seeds(seed, depth)):
        width = int(np.count_nonzero(draws.degrees > j))
        factor_map = clone(inner).set_params(n_components=width, random_state=factor_seed).fit_width(X.shape[1])
        for rows, factors in _scalar_features(factor_map, X, factor_seed):
            features[rows, :width] *= factors * draws.scales[:width]
    return features


def _scalar_features(factor_map: FeatureMap, X: Any, seed: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield features in blocks of rows; each feature alone is an unbiased estimate."""
    n_rows = max(1, _CELLS // factor_map.to_spec()["params"]["n_components"])
    for first in range(0, X.shape[0], n_rows):
        rows = slice(first, first + n_rows)
        try:
            factors = _factors(factor_map, X[rows], seed)
        except InputError as error:
            if error.row is not None and first:
                _factors(factor_map, X[: first + error.row + 1], seed)  # raises an error with the row number in X
            raise
        yield rows, factors


def _factors(factor_map: FeatureMap, X: Any, seed: int) -> NDArray[np.float32]:
    if not isinstance(factor_map, SampledMap):
        features: NDArray[np.float32] = factor_map.transform(X)
        features *= np.float32(math.sqrt(factor_map.n_features_out))
        return features
    coordinates, numbers = factor_map.sample(X)
    signs = np.empty(coordinates.shape, np.float32)
    signs_of_samples(coordinates, numbers, np.uint64(STREAM_MACLAURIN_SAMPLE), np.uint64(seed), signs)
    return signs


def _factor_seeds(seed: int, depth: int) -> list[int]:
    words = np.empty((depth, 4), np.uint32)
    draw_words(np.uint64(0), np.uint64(STREAM_MACLAURIN_INNER), np.uint64(seed), words)
    return [int(low) | int(high) << 32 for low, high in words[:, :2].tolist()]
