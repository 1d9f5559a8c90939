"""Third step of a run: plan its tasks, their memory and the output, from sizes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.sparse import csr_matrix

from dkfeat.blocks import SourceFile, Split
from dkfeat.canonical import fingerprint
from dkfeat.compiled.sampling.gcws import SWEPT_ROWS
from dkfeat.engine.clusters.local import more_memory
from dkfeat.engine.open import Target, as_target, read_existing
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.resolve import PIECE_BYTES, Resolved, complete, inherit, scanned
from dkfeat.engine.runners.open import open_runner
from dkfeat.engine.scan import checked_splits, column_shares, scale_warning, warn_of_columns
from dkfeat.errors import DkfeatError, PlanError
from dkfeat.maps import WEIGHTED
from dkfeat.messages import aligned, counted, logger_of, printable, show_bytes
from dkfeat.sources.base import Source
from dkfeat.sources.formats import as_source
from dkfeat.store.manifest.batch_plan import plan_name
from dkfeat.store.storage.base import META

if TYPE_CHECKING:
    from dkfeat.encoders._base import Encoder
    from dkfeat.encoders._columns import ColumnTable
    from dkfeat.maps import FeatureMap


TEXT_FACTOR = 8
"""Maximum memory of a task per byte of its text while it is encoded: the text, its parsed rows and the map's arrays."""
PARSED_FACTOR, ENCODED_FACTOR = 4, 2
"""Maximum memory while a shard is written, per byte of text and per encoded byte: for the codes and the file."""
FIXED_BYTES = 16 << 20
"""Memory of a task in bytes, in addition to that for its split."""

_SAMPLE_BYTES = 8 << 20  # half a second of decompression for xz, a few hundredths for text
_SAMPLE_FILES = 100  # more than tiny files that are read as one split need
_ANY_ROWS: dict[str, Any] = {"n_features": 2**63 - 1, "zero_based": True, "label_dtype": "float64"}

logger = logger_of(__name__)

