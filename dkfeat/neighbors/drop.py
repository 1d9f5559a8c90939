"""Data sets of the rows that are left of another one without duplicates, for training."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.open import Target, open_run
from dkfeat.engine.progress import ProgressState
from dkfeat.engine.resolve import DROPPED, Resolved
from dkfeat.engine.run import execute
from dkfeat.engine.tables import ShardsJob
from dkfeat.errors import InputError, SpecConflictError
from dkfeat.neighbors.deduplication.result import GROUPS, Duplicates

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.sources.pieces import Piece
    from dkfeat.store.manifest.manifest import Manifest
    from dkfeat.store.manifest.records import ShardEntry
    from dkfeat.store.shards.reader import ShardReader

    Keep = Callable[[Split], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _DropJob(ShardsJob):
    """Job that copies those rows of a shard that are kept."""

    keep: Keep
    """Mask of the rows of a shard."""

    def select(self, split: Split, piece: Piece) -> Piece:
        """Return the piece with its kept rows."""
        return replace(piece, block=piece.block.take(self.keep(split)[piece.start : piece.stop]))


def drop_duplicates(
    data: ShardDataset | str | PathLike[str],
    duplicates: Duplicates | NDArray[np.bool_] | str | PathLike[str],
    target: str | PathLike[str] | Target,
    *,
    client: Client | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Manifest:
    r"""Copy a data set without its duplicates: of each group of them only the first row is left.

    The result is a data set with the map, the layout and the columns of `data`: models are trained and evaluated on
    it in the same way, and read rows in the same way. Before the call, `target` must either not exist, or hold the
    result of the same call, complete or interrupted. If the call is interrupted, the same call continues.

    Parameters
    ----------
    data : ShardDataset, str or path
        Data set, or its folder or URL.
    duplicates : Duplicates, ndarray of shape (n_rows,), str or path
        Result of `dkfeat.neighbors.duplicates` on these shards, or its folder; or a boolean mask of the rows to keep,
        such as ``kept`` of the result on shards of the same rows that were made by another map.
    target : str, path or Target
        Folder or URL of the new data set.
    client, progress
        As in `dkfeat.featurize`.
    storage_options : mapping or None
        Options of fsspec for `data` given by URL.

    Returns
    -------
    manifest : Manifest
        Committed list of shards.

    Raises
    ------
    dkfeat.errors.SpecConflictError
        If the duplicates were found in another state of the shards, or the target holds something else.
    dkfeat.errors.ConfigError
        If there are no duplicates in a folder, or their search was interrupted.
    dkfeat.errors.InputError
        If a mask has another shape or type.
    dkfeat.errors.DkfeatError
        As from `dkfeat.featurize`.

    Notes
    -----
    Each new shard has the kept rows of one shard, in their order, and may be empty. Labels are not compared: the first
    row of a group is kept, whatever the labels of the others. Rows that a chain of pairs connects are one group, so a
    low threshold may leave few rows: look at ``n_kept`` of the result first, or find copies alone with ``threshold=1``.

    The spec of the new data set has that of `data` and the key ``drop_duplicates``, with the hashes of the shards and
    of the kept rows. Therefore nothing can be added to it: after new rows are added to `data`, find duplicates again,
    and choose another target.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("1 1:4 3:1\n2 2:3\n1 1:4 3:1\n2 2:3\n")
    >>> dart = dkfeat.DartFeatures(n_components=64, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", dart, progress=False)
    >>> found = dkfeat.neighbors.duplicates(folder / "features", progress=False)
    >>> _ = drop_duplicates(folder / "features", found, folder / "distinct", progress=False)
    >>> dkfeat.open_shards(folder / "distinct").labels().tolist()
    [1, 2]
    """
    data = data if isinstance(data, ShardDataset) else open_shards(data, storage_options=storage_options)
    source = ShardSource.of(data.shards)
    keep = _keep(duplicates, data, source)
    kept = hashlib.sha256()
    for split in source.splits():
        kept.update(keep(split).tobytes())
    dropped = {"shards": data.manifest.shards_sha256, "rows": data.n_rows, "kept": kept.hexdigest()}
    labels = data.spec["input"].get("labels")
    source = replace(source, labels=labels if labels is None else tuple(labels))
    with open_run(source, target, client=client, progress=progress) as opened:
        spec, job = {**data.spec, DROPPED: dropped}, partial(_DropJob, keep=keep)
        resolved = Resolved(opened=opened, source=source, map=data.map, spec=spec, schema=data.manifest.schema)
        return execute(replace(resolved, encoder=data.encoder, job=job, stage="drop duplicates"))


def _keep(duplicates: Any, data: ShardDataset, source: ShardSource) -> Keep:
    found = Duplicates.open(duplicates) if isinstance(duplicates, str | PathLike) else duplicates
    if isinstance(found, Duplicates) and found.folder is not None:
        return _keep_of_folder(found, data)
    mask = np.asarray(found.kept if isinstance(found, Duplicates) else found)
    if mask.dtype != np.bool_ or mask.shape != (data.n_rows,):
        raise InputError(
            f"duplicates are of shape {mask.shape} and type {mask.dtype}, but {source.urlpath} has {data.n_rows:,} "
            "rows; give the result of dkfeat.neighbors.duplicates on these rows, its folder, or a boolean mask of the "
            "rows to keep"
        )
    return partial(_rows_of_mask, mask, source)


def _rows_of_mask(mask: NDArray[np.bool_], source: ShardSource, split: Split) -> NDArray[np.bool_]:
    first = source.first_row(split)
    return mask[first : first + split.stop]


def _keep_of_folder(found: Duplicates, data: ShardDataset) -> Keep:
    groups, url = found.arrays[GROUPS].shards, data.shards.storage.url
    if groups.spec[GROUPS]["shards"] != data.manifest.shards_sha256:
        raise SpecConflictError(
            f"{found.folder} has the duplicates of other shards than {url} has now; find them again, with `dkfeat "
            f"duplicates {url} --out` and another folder"
        )
    entries: dict[int, list[ShardEntry]] = {}
    for entry in groups.manifest.shards:  # splits are the shards of the data set
        entries.setdefault(entry.split, []).append(entry)
    return partial(_rows_of_groups, groups, entries)


def _rows_of_groups(groups: ShardReader, entries: Mapping[int, list[ShardEntry]], split: Split) -> NDArray[np.bool_]:
    parts = [groups.read(entry, only=("keep",)).kept["keep"] for entry in entries[split.number]]
    return np.concatenate([part.to_numpy(zero_copy_only=False) for part in parts])
