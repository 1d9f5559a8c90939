"""Turn a source into shards of features: settle, plan, run, commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any

from dkfeat.engine.arguments import as_path, as_source, open_place
from dkfeat.engine.batch import run_batch
from dkfeat.engine.job import Job
from dkfeat.engine.landmarks import attached_files, draw_rows, load_map
from dkfeat.engine.opening import open_runner
from dkfeat.engine.plan import make_plan
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.quarantine import BadRowLimit, suggesting_quarantine, treating
from dkfeat.engine.runners import Runner
from dkfeat.engine.scan import run_scan
from dkfeat.engine.settle import settle
from dkfeat.engine.specs import binding_spec, like_spec, like_storage
from dkfeat.errors import ConfigError
from dkfeat.io import commit, shards
from dkfeat.io.remote import shown_url
from dkfeat.io.scans import Scan
from dkfeat.io.source import Source

if TYPE_CHECKING:
    import numpy as np
    from distributed import Client
    from numpy.typing import NDArray

    from dkfeat.config import ClusterConfig
    from dkfeat.io.manifest import Manifest
    from dkfeat.maps import FeatureMap

__all__ = ["featurize"]


def featurize(
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    map: FeatureMap | None = None,
    target: str | PathLike[str] | None = None,
    *,
    like: str | PathLike[str] | None = None,
    layout: str | None = None,
    resume: bool = True,
    break_lock: str | None = None,
    on_bad_row: str | None = None,
    max_bad_rows: float | str = 0.01,
    on_changed_source: str = "raise",
    client: Client | None = None,
    scheduler: str | None = None,
    scheduler_file: str | PathLike[str] | None = None,
    cluster: str | PathLike[str] | ClusterConfig | None = None,
    n_workers: int | None = None,
    threads_per_worker: int | None = None,
    memory_limit: int | str | None = None,
    in_flight: int | None = None,
    performance_report: str | PathLike[str] | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> Manifest:
    r"""Compute the features of every row of a source and keep them as Parquet shards.

    On disk before: nothing at `target`, a data set made by the same settings, or a run of it that was interrupted.
    After: a committed data set that covers the source. If the call dies half-way, what was committed before is
    untouched, and the same call goes on where it stopped. Called again when all is done, it writes nothing. Shards are
    equal to the last byte for any scheduler, number of workers and order of tasks.

    Parameters
    ----------
    source : LibsvmSource, ParquetSource, path, glob, folder, URL, or a list of these
        LIBSVM text; names in .parquet, and folders of such files, are Parquet. Options left open, which are those at
        their defaults, are taken from the target, if it holds data already, else from `like`, else from the files'
        metadata, else found by one scan of the whole source.
    map : FeatureMap or None
        Fitted or not; never changed. An unfitted one is cloned and fitted to the source's width; one that learns from
        rows, such as `NystroemFeatures`, to rows that its seed draws from the whole source, which takes another pass
        over the splits that hold one. None takes the map of `like` or of the target.
    target : str or path
        Folder for the shards, or the URL of a place in an object store, such as ``s3://bucket/features``.
    like : str, path or None
        Folder of shards or model whose map and input options are taken over, so that train and test agree. What is
        asked differently is a conflict, except `layout` and the source's blocksize. An option that stands at its
        default counts as left open, not as asked: a source of dtype "float32" becomes "float64" where `like` has that.
    layout : {"codes", "sparse", "dense"} or None
        How shards hold features; None: as the map prefers.
    resume : bool, default=True
        Go on with an interrupted run; False refuses.
    break_lock : str or None
        Id of a run on another host that holds the target and is known to be gone.
    on_bad_row : {"raise", "quarantine"} or None, default=None
        "raise" ends the run at the first bad row, with its place: one that is malformed, breaks what the options say,
        or is refused by the map. "quarantine" sets such rows aside, with place, reason and text; the others become
        features as if these were absent. ``open_shards(target).quarantine()`` reads them back. Faults of the file
        itself, such as a cut gzip stream or a line beyond `max_line_bytes`, always end the run. None: as the source
        says, which by default is "raise". A run that ended at a bad row may be continued with "quarantine".
    max_bad_rows : int, float or str, default=0.01
        With "quarantine", the most bad rows among those that this call adds: an int is a number, a float a share of
        all rows, such as 0.01, and 1.0 no limit; text is one of these, or such as "1%". With more, the run ends and
        commits nothing.
    on_changed_source : {"raise", "keep"}, default="raise"
        What to do when a source file that is committed has changed since, or is gone. "raise" ends the run before it
        begins. "keep" leaves the rows of that file as they are committed, whatever it holds now, and goes on with the
        files that are new: for sources that are moved away once they are committed. Such files are named in the
        log and under ``run["changed_sources"]`` of the manifest. Features are never replaced: to have those of a
        changed file, give it another name, or choose another target. A file that was moved to where the source still
        finds it, under another name, is refused: its rows would be in twice.
    client : distributed.Client or None
        Cluster to run on.
    scheduler : str or None
        "threads", "processes", "synchronous", "cluster" (worker processes of its own) or a scheduler's address. None:
        the active client, else Dask's configuration, else threads.
    scheduler_file : path or None
        In its place: what ``dask scheduler --scheduler-file`` wrote.
    cluster : path, ClusterConfig or None
        In its place: a cluster that is started for this run, see `dkfeat.open_cluster`, and only if there is something
        to do.
    n_workers, threads_per_worker, memory_limit
        Of the threads, processes or cluster; `n_workers` without a scheduler starts a cluster of its own. Beside
        `cluster` they stand in place of what its file says.
    in_flight : int or None
        Tasks handed to the scheduler at a time; None: twice the threads of a cluster.
    performance_report : path or None
        HTML file for Dask's report of what a cluster did, with its task stream; needs bokeh, the extra ``dashboard``.
    progress : bool or callable, default=True
        True reports on standard error, in a notebook below the cell; a callable gets a `ProgressState` after each task.
    storage_options : mapping or None
        For sources given by URL, as fsspec takes them; never written anywhere.
    target_options : mapping or None
        For a target, and a `like`, given by URL: fsspec's, and ``retry_seconds`` and ``exclusive_create``, see
        `dkfeat.io.object_store.ObjectStorage`; never written anywhere.

    Returns
    -------
    manifest : Manifest
        The committed list of shards.

    Raises
    ------
    dkfeat.errors.ConfigError
        Settings that make no sense, alone or together.
    dkfeat.errors.SourceNotFoundError, dkfeat.errors.ParseError, dkfeat.errors.ParquetError
        The source is missing, or malformed beyond what `on_bad_row` and `max_bad_rows` allow.
    dkfeat.errors.SpecConflictError
        Target, `like`, map and source disagree, or a source changed.
    dkfeat.errors.CommitError, dkfeat.errors.CommitConflictError, dkfeat.errors.ShardError
        The target cannot be written, or another run holds it.
    dkfeat.errors.PlanError
        A task would need more memory than a worker may use.
    dkfeat.errors.ClusterError
        Workers or the scheduler were lost.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> manifest = dkfeat.featurize(folder / "rows.svm", gcws, folder / "features", progress=False)
    >>> manifest.rows, manifest.labels
    (2, (-1, 1))
    """
    if target is None:
        message = "no target is given; name the folder that shards go to"
        raise ConfigError(message)
    if on_changed_source not in ("raise", "keep"):
        message = f"on_changed_source={on_changed_source!r}, but it must be 'raise' or 'keep'"
        raise ConfigError(message)
    asked = treating(as_source(source, storage_options), on_bad_row)
    limit = BadRowLimit(max_bad_rows, asked)
    storage = open_place(as_path(target, "target"), target_options, beside=like)
    files = asked.files()
    storage.keep_apart(files, asked.patterns)
    storage.check_writable()
    commit.check_free(storage)  # a scan may take hours
    spec, remedy = binding_spec(storage)
    reporter = Progress(progress)
    opening = open_runner(
        client,
        scheduler,
        scheduler_file=scheduler_file,
        cluster=cluster,
        n_workers=n_workers,
        threads_per_worker=threads_per_worker,
        memory_limit=memory_limit,
        in_flight=in_flight,
        performance_report=performance_report,
    )
    with ExitStack() as stack:

        @cache
        def runner() -> Runner:  # a run with nothing to do starts no cluster
            return stack.enter_context(opening)

        def scan(unsettled: Source) -> Scan:
            with suggesting_quarantine(unsettled):
                found = run_scan(unsettled, files, runner(), reporter)
            limit.check(found.n_bad_rows, found.n_rows + found.n_bad_rows, found.first_bad)
            return found

        def draw(scanned: Source, counted: Scan, numbers: NDArray[np.int64]) -> Any:
            return draw_rows(scanned, counted, numbers, runner(), reporter)

        folders = [storage] if like is None else [storage, like_storage(like, target_options)]
        settled = settle(
            asked,
            map,
            files=files,
            target=None if spec is None else (storage.url, spec),
            like=None if like is None else (shown_url(as_path(like, "like")), like_spec(like, target_options)),
            layout=layout,
            scan=scan,
            draw=draw,
            load=lambda described: load_map(described, *folders),
            remedy=remedy,
        )
        planned = make_plan(settled.source, files, settled, storage.url, settled.scan)
        if spec is None:  # the target is still as it was: a plan that cannot work leaves nothing there
            planned.check(runner().memory_limit)
        held = commit.begin(
            storage,
            settled.spec,
            files,
            settled.source.splits,
            attached=attached_files(settled.map),
            resume=resume,
            break_lock=break_lock,
            keep_changed=on_changed_source == "keep",
        )
        with held as run, stack:  # the runner ends within: its threads and processes work only while the target is held
            if run.is_done and run.manifest is not None:
                reporter.note(f"{storage.url} is complete already: {run.manifest.rows:,} rows; nothing to do")
                return run.manifest
            planned.check(runner().memory_limit)
            output, source = settled.spec["output"], settled.source
            schema = shards.schema_of(
                output["layout"],
                output["row_bytes"] if output["layout"] == "codes" else output["n_features_out"],
                source.label_dtype,
                multilabel=source.multilabel,
                query_id=bool(source.query_id),
                weight=source.has_weights,
                kept=source.kept,
                values=output.get("values", True),
            )
            job = Job(source=source, storage=storage, spec=settled.spec, spec_fp=settled.spec_fp, run_id=run.id)
            return run_batch(job, run, runner(), limit, reporter, schema=schema, n_features=settled.map.n_features_in_)
