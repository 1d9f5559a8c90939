"""Copies and near copies among the rows of shards under the min-max kernel, by bands of their codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dkfeat.canonical import fingerprint
from dkfeat.engine.dataset.dataset import ShardDataset
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.open import Target, as_target, binding_spec
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.resolve import must_agree
from dkfeat.engine.runners.open import open_runner
from dkfeat.engine.tables import ORIGIN, TableJob, TableSpec, origin_columns, write_table
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.filesystems.urls import local_path
from dkfeat.maps._kernel_estimates import Codes
from dkfeat.neighbors.deduplication.groups import PIECE_ROWS, Groups
from dkfeat.neighbors.deduplication.index import WITHDRAWN, Index, end_search, withdraw
from dkfeat.neighbors.deduplication.result import GROUPS, INDEX, PAIRS, Duplicates, Record, is_complete, read_record
from dkfeat.neighbors.deduplication.search import DuplicateSearch, Found
from dkfeat.neighbors.deduplication.stages import Former
from dkfeat.neighbors.deduplication.work_files import PairFiles, WorkFolder
from dkfeat.neighbors.exact import RowsOfSource, rows_to_compare
from dkfeat.neighbors.scan import open_codes, temporary_folder
from dkfeat.neighbors.table import table_schema
from dkfeat.store.commit.begin import check_target, hold
from dkfeat.store.manifest.metadata import DUPLICATES_FILE, newest_manifest
from dkfeat.store.manifest.model_folder import open_model_folder
from dkfeat.store.outputs import check_kind, check_outside
from dkfeat.store.shards.codec import missing_shards
from dkfeat.store.storage.base import DATA, SPEC
from dkfeat.store.storage.local import LocalStorage
from dkfeat.theory.bands import choose_bands
from dkfeat.validation import check_choice, check_real

if TYPE_CHECKING:
    from dask.distributed import Client

    from dkfeat.blocks import Split
    from dkfeat.engine.runners.base import Runner
    from dkfeat.sources.pieces import Piece
    from dkfeat.store.manifest.manifest import Manifest
    from dkfeat.store.storage.base import Storage

_PAIR_COLUMNS = {"row": "int64", "other": "int64", "similarity": "float64"}
_GROUP_COLUMNS = {"row": "int64", "group": "int64", "keep": "bool", **ORIGIN, "file_row": "int64"}
MOST_TIMES = 8
"""Number of times by which the pairs of new rows may exceed those that a file of the first rows holds."""


def duplicates(
    data: ShardDataset | str | PathLike[str],
    threshold: float = 0.8,
    *,
    target: str | PathLike[str] | Target | None = None,
    verify: Literal["codes", "exact"] = "codes",
    source: Any = None,
    keep_earlier: bool = False,
    client: Client | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Duplicates:
    r"""Find the rows of a data set that are copies or near copies of others, under the min-max kernel of its map.

    The codes of a row are cut into bands. Rows with all codes of a band in common are compared by the number of equal
    codes, which estimates their similarity, or by the exact kernel.

    Parameters
    ----------
    data : ShardDataset, str or path
        Data set made by `GCWSFeatures`, `DartFeatures` or `MinHashFeatures`, or its folder or URL.
    threshold : float, default=0.8
        Similarity from which two rows are duplicates, above 0 and at most 1.
    target : str, path, Target or None, default=None
        Folder for the result, which all workers see, or its URL in an object store. An interrupted call continues, a
        repeated one opens the result, or makes missing and truncated shards of it again, and one after new shards were
        added to the data set compares their rows alone with all. None: the result is in memory.
    verify : {"codes", "exact"}, default="codes"
        With "exact", the kernel of candidates is computed from their rows: of pairs whose estimate is at least the
        threshold minus three standard errors, those are duplicates whose exact similarity is at least the threshold.
    source : Source, path, glob, URL, a list of these, array, sparse matrix or None
        For ``verify="exact"``: the source from which the shards were made, whose rows are read again and checked; or an
        array of shape (n_rows, n_features) with the rows in the order of the shards.
    keep_earlier : bool, default=False
        Keep all rows that earlier calls with this target kept, although new rows may join their groups. The target must
        be a folder.
    client : distributed.Client or None, default=None
        Cluster to run on, as in `dkfeat.featurize`.
    progress : bool or callable, default=True
        Progress report, as in `dkfeat.featurize`.
    storage_options : mapping or None
        Options of fsspec for `data` and a source given by URL.

    Returns
    -------
    found : Duplicates
        The same for any number of workers and any division into shards. ``Duplicates.open(target)`` opens it again.

    Raises
    ------
    dkfeat.errors.ConfigError
        For a threshold out of range, a map that does not sample, too few codes for the threshold, more than 2^32 rows,
        a target that holds something else, or a worker that does not see the folder.
    dkfeat.errors.SpecConflictError
        If the target holds a search with other settings, or of shards with which these do not begin, or `source` is not
        that of the shards.
    dkfeat.errors.CommitError
        If the target cannot be written, or another run is writing it.
    dkfeat.errors.ShardError
        If a shard is not as committed, or a file in ``index`` of the target not as an earlier call left it.

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
    row, group (the lowest row of its group), keep (True if that is the row itself, or if `keep_earlier` keeps it),
    source_file, source_split and source_row as in `dkfeat.predict`, file_row, and the columns that the shards keep.
    file_row is the position of the row among all rows of its file, from 0, not counting rows set aside: the line
    number - 1 in text without comments, blank lines and bad rows. ``duplicates.json`` has the settings and numbers.

    The codes, 8 bytes for each row and band, and 5 for each row are in files in ``index`` of the target, which stay for
    the next call: new rows are joined to them. A row of a table does not change when others are added to its group,
    unless they connect two groups of before; then the files of the table of groups that have such rows are replaced,
    and a reader of them has to open the result again. The result is that of one search of all rows, unless
    `n_compared` is below `n_candidates`.

    If the target is a URL or None, these files are in a temporary folder, which all workers see: in
    ``temporary-directory`` of Dask's configuration, else the system's. Then an interrupted search begins again, and for
    new shards all rows are searched and both tables written anew. With ``verify="exact"``, the rows that are compared
    are in files meanwhile. A task holds the bands of a million rows, or a few million rows of one band, and opens at
    most 60 of these files; the driver holds the groups of eight million rows at a time, and with ``verify="exact"`` a
    byte for each row of the data set.

    References
    ----------
    .. [1] "Mining of Massive Datasets", J. Leskovec, A. Rajaraman, J. Ullman, section 3.4.

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
    data = open_codes(data, storage_options)
    codes = Codes.of(data.spec["map"])
    threshold = check_real(threshold, "threshold", above=0, high=1)
    try:
        bands = choose_bands(threshold, codes.n_components, codes.chance)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    is_exact = check_choice(verify, "verify", ("codes", "exact")) == "exact"
    option = "verify='exact' (--verify exact)"
    rows = rows_to_compare(data, source, storage_options, is_exact=is_exact, option=option)
    if keep_earlier and (target is None or local_path(as_target(target).path) is None):
        raise ConfigError("keep_earlier (--keep-earlier) needs a folder as target (--out), not a URL or none; pass one")
    search = DuplicateSearch(data, codes, threshold, bands, Progress(progress), rows, keep_earlier)
    if target is not None:
        return _in_folder(search, as_target(target), client)
    with temporary_folder("duplicates") as folder, open_runner(client) as runner:
        return _in_memory(search, search.run(WorkFolder.of(folder, durable=False), runner, Former()))


