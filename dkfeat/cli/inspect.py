"""``dkfeat inspect``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._output import as_object, output_options
from dkfeat.cli._show import facts, holds_model, show_size
from dkfeat.cli._storage import parse_options, storage_option

__all__ = ["inspect"]

LABELS_SHOWN = 12


@click.command(cls=DkfeatCommand)
@click.argument("target")
@storage_option("A setting of the store, of a TARGET at a URL")
@output_options
def inspect(target: str, as_json: bool, storage_options: tuple[str, ...]) -> None:
    """Tell what is in TARGET, a folder of shards or a model.

    For example:
      dkfeat inspect features/train
      dkfeat inspect model --json
    """
    options = parse_options(storage_options, "--storage-option")
    known = _of_model(target, options) if holds_model(target, options) else _of_shards(target, options)
    if as_json:
        as_object(known)
        return
    shown = {key: _readable(key, value, known) for key, value in known.items()}
    facts(**{key: value for key, value in shown.items() if value})


def _of_shards(target: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    from dkfeat.engine.dataset import open_shards

    data = open_shards(target, storage_options=options)
    manifest = data.manifest
    return {
        "kind": "shards",
        "target": target,
        "rows": manifest.rows,
        "empty_rows": manifest.n_empty_rows,
        "nonzeros": manifest.nnz,
        "bad_rows": manifest.n_bad_rows,
        "bad_rows_by_reason": manifest.bad_rows,
        "bad_rows_by_source": {source.name: source.n_bad_rows for source in manifest.sources if source.n_bad_rows},
        "labels": None if manifest.labels is None else list(manifest.labels),
        "shards": len(manifest.shards),
        "size": sum(entry.size for entry in manifest.shards),
        "features": data.map.n_features_out,
        "map": dict(data.spec["map"]),
        "input": dict(data.spec["input"]),
        "layout": data.spec["output"]["layout"],
        "sources": [source.name for source in manifest.sources],
        "manifest": manifest.number,
    }


def _of_model(target: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    from dkfeat.learn.model import load_model

    model = load_model(target, storage_options=options)
    last = model.history[-1] if model.history else {}
    return {
        "kind": "model",
        "target": target,
        "labels": model.classes.tolist(),
        "features": model.coef.shape[1],
        "map": dict(model.map_spec),
        "input": dict(model.input_spec),
        "training": dict(model.training),
        "test_accuracy": last.get("test_accuracy"),
        "manifest_sha256": model.manifest_sha256,
    }


def _readable(key: str, value: Any, known: Mapping[str, Any]) -> str:
    if key == "labels":
        if value is None:
            return "more than 10,000 values"
        more = ", …" if len(value) > LABELS_SHOWN else ""
        return f"{len(value):,} ({', '.join(str(label) for label in value[:LABELS_SHOWN])}{more})"
    if key == "map":
        shown = {"n_features": value["n_features"], **value.get("params", {}), "seed": value["seed"]}
        return f"{value['map']} version {value['version']}: {_settings(shown)}"
    if key == "size":
        return show_size(value, known["rows"])
    if key == "test_accuracy":
        return "" if value is None else f"{value:.2%}"
    if isinstance(value, Mapping):
        return _settings(value)
    if isinstance(value, list):
        more = ", …" if len(value) > LABELS_SHOWN else ""
        return f"{len(value):,} ({', '.join(map(str, value[:LABELS_SHOWN]))}{more})"
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items() if value is not None)
