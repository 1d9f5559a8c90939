"""What a notebook shows of a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dkfeat.html import card, sparkline
from dkfeat.wording import show_bytes

if TYPE_CHECKING:
    from dkfeat.io.manifest import Manifest

__all__ = ["labels_shown", "manifest_card", "manifest_facts", "manifest_pictures"]

_SHOWN = 10
"""Shards, sources and labels that are listed."""


def manifest_card(manifest: Manifest) -> str:
    """HTML of a manifest."""
    facts: dict[str, Any] = {
        **manifest_facts(manifest),
        "columns of the source": f"{manifest.n_features:,}",
        "labels": labels_shown(manifest.labels),
        "spec": manifest.spec_fp[:12],
    }
    shards = [
        {"shard": entry.name, "rows": entry.rows, "size": show_bytes(entry.size), "source": entry.source}
        for entry in manifest.shards[:_SHOWN]
    ]
    sources = [
        {"source": entry.name, "rows": entry.rows, "size": show_bytes(entry.size), "set aside": entry.n_bad_rows}
        for entry in manifest.sources[:_SHOWN]
    ]
    return card(
        "Manifest",
        facts,
        note=f"number {manifest.number:,}",
        pictures=manifest_pictures(manifest),
        details={
            _heading("Shards", manifest.shards): shards,
            _heading("Sources", manifest.sources): sources,
            "Run": {key: _flat(value) for key, value in manifest.run.items()},
        },
    )


def manifest_facts(manifest: Manifest) -> dict[str, str]:
    """Tell counts and sizes, for people; what is rare where there is some."""
    size = sum(entry.size for entry in manifest.shards)
    each = f", {size / manifest.rows:,.0f} bytes a row" if manifest.rows else ""
    facts = {
        "rows": f"{manifest.rows:,}",
        "shards": f"{len(manifest.shards):,}",
        "size": f"{show_bytes(size)}{each}",
        "source files": f"{len(manifest.sources):,}",
    }
    if manifest.n_empty_rows:
        facts["rows without features"] = f"{manifest.n_empty_rows:,}"
    if manifest.n_bad_rows:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in manifest.bad_rows.items())
        facts["rows set aside"] = f"{manifest.n_bad_rows:,} ({reasons})"
    return facts


def manifest_pictures(manifest: Manifest) -> dict[str, str]:
    """Rows of each shard, as bars."""
    rows = [entry.rows for entry in manifest.shards]
    if len(rows) < 2:  # a bar alone tells nothing
        return {}
    least, most = min(rows), max(rows)
    return {"rows by shard": sparkline(rows, f"rows by shard, {least:,} to {most:,}")}


def labels_shown(labels: Sequence[int | float] | None) -> str:
    """Label set, for people: all of a few, of more their number and range."""
    if labels is None:
        return "more than 10,000 values, or not known"
    if len(labels) <= _SHOWN:
        return ", ".join(f"{label:g}" for label in labels) or "none"
    return f"{len(labels):,} values from {min(labels):g} to {max(labels):g}"


def _flat(value: object) -> str:
    return ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, Mapping) else str(value)


def _heading(name: str, items: Sequence[Any]) -> str:
    return f"{name}: the first {_SHOWN} of {len(items):,}" if len(items) > _SHOWN else name
