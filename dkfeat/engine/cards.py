"""What a notebook shows of plans and of data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dkfeat.engine.label_counts import LabelCounts, count_labels
from dkfeat.errors import DkfeatError
from dkfeat.html import card, sparkline
from dkfeat.io.manifest_card import labels_shown, manifest_facts, manifest_pictures
from dkfeat.wording import show_bytes

if TYPE_CHECKING:
    from dkfeat.engine.plan import Plan
    from dkfeat.io.reader import ShardReader

__all__ = ["dataset_card", "map_shown", "plan_card"]

_TASKS = 10
_LABELS = 30
"""Labels beyond which they are not counted, and nothing but their range is told."""
_IN_LINE = 10
"""Labels beyond which their counts fill a table only."""
_READ_BYTES, _FETCHED_BYTES = 64 << 20, 8 << 20
"""Bytes of shards that are read to count labels: of a file system, and of an object store."""


def plan_card(plan: Plan) -> str:
    """HTML of a plan."""
    tasks = [
        {
            "split": task.split.number,
            "source": task.split.title,
            "range": f"{task.split.start:,}-{task.split.stop:,}",
            "rows": "?" if task.rows is None else f"{task.rows:,}",
            "memory": show_bytes(task.projected_bytes),
        }
        for task in plan.tasks[:_TASKS]
    ]
    sizes = [task.split.stop - task.split.start for task in plan.tasks]
    rows = [task.rows for task in plan.tasks if task.rows is not None]
    pictures = {}
    if len(plan.tasks) > 1 and len(rows) == len(plan.tasks):
        pictures["rows by task"] = sparkline(rows, f"rows by task, {min(rows):,} to {max(rows):,}")
    elif len(plan.tasks) > 1:
        pictures["size by task"] = sparkline(sizes, f"size of each task's split, {min(sizes):,} to {max(sizes):,}")
    heading = f"Tasks: the first {_TASKS} of {len(plan.tasks):,}" if len(plan.tasks) > _TASKS else "Tasks"
    note = "nothing is run or written yet"
    return card("Plan", plan.facts(), note=note, pictures=pictures, details={heading: tasks})


def dataset_card(shards: ShardReader) -> str:
    """HTML of a data set; labels are counted where that is a matter of a moment."""
    manifest, spec = shards.manifest, shards.spec
    output = spec["output"]
    facts: dict[str, Any] = {"place": shards.storage.url, **manifest_facts(manifest)}
    if output["layout"] == "predictions":
        facts["holds"] = f"predictions: {', '.join(manifest.schema)}"
    else:
        columns = f"{manifest.n_features:,} columns → {output['n_features_out']:,}"
        facts["features"] = f"{columns}, {output['row_bytes']:,} bytes a row as {output['layout']}"
    facts["map"] = map_shown(spec["map"])
    pictures = manifest_pictures(manifest)
    details: dict[str, list[dict[str, object]]] = {}
    if "label" in manifest.schema:
        found = _counted(shards)
        facts["labels"] = labels_shown(manifest.labels) if found is None else _counts_shown(found, manifest.rows)
        if isinstance(found, LabelCounts):
            pictures["rows by label"] = sparkline(list(found.counts.values()), "rows by label")
            details["Labels"] = [
                {"label": f"{label:g}", "rows": f"{rows:,}", "share of rows": f"{rows / found.rows:.1%}"}
                for label, rows in found.counts.items()
            ]
    return card("ShardDataset", facts, pictures=pictures, details=details)


def _counted(shards: ShardReader) -> LabelCounts | str | None:
    """Rows by label, why they cannot be counted, or None where there are too many labels or none."""
    labels = shards.manifest.labels
    if labels is None or not 0 < len(labels) <= _LABELS:
        return None
    most = _FETCHED_BYTES if "://" in shards.storage.url else _READ_BYTES
    try:
        return count_labels(shards, most)
    except (DkfeatError, OSError) as error:  # a repr does not raise
        return f"not counted: {error}"


def _counts_shown(found: LabelCounts | str, n_rows: int) -> str:
    if isinstance(found, str):
        return found
    told = "all rows" if found.rows == n_rows else f"{found.rows:,} rows of {found.n_shards:,} shards"
    if len(found.counts) > _IN_LINE:
        return f"{len(found.counts):,}, counted in {told}"
    return f"{', '.join(f'{label:g}: {rows:,}' for label, rows in found.counts.items())} ({told})"


def map_shown(spec: Mapping[str, Any]) -> str:
    """Name of the map of a spec, and its parameters that are not None, for people."""
    params = {key: value for key, value in spec.get("params", {}).items() if value is not None}
    shown = ", ".join(f"{key}={str(value)[:60]}" for key, value in params.items())
    return f"{spec.get('map')}: {shown}, seed={spec.get('seed')}"
