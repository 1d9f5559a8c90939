"""Featurization of a source into shards: open, resolve, plan, run, commit."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from dkfeat.engine.dataset.dataset import open_shards
from dkfeat.engine.open import Target, open_run
from dkfeat.engine.plan import plan_tasks
from dkfeat.engine.progress import ProgressState
from dkfeat.engine.resolve import resolve
from dkfeat.engine.run import commit, execute, run_tasks
from dkfeat.engine.tasks.job import ReturningJob
from dkfeat.engine.tasks.landmarks import sidecar_files
from dkfeat.errors import ConfigError, InputError
from dkfeat.filesystems.urls import open_filesystem
from dkfeat.sources.base import Source
from dkfeat.sources.formats import as_source
from dkfeat.sources.memory import TableSource

if TYPE_CHECKING:
    from distributed import Client

    from dkfeat.config import ExecutionConfig
    from dkfeat.encoders._base import Encoder
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.maps import FeatureMap
    from dkfeat.store.manifest.manifest import Manifest


def featurize(
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    target: str | PathLike[str] | Target,
    map: FeatureMap | None = None,
    *,
    like: str | PathLike[str] | None = None,
    encoder: Encoder | Literal["auto"] | None = "auto",
    layout: str | None = None,
    client: Client | ExecutionConfig | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
    delta: bool = False,
) -> Manifest:
    r"""Compute the features of every row of a source and store them as Parquet shards.

    Before the call, `target` is empty, or has a data set made with the same settings, or an interrupted run of one.
    Afterwards it has a committed data set that covers the source. If the call is interrupted, committed data remain
    unchanged, and the same call continues where it stopped. If everything is done already, the call writes nothing. The
    bytes of shards do not depend on the scheduler, the number of workers or the order of tasks.

    Parameters
    ----------
    source : path, glob, URL, list of these, LibsvmSource, ParquetSource, JsonLinesSource, or rows in memory
        Source of the rows. Files with the suffix .parquet, and folders of such files, are read as Parquet, those with
        .jsonl, .ndjson or .json, also compressed, as JSON lines, all others as LIBSVM text. Rows in memory are tables
        or arrays, as for `TableSource`, and the only batch of their target. Options that are unset, or have their
        default values, are taken from the target if it has data already, else from `like`, else from the files'
        metadata, else from one scan of the whole source. Bad rows are an error, unless the source's option `on_bad_row`
        sets them aside.
    target : str, path or Target
        Folder for the shards, or a URL in an object store, such as ``s3://bucket/features``. A `Target` also has the
        options of its storage, and the policies for interrupted runs and for committed sources that changed.
    map : FeatureMap or None
        Feature map, fitted or not; it is never changed. An unfitted map is cloned and fitted to the width of the
        source. A map that learns from rows, such as `NystroemFeatures`, is fitted to rows that its seed draws from the
        whole source; this takes another pass over the splits that hold such rows. None: the map of `like` or of the
        target.
    like : str, path or None
        Folder of shards or of a model whose map and input options are used, so that training and test rows are treated
        alike. A different option of this call is a conflict, except `layout` and the source's blocksize; filters, which
        choose rows, are this call's own. An option with
        its default value counts as unset: a source of dtype "float32" becomes "float64" if `like` has that.
    encoder : TableEncoder, ColumnScale, "auto" or None
        Encoder of tables, or scale of the columns of numbers, fitted or not; it is never changed. An unfitted one is
        fitted to 10,000 rows that its seed, by default the map's, draws from the whole source. "auto": the encoder of
        the target or of `like`; for a new data set a `TableEncoder`, if Parquet files have plain columns, with the
        option ``features_as="auto"`` of their source, and the map is `GCWSFeatures` or `DartFeatures`. None: columns
        are numbers, as they are.
    layout : {"codes", "sparse", "dense"} or None
        Layout of the features in shards; None: the map's own layout.
    client : distributed.Client or None, default=None
        Cluster to run on, such as the client of ``with dkfeat.open_cluster(...) as client``. None: the active client,
        unless ``dask.config.set(scheduler=...)`` sets "threads", "processes" or "synchronous"; else the keys under
        ``dkfeat`` in Dask's configuration, else the scheduler that Dask is set to use, else threads of this process.
    progress : bool or callable, default=True
        True reports on standard error. A callable receives a `ProgressState` after each task.
    storage_options : mapping or None
        Options of fsspec for sources given by URL. They are never stored.
    delta : bool, default=False
        Begin a log of the target in Delta Lake's format, ``_delta_log``, which readers of Delta tables can open. Every
        later commit extends it, also without this option. Only dkfeat may write to the table.

    Returns
    -------
    manifest : Manifest
        Committed list of shards.

    Raises
    ------
    dkfeat.errors.ConfigError
        If a setting is invalid, alone or with the others.
    dkfeat.errors.SourceNotFoundError, dkfeat.errors.ParseError, dkfeat.errors.ParquetError
        If the source is missing, or malformed beyond the limits of its options `on_bad_row` and `max_bad_rows`.
    dkfeat.errors.SpecConflictError
        If target, `like`, map and source disagree, or a source changed.
    dkfeat.errors.CommitError, dkfeat.errors.CommitConflictError, dkfeat.errors.ShardError
        If the target cannot be written, or another run holds it.
    dkfeat.errors.PlanError
        If a task would need more memory than a worker may use.
    dkfeat.errors.ClusterError
        If workers or the scheduler were lost.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> manifest = dkfeat.featurize(folder / "rows.svm", folder / "features", gcws, progress=False)
    >>> manifest.rows, manifest.labels
    (2, (-1, 1))
    """
    source = as_source(source, storage_options)
    with open_run(source, target, like=like, client=client, progress=progress) as opened:
        resolved = resolve(opened, map, layout, encoder)
        splits = plan_tasks(resolved)
        finished = run_tasks(resolved, splits, delta=delta)
        return commit(finished)


@contextmanager
def featurized_in_memory(
    rows: Any, *, client: Any, progress: bool, y: Any, map: FeatureMap | None, encoder: Any, init: Any
) -> Iterator[ShardDataset]:
    """Featurize rows into the memory of this process, and yield the shards, which end with the ``with`` block.

    Tasks may run on a cluster, which returns the shards. See `dkfeat.train` for the arguments.
    """
    if map is None and init is None:
        raise ConfigError("rows in memory need a feature map, such as map=dkfeat.GCWSFeatures(); give one")
    if y is not None and isinstance(rows, Source):
        raise ConfigError(
            f"y is given, but the rows are a {type(rows).__name__}, which has labels of its own; give one"
        )
    source = as_source(rows) if y is None else TableSource(rows, y)
    target = f"memory://rows/{secrets.token_hex(8)}"
    try:
        with open_run(source, target, client=client, progress=progress) as opened:
            if not opened.source.without_absent_label(opened.files).has_labels:
                label = f"have no labels (label={getattr(source, 'label', None)!r})"
                raise InputError(
                    f"the rows {label}; pass y=, or name the column by dkfeat.TableSource(rows, label=...)"
                )
            if isinstance(opened.source, TableSource) and not opened.source.held.starts[-1]:
                raise InputError("the table or array has no rows; give one or more to train on")
            if init is not None:
                for name, data in sidecar_files(init.spec, init.map, init.encoder).items():
                    opened.run.storage.create(name, data)
                own = {name: value for name, value in init.spec["input"].items() if name not in ("label", "query_id")}
                like = "the model of init=", {**init.spec, "input": own}
                opened = replace(opened, like=like, like_remedy="train without init=")
            execute(replace(resolve(opened, map, None, encoder), job=ReturningJob.of))
        yield open_shards(target)
    finally:
        system, path = open_filesystem(target, None)
        if system.exists(path):
            system.rm(path, recursive=True)
