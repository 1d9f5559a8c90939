"""Predictions for every row of a source, made on Dask and committed as featurized shards are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dkfeat.engine.plan import make_plan
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.resolve.arguments import open_target
from dkfeat.engine.resolve.resolve import Resolved
from dkfeat.engine.runners.open import LazyRunner
from dkfeat.engine.tasks.bad_row_limit import BadRowLimit, treating
from dkfeat.engine.tasks.batch import run_plan
from dkfeat.engine.tasks.landmarks import sidecar_files
from dkfeat.learn.model.model import LinearModel, load_model
from dkfeat.learn.predict.job import PredictJob, model_file, prediction_schema, prediction_spec
from dkfeat.learn.predict.source import prediction_source

if TYPE_CHECKING:
    from dask.distributed import Client

    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.io.manifest.manifest import Manifest
    from dkfeat.io.sources.base import Source


def predict(
    model: LinearModel | str | PathLike[str],
    source: Source | ShardDataset | str | PathLike[str] | Sequence[str | PathLike[str]],
    target: str | PathLike[str],
    *,
    scores: bool = True,
    resume: bool = True,
    on_bad_row: str | None = None,
    max_bad_rows: float | str = 0.01,
    client: Client | None = None,
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
    resume, on_bad_row, max_bad_rows, client, progress
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
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", gcws, progress=False)
    >>> model = dkfeat.train(folder / "features", progress=False)
    >>> dkfeat.predict(model, folder / "rows.svm", folder / "predictions", progress=False).rows
    2
    >>> import pyarrow.parquet
    >>> pyarrow.parquet.read_table(folder / "predictions" / "data")["prediction"].to_pylist()
    [1, -1]
    """
    if not isinstance(model, LinearModel):
        model = load_model(fspath(model), storage_options=storage_options)
    asked = treating(prediction_source(model, source, storage_options), on_bad_row)
    limit = BadRowLimit(max_bad_rows, asked)
    storage, files = open_target(target, asked, target_options)
    spec = prediction_spec(model, asked, scores=scores)
    resolved = Resolved(source=asked, files=files, map=model.map, spec=spec)
    with LazyRunner(client) as runners:
        return run_plan(
            make_plan(resolved, storage.url),
            resolved,
            storage,
            runners,
            limit,
            Progress(progress),
            schema=prediction_schema(model, asked, scores=scores),
            sidecars={**model_file(model), **sidecar_files(model.map)},
            resume=resume,
            job=PredictJob,
            stage="predict",
        )
