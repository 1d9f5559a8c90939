"""Rows that are left without duplicates: as data sets for training, and as the rows of a source themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike, fspath
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dkfeat.blocks import RowBlock
from dkfeat.canonical import fingerprint
from dkfeat.engine.dataset.dataset import ShardDataset, dataset_reader, open_shards
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.dataset.stored_rows import StoredRows
from dkfeat.engine.open import Target, as_target, open_run
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.resolve import DROPPED, Resolved, make_spec, must_agree
from dkfeat.engine.run import execute
from dkfeat.engine.tables import ShardsJob, TableJob
from dkfeat.engine.tasks.landmarks import sidecar_files
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.filesystems.urls import is_url
from dkfeat.neighbors.deduplication.result import GROUPS, PAIRS, Duplicates
from dkfeat.sources.contents import compress
from dkfeat.sources.lines import LINE
from dkfeat.store.commit.publish import publish_text
from dkfeat.store.manifest.metadata import sidecars_of
from dkfeat.store.shards.codec import PREFIX, shard_name
from dkfeat.store.shards.columns import LINES, ROWS, kinds

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.sources.base import Source
    from dkfeat.sources.pieces import Piece
    from dkfeat.store.manifest.manifest import Manifest
    from dkfeat.store.manifest.records import ShardEntry
    from dkfeat.store.shards.codec import TextFile
    from dkfeat.store.shards.reader import ShardReader

GROUP, SIMILARITY = "duplicate_group", "duplicate_similarity"
"""Columns of the rows that are left out: the first row of their group, and the similarity to it."""
_OF_LINES = pa.schema([pa.field("row", pa.int64(), nullable=False)])
_OF_DROPPED = pa.schema([pa.field(GROUP, pa.int64(), nullable=False), pa.field(SIMILARITY, pa.float64())])
_MOST_ROWS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Results:
    """Result of a search for duplicates: tables of a folder, or arrays, of which a mask has that of the kept rows."""

    arrays: Mapping[str, NDArray[Any]]
    tables: Mapping[str, tuple[ShardReader, Mapping[int, Sequence[ShardEntry]]]]
    """Tables whose splits are the shards of the data set; empty for arrays."""

    def of_split(self, source: ShardSource, split: Split, table: str, name: str) -> NDArray[Any]:
        """Return a column of `GROUPS` for the rows of a split, or of `PAIRS` for pairs whose higher row is in it."""
        parts: list[NDArray[Any]] = []
        for shard in source.shards_of(split):
            if self.tables:
                reader, entries = self.tables[table]
                found = (reader.read(entry, only=(name,)).kept[name] for entry in entries[shard.number])
                parts += [part.to_numpy(zero_copy_only=False) for part in found]
            else:
                bounds = source.stored[shard.file.name].first_row + np.array([0, shard.stop])
                start, stop = bounds if table == GROUPS else np.searchsorted(self.arrays["other"], bounds)
                parts.append(self.arrays[name][start:stop])
        return np.concatenate(parts)


class _Selection:
    """Selection of the kept rows, or of the others, by a job."""

    def select(self: Any, split: Split, piece: Piece) -> Piece:
        """Return a piece with its selected rows."""
        keep = self.results.of_split(self.source, split, GROUPS, "keep")[piece.start : piece.stop]
        return piece.select(~keep if self.of_dropped else keep)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShardsJob(_Selection, ShardsJob):
    """Job that copies rows of a shard."""

    results: _Results
    of_dropped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowsJob(_Selection, TableJob):
    """Job that copies rows of a source as they are stored; lines go to a file, and their numbers to a table."""

    results: _Results
    of_dropped: bool

    def columns(self, split: Split, piece: Piece) -> dict[str, Any]:
        """Return the columns that are added to dropped rows."""
        first, column = self.source.first_row(split), partial(self.results.of_split, self.source, split)
        group, higher = column(GROUPS, "group"), column(PAIRS, "other")
        similarity, is_direct = np.full(len(group), np.nan), column(PAIRS, "row") == group[higher - first]
        similarity[higher[is_direct] - first] = column(PAIRS, "similarity")[is_direct]
        rows: Any = piece.block.number
        return {GROUP: group[rows - first], SIMILARITY: pa.array(similarity[rows - first], from_pandas=True)}

    def block(self, split: Split, piece: Piece, encoded: Any, before: Sequence[int]) -> RowBlock:  # noqa: ARG002 - inherited
        """Return the rows of the table; of lines of text, their numbers."""
        rows = piece.block.X
        if self.spec["output"]["layout"] == LINES:
            rows = pa.table({"row": piece.block.number}, schema=_OF_LINES)
        for name, values in self.columns(split, piece).items() if GROUP in self.schema.names else ():
            if name in rows.column_names:
                raise ConfigError(f"{split.file.name} has a column {name}, which is added to dropped rows; rename it")
            rows = rows.append_column(_OF_DROPPED.field(name), [values])
        metadata = rows.schema.metadata or {}
        own = {key: value for key, value in metadata.items() if not key.startswith(PREFIX.encode())}
        return RowBlock(X=rows.replace_schema_metadata(own), y=None)

    def write_text(self, split: Split, piece: Piece) -> TextFile | None:
        """Write lines of text to a file with the name of their shard, and the suffixes of the source file."""
        if self.spec["output"]["layout"] != LINES or not piece.block.n_rows:
            return None
        text, file = b"".join(piece.block.X[LINE].to_pylist()), split.file
        ending = PurePath(file.name).suffix if file.compression else ""
        kind = PurePath(file.name.removesuffix(ending)).suffix or ".txt"
        name = shard_name(self.spec_fp, split, piece.number).replace(".parquet", kind + ending)
        return publish_text(self.storage, name, compress(text, file.compression), run_id=self.run_id)


def drop_duplicates(
    data: ShardDataset | Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    duplicates: Duplicates | NDArray[np.bool_] | str | PathLike[str],
    target: str | PathLike[str] | Target,
    *,
    dropped: str | PathLike[str] | Target | None = None,
    shards: str | PathLike[str] | None = None,
    client: Client | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Manifest:
    r"""Copy a data set, or its source, without duplicates: of each group of them only the first row is left.

    The copy of a data set has its map, layout and columns: models are trained and evaluated on it in the same way, and
    read rows in the same way. The copy of a source has its rows as they are stored: all columns of Parquet files with
    their types and metadata, in ``data/*.parquet`` of the target, or the lines of text files, in files of the target
    with the suffix of the source: byte for byte, but without a byte order mark, and with a last line end. Before the
    call, `target` must either not exist, or hold the result of the same call, complete or interrupted. If the call is
    interrupted, the same call continues. Other programs may read the copy once it has a file ``_SUCCESS``.

    Parameters
    ----------
    data : ShardDataset, Source, path, glob, URL, or a list of these
        Data set, or its folder or URL; or the source from which the data set of the duplicates was made, whose options
        are those of the data set.
    duplicates : Duplicates, ndarray of shape (n_rows,), str or path
        Result of `dkfeat.neighbors.duplicates` on these shards, or its folder; or a boolean mask of the rows to keep,
        such as ``kept`` of the result on shards of the same rows that were made by another map, or that of a rule of
        your own, which keeps the newest row of each group, or none that is in an evaluation set.
    target : str, path or Target
        Folder or URL of the new data set.
    dropped : str, path, Target or None
        Folder or URL for the other rows of a source. They have two more columns: ``duplicate_group``, the number in the
        data set of the row that is kept instead, and ``duplicate_similarity``, the similarity to it, null if only
        a chain of pairs connects the two. Of text, the table in ``data`` has them, a row for each line. With a mask
        these columns are absent.
    shards : str, path or None
        Folder or URL of the data set whose rows a mask numbers, if `data` is a source.
    client, progress
        As in `dkfeat.featurize`.
    storage_options : mapping or None
        Options of fsspec for `data`, and the data set of the duplicates, given by URL.

    Returns
    -------
    manifest : Manifest
        Committed list of shards.

    Raises
    ------
    dkfeat.errors.SpecConflictError
        If the duplicates were found in another state of the shards, the target holds something else, or the source is
        not the one from which the data set was made: a file is missing, changed or new.
    dkfeat.errors.ConfigError
        If there are no duplicates in a folder, or their search was interrupted, or `dropped` is given without a source.
    dkfeat.errors.InputError
        If a mask has another shape or type.
    dkfeat.errors.DkfeatError
        As from `dkfeat.featurize`.

    Notes
    -----
    Each new shard has the kept rows of one shard, in their order, and may be empty. Labels are not compared: the first
    row of a group is kept, whatever the labels of the others. Rows that a chain of pairs connects are one group, so a
    low threshold may leave few rows: look at ``n_kept`` of the result first, or find copies alone with ``threshold=1``.

    Rows of a source that were not featurized are in neither target: those that filters exclude, and bad rows that were
    set aside; so are comments and blank lines of text. A progress message says how many rows these are. The order is
    that of the data set. A task holds rows of `blocksize` bytes.

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
    found = duplicates
    if isinstance(duplicates, str | PathLike):
        found = Duplicates.open(duplicates, storage_options=storage_options)
    reader, reporter = dataset_reader(data, storage_options), Progress(progress)
    if reader is not None:
        if dropped is not None or shards is not None:
            raise ConfigError(
                f"dropped (--dropped) gets rows of a source, and shards for its mask, but {reader.storage.url} "
                "holds shards; leave both out: the table of groups says which rows are kept, or give the source"
            )
        return _copy_shards(ShardSource.of(reader), found, target, client, reporter)
    featurized = shards or getattr(found, "shards", None)
    if featurized is None:
        raise InputError(
            "a mask does not name the data set of its rows, by which they are found in a source; give that as shards=, "
            "or the result of dkfeat.neighbors.duplicates, or its folder"
        )
    options = storage_options if is_url(fspath(featurized)) else None
    source = StoredRows.of_source(open_shards(featurized, storage_options=options).shards, data, storage_options)
    if source.left_out:
        reporter.note(f"neither kept nor dropped, because they were not featurized: {source.left_out}")
    added = _OF_DROPPED if isinstance(found, Duplicates) else ()
    copy = partial(_copy_rows, source, _results(found, source), client=client, reporter=reporter)
    if dropped is not None and as_target(dropped).open().url == as_target(target).open().url:
        raise ConfigError(f"dropped (--dropped) is the target (--out) too, {as_target(target).path}; give two folders")
    with copy(target) as kept:
        if dropped is not None:
            with copy(dropped, added) as others:
                execute(others)
        return execute(kept)


def _copy_shards(source: ShardSource, found: Any, target: Any, client: Any, reporter: Progress) -> Manifest:
    """Copy the kept rows of shards."""
    data, results = ShardDataset(source.reader, "sha256"), _results(found, source)
    labels = data.spec["input"].get("labels")
    source = replace(source, labels=labels if labels is None else tuple(labels))
    with open_run(source, target, client=client, progress=reporter) as opened:
        spec, job = {**data.spec, DROPPED: _described(source, results)}, partial(_ShardsJob, results=results)
        resolved = Resolved(opened=opened, source=source, spec=spec, schema=data.manifest.schema, job=job)
        return execute(replace(resolved, sidecars=_sidecars(data), stage="drop duplicates"))


@contextmanager
def _copy_rows(
    source: StoredRows, results: _Results, target: Any, added: Any = None, *, client: Any, reporter: Progress
) -> Iterator[Resolved]:
    """Lock the target of the kept rows of a source, and check that they can be copied to it.

    If `added` is given, the fields of the columns that they get, it is the target of the other rows.
    """
    table, of_dropped = pa.schema([*_OF_LINES, *(added or ())]), added is not None
    layout, schema = (ROWS, {}) if source.source.kind == "parquet" else (LINES, kinds(table))
    data, output = ShardDataset(source.reader, "sha256"), {"layout": layout, "n_features_out": 1, "row_bytes": 1}
    spec = make_spec(data.spec["map"], source.to_mapping(), output, piece_rows=_MOST_ROWS, blocksize=source.blocksize)
    spec[DROPPED] = {**_described(source, results), "of_dropped": of_dropped}
    if of_dropped and not added:
        spec[DROPPED]["added"] = []
    job = partial(_RowsJob, results=results, of_dropped=of_dropped, schema=table)
    with open_run(source, target, kind=layout, client=client, progress=reporter) as opened:
        url, existing = opened.run.storage.url, opened.target[1] if opened.target else spec
        if existing.get(DROPPED) != spec[DROPPED]:
            raise SpecConflictError(f"{url} was copied by another search, such as one of fewer rows; {opened.remedy}")
        must_agree(spec, existing, url, opened.remedy)
        stage = "write dropped rows" if of_dropped else "write kept rows"
        resolved = Resolved(opened=opened, source=source, spec=spec, schema=schema, job=job, stage=stage)
        yield replace(resolved, sidecars=_sidecars(data))


def _sidecars(data: ShardDataset) -> dict[str, bytes]:
    """Return the files of a data set's map and encoder, which are loaded only if there are any."""
    return sidecar_files(data.spec, data.map, data.encoder) if sidecars_of(data.spec) else {}


def _described(source: ShardSource, results: _Results) -> dict[str, Any]:
    """Return the hashes of the shards and of the kept rows, and the number of rows."""
    kept, manifest = hashlib.sha256(), source.reader.manifest
    for split in source.splits():
        kept.update(results.of_split(source, split, GROUPS, "keep").tobytes())
    return {"shards": manifest.shards_sha256, "rows": manifest.rows, "kept": kept.hexdigest()}


def _results(found: Any, source: ShardSource) -> _Results:
    """Return a result that is checked to be of these shards, or of the shards of these rows."""
    manifest, url = source.reader.manifest, source.reader.storage.url
    if not isinstance(found, Duplicates) or found.folder is None:
        mask = np.asarray(found.kept if isinstance(found, Duplicates) else found)
        if mask.dtype != np.bool_ or mask.shape != (manifest.rows,):
            raise InputError(
                f"duplicates are of shape {mask.shape} and type {mask.dtype}, but {url} has {manifest.rows:,} rows; "
                "give the result of dkfeat.neighbors.duplicates on these rows, its folder, or a boolean mask of the "
                "rows to keep"
            )
        return _Results({**getattr(found, "arrays", {}), "keep": mask}, {})
    of_shards = found.arrays[GROUPS].manifest.records.sources["etag"].tolist()
    if fingerprint(of_shards) != manifest.shards_sha256:
        raise SpecConflictError(
            f"{found.folder} has the duplicates of other shards than {url} has now; repeat `dkfeat duplicates {url} "
            f"--out {found.folder}` with its options, which adds new rows; if shards were changed, give another folder"
        )
    tables: dict[str, tuple[ShardReader, dict[int, list[ShardEntry]]]] = {}
    for name in (GROUPS, PAIRS):
        tables[name] = found.arrays[name].shards, {}
        for entry in found.arrays[name].manifest.shards:
            tables[name][1].setdefault(entry.split, []).append(entry)
    return _Results({}, tables)
