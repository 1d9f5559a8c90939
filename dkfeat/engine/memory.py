"""Rows in memory for a run: those of Dask are computed and hashed where they are, and no target gets other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from dask.delayed import Delayed, delayed

from dkfeat.blocks import SourceFile
from dkfeat.engine.runners.base import results_of
from dkfeat.engine.runners.open import LazyRunner
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.sources.digest import MEMORY, Digest, digest_of, record_of
from dkfeat.sources.memory import HeldRows, HeldSplit, arrow_table, plain_schema
from dkfeat.store.manifest.manifest import Manifest


def check_memory(url: str, manifest: Manifest, files: Iterable[SourceFile]) -> None:
    """Raise `SpecConflictError` if a data set, or only one of it and a source, has rows in memory, and others."""
    recorded, found = ([each.identity for each in records] for records in (manifest.sources[:1], files))
    was, now = ({each["name"] for each in records} == {MEMORY} for records in (recorded, found))
    if (was or now) and found != recorded:
        of = f"{'other ' * now}rows in memory" if was else "files"
        raise SpecConflictError(
            f"{url} was made from {of}; rows in memory are known by the SHA-256 of their columns in order, so a target "
            "has those of one call, no later batch, nor inputs to verify: choose another target, or keep rows in files"
        )


def hold_rows(source: Any, runners: LazyRunner) -> Any:
    """Return a source in memory whose rows, if Dask has them, are tables on a runner, with their digests.

    Each block or partition is computed once and stays where it is; only schemas, counts and digests come here.

    Raises
    ------
    ConfigError
        If an array is not one of rows, or rows and labels have other partitions.
    InputError
        If partitions have columns of other names or kinds.
    """
    if isinstance(source.rows, HeldRows):
        return source
    runner, rows = runners.get(), _blocks(source.rows)
    labels = [None] * len(rows) if source.y is None else _blocks(source.y)
    if len(rows) != len(labels):
        raise ConfigError(f"the rows have {len(rows):,} partitions, but y has {len(labels):,}; repartition one of them")
    made = delayed(arrow_table, pure=False)
    parts = runner.hold([made(X, y, str(source.label)) for X, y in zip(rows, labels, strict=True)])
    file = record_of([], [])
    items = [HeldSplit(number=at, file=file, start=0, stop=0, rows=part) for at, part in enumerate(parts)]
    schemas, digests = zip(*results_of(runner, _facts, items), strict=True)
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"partitions have columns of other types: {error}; convert them by astype") from error
    if any(each.names != schema.names for each in schemas):
        raise InputError(f"partitions have other columns than {schema.names[:10]}; give all the same, in one order")
    starts = (0, *accumulate(n_rows for n_rows, *_ in digests))
    return source.replaced(rows=HeldRows(parts, schema, starts, record_of(schema.names, digests)), y=None)


def _blocks(rows: Any) -> list[Any]:
    """Return the partitions of a DataFrame or Series, or the blocks of an array, each of whole rows."""
    if isinstance(rows, Delayed) or not hasattr(rows, "to_delayed"):
        raise ConfigError(f"a {type(rows).__name__} has no partitions; give rows and y both as collections of Dask")
    if hasattr(rows, "rechunk"):
        rows = rows.rechunk(dict.fromkeys(range(1, rows.ndim), -1))
    return list(np.ravel(rows.to_delayed()))


def _facts(item: HeldSplit, stopped: Callable[[], bool]) -> tuple[pa.Schema, Digest]:  # noqa: ARG001 - of a task
    return plain_schema(item.rows.schema), digest_of(item.rows)
