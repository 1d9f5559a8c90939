"""Copies and near copies among the rows of shards under the min-max kernel, by bands of their codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from dkfeat.blocks import SourceFile, Split
from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ConfigError
from dkfeat.io.sources.shards import ShardSource
from dkfeat.maps._sampled import SampledMap
from dkfeat.neighbors.buckets import BandFiles, FindCopies, FindPairs, FoundPairs, WriteKeys
from dkfeat.neighbors.nearest import sampled_map
from dkfeat.theory.bands import Bands, choose_bands, sharing_probability
from dkfeat.validation import check_real

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

MOST_ROWS = 1 << 32
"""Maximum number of rows: two row numbers fit in 64 bits."""
_PENDING = 1 << 22  # number of pairs after which those that several bands have in common are merged


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Duplicates:
    """Copies and near copies among the rows of a data set; made by `duplicates`."""

    pairs: NDArray[np.int64]
    """Shape (n_pairs, 2): numbers of two similar rows in the data set's order, the lower one first; sorted. Of rows
    with equal codes, each is paired with the lowest one only, which stands for all in the other pairs."""
    similarities: NDArray[np.float64]
    """Shape (n_pairs,): estimates of the kernel, at least the threshold."""
    groups: NDArray[np.int64]
    """Shape (n_rows,): the lowest row of the group of each row, which is the row itself if it has no duplicate. Rows
    that are connected by pairs are a group."""
    bands: Bands
    """Division of the codes by which candidates were found."""
    expected_recall: float
    """Probability that two rows whose similarity is the threshold are candidates."""
    n_candidates: int
    """Number of pairs of distinct rows that share a band, counted for each band."""
    n_compared: int
    """Number of these that were compared; it is lower if very many rows share a band."""

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Shape (n_rows,): True for the rows that are left if only the lowest row of each group is kept."""
        return self.groups == np.arange(len(self.groups))


