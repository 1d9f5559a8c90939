"""Kernel estimates of a report, compared with the exact kernel on rows of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from dkfeat.blocks import PackedCodes, RowBlock
from dkfeat.engine.dataset.verify import resolved_source
from dkfeat.errors import ConfigError, DkfeatError, SourceError, SourceNotFoundError, SpecConflictError
from dkfeat.filesystems.urls import is_url
from dkfeat.sources.pieces import REFUSED, join_blocks
from dkfeat.store.commit.run_log import RunLog
from dkfeat.store.manifest.record_table import planned_splits

if TYPE_CHECKING:
    from dkfeat.blocks import Split
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.maps import FeatureMap
    from dkfeat.maps._kernel_estimates import KernelPairs
    from dkfeat.sources.base import Source
    from dkfeat.store.manifest.records import ShardEntry


FAR, SLACK, FAR_OF_PRODUCTS = 3.0, 2.0, 20.0
"""Standard errors, and components more, beyond which an error contradicts theory. Estimates are sums of components,
nearly normal: a correct map is further off for at most one set of rows in 370, namely if all pairs err alike; the
components more are for pairs that hardly ever agree. Products of random factors (maclaurin) have heavy tails: for them
Markov's inequality allows one set of rows in 400, whatever the distribution."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """Errors of kernel estimates on a sample of rows."""

    pairs: KernelPairs
    """Exact kernel and its estimate for each pair of rows."""
    n_rows: int
    """Number of rows in the sample."""
    n_shards: int
    """Number of shards that the rows were drawn from."""
    same: bool
    """True if these rows, featurized again, give the features in the shards."""
    features: FeatureMap
    """The map."""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain JSON values."""
        pairs = self.pairs
        return {
            "kernel": pairs.kernel,
            "rows": self.n_rows,
            "pairs": len(pairs),
            "shards": self.n_shards,
            "root_mean_squared_error": pairs.error,
            "mean_error": self.mean_error,
            "expected_error": pairs.expected_error,
            "within_two_standard_errors": pairs.share_within,
            "equal_to_the_shards": self.same,
        }

    @property
    def problems(self) -> list[str]:
        """What contradicts the theory of the map, and that the features are its own; empty if nothing does."""
        found = []
        if not self.same:
            found.append(
                "rows of the source, computed again, do not have the features in the shards; featurize them again"
            )
        error, expected = self.pairs.error, self.pairs.expected_error
        params = self.features.get_params()
        far = FAR_OF_PRODUCTS if self.features.to_spec()["map"] == "maclaurin" else FAR
        if expected is not None and error > far * expected + SLACK / params["n_components"]:
            times = error / max(expected, 1e-6)
            found.append(
                f"estimates of the kernel have an error of {error:.2g}, {times:.2g} times the standard error of "
                f"{expected:.2g} that theory gives, which is not by chance; {_remedy(params)}"
            )
        return found

    @property
    def mean_error(self) -> float:
        """Mean difference of estimates and kernel, the error that does not average out."""
        return float(np.mean(self.pairs.estimates - self.pairs.exact))


def _remedy(params: Mapping[str, Any]) -> str:
    """Return what to do if the error of a map with these parameters is far above theory."""
    if params.get("t_bits") == 0:
        return "without levels, codes of few columns are biased: use t_bits=2 (--t-bits 2) or darts (--map dart)"
    if params.get("projection", "dense") != "dense":
        return 'structured projections err more on few columns: use projection="dense" (--projection dense)'
    return "use another seed (--seed), and if the error remains, report a bug with some of the rows"


def gives_features(features: FeatureMap, X: Any, encoded: Any) -> bool:
    """Return True if a map gives the features that shards hold for some rows, up to the last bits of floats."""
    if isinstance(encoded, PackedCodes):
        made = features.encode(X)
        codes = made.codes[~made.empty], encoded.codes[~encoded.empty]
        return np.array_equal(made.empty, encoded.empty) and np.array_equal(*codes)
    made = features.transform(X)
    if sparse.issparse(encoded):
        return bool(abs(sparse.csr_matrix(made) - encoded).max() <= 1e-5)
    return bool(np.allclose(made, encoded, rtol=1e-4, atol=1e-5))


def sample_rows(
    data: ShardDataset,
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    rows: int = 256,
    shards: int = 8,
    random_state: int = 0,
    unchanged: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Any, Any, int]:
    """Draw rows of the source, and read their features from the shards.

    Rows are drawn from the first shards of randomly drawn splits. Of a split only the first piece is read, which must
    still have the SHA-256 in the manifest. Nothing is written.

    Parameters
    ----------
    data : ShardDataset
    source : LibsvmSource, ParquetSource, path, glob, URL, or a list of these
        Source as in the call of `dkfeat.featurize`; omitted options are those of the data set.
    rows, shards : int
        Maximum numbers of rows and of shards to draw.
    random_state : int, default=0
        Seed of the draw.
    unchanged : bool, default=False
        Open only files whose size and modification time are those in the manifest.
    storage_options : mapping or None
        Options of fsspec for a source given by URL.

    Returns
    -------
    X : csr_matrix or ndarray
        The source's rows, of shape (n_rows, n_features).
    encoded : PackedCodes, csr_matrix or ndarray
        Features of these rows in the shards, by the layout.
    n_shards : int
        Number of shards that the rows were drawn from.

    Raises
    ------
    dkfeat.errors.SourceNotFoundError
        If no file matches.
    dkfeat.errors.SpecConflictError
        If it is another source, or all of its files have changed since the shards were made.
    dkfeat.errors.SourceError, dkfeat.errors.ShardError
        If a file or a shard cannot be read.
    """
    reader, spec = data.shards, data.spec
    resolved, files = resolved_source(reader.storage, spec, data.manifest, source, storage_options)
    if unchanged:
        stated = [entry.identity for entry in data.manifest.sources]
        files = {name: file for name, file in files.items() if file.identity in stated}
    planned = planned_splits(data.manifest.records)
    splits = {split.number: split for split in planned if all(file.name in files for file in split.files)}
    firsts = [entry for entry in data.manifest.shards if entry.piece == 0 and entry.rows and entry.split in splits]
    able = [entry for entry in firsts if all(reason != REFUSED for _, reason, _ in entry.bad_rows)]
    rng = np.random.default_rng(random_state)
    chosen = sorted(rng.permutation(len(able))[:shards].tolist())
    each = -(-rows // max(1, len(chosen)))
    X, encoded = [], []
    for entry in (able[place] for place in chosen):
        block = _first_piece(resolved, splits[entry.split].with_files(files), entry, spec["split"]["max_piece_rows"])
        if block is None:
            continue
        taken = np.sort(rng.permutation(entry.rows)[:each])
        X.append(block[taken])
        held = reader.read(entry, data.verifies, only=("encoded",)).X
        encoded.append(RowBlock(X=held, y=np.zeros(entry.rows)).take(taken))
    if not X:
        named = f"{resolved.patterns[0]}" if resolved.patterns else "the source"
        raise SpecConflictError(f"{named}: none of the splits that were read is still what the shards were made from")
    stacked = sparse.csr_matrix(sparse.vstack(X)) if sparse.issparse(X[0]) else np.concatenate(X)
    return stacked, join_blocks(encoded).X, len(X)


def _first_piece(source: Source, split: Split, entry: ShardEntry, max_piece_rows: int | None) -> Any:
    """Read the rows of a split's first piece; None if its bytes have changed since the shard was made."""
    pieces = source.read(split, max_piece_rows)
    try:
        piece = next(pieces)
    except (SourceError, SpecConflictError):  # this file has changed; another one may be unchanged
        return None
    same = (piece.start, piece.stop) == entry.range and piece.source_sha256 == entry.source_sha256
    return piece.block.X if same and piece.block.n_rows == entry.rows else None