def _in_memory(search: DuplicateSearch, found: Found) -> Duplicates:
    """Read all pairs and groups, before their files are deleted."""
    n_rows = search.data.n_rows
    pairs = found.pairs.between(0, n_rows)
    arrays = dict(zip(_PAIR_COLUMNS, (*pairs.rows, pairs.similarities), strict=True))
    return Duplicates(arrays=arrays | {"group": found.groups.of(0, n_rows)}, **search.results(found, len(pairs.keys)))


def _in_folder(search: DuplicateSearch, target: Target, client: Client | None) -> Duplicates:
    """Search, unless the folder has the result, and commit the tables; the record comes last."""
    specs = _table_specs(search.settings, ShardSource.of(search.data.shards))
    folder = _checked_folder(search, target)
    record, is_made = _earlier(search, target, folder)
    if record is not None and not folder.is_remote:
        end_search(folder, record)
    with ExitStack() as stack:
        if not is_made:
            target.open().check_writable()
            if folder.is_remote:
                place = Path(stack.enter_context(temporary_folder("duplicates")))
            else:
                place = Path(folder.url, INDEX)
                place.mkdir(parents=True, exist_ok=True)
                stack.enter_context(hold(LocalStorage(str(place))))
                record, is_made = _earlier(search, target, folder)  # again: another search may have ended in between
        if not is_made:
            index = Index.of(place, record, is_kept=not folder.is_remote, has_pairs=_is_whole(target, folder, PAIRS))
            settings = {**search.settings, "shards": search.data.manifest.shards_sha256}
            index.begin(settings, _in(target, folder, GROUPS).open(), resume=target.resume)
            runner = stack.enter_context(open_runner(client))
            _make_tables(search, target, folder, index, specs, runner)
    return Duplicates.open(target.path, storage_options=target.storage_options)


