"""Copies and near copies among the rows of shards under the min-max kernel, by bands of their codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import dask
import numpy as np

from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ConfigError
from dkfeat.neighbors.deduplication.pairs import MOST_ROWS
from dkfeat.neighbors.deduplication.result import Duplicates, Facts
from dkfeat.neighbors.deduplication.stages import Found, Search
from dkfeat.neighbors.deduplication.tables import groups_spec, write_tables
from dkfeat.neighbors.deduplication.target import Target
from dkfeat.neighbors.deduplication.work_files import WorkFolder
from dkfeat.neighbors.exact import RowsInMemory, RowsOfSource, rows_of
from dkfeat.neighbors.scan import sampled_map
from dkfeat.theory.bands import Bands, choose_bands
from dkfeat.validation import check_choice, check_real

if TYPE_CHECKING:
    from dask.distributed import Client

    from dkfeat.maps._sampled import SampledMap


def duplicates(
    shards: ShardDataset | str | PathLike[str],
    threshold: float = 0.8,
    *,
    target: str | PathLike[str] | None = None,
    verify: Literal["codes", "exact"] = "codes",
    source: Any = None,
    client: Client | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Duplicates:
    r"""Find the rows of a data set that are copies or near copies of others, under the min-max kernel of its map.

    The codes of a row are cut into bands. Rows with all codes of a band in common are compared by the number of equal
    codes, which estimates their similarity, or by the exact kernel.

    Parameters
    ----------
    shards : ShardDataset, str or path
        Data set made by `GCWSFeatures` or `DartFeatures`, or its folder or URL.
    threshold : float, default=0.8
        Similarity from which two rows are duplicates, above 0 and at most 1.
    target : str, path or None, default=None
        Folder for the result, which all workers see. An interrupted call continues, and a repeated one opens the
        result. None: the result is in memory.
    verify : {"codes", "exact"}, default="codes"
        With "exact", the kernel of candidates is computed from their rows: of pairs whose estimate is at least the
        threshold minus three standard errors, those are duplicates whose exact similarity is at least the threshold.
    source : Source, path, glob, URL, a list of these, array, sparse matrix or None
        For ``verify="exact"``: the source from which the shards were made, whose rows are read again and checked; or an
        array of shape (n_rows, n_features) with the rows in the order of the shards.
    client : distributed.Client or None, default=None
        Cluster to run on, as in `dkfeat.featurize`.
    progress : bool or callable, default=True
        Progress report, as in `dkfeat.featurize`.
    storage_options : mapping or None
        Options of fsspec for `shards` and a source given by URL.

    Returns
    -------
    found : Duplicates
        The same for any number of workers and any division into shards. ``Duplicates.open(target)`` opens it again.

    Raises
    ------
    dkfeat.errors.ConfigError
        For a threshold out of range, a map that does not sample, too few codes for the threshold, more than 2^32 rows,
        a target that is a URL or holds something else, or a worker that does not see the folder.
    dkfeat.errors.SpecConflictError
        If the target holds a search with other settings or of other shards, or `source` is not that of the shards.
    dkfeat.errors.CommitError
        If the target cannot be written, or another run is writing it.
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

    The target gets two tables of Parquet files and a record. ``pairs/data`` has the columns row, other (a higher row)
    and similarity, sorted by other, then by row. ``groups/data`` has one line for each row of the data set, in order:
    row, group (the lowest row of its group), keep (True if that is the row itself), source_file, source_split and
    source_row as in `dkfeat.predict`, file_row, and the columns that the shards keep. file_row is the position of the
    row among all rows of its file, from 0, not counting rows set aside: the line number - 1 in text without comments,
    blank lines and bad rows. ``duplicates.json`` has the settings and numbers.

    The codes and 8 bytes for each row and band are written to files, in the target until the tables are committed, or
    in a temporary folder: ``temporary-directory`` of Dask's configuration, else the system's. With ``verify="exact"``,
    so are the rows that are compared. A task holds a few million rows of one band; so does the driver for a moment, and
    4 bytes for each row of the data set.

    The numbers of candidates in two bands predict those of all before any are compared, with a standard error that is
    rough.

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
    threshold = check_real(threshold, "threshold", above=0, high=1)
    bands = _bands(fitted, threshold)
    raw = _raw_rows(data, verify, source, storage_options)
    search = Search(data, fitted, threshold, bands, Progress(progress), raw)
    if target is None:
        parent = dask.config.get("temporary-directory", None)
        with TemporaryDirectory(prefix="dkfeat-duplicates-", dir=parent) as folder, open_runner(client) as runner:
            return _in_memory(search, search.run(WorkFolder.of(folder, durable=False), runner))
    place = Target.of(target, search.settings)
    if not place.is_complete:
        groups_spec(search.settings, ShardSource.of(data.shards))  # raises an error before any work
        with place.working() as work:
            if work is not None:
                with open_runner(client) as runner:
                    found = search.run(work, runner)
                    n_pairs = write_tables(data, place.folder, search.settings, found, runner, search.report)
                place.complete(search.facts(found, n_pairs))
    place.clean()
    return Duplicates.open(place.folder)


def _bands(fitted: SampledMap, threshold: float) -> Bands:
    try:
        return choose_bands(threshold, fitted.n_components, fitted.chance)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _raw_rows(
    data: ShardDataset, verify: str, source: Any, storage_options: Mapping[str, Any] | None
) -> RowsInMemory | RowsOfSource | None:
    """Return the rows for exact comparisons, None if there are none."""
    if check_choice(verify, "verify", ("codes", "exact")) == "codes":
        if source is not None:
            raise ConfigError(
                "source is given, but nothing is read from it; pass verify='exact' (--verify exact), or no source"
            )
        return None
    if source is None:
        raise ConfigError(
            "verify='exact' compares rows exactly, so it needs the source of the shards; pass source (--source), or "
            "verify='codes'"
        )
    return rows_of(data, source, storage_options)


def _in_memory(search: Search, found: Found) -> Duplicates:
    """Read all pairs and groups, before their files are deleted."""
    n_rows = search.data.n_rows
    parts = [found.pairs.between(first, first + found.piece_rows) for first in range(0, n_rows, found.piece_rows)]
    lower, higher = np.concatenate([np.empty((2, 0), np.int64), *(part.rows for part in parts)], axis=1)
    arrays = {
        "row": lower,
        "other": higher,
        "similarity": np.concatenate([np.empty(0), *(part.similarities for part in parts)]),
        "group": found.groups.of(0, n_rows),
    }
    facts = search.facts(found, len(lower))
    return Duplicates(arrays=arrays, **{name: getattr(facts, name) for name in Facts.__slots__})
