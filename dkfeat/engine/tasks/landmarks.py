"""Landmarks of a map: drawn from a source by tasks, and loaded once by each process that needs the map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from dkfeat.archives import pack_arrays
from dkfeat.blocks import Split
from dkfeat.engine.progress import Progress
from dkfeat.engine.runners.base import ProcessCache, Runner, until_stopped
from dkfeat.engine.scan import run_stage
from dkfeat.errors import SpecConflictError
from dkfeat.maps import FeatureMap, from_spec
from dkfeat.sources.base import Scan, Source
from dkfeat.store.manifest.metadata import read_sidecar, sidecar_name
from dkfeat.store.storage.base import META, Storage

_KEPT_MAPS = 4


@dataclass(frozen=True, slots=True)
class TakeRows:
    """Task that takes selected rows of a split; sent to each worker once."""

    source: Source
    positions: Mapping[int, NDArray[np.int64]]
    """Ascending positions of the wanted rows in each split, by its number; at least one row for each split."""

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> sp.csr_matrix:
        """Take the rows of one split, which is read up to the last of them."""
        wanted = self.positions[split.number]
        parts, first = [], 0
        for piece in until_stopped(self.source.read(split, checksum=False), stopped):
            stop = first + piece.block.n_rows
            here = wanted[(wanted >= first) & (wanted < stop)]
            parts.append(piece.block.X[here - first])
            first = stop
            if first > wanted[-1]:
                return sp.vstack(parts, format="csr")
        raise SpecConflictError(
            f"{split.title}: {first:,} rows were read, but it had more than {int(wanted[-1]):,} when it was scanned; "
            "run again when no other program writes to it"
        )


def draw_rows(
    source: Source, scan: Scan, numbers: NDArray[np.int64], runner: Runner, progress: Progress
) -> sp.csr_matrix:
    """Take rows from a scanned source, reading only splits that contain them.

    Parameters
    ----------
    source : Source
        Source with resolved options.
    scan : Scan
        Scan of its current files.
    numbers : ndarray of shape (n_taken,), int64
        Row numbers over all splits in order, ascending.

    Returns
    -------
    rows : csr_matrix of shape (n_taken, n_features)

    Raises
    ------
    dkfeat.errors.SpecConflictError
        If a file has changed since the scan.
    """
    starts = np.cumsum([0, *scan.rows_per_split])
    cuts = np.searchsorted(numbers, starts)
    positions = {
        split.number: numbers[cuts[i] : cuts[i + 1]] - starts[i]
        for i, split in enumerate(scan.splits)
        if cuts[i] < cuts[i + 1]
    }
    splits = [split for split in scan.splits if split.number in positions]
    taken: dict[int, sp.csr_matrix] = {}

    def done(split: Split, rows: sp.csr_matrix) -> int:
        taken[split.number] = rows
        return int(rows.shape[0])

    run_stage("landmarks", TakeRows(source, positions), source, splits, runner, progress, done)
    return sp.vstack([taken[split.number] for split in splits], format="csr")


def fit_to_rows(map: FeatureMap, source: Source, scan: Scan, runner: Runner, progress: Progress) -> FeatureMap:
    """Fit a copy of a map to rows that its seed draws from a scanned source; see `draw_rows` for the arguments."""
    draw = partial(draw_rows, source, scan, runner=runner, progress=progress)
    return clone(map)._fit_drawn(scan.n_rows, scan.n_features, draw)


def sidecar_files(fitted: FeatureMap) -> dict[str, bytes]:
    """Return the contents of the files that the map's spec names, by their names in a data set."""
    arrays = fitted._fitted_arrays()
    if not arrays:
        return {}
    return {f"{META}/{sidecar_name('landmarks', fitted.to_spec()['landmarks'])}": pack_arrays(arrays)}


def load_map(spec: Mapping[str, Any], *storages: Storage) -> FeatureMap:
    """Make the map of a spec, with its landmarks from the first folder of shards or of a model that has them.

    Raises
    ------
    dkfeat.errors.ShardError
        If the landmarks are missing or damaged.
    """
    sha256 = spec.get("landmarks")
    if sha256 is None:
        return from_spec(spec)
    base = sidecar_name("landmarks", sha256)
    for storage in storages:
        for folder in (META, ""):
            if storage.size(f"{folder}/{base}" if folder else base) is not None:
                return from_spec(spec, read_sidecar(storage, "landmarks", sha256, folder))
    # this read raises an error that names the missing file
    return from_spec(spec, read_sidecar(storages[0], "landmarks", sha256))


_maps = ProcessCache[FeatureMap](_KEPT_MAPS)


def map_of(spec: Mapping[str, Any], spec_fp: str, storage: Storage) -> FeatureMap:
    """Load the map of a data set with this spec and fingerprint, once in each process, also for concurrent calls."""
    return _maps.get((storage.url, spec_fp), lambda: load_map(spec["map"], storage))