def _make_tables(
    search: DuplicateSearch, target: Target, folder: Storage, index: Index, specs: dict[str, TableSpec], runner: Runner
) -> None:
    """Search, add the new rows to both tables, replace shards whose groups changed, and commit all by the record."""
    found = search.run(index.work, runner, index.former)
    shards = (np.searchsorted(search.data.first_rows, rows, side="right") - 1 for rows in found.groups.changed())
    changed = {shard for some in shards for shard in some.tolist()}
    storages = {name: _in(target, folder, name).open() for name in (PAIRS, GROUPS)}
    piece_rows = found.piece_rows
    if index.kept and (there := binding_spec(storages[PAIRS])[0]) is not None:
        piece_rows = there["split"]["max_piece_rows"]
        if found.piece_rows < piece_rows // MOST_TIMES:  # before anything of the former result is removed
            raise ConfigError(
                f"{folder.url}: the new rows have many times more pairs than a file of its table of pairs may hold; "
                "choose another target"
            )
    if not index.work.has(WITHDRAWN):
        withdraw(storages[PAIRS], index.former.n_shards, [])
        withdraw(storages[GROUPS], index.former.n_shards, changed)
        index.work.write(WITHDRAWN, [])
    firsts = _first_rows_in_files(ShardSource.of(search.data.shards))

    def write(name: str, spec: TableSpec, job: Callable[..., TableJob]) -> Manifest:
        to, stage = _in(target, folder, name), f"write {name}"
        return write_table(search.data, to, spec, job, stage=stage, client=runner, progress=search.report)

    pairs = write(PAIRS, replace(specs[PAIRS], piece_rows=piece_rows), partial(_PairsJob, files=found.pairs))
    write(GROUPS, specs[GROUPS], partial(_GroupsJob, groups=found.groups, first_in_files=firsts))
    results = Duplicates(**search.results(found, pairs.rows))
    stays = index.record(found, search.data.n_shards)
    record = {"format": 1, "settings": index.search(), "results": results.to_mapping(), "index": stays}
    folder.replace(DUPLICATES_FILE, json.dumps(record, indent=1).encode() + b"\n")
    index.work.keep_only(stays["files"])


def _in(target: Target, folder: Storage, table: str) -> Target:
    """Return the target of a table in the folder of a target."""
    return replace(target, urlpath=f"{folder.url}/{table}")


def _checked_folder(search: DuplicateSearch, target: Target) -> Storage:
    """Return the folder of a target that is new, or of a search with these settings; nothing is written."""
    folder = open_model_folder(target.path, target.storage_options)
    check_outside(folder.url, target.storage_options, kind="duplicates")
    path = local_path(folder.url)
    names = folder.list("") if path is None else {each.name for each in path.glob("*")}
    if {*names} - {INDEX, PAIRS, GROUPS, DUPLICATES_FILE}:
        raise ConfigError(f"target {folder.url} holds other files than duplicates; choose a new folder")
    sources = [search.source.source] if isinstance(search.source, RowsOfSource) else []
    for layout in (GROUPS, PAIRS):
        storage = _in(target, folder, layout).open()
        for source in sources:
            storage.keep_apart(source.files(), source.patterns)
        check_kind(storage, layout)
        check_target(storage)
    return folder


