"""Estimated time of a row under GCWS and under darts, from the first rows of a source."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dkfeat.compiled.sampling.darts import MARGIN, TILE
from dkfeat.compiled.sampling.gcws import SWEPT_ROWS
from dkfeat.engine.resolve import Resolved
from dkfeat.errors import DkfeatError

GCWS_USE = 0.12
"""Nanoseconds of GCWS for each nonzero and component. This and the following numbers were measured on one core of an
AMD EPYC (Zen 5) by ``python benchmarks/darts.py``. They serve to compare the maps, and are off by up to 1.8 times."""
GCWS_COORDINATE = 1.7
"""Nanoseconds of GCWS for each coordinate of a block and component, to make the parameters."""
DART_ARRIVAL = 16.0
"""Nanoseconds of darts for each arrival that is drawn."""
DART_NONZERO = 15.0
"""Nanoseconds of darts for each nonzero and tile, to find the octaves that have an arrival."""
FACTOR = 2.0
"""Maps whose costs differ by less are not compared: the estimates are not more exact."""

_SAMPLE_BYTES = 8 << 20  # half a second of decompression for xz, a few hundredths for text
_SAMPLE_FILES = 100  # more than tiny files that are read as one split need
_ANY_ROWS: dict[str, Any] = {"n_features": 2**63 - 1, "zero_based": True, "label_dtype": "float64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MapCosts:
    """Estimated processor time of a row under GCWS and under darts, with the counts that it follows from.

    Both maps estimate the same kernel. GCWS makes parameters for each coordinate of a block and uses them for all its
    rows; darts make random numbers for each row. Which is cheaper depends on the nonzeros of a row, on the number of
    components, and on the number of rows in a block that use a coordinate.

    Examples
    --------
    >>> MapCosts.of(n_rows=280, nnz=1_043_840, n_coordinates=800_000, n_components=512).cheaper
    'dart'
    """

    n_rows: int
    """Number of rows that were counted, the first ones of the source."""
    nonzeros: float
    """Mean number of nonzeros of a row."""
    uses: float
    """Mean number of these rows that use a coordinate: a column with positive, or with negative values."""
    gcws_us: float
    """Microseconds of a row under GCWS."""
    dart_us: float
    """Microseconds of a row under darts."""

    @classmethod
    def of(cls, *, n_rows: int, nnz: int, n_coordinates: int, n_components: int) -> MapCosts:
        """Estimate the costs from the counts of a block of rows; there is at least one nonzero."""
        nonzeros = nnz / n_rows
        uses, coordinates = gcws_work(nonzeros, n_coordinates / n_rows, n_components)
        arrivals, scanned = dart_work(nonzeros, n_components)
        return cls(
            n_rows=n_rows,
            nonzeros=nonzeros,
            uses=nnz / n_coordinates,
            gcws_us=(GCWS_USE * uses + GCWS_COORDINATE * coordinates) / 1000,
            dart_us=(DART_ARRIVAL * arrivals + DART_NONZERO * scanned) / 1000,
        )

    @property
    def cheaper(self) -> str | None:
        """Name of the map that is cheaper by more than a factor of two; None if neither is."""
        if self.gcws_us > FACTOR * self.dart_us:
            return "dart"
        return "gcws" if self.dart_us > FACTOR * self.gcws_us else None

    def describe(self) -> str:
        """Format the costs as one line.

        Examples
        --------
        >>> print(MapCosts(n_rows=9, nonzeros=390.0, uses=1.31, gcws_us=412.0, dart_us=71.2).describe())
        gcws takes about 410 µs a row, dart 71 (the first 9 rows have 390 nonzeros each, and a column is in 1.3 of them)
        """
        gcws, dart, nonzeros, uses = map(_rounded, (self.gcws_us, self.dart_us, self.nonzeros, self.uses))
        return (
            f"gcws takes about {gcws} µs a row, dart {dart} (the first {self.n_rows:,} rows have {nonzeros} nonzeros "
            f"each, and a column is in {uses} of them)"
        )


def gcws_work(nonzeros: float, coordinates: float, n_components: int) -> tuple[float, float]:
    """Count the uses of parameters by a row, and the parameters made for it: a block has `coordinates` for each row."""
    return n_components * nonzeros, n_components * coordinates


def dart_work(nonzeros: float, n_components: int) -> tuple[float, float]:
    """Count the arrivals of a row, K (ln K + 2.25) in a tile of K components, and the nonzeros of all tiles."""
    n_tiles = math.ceil(n_components / TILE)
    tile = n_components / n_tiles
    return n_components * (math.log(tile) + MARGIN), n_tiles * nonzeros


def estimate_costs(settings: Resolved) -> MapCosts | None:
    """Estimate the costs of GCWS and darts for a run from at most 8 MiB of its first rows.

    Parameters
    ----------
    settings : Resolved
        Settings of the run before a pass over its source.

    Returns
    -------
    costs : MapCosts or None
        None if there is no choice between the two maps (the map is another one, fitted, or that of existing shards), if
        a centre makes rows dense, or if no rows can be read, which is left to the run to report.
    """
    opened, map = settings.opened, settings.map
    is_chosen = opened.target is not None or opened.like is not None or hasattr(map, "n_features_in_")
    if map.name not in ("gcws", "dart") or is_chosen:
        return None
    if map.center is not None and np.any(map.center):
        return None
    try:
        source, files = settings.source, settings.opened.files[:_SAMPLE_FILES]
        blocksize = min(int(source.blocksize), _SAMPLE_BYTES)
        ready = source.replaced(blocksize=blocksize, **{name: _ANY_ROWS[name] for name in source.unresolved})
        # at most as many rows as GCWS has in a block
        X = next(ready.read(source.splits(files)[0], SWEPT_ROWS, checksum=False)).block.X
    except DkfeatError:
        return None
    if not X.nnz:
        return None
    coordinates = np.sort(2 * X.indices.astype(np.int64) + (X.data < 0))  # ten times as fast as np.unique
    n_coordinates = 1 + int(np.count_nonzero(np.diff(coordinates)))
    return MapCosts.of(n_rows=X.shape[0], nnz=X.nnz, n_coordinates=n_coordinates, n_components=map.n_components)


def _rounded(value: float) -> str:
    """Write a positive number with two significant digits."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"
