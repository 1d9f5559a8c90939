"""Sources of predictions: files read as a model's training rows were, or shards of its map."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dkfeat.canonical import fingerprint
from dkfeat.engine.dataset.dataset import ShardDataset
from dkfeat.engine.resolve.arguments import as_source
from dkfeat.engine.resolve.resolve import inherit_source
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.io.manifest.metadata import differences
from dkfeat.io.parquet.source import ParquetSource
from dkfeat.io.shards.reader import ShardReader, open_reader
from dkfeat.io.sources.base import Source
from dkfeat.io.sources.shards import ShardSource
from dkfeat.io.storage import is_read_only, open_storage
from dkfeat.io.storage.base import SPEC
from dkfeat.io.storage.urls import is_url

if TYPE_CHECKING:
    from dkfeat.learn.model.model import LinearModel


def prediction_source(
    model: LinearModel,
    source: Any,
    storage_options: Mapping[str, Any] | None = None,
) -> Source:
    """Source for a model's predictions, resolved; see `dkfeat.predict` for what `source` may be.

    Raises
    ------
    ConfigError
        Neither the model nor the source says how rows are to be read.
    SpecConflictError
        The shards come from another map, or the source is asked to be read otherwise than the training rows.
    """
    reader = dataset_reader(source, storage_options)
    if reader is not None:
        _check_same_features(model, reader)
        return ShardSource.of(reader)
    found = as_source(source, None if isinstance(source, Source) else storage_options)
    found = _read_alike(model, found)
    if not found.is_resolved:
        found = found.inspect(found.files())
    if not found.is_resolved:
        raise ConfigError("a source for predictions needs n_features, zero_based and label_dtype")
    return found


def dataset_reader(source: Any, storage_options: Mapping[str, Any] | None = None) -> ShardReader | None:
    """Reader of the shards or predictions that are meant by a data set, a folder or a URL; None for anything else."""
    if isinstance(source, ShardDataset):
        return source.shards
    if isinstance(source, list | tuple) and len(source) == 1:
        source = source[0]
    if not isinstance(source, str | PathLike) or any(sign in fspath(source) for sign in "*?["):
        return None
    remote = is_url(fspath(source))
    if remote and is_read_only(fspath(source)):
        return None
    storage = open_storage(source, storage_options if remote else None)
    try:
        there = storage.size(SPEC) is not None
    except OSError:  # a file, or a place that cannot be looked into: the source's own errors say what is wrong
        there = False
    return open_reader(storage) if there else None


def _read_alike(model: LinearModel, source: Source) -> Source:
    """Take from the model's training rows what a source leaves open, labels aside."""
    existing = {key: value for key, value in model.input_spec.items() if key not in ("labels", "label_dtype", "kind")}
    kind = model.input_spec.get("kind")
    chosen = isinstance(source, ParquetSource) and source.label != ParquetSource.defaults()["label"]
    if isinstance(source, ParquetSource):
        existing.pop("query_id", None)  # rows to predict for are no part of a query
    if chosen:
        existing.pop("label", None)
    if source.label_dtype == "auto":
        # float64 takes any label: rows yet to be labelled often carry a placeholder
        source = source.replaced(label_dtype="float64")
    if kind is not None:
        existing = json.loads(json.dumps(existing))
        source = inherit_source(source, "the model", {"input": {"kind": kind, **existing}}, in_full=False)
    elif source.n_features is None:
        source = source.replaced(n_features=model.map.n_features_in_)
    if isinstance(source, ParquetSource) and source.label is not None and not chosen:
        there = source.label in source.column_names(source.files())
        source = source if there else source.replaced(label=None)
    return source


def _check_same_features(model: LinearModel, reader: ShardReader) -> None:
    """Refuse shards whose features mean something else to the model."""
    ours, theirs = json.loads(json.dumps(dict(model.map_spec))), reader.spec["map"]
    where = reader.storage.url
    if fingerprint(ours) != fingerprint(theirs):
        other = "; ".join(differences(theirs, ours, "map"))
        raise SpecConflictError(
            f"{where} was made by another map than the model's, {other}; featurize it with like=MODEL"
        )
    for key in ("n_features", "zero_based"):
        asked, found = model.input_spec.get(key), reader.spec["input"].get(key)
        if None not in (asked, found) and asked != found:
            raise SpecConflictError(
                f"{where}: rows were read with {key}={found!r}, the model's with {key}={asked!r}; "
                "featurize them with like=MODEL"
            )
