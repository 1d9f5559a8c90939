"""Rows drawn from a source by tasks, to fit encoder and map; both loaded once by each process that needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dkfeat.archives import pack_arrays
from dkfeat.blocks import Split, take_rows
from dkfeat.encoders import CLASSES, encoder_class
from dkfeat.engine.progress import Progress
from dkfeat.engine.runners.base import Runner, until_stopped
from dkfeat.engine.scan import run_stage
from dkfeat.errors import ConfigError, ParquetError, SpecConflictError
from dkfeat.maps import from_spec
from dkfeat.messages import printable
from dkfeat.process_cache import ProcessCache
from dkfeat.sources.base import Scan, Source
from dkfeat.sources.pieces import join_rows
from dkfeat.store.manifest.metadata import read_sidecar, sidecar_name, sidecars_of
from dkfeat.store.storage.base import META, Storage

if TYPE_CHECKING:
    from dkfeat.encoders._base import Encoder
    from dkfeat.maps import FeatureMap


_KEPT_MAPS = 4


def take_of_split(
    source: Source, positions: Mapping[int, NDArray[np.int64]], split: Split, stopped: Callable[[], bool]
) -> Any:
    """Take the rows of a split at ascending positions, given by its number; it is read up to the last of them."""
    wanted = positions[split.number]
    parts, first = [], 0
    for piece in until_stopped(source.read(split, checksum=False), stopped):
        stop = first + piece.block.n_rows
        here = wanted[(wanted >= first) & (wanted < stop)]
        parts.append(take_rows(piece.block.X, here - first))
        first = stop
        if first > wanted[-1]:
            return join_rows(parts)
    raise SpecConflictError(
        f"{split.title}: {first:,} rows were read, but it had more than {int(wanted[-1]):,} when it was scanned; "
        "run again when no other program writes to it"
    )


def draw_rows(
    source: Source, scan: Scan, numbers: NDArray[np.int64], runner: Runner, progress: Progress, stage: str
) -> Any:
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
    rows : csr_matrix of shape (n_taken, n_features), or pyarrow Table of n_taken rows

    Raises
    ------
    dkfeat.errors.SpecConflictError
        If a file has changed since the scan.
    dkfeat.errors.ParquetError
        If a column of a table has values of different kinds in two files.
    """
    starts = np.cumsum([0, *scan.rows_per_split])
    cuts = np.searchsorted(numbers, starts)
    positions = {
        split.number: numbers[cuts[i] : cuts[i + 1]] - starts[i]
        for i, split in enumerate(scan.splits)
        if cuts[i] < cuts[i + 1]
    }
    splits = [split for split in scan.splits if split.number in positions]
    taken: dict[int, Any] = {}

    def done(split: Split, rows: Any) -> int:
        taken[split.number] = rows
        return int(rows.shape[0])

    run_stage(stage, partial(take_of_split, source, positions), source, splits, runner, progress, done)
    try:
        return join_rows([taken[split.number] for split in splits])
    except pa.ArrowTypeError:
        first = splits[0]
        for split in splits[1:]:
            _check_kinds(taken[first.number], first, taken[split.number], split)
        raise


def _check_kinds(one: pa.Table, first: Split, other: pa.Table, split: Split) -> None:
    """Check that columns of two files have values of one kind."""
    for name in one.column_names:
        try:
            join_rows([one.select([name]), other.select([name])])
        except pa.ArrowTypeError:
            kinds = (table.schema.field(name).type for table in (other, one))
            reason = "is {}, but {} in {}; convert one of them".format(*kinds, printable(first.title))
            raise ParquetError(reason, path=printable(split.file.url), column=printable(name)) from None


def fit_to_rows(map: FeatureMap, source: Source, scan: Scan, runner: Runner, progress: Progress) -> FeatureMap:
    """Fit a copy of a map to rows that its seed draws from a scanned source; see `draw_rows` for the arguments."""
    draw = partial(draw_rows, source, scan, runner=runner, progress=progress, stage="landmarks")
    return map._cloned()._fit_drawn(scan.n_rows, scan.n_features, draw)


def fit_encoder(source: Source, scan: Scan, runner: Runner, progress: Progress) -> Encoder:
    """Fit a copy of the source's encoder to rows that its seed draws; see `draw_rows` for the arguments."""
    if not scan.n_rows:
        raise ConfigError(
            "the encoder is fitted to rows of the source, but it has none, or none passes its filters; featurize a "
            "source with rows first, or pass encoder=None (--features-as columns) for columns of numbers as they are"
        )
    draw = partial(draw_rows, source, scan, runner=runner, progress=progress, stage="encoder")
    fitted: Encoder = source.encoder._cloned()._fit_drawn(scan.n_rows, draw)
    return fitted


def sidecar_files(spec: Mapping[str, Any], fitted: FeatureMap, encoder: Encoder | None) -> dict[str, bytes]:
    """Return the contents of the files that a spec names for its map and its encoder, by their names in a data set."""
    owners = {"landmarks": fitted, "encoder": encoder}
    return {
        f"{META}/{sidecar_name(kind, sha256)}": pack_arrays(owner._fitted_arrays())
        for kind, sha256 in sidecars_of(spec).items()
        if (owner := owners.get(kind)) is not None
    }


def load_map(spec: Mapping[str, Any], *storages: Storage) -> FeatureMap:
    """Make the map of the spec of a data set or a model, with its landmarks from the first folder that has them.

    Raises
    ------
    dkfeat.errors.ShardError
        If the landmarks are missing or damaged.
    """
    return from_spec(spec["map"], _arrays("landmarks", spec, storages))


def load_encoder(spec: Mapping[str, Any], *storages: Storage) -> Encoder | None:
    """Make the encoder of a spec, as `load_map` makes its map; None if it has none."""
    if "encoder" not in spec:
        return None
    arrays, name = _arrays("encoder", spec, storages), spec["encoder"].get("encoder")
    if name not in CLASSES:
        raise SpecConflictError(
            f"the spec names the encoder {name!r}, but the known ones are {', '.join(CLASSES)}; update dkfeat"
        )
    return encoder_class(name).from_spec(spec["encoder"], arrays)


def _arrays(kind: str, spec: Mapping[str, Any], storages: Sequence[Storage]) -> dict[str, NDArray[Any]]:
    sha256 = sidecars_of(spec).get(kind)
    if sha256 is None:
        return {}
    base = sidecar_name(kind, sha256)
    for storage in storages:
        for folder in (META, ""):
            if storage.size(f"{folder}/{base}" if folder else base) is not None:
                return read_sidecar(storage, kind, sha256, folder)
    return read_sidecar(storages[0], kind, sha256)  # raises an error that names the missing file


_maps: ProcessCache[FeatureMap] = ProcessCache(_KEPT_MAPS)


def map_of(spec: Mapping[str, Any], spec_fp: str, storage: Storage) -> FeatureMap:
    """Load the map of a data set with this spec and fingerprint, once in each process, also for concurrent calls."""
    return _maps.get((storage.url, spec_fp), lambda: load_map(spec, storage))
