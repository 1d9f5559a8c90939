"""How good a model's predictions are, over rows of any number: counted where they are, split by split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dkfeat.engine.opening import open_runner
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.learn.evaluate_tasks import evaluation_work
from dkfeat.learn.evaluation import Evaluation, evaluation_of
from dkfeat.learn.model import LinearModel, load_model
from dkfeat.learn.tallies import Tally, tally_for

if TYPE_CHECKING:
    from dask.distributed import Client

    from dkfeat.blocks import Split
    from dkfeat.config import ClusterConfig
    from dkfeat.engine.dataset import ShardDataset
    from dkfeat.io.source import Source

__all__ = ["evaluate"]


def evaluate(
    model: LinearModel | str | PathLike[str],
    source: Source | ShardDataset | str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    blocksize: int | str | None = None,
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
) -> Evaluation:
    r"""Compare a model's predictions with the labels that rows have. Nothing is written.

    Parameters
    ----------
    model : LinearModel, str or path
        The model or its folder.
    source : Source, ShardDataset, path, glob, URL, or a list of these
        Rows with labels: text, Parquet or shards, as for `dkfeat.predict`; or what that wrote for this model, which
        is read without predicting again.
    blocksize : int or str, optional
        As in `dkfeat.predict`.
    client, scheduler, scheduler_file, cluster, n_workers, threads_per_worker, memory_limit, in_flight,
    performance_report, progress
        Where it runs, as in `dkfeat.featurize`.
    storage_options : mapping or None
        For sources and a model given by URL.

    Returns
    -------
    evaluation : Evaluation
        ``to_mapping()`` gives all figures as plain values, ``save(folder)`` writes them with plots and an HTML page.

    Raises
    ------
    dkfeat.errors.ConfigError
        The rows have no labels.
    dkfeat.errors.InputError
        There are no rows, or none whose label the model knows.
    dkfeat.errors.SpecConflictError
        The shards come from another map, or the predictions from another model.

    Notes
    -----
    Memory does not grow with the rows. What is kept: the counts of pairs of own and predicted label; for curves up to
    65,536 different scores of each class (fewer with more than 8 classes, none with more than 256), beyond which
    neighbouring scores count as equal, and ``auc_error`` bounds what that can change; ten bins of probabilities; and
    for a regression 5,000 rows drawn at random, for its picture alone. All other figures are exact. All rows count
    alike, also those that have weights.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", gcws, folder / "features", progress=False)
    >>> model = dkfeat.train(folder / "features", progress=False)
    >>> evaluation = dkfeat.evaluate(model, folder / "rows.svm", progress=False)
    >>> evaluation.summary["accuracy"], evaluation.summary["auc"]
    (1.0, 1.0)
    """
    if not isinstance(model, LinearModel):
        model = load_model(fspath(model), storage_options=storage_options)
    task, splits = evaluation_work(model, source, blocksize, storage_options)
    total = tally_for(model)
    waiting: dict[int, Tally] = {}
    with (
        open_runner(
            client,
            scheduler,
            scheduler_file=scheduler_file,
            cluster=cluster,
            n_workers=n_workers,
            threads_per_worker=threads_per_worker,
            memory_limit=memory_limit,
            in_flight=in_flight,
            performance_report=performance_report,
        ) as runner,
        Progress(progress).stage("evaluate", total_tasks=len(splits), total_bytes=sum(map(task.size, splits))) as stage,
    ):
        merged = 0

        def done(split: Split, tally: Tally) -> None:
            nonlocal merged
            waiting[split.number] = tally
            while merged in waiting:  # in order, so that sums come out the same however tasks end
                total.merge(waiting.pop(merged))  # type: ignore[arg-type]  # all are of the model's task
                merged += 1
            stage.advance(rows=tally.n_rows, source_bytes=task.size(split))

        runner.run(task, splits, done)
    return evaluation_of(total)