_COLUMNS = ("split", "source", "range", "rows", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTask:
    """One task of a plan."""

    split: Split
    """Split that the task reads."""
    projected_bytes: int
    """Maximum memory of the task, in bytes."""
    rows: int | None
    """Number of rows; None if it is known neither from a scan nor from metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Tasks, memory and output of a run; two plans of the same run are equal."""

    target: str | None
    """Target, if one was given."""
    spec_fp: str | None
    """Fingerprint of the spec; None while a scan is needed."""
    spec: Mapping[str, Any] | None
    """All settings that determine the shards' bytes; None while a scan is needed."""
    tasks: tuple[BlockTask, ...]
    """Tasks in source order."""
    files: tuple[SourceFile, ...]
    """Source files, in order."""
    blocksize: int
    """Bytes of text, or of rows of Parquet in memory, after which a split or a piece ends."""
    needs_encoder: bool = False
    """True if an encoder must first be fitted to rows drawn from the source."""
    needs_landmarks: bool = False
    """True if the map must first be fitted to rows drawn from the source; this reads the splits with such rows."""
    columns: ColumnTable | None = None
    """Columns of a table with their encodings; None if there are none, or they are not known without a scan."""
    scale_warning: str = ""
    """Name of a column that decides the kernel alone by its unit, with a remedy, from the first rows; empty if there is
    none, and without a scan."""
    advice: str = ""
    """Map that suits the rows better than a given map of the min-max kernel, and why; empty if none is known to."""

    @property
    def needs_scan(self) -> bool:
        """True if the source must be read once before it can be featurized."""
        return self.spec is None and not (self.needs_landmarks and self.n_rows is not None)

    @property
    def source_bytes(self) -> int:
        """Stored size of the source in bytes."""
        return sum(file.size for file in self.files)

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None if it is known neither from a scan nor from metadata."""
        rows = [task.rows for task in self.tasks]
        return None if None in rows else sum(row for row in rows if row is not None)

    @property
    def projected_bytes(self) -> int:
        """Maximum memory of a task, in bytes."""
        return max((task.projected_bytes for task in self.tasks), default=0)

    @property
    def output_bytes(self) -> int | None:
        """Size of the encoded features in bytes, without labels and footers; None without rows or spec."""
        if self.spec is None or self.n_rows is None:
            return None
        return self.n_rows * int(self.spec["output"]["row_bytes"])

    def check(self, limit_bytes: int | None) -> None:
        """Check that every task fits into memory.

        Parameters
        ----------
        limit_bytes : int or None
            Maximum memory of a task, in bytes; None sets no limit.

        Raises
        ------
        PlanError
            If a task needs more; the message names the setting to change.
        """
        if limit_bytes is None or self.projected_bytes <= limit_bytes:
            return
        task = max(self.tasks, key=lambda task: task.projected_bytes)
        needed = self.projected_bytes
        fixed = FIXED_BYTES + (ENCODED_FACTOR * PIECE_BYTES if task.rows is None else 0)
        fitting = int(self.blocksize * (limit_bytes - fixed) / max(1, needed - fixed)) >> 20
        raise PlanError(
            f"split {task.split.number} of {task.split.title} needs up to {show_bytes(needed)}, but a task may use "
            f"{show_bytes(limit_bytes)}; {f'lower blocksize to about {fitting} MiB, ' if fitting > 0 else ''}raise "
            f"memory_limit of the workers by {more_memory(needed - limit_bytes)} for each of their threads, or run "
            "fewer threads in each"
        )

    def facts(self) -> dict[str, str]:
        """Return the main facts, for display."""
        facts = {
            "target": self.target or "not given",
            "source": f"{counted(len(self.files), 'file')}, {show_bytes(self.source_bytes)}",
            "tasks": f"{len(self.tasks):,}, up to {show_bytes(self.projected_bytes)} of memory each",
            "blocksize": show_bytes(self.blocksize),
            "rows": "known after a scan" if self.n_rows is None else f"{self.n_rows:,}",
            "output": "known after a scan" if self.output_bytes is None else f"about {show_bytes(self.output_bytes)}",
        }
        if self.needs_encoder:
            facts["encoder"] = "unknown: featurize first reads 10,000 rows drawn from the whole source; so does a scan"
        elif self.needs_scan:
            facts["spec"] = "unknown: featurize first reads the whole source once"
        if self.needs_landmarks:
            facts["landmarks"] = (
                "unknown: featurize draws rows from the whole source, and reads the splits with such rows"
            )
        if self.spec is not None:
            output, columns = self.spec["output"], self.spec.get("encoder", {}).get("columns")
            size = counted(output["row_bytes"], "byte")
            width = counted(self.spec["map"]["n_features"] if columns is None else len(columns), "column")
            facts["features"] = f"{width} → {output['n_features_out']:,}, {size} a row"
            facts["layout"] = f"{output['layout']}, of the map {self.spec['map']['map']}"
            facts["spec"] = str(self.spec_fp)[:12]
        notes = {"warning": self.scale_warning, "advice": self.advice}
        return facts | {name: note for name, note in notes.items() if note}

    def describe(self, n_tasks: int = 10) -> str:
        """Format the facts, and a table of the first `n_tasks` tasks."""
        lines = [f"{name:<9}  {printable(str(value))}" for name, value in self.facts().items()]
        if self.columns is not None:
            lines += ["", repr(self.columns)]
        if shown := self.tasks[:n_tasks]:
            lines += ["", *aligned([_COLUMNS, *([printable(cell) for cell in _cells(task)] for task in shown)])]
        if len(self.tasks) > n_tasks:
            lines.append(f"… and {len(self.tasks) - n_tasks:,} more")
        return "\n".join(lines)

    def __repr__(self) -> str:
        needs = f"up to {show_bytes(self.projected_bytes)} each"
        return f"Plan({self.target!r}, {counted(len(self.tasks), 'task')}, {needs})"


def plan(
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    target: str | PathLike[str] | Target | None = None,
    map: FeatureMap | None = None,
    *,
    like: str | PathLike[str] | None = None,
    encoder: Encoder | Literal["auto"] | None = "auto",
    layout: str | None = None,
    scan: bool = False,
    progress: bool | Callable[[ProgressState], object] = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Plan:
    r"""Plan a run of `dkfeat.featurize` from its arguments. Reads names and sizes, writes nothing.

    If the map is `GCWSFeatures` or `DartFeatures` and the target is new, the plan names the map that suits the rows
    better, if there is one: by the columns of a table, else, with a scan, by the first rows.

    Parameters
    ----------
    source, target, map, like, encoder, layout, storage_options
        As for `dkfeat.featurize`; the target may be omitted.
    scan : bool, default=False
        Read the source once, for the number of rows, unresolved options, and the encodings of the columns of a table.
    progress
        Progress of the scan, as for `dkfeat.featurize`.

    Returns
    -------
    plan : Plan
        Without spec and shard names if options of the source are unresolved and not scanned for, or if the map must
        first be fitted to rows of the source (`Plan.needs_landmarks`).

    Raises
    ------
    dkfeat.errors.DkfeatError
        Errors that `dkfeat.featurize` raises before it starts.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.svm"
    >>> _ = path.write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> made = plan(path, map=dkfeat.GCWSFeatures(16, random_state=0), scan=True)
    >>> made.n_rows, made.output_bytes, len(made.tasks)
    (2, 32, 1)
    """
    source = as_source(source, storage_options)
    to = None if target is None else as_target(target)
    storage = None if to is None else to.open(beside=like)
    files = source.files()
    opened = read_existing(source, files, storage, like, None if to is None else to.storage_options)
    settings = inherit(opened, map, layout, encoder)
    if scan:
        counting = settings.source.replaced(max_bad_rows=1.0)  # a plan shows how many there are
        with open_runner(None) as runner:
            settings = scanned(replace(settings, source=counting), runner, Progress(progress))
    X = None if settings.scan is None else first_rows(settings)
    shares = {} if X is None or settings.source.encoder is not None else column_shares(X)
    advice = map_advice(settings.map, settings.source, X) if _takes_advice(settings) else ""
    if not settings.needs_rows and (settings.source.is_resolved or settings.scan is not None):
        settings = complete(settings)
    warn_of_sizes(files)
    warn_of_columns(settings.source, opened.new_files, source, opened.like)
    made = make_plan(settings, checked_splits(settings.source, files))
    return replace(
        made,
        target=None if to is None else to.path,
        needs_encoder=settings.needs_encoder,
        needs_landmarks=settings.needs_landmarks,
        columns=settings.source.encoder.describe() if settings.source.is_encoded and settings.source.is_table else None,
        scale_warning=scale_warning(shares, settings.source.to_mapping()),
        advice=advice,
    )


def plan_tasks(resolved: Resolved) -> Sequence[Split]:
    """Cut the files that are not committed yet into splits; check the memory of the tasks if the target is new.

    There are no splits if an interrupted run has recorded its own.

    Raises
    ------
    PlanError
        If a task needs more memory than a worker may use.
    """
    context, source = resolved.opened.run, resolved.source
    new = resolved.opened.new_files
    warn_of_sizes(resolved.opened.files)
    if not (given := resolved.opened.source).is_resolved:  # else `inherit_row_options` has warned
        warn_of_columns(source, new, given, resolved.opened.like)
    if resolved.opened.target is None:
        splits = checked_splits(source, resolved.opened.files)
        if not resolved.runs_in_driver:
            make_plan(resolved, splits).check(context.runners.get().memory_limit)
        return splits
    recorded = f"{META}/{plan_name(resolved.opened.number + 1)}"
    is_recorded = not new or context.storage.size(recorded) is not None
    return () if is_recorded else checked_splits(source, new)


def make_plan(settings: Resolved, splits: Sequence[Split]) -> Plan:
    """Plan a run that has these splits of the source, with their numbers of rows if a scan has counted them."""
    source, files, scan = settings.source, settings.opened.files, settings.scan
    if scan is not None and scan.splits == tuple(splits):  # a target's blocksize may differ from the scan's
        rows: Sequence[int | None] = scan.rows_per_split
    else:
        rows = [source.rows_of(split) for split in splits]
    spec_fp = row_bytes = None
    working = 0
    if settings.spec:
        spec_fp, row_bytes = fingerprint(settings.spec), int(settings.spec["output"]["row_bytes"])
        working = 0 if settings.map is None else settings.map._working_bytes
    tasks = tuple(
        BlockTask(
            split=split,
            projected_bytes=working + _projected_bytes(source.piece_bytes(split), row_bytes, count),
            rows=count,
        )
        for split, count in zip(splits, rows, strict=True)
    )
    return Plan(
        target=None,
        spec_fp=spec_fp,
        spec=settings.spec or None,
        tasks=tasks,
        files=files,
        blocksize=int(source.blocksize),
    )


def warn_of_sizes(files: Sequence[SourceFile]) -> None:
    """Warn of files that are known by name and size alone."""
    vague = [file.name for file in files if file.mtime_ns is None and file.etag is None]
    if vague:
        logger.warning(
            "%d of %d source files, such as %a, are known by name and size alone, because their server sends neither "
            "ETag nor Last-Modified: only `dkfeat verify --inputs` finds a change that leaves the size as it is",
            len(vague),
            len(files),
            vague[0],
        )


def _projected_bytes(text: int, row_bytes: int | None, rows: int | None) -> int:
    encoded = PIECE_BYTES if row_bytes is None or rows is None else min(PIECE_BYTES, rows * row_bytes)
    return FIXED_BYTES + max(TEXT_FACTOR * text, PARSED_FACTOR * text + ENCODED_FACTOR * encoded)


def _cells(task: BlockTask) -> tuple[str, ...]:
    split = task.split
    rows = "?" if task.rows is None else f"{task.rows:,}"
    span = f"{split.start:,}-{split.stop:,}"
    return str(split.number), split.title, span, rows, show_bytes(task.projected_bytes)


def _takes_advice(settings: Resolved) -> bool:
    """Return True if the map is one of the min-max kernel, and neither fitted nor that of existing shards."""
    opened, map = settings.opened, settings.map
    is_chosen = opened.target is not None or opened.like is not None or hasattr(map, "n_features_in_")
    return map.name in WEIGHTED and not is_chosen


def map_advice(map: FeatureMap, source: Source, X: Any) -> str:
    """Name the map that suits a table's columns, or else the first rows, better than GCWS or darts; empty if none does.

    The thresholds are those of docs/explanation/choosing.md.
    """
    if (encoder := source.encoder) is not None and encoder.takes_tables:
        is_wide = bool(encoder.texts)
        is_set = is_wide and not (encoder.takes_all or encoder.weighted)
    elif X is not None and encoder is None:
        is_set, is_wide = (X.data == 1).all(), len(np.unique(X.indices)) >= 100 * X.shape[0]
    else:
        return ""
    if is_set and map.normalize is None:
        return "minhash: rows of zeros and ones are sets, whose kernel it estimates with up to half the variance"
    if map.name == "gcws" and is_wide:
        return "dart takes a fraction of the time for rows of many columns that few other rows have"
    return ""


def first_rows(settings: Resolved) -> csr_matrix | None:
    """Read at most 8 MiB of the first rows of a run, by which a map of the min-max kernel is judged.

    Parameters
    ----------
    settings : Resolved
        Settings of the run before a pass over its source.

    Returns
    -------
    X : csr_matrix or None
        None if the map is another one, fitted, or that of existing shards, if a centre makes rows dense, or if no rows
        can be read, which is left to the run to report.
    """
    map = settings.map
    if not _takes_advice(settings) or (map.center is not None and np.any(map.center)):
        return None
    try:
        source, files = settings.source, settings.opened.files[:_SAMPLE_FILES]
        blocksize = min(int(source.blocksize), _SAMPLE_BYTES)
        ready = source.replaced(blocksize=blocksize, **{name: _ANY_ROWS[name] for name in source.unresolved})
        # at most as many rows as GCWS has in a block
        X = next(ready.read(source.splits(files)[0], SWEPT_ROWS, checksum=False)).block.X
    except DkfeatError:
        return None
    return X if getattr(X, "nnz", 0) else None  # rows of a table have no nonzeros before they are encoded
