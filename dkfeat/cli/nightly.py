"""Nightly runs of the `featurize` parts of a job file: new files are added, and events are reported as JSON lines."""

from __future__ import annotations

import glob
import time
from dataclasses import replace
from pathlib import Path

from dkfeat.cli.group import text_of
from dkfeat.cli.jobs import build_source, load_job, open_runs, part_status, run_featurize
from dkfeat.cli.json_lines import LogLines
from dkfeat.config import FeaturizeConfig, RunConfig
from dkfeat.errors import DkfeatError, ShardError, SourceNotFoundError, SpecConflictError, TargetBusyError
from dkfeat.sources.base import Source
from dkfeat.store.commit.status import Status

BUSY = TargetBusyError.exit_code


def run_nightly(conf: str, log: LogLines) -> int:
    """Run all `featurize` parts of a job file, even if an earlier one failed.

    Parameters
    ----------
    conf : str
        Job file.
    log : LogLines
        Receives the events.

    Returns
    -------
    status : int
        Exit status of the first part that failed; 4 if none failed and some were skipped because another run holds
        their targets; else 0.
    """
    began = time.monotonic()
    job = load_job(conf, needs="featurize")
    waiting: set[str] = set()
    with open_runs(job.run, job.featurize) as parts:
        results = [_run_part(part, run, log, waiting) for part, run in parts]
    failed = [status for status, busy in results if status and not busy]
    status = failed[0] if failed else max(status for status, _ in results)
    log("end", level="error" if failed else "info", exit_code=status, seconds=_since(began))
    return status


def _run_part(part: FeaturizeConfig, run: RunConfig, log: LogLines, waiting: set[str]) -> tuple[int, bool]:
    """Run a part; return its exit status, and True if the part was skipped because its target is busy."""
    began = time.monotonic()
    log("start", target=part.out, source=part.source.urlpath)
    try:
        before = _status(part)
        present = _present(part) if _may_be_empty(part, before) else part
        if part.like in waiting or present is None:
            if _is_unstarted(before):
                waiting.add(part.out)
            why = "the source has no files yet" if _is_unstarted(before) else "the source has no files now"
            log("waiting", target=part.out, message=why, seconds=_since(began))
            return 0, False
        if _is_unstarted(before):  # if only some patterns match, the others are most likely mistakes
            present = part
        try:
            manifest = run_featurize(present, run, progress=log.progress if run.progress else False)
        except SourceNotFoundError as error:
            if _is_unstarted(before) or _finds_files(build_source(part.source)):
                raise
            raise SpecConflictError(
                f"{error}; files of it were planned or committed: is a disk not mounted?"
            ) from error
    except TargetBusyError as error:
        log("skipped", level="warning", target=part.out, reason="busy", message=str(error), seconds=_since(began))
        return BUSY, True
    except (DkfeatError, OSError) as error:
        status = error.exit_code if isinstance(error, DkfeatError) else ShardError.exit_code
        log(
            "failed",
            level="error",
            target=part.out,
            error=type(error).__name__,
            message=text_of(error),
            exit_code=status,
            seconds=_since(began),
        )
        return status, False
    last = before.committed if before is not None else None
    log(
        "unchanged" if last is not None and last.number == manifest.number else "committed",
        target=part.out,
        manifest=manifest.number,
        commit=manifest.run.get("id"),
        rows=manifest.rows,
        new_rows=manifest.rows - (last.rows if last else 0),
        bad_rows=manifest.n_bad_rows or None,
        shards=len(manifest.shards),
        new_shards=len(manifest.shards) - (last.shards if last else 0),
        seconds=_since(began),
    )
    return 0, False


def _status(part: FeaturizeConfig) -> Status | None:
    try:
        return part_status(part)
    except ShardError:  # no target yet, or a damaged one, which the run reports
        return None


def _is_unstarted(before: Status | None) -> bool:
    return before is None or (before.committed is None and before.unfinished is None)


def _may_be_empty(part: FeaturizeConfig, before: Status | None) -> bool:
    """Return True if a source may have no files: before the first batch, or if committed files may be moved away."""
    if before is None or before.unfinished is not None:
        return before is None
    return before.committed is None or part.on_changed_source == "keep"


def _present(part: FeaturizeConfig) -> FeaturizeConfig | None:
    """Leave out patterns that match nothing in an existing folder; None if no pattern is left."""
    source = build_source(part.source)
    urlpath = tuple(
        path
        for path, pattern in zip(source.urlpath, source.patterns, strict=True)
        if not (glob.has_magic(pattern) and _has_folder(pattern)) or _finds_files(source.replaced(urlpath=(path,)))
    )
    if not urlpath:
        return None
    # file names are relative to the common folder of all patterns, which must not change
    if len({_folder(pattern) for pattern in source.patterns}) > 1:
        return part
    return replace(part, source=replace(part.source, urlpath=urlpath))


def _finds_files(source: Source) -> bool:
    try:
        source.files()
    except SourceNotFoundError:
        return False
    return True


def _has_folder(pattern: str) -> bool:
    """Return True if the folder of a local pattern exists; if it does not, a disk may not be mounted."""
    return "://" in pattern or _folder(pattern).exists()


def _folder(pattern: str) -> Path:
    """Return the deepest parent folder of a pattern that has no wildcards."""
    return next(folder for folder in Path(pattern).parents if not glob.has_magic(str(folder)))


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)
