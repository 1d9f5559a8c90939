"""Some rows of a data set beside what its shards hold of them, for questions that need both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from dkfeat.blocks import PackedCodes
from dkfeat.engine.inputs import settled_source
from dkfeat.engine.rows import ShardRows
from dkfeat.errors import SourceError, SpecConflictError
from dkfeat.io import metadata
from dkfeat.io.quarantine import REFUSED

if TYPE_CHECKING:
    from dkfeat.blocks import Split
    from dkfeat.engine.dataset import ShardDataset
    from dkfeat.io.entries import ShardEntry
    from dkfeat.io.source import Source
    from dkfeat.maps import FeatureMap

__all__ = ["RowSample", "sample_rows"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowSample:
    """Rows of a source, and what the shards made from them hold."""

    X: Any
    """The source's rows: csr_matrix or ndarray of shape (n_rows, n_features)."""
    encoded: Any
    """The same rows in the shards: PackedCodes, csr_matrix or ndarray, by the layout."""
    n_shards: int
    """Shards that they were drawn from."""

    def is_made_by(self, features: FeatureMap) -> bool:
        """Whether a map makes of the rows what the shards hold; products of floats may differ in their last bits."""
        held = self.encoded
        if isinstance(held, PackedCodes):
            made = features.encode(self.X)
            codes = made.codes[~made.empty], held.codes[~held.empty]
            return np.array_equal(made.empty, held.empty) and np.array_equal(*codes)
        made = features.transform(self.X)
        if sparse.issparse(held):
            return bool(abs(sparse.csr_matrix(made) - held).max() <= 1e-5)
        return bool(np.allclose(made, held, rtol=1e-4, atol=1e-5))


def sample_rows(
    data: ShardDataset,
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    rows: int = 256,
    shards: int = 8,
    random_state: int = 0,
    unchanged: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> RowSample:
    """Draw rows of the source, and read their features from the shards.

    The first shards of some splits are drawn, and rows of each: of a split no more is read than its first piece, which
    must still have the SHA-256 that the manifest states. Nothing is written.

    Parameters
    ----------
    data : ShardDataset
    source : LibsvmSource, ParquetSource, path, glob, URL, or a list of these
        As it was given to `dkfeat.featurize`; options left open are the data set's.
    rows, shards : int
        How many to draw at most.
    random_state : int, default=0
        Seed of the draw.
    unchanged : bool, default=False
        Open no file but those of the size and time of change that the manifest states.
    storage_options : mapping or None
        For a source given by URL.

    Returns
    -------
    sample : RowSample

    Raises
    ------
    dkfeat.errors.SourceNotFoundError
        No file matches.
    dkfeat.errors.SpecConflictError
        It is another source, or no file of it is what the shards were made from.
    dkfeat.errors.SourceError, dkfeat.errors.ShardError
        Something cannot be read.
    """
    reader, spec = data.shards, data.spec
    settled, files = settled_source(reader.storage, spec, data.manifest, source, storage_options)
    if unchanged:
        stated = [entry.identity for entry in data.manifest.sources]
        files = {name: file for name, file in files.items() if file.identity in stated}
    numbers = range(1, data.manifest.number + 1)
    plans = [metadata.read_plan(reader.storage, number) for number in numbers]
    splits = {
        split.number: split for plan in plans for split in plan.splits if all(f.name in files for f in split.files)
    }
    firsts = [entry for entry in data.manifest.shards if entry.piece == 0 and entry.rows and entry.split in splits]
    able = [entry for entry in firsts if all(reason != REFUSED for _, reason, _ in entry.bad_rows)]
    rng = np.random.default_rng(random_state)
    chosen = sorted(rng.permutation(len(able))[:shards].tolist())
    each = -(-rows // max(1, len(chosen)))
    X, encoded = [], []
    for entry in (able[place] for place in chosen):
        block = _first_piece(settled, splits[entry.split].with_files(files), entry, spec["split"]["max_piece_rows"])
        if block is None:
            continue
        taken = np.sort(rng.permutation(entry.rows)[:each])
        X.append(block[taken])
        held = reader.read(entry, data.verifies, only=("encoded",)).encoded
        encoded.append(ShardRows(held, np.zeros(entry.rows), None).take(taken))
    if not X:
        named = f"{settled.patterns[0]}" if settled.patterns else "the source"
        message = f"{named}: no split of it that was looked at is what the shards were made from"
        raise SpecConflictError(message)
    stacked = sparse.csr_matrix(sparse.vstack(X)) if sparse.issparse(X[0]) else np.concatenate(X)
    return RowSample(X=stacked, encoded=ShardRows.joined(encoded).encoded, n_shards=len(X))


def _first_piece(source: Source, split: Split, entry: ShardEntry, max_piece_rows: int | None) -> Any:
    """Rows of a split's first piece; None where its bytes are not what the shard was made from any more."""
    pieces = source.read(split, max_piece_rows)
    try:
        piece = next(pieces)
    except (SourceError, SpecConflictError):  # it changed; another one may not have
        return None
    same = (piece.start, piece.stop) == entry.range and piece.source_sha256 == entry.source_sha256
    return piece.block.X if same and piece.block.n_rows == entry.rows else None