def _earlier(search: DuplicateSearch, target: Target, folder: Storage) -> tuple[Record | None, bool]:
    """Return the record of an earlier search, if any, and True if it is the result of this one.

    Raises
    ------
    SpecConflictError
        If it is of other settings, or of other shards than the first of these.
    """
    record = read_record(folder)
    if record is None:
        return None, False
    found, remedy = {**record["settings"]}, "choose another target, or remove this one"
    shards = found.pop("shards")
    must_agree(search.settings, found, folder.url, remedy)
    manifest = search.data.manifest
    if shards == manifest.shards_sha256:
        return record, is_complete(folder, record) and all(_is_whole(target, folder, name) for name in (PAIRS, GROUPS))
    if shards != fingerprint(manifest.shards.sha256[: record["index"]["shards"]]):
        raise SpecConflictError(
            f"{folder.url} holds duplicates among {record['results'].n_rows:,} rows, but {manifest.rows:,} rows of "
            f"{search.data.shards.storage.url} do not begin with these; {remedy}"
        )
    return record, False


def _is_whole(target: Target, folder: Storage, table: str) -> bool:
    """Return True if a table has all shards that were committed, with their sizes."""
    storage = _in(target, folder, table).open()
    manifest = None if storage.size(SPEC) is None else newest_manifest(storage)
    return manifest is not None and not missing_shards(storage, manifest, storage.list(DATA))


def _table_specs(settings: Mapping[str, Any], source: ShardSource) -> dict[str, TableSpec]:
    """Return the specs of both tables, or raise `ConfigError` as `table_schema` does."""
    remedy = "featurize with another name of that column, or without it"
    pairs = table_schema(_PAIR_COLUMNS, [], source, "the table of pairs", "")
    groups = table_schema(_GROUP_COLUMNS, [*source.kept.items()], source, "the table of groups", remedy)
    made = partial(TableSpec, settings=settings, piece_rows=PIECE_ROWS)
    return {
        PAIRS: made(layout=PAIRS, schema=pairs, row_bytes=24, reads=()),
        GROUPS: made(layout=GROUPS, schema=groups, row_bytes=72, reads=tuple(source.kept)),
    }


def _first_rows_in_files(source: ShardSource) -> dict[tuple[int, str], int]:
    """Count the rows of each file in the splits before a split; the keys are numbers of splits and names of files."""
    found: dict[tuple[int, str], int] = {}
    n_rows: dict[str, int] = {}
    for shard in source.stored.values():
        for origin in shard.origins:
            found.setdefault((origin.split, origin.file), n_rows.get(origin.file, 0))
            n_rows[origin.file] = n_rows.get(origin.file, 0) + origin.n_rows
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairsJob(TableJob):
    """Job whose shards hold the pairs whose higher row is in their range of rows."""

    files: PairFiles

    def columns(self, split: Split, piece: Piece) -> dict[str, Any]:
        """See `TableJob.columns`."""
        first = self.first_row(split, piece)
        found = self.files.between(first, first + piece.stop - piece.start)
        return dict(zip(_PAIR_COLUMNS, (*found.rows, found.similarities), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupsJob(TableJob):
    """Job whose shards hold the rows of the data set, with their groups and origins."""

    groups: Groups
    first_in_files: Mapping[tuple[int, str], int]

    def columns(self, split: Split, piece: Piece) -> dict[str, Any]:
        """See `TableJob.columns`."""
        first = self.first_row(split, piece)
        stop = first + piece.stop - piece.start
        in_files = [
            np.arange(part.first, part.first + part.n_rows) + self.first_in_files[part.split, part.file]
            for part in self.source.origins(split, piece, ())
        ]
        file_rows = np.concatenate([np.empty(0, np.int64), *in_files])
        rows = {
            "row": np.arange(first, stop),
            "group": self.groups.of(first, stop),
            "keep": self.groups.kept(first, stop),
        }
        return {**rows, "file_row": file_rows, **origin_columns(self.source, split, piece, ()), **piece.block.kept}
