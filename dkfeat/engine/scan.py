"""Passes over a source: the scan that finds its width, index base, labels and rows; its columns and bad rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.runners.base import Runner, Stopped, Task
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ConfigError, ParquetError, ParseError
from dkfeat.messages import logger_of
from dkfeat.process_cache import METER
from dkfeat.sources.base import Scan, Source, SplitScan
from dkfeat.sources.formats import as_source
from dkfeat.sources.libsvm.parser import unterminated_line
from dkfeat.sources.options import LARGEST_BLOCK
from dkfeat.store.manifest.manifest import column_named, columns_besides_features

if TYPE_CHECKING:
    from distributed import Client

    from dkfeat.blocks import BadRow, SourceFile, Split
    from dkfeat.config import ExecutionConfig


logger = logger_of(__name__)

_SHOWN_FILES = 3
_WEIGHED = 1 << 13
"""Nonzeros of a block by which the magnitudes of columns are compared."""
_LEAST_SHARE, _MOST_SHARE = 50_000, 500_000
"""Millionths of all magnitudes from which a column is recorded, and beyond which it is warned of."""
MOST_SPLITS = 7_000_000
"""Number of splits beyond which no plan can be read again; one of long names may be refused when it is recorded."""


def scan_split(source: Source, split: Split, stopped: Callable[[], bool]) -> SplitScan:
    """Scan one split; `stopped` is called at every window of its text, so that the scan of a huge file can end."""

    def proceed() -> None:
        if stopped():
            raise Stopped
        METER.processed()

    return source.scan_split(split, proceed)


def scan(
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    client: Client | ExecutionConfig | None = None,
    progress: bool | Callable[[ProgressState], object] = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Scan:
    r"""Read a source once to find its width, index base, labels and rows.

    Nothing is written. ``source.resolve(scan)`` completes the options of a source with the result.

    Parameters
    ----------
    source : LibsvmSource, ParquetSource, path, glob, folder, URL, or a list of these
        Rows must agree with the given options; the scan finds the others. Of Parquet files only labels and columns of
        filters are read, not values, so ``nnz`` is None.
    client : distributed.Client or None, default=None
        See `dkfeat.featurize`.
    progress : bool or callable, default=False
        See `dkfeat.featurize`.
    storage_options : mapping or None
        For sources given by URL.

    Returns
    -------
    scan : Scan
        ``n_features``, ``zero_based``, ``label_dtype``, ``labels``, ``n_rows``, ``nnz``, ``rows_per_split`` and more.

    Raises
    ------
    dkfeat.errors.SourceNotFoundError
        If no file matches.
    dkfeat.errors.ConfigError
        If there are more splits than a plan can list, about six million.
    dkfeat.errors.ParseError, dkfeat.errors.ParquetError
        If text is malformed or a file is damaged or unsuitable; the error gives the position.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.svm"
    >>> _ = path.write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> found = scan(path)
    >>> found.n_rows, found.n_features, found.labels
    (2, 4, (-1, 1))
    """
    source = as_source(source, storage_options)
    files = source.files()  # raises for a missing source before anything starts
    with open_runner(client) as runner:
        found = run_scan(source, files, runner, Progress(progress))
    warn_unterminated(found.unterminated, source)
    return found


def warn_unterminated(files: Sequence[SourceFile], source: Source) -> None:
    """Log a warning for each of the first files whose last line has no line end, and the number of the others."""
    for file in files[:_SHOWN_FILES]:
        logger.warning(unterminated_line(file, source.storage_options))
    if len(files) > _SHOWN_FILES:
        logger.warning("the last line has no line end in %d more files", len(files) - _SHOWN_FILES)


def checked_splits(source: Source, files: Sequence[SourceFile]) -> tuple[Split, ...]:
    """Cut files into splits, at most as many as a plan can list; the error names a block size that gives fewer."""
    splits, size = source.splits(files), int(source.blocksize)
    if (count := len(splits)) <= MOST_SPLITS:
        return splits
    while len(splits) > MOST_SPLITS and size < LARGEST_BLOCK:
        size = min(-(-2 * size >> 20) << 20, LARGEST_BLOCK)
        splits = source.replaced(blocksize=size).splits(files)
    remedy = "divide the source into several targets"
    if len(splits) <= MOST_SPLITS:
        remedy = f"raise blocksize to {size >> 20}MiB, or {remedy}"
    raise ConfigError(f"the source has {count:,} splits, but a plan can list at most {MOST_SPLITS:,}; {remedy}")


def run_scan(source: Source, files: Sequence[SourceFile], runner: Runner, progress: Progress) -> Scan:
    """Scan the source's files, as they were listed, on an open runner."""
    source = source.inspect(files)
    splits = checked_splits(source, files)
    parts: dict[int, SplitScan] = {}

    def run(source: Source, splits: Sequence[Split]) -> None:
        joined: dict[tuple[bool, bool], SplitScan] = {}

        def done(split: Split, part: SplitScan) -> int:
            part.join_labels(source, joined)
            parts[split.number] = part
            return part.n_rows

        run_stage("scan", partial(scan_split, source), source, splits, runner, progress, done)

    run(source, splits)
    found = Scan.merge(source, files, splits, [parts[split.number] for split in splits])
    doubtful = [split for split in splits if not parts[split.number].fits(found)]
    if not doubtful:
        return found
    resolved = source.resolve(found)  # scanned again with its options, which locates the bad rows
    run(resolved, doubtful)
    return Scan.merge(resolved, files, splits, [parts[split.number] for split in splits])


