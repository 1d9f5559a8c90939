"""Predictions for every row of a source, made on Dask and committed as featurized shards are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dkfeat.canonical import fingerprint
from dkfeat.engine.arguments import as_path, open_place
from dkfeat.engine.batch import run_batch
from dkfeat.engine.landmarks import attached_files
from dkfeat.engine.opening import open_runner
from dkfeat.engine.plan import make_plan
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.quarantine import BadRowLimit, treating
from dkfeat.engine.runners import Runner
from dkfeat.engine.settle import Settled
from dkfeat.io import commit
from dkfeat.learn.model import LinearModel, load_model
from dkfeat.learn.predict_job import PredictJob, model_file, prediction_schema, prediction_spec
from dkfeat.learn.prediction_source import prediction_source

if TYPE_CHECKING:
    from dask.distributed import Client

    from dkfeat.config import ClusterConfig
    from dkfeat.engine.dataset import ShardDataset
    from dkfeat.io.manifest import Manifest
    from dkfeat.io.source import Source

__all__ = ["predict"]


def predict(
    model: LinearModel | str | PathLike[str],
    source: Source | ShardDataset | str | PathLike[str] | Sequence[str | PathLike[str]],
    target: str | PathLike[str],
    *,
    scores: bool = True,
    blocksize: int | str | None = None,
    resume: bool = True,
    break_lock: str | None = None,
    on_bad_row: str | None = None,
    max_bad_rows: float | str = 0.01,
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
    r"""Predict for every row of a source, and keep the predictions as Parquet files.

    On disk before: nothing at `target`, predictions of the same model made by the same settings, or a run of it that
    was interrupted. After: committed predictions that cover the source. If the call dies half-way, what was committed
    before is untouched, and the same call goes on where it stopped. Called again when all is done, it writes nothing;
    when files came, only theirs are added. ``target/data`` is for any Parquet reader once ``target/_SUCCESS`` is there.

    Parameters
    ----------
    model : LinearModel, str or path
        The model or its folder. Its weights are kept beside the predictions, named by their hash, which is where
        workers read them.
    source : Source, ShardDataset, path, glob, URL, or a list of these
        LIBSVM text or Parquet, featurized on the way by the model's map and read as the training rows were; options
        that a source leaves open are the model's. Or shards, or their folder, that the same map made, whose features
        are used as they are.
    target : str or path
        Folder for the predictions, or a URL.
    scores : bool, default=True
        Keep scores, and probabilities where the model has them, beside the predictions.
    blocksize : int or str, optional
        Text or rows of a task, by default 64 MiB; not for shards, and not beside a source, which has its own.
    resume, break_lock, on_bad_row, max_bad_rows
        As in `dkfeat.featurize`.
    client, scheduler, scheduler_file, cluster, n_workers, threads_per_worker, memory_limit, in_flight,
    performance_report
        Where it runs, as in `dkfeat.featurize`.
    progress : bool or callable, default=True
        As in `dkfeat.featurize`.
    storage_options, target_options : mapping or None
        For sources and a model given by URL, and for a target given by URL.

    Returns
    -------
    manifest : Manifest
        The committed list of files.

    Raises
    ------
    dkfeat.errors.SpecConflictError
        The shards come from another map than the model's, a source changed, or the target holds something else.
    dkfeat.errors.DkfeatError
        As from `dkfeat.featurize`.

    Notes
    -----
    The columns: ``label``, the row's own, where rows have one; ``qid``, ``weight`` and further columns that the source
    keeps; ``source_file``, ``source_split`` and ``source_row``, which say where the row comes from, the last as its
    position, from 0, among the rows of that file in that split, those set aside left out: where rows may be, keep an id
    to join by; ``prediction``; and with `scores` either ``score`` and ``probability``, of the second of two classes, or
    ``scores`` and ``probabilities``, lists in the order of the model's classes. Probabilities are for
    models trained with log_loss.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", gcws, folder / "features", progress=False)
    >>> model = dkfeat.train(folder / "features", progress=False)
    >>> dkfeat.predict(model, folder / "rows.svm", folder / "predictions", progress=False).rows
    2
    >>> import pyarrow.parquet
    >>> pyarrow.parquet.read_table(folder / "predictions" / "data")["prediction"].to_pylist()
    [1, -1]
    """
    if not isinstance(model, LinearModel):
        model = load_model(fspath(model), storage_options=storage_options)
    asked = treating(prediction_source(model, source, blocksize, storage_options), on_bad_row)
    limit = BadRowLimit(max_bad_rows, asked)
    storage = open_place(as_path(target, "target"), target_options)
    files = asked.files()
    storage.keep_apart(files, asked.patterns)
    storage.check_writable()
    commit.check_free(storage)
    schema = prediction_schema(model, asked, scores=scores)
    spec = prediction_spec(model, asked, scores=scores)
    planned = make_plan(asked, files, Settled(source=asked, map=model.map, spec=spec), storage.url)
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

        held = commit.begin(
            storage,
            spec,
            files,
            asked.splits,
            attached={**model_file(model), **attached_files(model.map)},
            resume=resume,
            break_lock=break_lock,
        )
        with held as run, stack:  # the runner ends within, while the target is held
            if run.is_done and run.manifest is not None:
                reporter.note(f"{storage.url} is complete already: {run.manifest.rows:,} rows; nothing to do")
                return run.manifest
            planned.check(runner().memory_limit)
            job = PredictJob(source=asked, storage=storage, spec=spec, spec_fp=fingerprint(spec), run_id=run.id)
            return run_batch(
                job, run, runner(), limit, reporter, schema=schema, n_features=model.map.n_features_in_, stage="predict"
            )