def remembered_source(logs: Sequence[RunLog]) -> Sequence[str]:
    """Return the paths, patterns and URLs of the source that the last log names; empty if none does."""
    return next((log.sources for log in reversed(logs) if log.sources), ())


def safe_source(logs: Sequence[RunLog]) -> tuple[list[str], str]:
    """Return the source that the last log names, and the reason why it may not be opened; empty if it may.

    Logs are not trusted, since others may write to their folder: of the sources that logs name, no URL is opened and no
    tree is searched. The caller reads only files in the manifest.
    """
    remembered = remembered_source(logs)
    if not remembered:
        return [], "No log names the source; give it to the report too."
    if any(is_url(place) or "**" in place for place in remembered):
        return [], f"The source is {', '.join(remembered)[:200]}; give it to the report too, so that it may be read."
    return list(remembered), ""


def estimate_kernel(
    data: ShardDataset,
    source: Any,
    logs: Sequence[RunLog],
    rows: int,
    seed: int,
    storage_options: Mapping[str, Any] | None,
) -> tuple[Estimates | None, str]:
    """Compare estimates with the exact kernel on rows of the source; None and the reason if that is not possible.

    Of a source that logs name, only files in the manifest are read, see `safe_source`.
    """
    if rows < 2:
        return None, "Not requested."
    given = source is not None
    remembered, note = ([], "") if given else safe_source(logs)
    if note:
        return None, note
    try:
        X, encoded, n_shards = sample_rows(
            data,
            source if given else remembered,
            rows=rows,
            random_state=seed,
            unchanged=not given,
            storage_options=storage_options if given else None,
        )
        features = data.map
        pairs = features.kernel_pairs(X, n_rows=X.shape[0])
    except (DkfeatError, OSError, ValueError) as error:
        if given and isinstance(error, SourceNotFoundError | ConfigError):
            raise  # a mistake in the call, not a source that was removed
        return None, f"The source cannot be compared: {error}"
    same = gives_features(features, X, encoded)
    return Estimates(pairs=pairs, n_rows=X.shape[0], n_shards=n_shards, same=same, features=features), ""
