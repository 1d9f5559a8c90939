"""Checks of a data set by tasks: of all its shards, and of the sources that they were made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from dkfeat.engine.memory import check_memory
from dkfeat.engine.open import Target, as_target
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.resolve import check_has_source, inherit_source, with_encoder
from dkfeat.engine.runners.base import until_stopped
from dkfeat.engine.runners.open import open_runner
from dkfeat.engine.scan import run_stage
from dkfeat.engine.tasks.landmarks import load_encoder
from dkfeat.errors import CommitError, DkfeatError
from dkfeat.sources.base import Source
from dkfeat.sources.formats import as_source
from dkfeat.store.commit.delta_log import check_log
from dkfeat.store.manifest import metadata
from dkfeat.store.manifest.batch_plan import OTHER_TARGET
from dkfeat.store.manifest.record_table import planned_splits
from dkfeat.store.manifest.records import ShardEntry, check
from dkfeat.store.shards.reader import Report, ShardReader, check_shard, open_reader, report_of
from dkfeat.store.storage.base import SPEC, Storage

if TYPE_CHECKING:
    from distributed import Client

    from dkfeat.blocks import SourceFile, Split
    from dkfeat.config import ExecutionConfig
    from dkfeat.store.manifest.manifest import Manifest

_Checked = tuple[str | None, frozenset[int | float]]


def verify_shards(
    storage: Storage, client: Client | ExecutionConfig | None, progress: bool | Callable[[ProgressState], object]
) -> Report:
    """Check all shards and sidecar files of a data set; see `Dataset.verify`."""
    shards = open_reader(storage)
    manifest = shards.manifest
    found: dict[str, str | None] = {}
    labels = set[int | float]()
    with (
        open_runner(client) as runner,
        Progress(progress).stage("verify", total_tasks=len(manifest.shards), total_bytes=manifest.size) as stage,
    ):

        def done(entry: ShardEntry, result: _Checked) -> None:
            found[entry.name], its_labels = result
            labels.update(its_labels)  # joined now, because each task may find ten thousand
            stage.advance(rows=entry.rows, source_bytes=entry.size)

        task = partial(_check, ShardReader(storage, shards.spec, manifest.without_records()))
        runner.run(task, manifest.shards, done)
    report = report_of(shards, found, labels)
    try:
        check_log(storage, in_full=True)
    except CommitError as fault:
        report.problems.append(str(fault))
    return report


def _check(shards: ShardReader, entry: ShardEntry, stopped: Callable[[], bool]) -> _Checked:  # noqa: ARG001 - a shard is short
    return check_shard(shards, entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReport:
    """Result of `verify_inputs`."""

    n_sources: int
    """Number of source files in the manifest."""
    n_pieces: int
    """Number of ranges whose SHA-256 was compared."""
    problems: tuple[str, ...]
    """One line each, naming the source file and, where bytes differ, the shard made from them; empty if all agree."""
    touched: tuple[str, ...]
    """Source files with the same bytes but another modification time or version tag; a run rejects such files."""
    new: tuple[str, ...]
    """Files of the source that are not committed yet."""


def verify_inputs(
    target: str | PathLike[str] | Target,
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    client: Client | ExecutionConfig | None = None,
    progress: bool | Callable[[ProgressState], object] = False,
    storage_options: Mapping[str, Any] | None = None,
) -> InputReport:
    r"""Read the sources of a data set again and compare their bytes with those that its shards were made from.

    Runs compare only names, sizes and modification times. This function compares the SHA-256 of every range of a source
    with the one in the manifest, and thus finds changes that left size and time the same. Nothing is written.

    Parameters
    ----------
    target : str, path or Target
        Folder that `dkfeat.featurize` wrote, or its URL.
    source : LibsvmSource, path, glob, URL, or a list of these
        Source as in the call of `featurize`; a data set stores the names of its sources, not their folders. Omitted
        options are those of the data set.
    client : distributed.Client or None, default=None
        See `dkfeat.featurize`.
    progress : bool or callable, default=False
        See `dkfeat.featurize`.
    storage_options : mapping or None
        Options of fsspec for sources given by URL.

    Returns
    -------
    report : InputReport
        ``problems`` is empty if every source exists and is unchanged.

    Raises
    ------
    dkfeat.errors.SourceNotFoundError
        If no file matches.
    dkfeat.errors.ShardError
        If there is no data set, or nothing is committed.
    dkfeat.errors.SpecConflictError
        If an option of the source differs from the data set's.

    Examples
    --------
    >>> import os, pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> rows = folder / "rows.svm"
    >>> _ = rows.write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(rows, folder / "features", gcws, progress=False)
    >>> dkfeat.verify_inputs(folder / "features", rows).problems
    ()
    >>> before = rows.stat().st_mtime_ns
    >>> _ = rows.write_text("+1 1:0.5 4:3\n-1 2:1\n")
    >>> os.utime(rows, ns=(before, before))
    >>> len(dkfeat.verify_inputs(folder / "features", rows).problems)
    1
    """
    storage = as_target(target).open()
    spec, manifest = metadata.read_spec(storage), metadata.read_manifest(storage)
    resolved, files = resolved_source(storage, spec, manifest, source, storage_options)
    problems, touched = changes_of(manifest, files)
    planned = planned_splits(manifest.records)
    splits = [split.with_files(files) for split in planned if all(file.name in files for file in split.files)]
    found: dict[int, _Found] = {}

    def done(split: Split, result: _Found) -> int:
        found[split.number] = result
        return result.rows

    task = partial(_read_again, resolved, spec["split"]["max_piece_rows"])
    with open_runner(client) as runner:
        run_stage("verify inputs", task, resolved, splits, runner, Progress(progress), done)
    differing = _differences(manifest, {split.number: split for split in splits}, found)
    faulty = {name for names, _ in differing for name in names}
    return InputReport(
        n_sources=len(manifest.sources),
        n_pieces=sum(len(result.pieces) for result in found.values()),
        problems=(*problems, *(line for _, line in differing)),
        touched=tuple(name for name in touched if name not in faulty),
        new=tuple(sorted(files.keys() - {entry.name for entry in manifest.sources})),
    )


def resolved_source(
    storage: Storage,
    spec: Mapping[str, Any],
    manifest: Manifest,
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    storage_options: Mapping[str, Any] | None,
) -> tuple[Source, dict[str, SourceFile]]:
    """Return the source of a data set with its stored options, and its present files by name."""
    check_has_source(storage.url, spec)
    source = as_source(source, storage_options, spec["input"].get("kind"))
    files = {file.name: file for file in source.files()}
    check_memory(storage.url, manifest, files.values())
    source = inherit_source(source, storage.url, spec, in_full=True, remedy=OTHER_TARGET)
    if (encoder := load_encoder(spec, storage)) is not None:
        source = with_encoder(source, tuple(files.values()), encoder)
    check(source.is_resolved, f"{storage.url}/{SPEC}: input does not state {', '.join(source.unresolved)}")
    if manifest.n_bad_rows and source.can_quarantine:
        source = source.replaced(on_bad_row="quarantine")
    if spec["output"]["layout"] == "predictions":  # they are of rows whose words the model may lack
        source = source.replaced(as_words=True)
    return source, files


@dataclass(frozen=True, slots=True)
class _Found:
    """Current checksums of a split."""

    pieces: tuple[tuple[int, int, int, str], ...]
    """Number, start, stop and SHA-256 of each piece."""
    rows: int
    fault: str


def _read_again(source: Source, max_piece_rows: int, split: Split, stopped: Callable[[], bool]) -> _Found:
    """Read one split and return its checksums."""
    pieces, rows, reason = [], 0, ""
    try:
        for piece in until_stopped(source.read(split, max_piece_rows), stopped):
            pieces.append((piece.number, piece.start, piece.stop, piece.source_sha256))
            rows += piece.block.n_rows
            del piece  # before the next one is read
    except DkfeatError as fault:
        reason = str(fault)
    return _Found(tuple(pieces), rows, reason)


def changes_of(manifest: Manifest, files: Mapping[str, SourceFile]) -> tuple[list[str], list[str]]:
    """Compare files with the manifest; return problems, and the names of files that differ only in time or tag."""
    problems, touched = [], []
    for entry in manifest.sources:
        file = files.get(entry.name)
        if file is None:
            problems.append(f"source {entry.name!a} is missing")
        elif file.size != entry.size:
            problems.append(f"source {entry.name!a}: {entry.size:,} bytes were committed, the file has {file.size:,}")
        elif file.changes(entry.identity):
            touched.append(entry.name)
    return problems, touched


def _differences(
    manifest: Manifest, splits: Mapping[int, Split], found: Mapping[int, _Found]
) -> list[tuple[list[str], str]]:
    """Compare checksums piece by piece; return each difference with the files that it may be in."""
    lines = []
    for entry in manifest.shards:
        result = found.get(entry.split)
        if result is None:  # a source file of this split is missing and already reported
            continue
        if (entry.piece, *entry.range, entry.source_sha256) in result.pieces:
            continue
        split = splits[entry.split]
        why = f"; {result.fault}" if result.fault else ""
        span = f"{entry.range[0]:,} to {entry.range[1]:,}"
        line = f"source {split.title}, {span}: not the bytes that {entry.name} was made from{why}"
        lines.append(([file.name for file in split.files], line))
    return lines