def counted_rows(source: Source, files: Sequence[SourceFile]) -> Scan | None:
    """Count the rows of a resolved source by the metadata of its files; None if these have no counts of good rows."""
    if not source.is_resolved or source.is_quarantined:
        return None
    splits = checked_splits(source, files)
    counts = [source.rows_of(split) for split in splits]
    if None in counts:
        return None
    return Scan.merge(source, files, splits, [SplitScan(n_rows=count or 0) for count in counts])


def run_stage(
    name: str,
    task: Task,
    source: Source,
    splits: Sequence[Split],
    runner: Runner,
    progress: Progress,
    done: Callable[[Split, Any], int],
) -> None:
    """Run a task over splits of a source and report progress.

    Compressed files, which cannot be cut, start first, so that none is left for the end; then larger splits before
    smaller ones. `done(split, result)` is called as for `Runner.run` and returns the number of rows in a result.
    """
    order = sorted(splits, key=lambda split: (split.file.compression is None, -source.split_bytes(split), split.number))
    total_bytes = sum(map(source.split_bytes, splits))
    with progress.stage(name, total_tasks=len(splits), total_bytes=total_bytes) as stage:

        def advance(split: Split, result: Any) -> None:
            stage.advance(rows=done(split, result), source_bytes=source.split_bytes(split))

        runner.run(task, [source.for_worker(split) for split in order], advance)


def column_shares(X: Any) -> dict[int, int]:
    """Compute the shares of columns in the sum of all magnitudes, of the first rows of a block in CSR.

    Returns
    -------
    shares : dict of int to int
        Millionths, of columns that have a twentieth or more. None of a column that is alone.
    """
    stop = X.indptr[min(np.searchsorted(X.indptr, _WEIGHED), X.shape[0])]
    columns, at = np.unique(X.indices[:stop], return_inverse=True)
    sizes = np.abs(X.data[:stop].astype(np.float64))
    sums = np.bincount(at, sizes / sizes.max(initial=0))  # the quotients have a finite sum
    shares = np.rint(1e6 * sums / sums.sum()).astype(np.int64)
    large = (shares >= _LEAST_SHARE) & (len(columns) > 1)
    return dict(zip(columns[large].tolist(), shares[large].tolist(), strict=True))


def scale_warning(shares: Mapping[int, int], given: Mapping[str, Any]) -> str:
    """Describe the column that has more than half of all magnitudes, by `column_shares`; empty if there is none."""
    column = max(shares, key=lambda column: shares[column], default=-1)
    if shares.get(column, 0) <= _MOST_SHARE:
        return ""
    return (
        f"{column_named(column, given)} holds {shares[column] / 1e6:.0%} of the mean row sum, so it weighs more in the "
        'kernel than all others together; scale the columns by encoder=dkfeat.ColumnScale("rank") (--column-scale rank)'
    )


def check_bad_rows(source: Source, n_bad: int, n_rows: int | None, first: tuple[SourceFile, BadRow] | None) -> None:
    """Raise an error if a batch has more bad rows than ``source.max_bad_rows``, a number of rows or a share of them.

    Parameters
    ----------
    source : Source
    n_bad : int
        Bad rows found.
    n_rows : int or None
        All rows of the batch, bad ones included; None while their number is unknown; a share is not checked then.
    first : tuple of SourceFile and BadRow, or None
        Bad row that the error names; None if there is none.

    Raises
    ------
    ParseError, ParquetError
        With the position of `first`.
    """
    most: Any = source.max_bad_rows  # an int is a number of rows, a float a share of all rows
    is_share = isinstance(most, float)
    allowed = most if not is_share else None if n_rows is None else most * n_rows
    if allowed is None or n_bad <= allowed or first is None:
        return
    of = "" if n_rows is None else f" of {n_rows:,}"
    file, bad = first
    limit = f"{most:.6g} of the rows" if is_share else f"{most:,}"
    reason = (
        f"bad rows: {n_bad:,}{of}, more than max_bad_rows={limit}, this one for instance: {bad.message}. "
        "Nothing is committed; repair the source, correct the options for reading it, or raise max_bad_rows "
        "(--max-bad-rows)"
    )
    raise source.bad_row_error(file, bad, reason)


@contextmanager
def suggesting_quarantine(source: Source) -> Iterator[None]:
    """Add to errors about single rows a note that such rows can be quarantined."""
    try:
        yield
    except (ParseError, ParquetError) as error:
        # a first line that cannot be read is mostly that of another format
        is_of_row = error.row is not None if isinstance(error, ParquetError) else (error.line or 1) > 1
        # an overlong line cannot be quarantined, because its end is not searched for
        can_be_set_aside = is_of_row and "max_line_bytes" not in error.reason
        if source.can_quarantine and source.on_bad_row == "raise" and can_be_set_aside:
            error.add_note('on_bad_row="quarantine" (--on-bad-row quarantine) sets such rows aside and continues')
        raise


def warn_of_columns(source: Any, files: Sequence[SourceFile] | None, given: Any, like: Any) -> None:
    """Warn of columns of files that are ignored or lacking.

    Parameters
    ----------
    source : Source
        Source of the rows.
    files : sequence of SourceFile, or None
    given : Source
        Source as the caller passed it; if it names the columns to read, others are ignored on purpose.
    like : tuple of str and mapping, or None
        Name and spec of other rows, which may have columns for uses that these rows do not have.
    """
    known, is_named = None, bool(getattr(given, "features", None) or getattr(given, "types", None))
    if source.is_table and source.is_encoded and source.encoder.takes_all and not is_named:
        others = columns_besides_features({} if like is None else like[1]["input"])
        known = {*source.encoder.feature_names_in_, *source.read_columns, *others}
    source.warn_of_columns(files, known)
