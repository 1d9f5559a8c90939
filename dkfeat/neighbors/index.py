"""Index of a data set's codes, which searches map into memory instead of reading shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dkfeat.blocks import PackedCodes
from dkfeat.engine.dataset.dataset import ShardDataset
from dkfeat.engine.progress import ProgressState
from dkfeat.engine.resolve import PIECE_BYTES
from dkfeat.engine.tables import TableJob, TableSpec, write_table
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.neighbors.scan import former_parameters, open_codes
from dkfeat.store.manifest.metadata import newest_manifest, read_spec
from dkfeat.store.shards.columns import index_table
from dkfeat.store.shards.reader import ShardReader
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import SPEC

if TYPE_CHECKING:
    from dask.distributed import Client

    from dkfeat.blocks import Split
    from dkfeat.sources.base import Piece
    from dkfeat.store.manifest.manifest import Manifest


@former_parameters()
def index(
    data: ShardDataset | str | PathLike[str],
    *,
    client: Client | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
) -> Manifest:
    r"""Write an index of a data set, with which `search` answers a single query several times as fast.

    The index has a copy of the codes in files that each search maps into memory, so that nothing is decoded or checked
    for each query, and the pages stay in the system's cache. Results are the same with and without it.

    It is in a folder beside that of the shards, with ``-index`` after its name, where `search` finds it. Before the
    call, this folder must either not exist, or hold an index of the same data set, complete or interrupted. After the
    call, the index has all shards. If the call is interrupted, the same call continues, and searches read the shards.
    If shards were added to the data set, the same call adds them to the index; until then, searches are an error. To go
    back, remove the folder.

    Parameters
    ----------
    data : ShardDataset, str or path
        Data set made by `GCWSFeatures` or `DartFeatures`, or its folder; not a URL of an object store.
    client : distributed.Client or None, default=None
        Cluster to run on, as in `dkfeat.featurize`.
    progress : bool or callable, default=True
        Progress report, as in `dkfeat.featurize`.

    Returns
    -------
    manifest : Manifest
        Committed list of the files of the index.

    Raises
    ------
    dkfeat.errors.ConfigError
        If the map does not sample, or the shards are not in a local folder.
    dkfeat.errors.SpecConflictError
        If the folder holds something else, or shards that it covers were replaced.
    dkfeat.errors.DkfeatError
        As from `dkfeat.featurize`.

    See Also
    --------
    search : Reads the index if there is one.

    Notes
    -----
    A single query among 1 million rows of 512 codes takes a sixth of the time, a batch of 64 three quarters. The index
    takes as much space as the codes. ``dkfeat verify`` checks its bytes; a search checks only sizes and footers.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("1 1:4 3:1\n1 2:3\n1 1:4 3:2\n")
    >>> dart = dkfeat.DartFeatures(n_components=512, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", dart, progress=False)
    >>> dkfeat.neighbors.index(folder / "features", progress=False).rows
    3
    >>> dkfeat.neighbors.search(folder / "features", np.array([[4.0, 0.0, 1.5]]), 2, progress=False).rows.tolist()
    [[0, 2]]
    """
    data, fitted = open_codes(data)
    row_bytes = fitted.encoded_row_bytes
    if data.shards.storage.is_remote:
        raise ConfigError(
            f"an index is mapped into memory, but {data.shards.storage.url} is in an object store; copy the shards to "
            "a local folder, or search without index"
        )
    spec = TableSpec(
        layout="index",
        schema=index_table(PackedCodes(np.empty((0, row_bytes), np.uint8), np.empty(0, np.bool_))).schema,
        settings={"format": 1},
        piece_rows=max(1, PIECE_BYTES // row_bytes),
        row_bytes=row_bytes,
        reads=("encoded",),
    )
    return write_table(data, _folder(data), spec, _IndexJob, stage="index", client=client, progress=progress)


def open_index(data: ShardDataset) -> ShardReader | None:
    """Open the index of a data set; None if there is none.

    Raises
    ------
    SpecConflictError
        If it lacks a shard of the data set.
    """
    storage, url = open_storage(_folder(data)), data.shards.storage.url
    if storage.is_remote or storage.size(SPEC) is None:
        return None
    spec, manifest = read_spec(storage), newest_manifest(storage)
    if manifest is None or spec["output"]["layout"] != "index":
        return None
    if spec["input"]["spec_fp"] != data.manifest.spec_fp:
        raise SpecConflictError(
            f"{storage.url} is an index of shards with another spec than those of {url}; remove it, and run "
            f"`dkfeat index {url}`"
        )
    indexed = {source.name: source.etag for source in manifest.sources}
    missing = [entry.name for entry in data.manifest.shards if indexed.get(entry.name) != entry.sha256]
    if missing:
        raise SpecConflictError(
            f"{storage.url} lacks {len(missing):,} of the {data.n_shards:,} shards of {url}, such as {missing[0]}; "
            f"run `dkfeat index {url}` again, or remove the index"
        )
    return ShardReader(storage, spec, manifest)


def _folder(data: ShardDataset) -> str:
    return f"{data.shards.storage.url}-index"


@dataclass(frozen=True, slots=True, kw_only=True)
class _IndexJob(TableJob):
    """Job that copies codes."""

    def table(self, split: Split, piece: Piece) -> pa.Table:  # noqa: ARG002 - inherited
        """See `TableJob.table`."""
        return index_table(piece.block.X)