def duplicates(
    shards: ShardDataset | str | PathLike[str],
    threshold: float = 0.8,
    *,
    client: Client | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Duplicates:
    r"""Find the rows of a data set that are copies or near copies of others, under the min-max kernel of its map.

    The codes of a row are cut into bands. Rows with all codes of a band in common are compared by the number of equal
    codes, which estimates their similarity.

    Parameters
    ----------
    shards : ShardDataset, str or path
        Data set made by `GCWSFeatures` or `DartFeatures`, or its folder or URL.
    threshold : float, default=0.8
        Estimated similarity from which two rows are duplicates, above 0 and at most 1.
    client : distributed.Client or None, default=None
        Cluster to run on, as in `dkfeat.featurize`.
    progress : bool or callable, default=True
        Progress report, as in `dkfeat.featurize`.
    storage_options : mapping or None
        Options of fsspec for `shards` given by URL.

    Returns
    -------
    found : Duplicates
        The same for any number of workers and any division into shards.

    Raises
    ------
    dkfeat.errors.ConfigError
        For a threshold out of range, a map that does not sample, too few codes for the threshold, more than 2^32 rows,
        or a worker that does not see the temporary folder.
    dkfeat.errors.ShardError
        If a shard is not as committed.

    See Also
    --------
    dkfeat.theory.bands : Choice of the bands, and the probability that a pair is found.

    Notes
    -----
    All rows with equal codes are found. Of two other rows whose estimate is the threshold, about 95 % are found, of
    more similar ones more. All-zero rows are duplicates of none.

    At most 16 comparisons are made for each row and band, so the time grows in proportion to the rows even if millions
    share a band. Then those rows are compared that are closest in the order of the data set, and near copies far apart
    are left out, unless other bands or other rows connect them; `n_compared` shows how many pairs were compared.

    The codes and 8 bytes for each row and band are written to a temporary folder, which is deleted at the end:
    ``temporary-directory`` of Dask's configuration, else the system's. All workers must see it. A task holds a few
    million rows of one band; the driver holds the pairs and some bytes for each row.

    References
    ----------
    .. [1] J. Leskovec, A. Rajaraman, J. Ullman, "Mining of Massive Datasets", section 3.4.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("1 1:4 3:1\n1 2:3\n1 1:4 3:1.1\n1 2:3\n")
    >>> dart = dkfeat.DartFeatures(n_components=512, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", dart, progress=False)
    >>> found = dkfeat.neighbors.duplicates(folder / "features", threshold=0.9, progress=False)
    >>> found.pairs.tolist(), found.kept.tolist()
    ([[0, 2], [1, 3]], [True, True, False, False])
    """
    data = shards if isinstance(shards, ShardDataset) else open_shards(shards, storage_options=storage_options)
    fitted = sampled_map(data)
    if data.n_rows > MOST_ROWS:
        raise ConfigError(
            f"{data.shards.storage.url} has {data.n_rows:,} rows, but at most {MOST_ROWS:,} are compared; "
            "divide the data set, for example by dates"
        )
    bands = _bands(fitted, check_real(threshold, "threshold", above=0, high=1))
    source = ShardSource.of(data.shards)
    splits = [split for split in source.splits() if split.stop]
    estimates = fitted.similarity_of_counts(np.arange(fitted.n_components + 1))
    least_count = int(np.searchsorted(estimates, threshold))
    report = Progress(progress)
    with (
        TemporaryDirectory(prefix="dkfeat-duplicates-", dir=dask.config.get("temporary-directory", None)) as folder,
        open_runner(client) as runner,
    ):
        files = BandFiles.of(folder, data.n_rows, fitted, bands)
        n_parts = 1 << files.part_bits
        names: list[str] = []

        def written(split: Split, of_split: list[str]) -> None:
            names.extend(of_split)
            stage.advance(rows=split.stop, source_bytes=source.split_bytes(split))

        size = sum(map(source.split_bytes, splits))
        with report.stage("hash", total_tasks=len(splits), total_bytes=size) as stage:
            runner.run(WriteKeys(data, files), splits, written)
        names.sort()

        def pairs_of(name: str, task: FindCopies | FindPairs, n_bands: int) -> FoundPairs:
            parts = _partitions(n_bands * n_parts, 8 * data.n_rows // n_parts)
            found: list[FoundPairs] = []

            def done(split: Split, pairs: FoundPairs) -> None:
                found.append(pairs)
                if sum(len(some.counts) for some in found[1:]) > max(_PENDING, len(found[0].counts)):
                    found[:] = [_merged(found)]
                stage.advance(rows=split.stop // 8, source_bytes=split.stop)

            with report.stage(name, total_tasks=len(parts), total_bytes=len(parts) * parts[0].stop) as stage:
                runner.run(task, parts, done)
            return _merged(found)

        copies = pairs_of("find copies", FindCopies(files, names), 1)
        is_copy = np.zeros(data.n_rows, np.bool_)
        is_copy[copies.rows[:, 1]] = True
        files.mark_copies(is_copy)
        near = pairs_of("compare", FindPairs(files, names, least_count), bands.n_bands)
    found = _merged([copies, near])
    return Duplicates(
        pairs=found.rows,
        similarities=fitted.similarity_of_counts(found.counts),
        groups=_groups(found.rows, data.n_rows),
        bands=bands,
        expected_recall=float(sharing_probability(threshold, *bands, fitted.chance)),
        n_candidates=near.n_candidates,
        n_compared=near.n_compared,
    )


def _bands(fitted: SampledMap, threshold: float) -> Bands:
    try:
        return choose_bands(threshold, fitted.n_components, fitted.chance)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _partitions(n: int, size: int) -> list[Split]:
    return [
        Split(number=number, file=SourceFile(name=f"partition {number}", url="", size=size), start=0, stop=size)
        for number in range(n)
    ]


def _merged(parts: list[FoundPairs]) -> FoundPairs:
    """Sort pairs, each kept once."""
    rows, counts = np.concatenate([part.rows for part in parts]), np.concatenate([part.counts for part in parts])
    keys = rows.astype(np.uint64) @ np.array([MOST_ROWS, 1], np.uint64)
    order = np.argsort(keys)
    order = order[np.diff(keys[order], prepend=~keys[order[:1]]) != 0]
    return FoundPairs(
        rows[order], counts[order], sum(part.n_candidates for part in parts), sum(part.n_compared for part in parts)
    )


def _groups(pairs: NDArray[np.int64], n_rows: int) -> NDArray[np.int64]:
    """Return the lowest row of the connected component of each row.

    Examples
    --------
    >>> _groups(np.array([[1, 4], [2, 3], [3, 4]]), 6).tolist()
    [0, 1, 1, 1, 1, 5]
    """
    nodes, positions = np.unique(pairs, return_inverse=True)
    left, right = positions.reshape(-1, 2).T
    graph = sp.coo_matrix((np.ones(len(left), np.bool_), (left, right)), shape=(len(nodes), len(nodes)))
    _, labels = connected_components(graph, directed=False)
    _, first = np.unique(labels, return_index=True)  # nodes ascend, so the first one is the lowest
    groups = np.arange(n_rows)
    groups[nodes] = nodes[first[labels]]
    return groups
