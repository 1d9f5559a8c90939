"""``dkfeat inspect``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dkfeat.cli.group import DkfeatCommand
from dkfeat.cli.options.shared import output_options
from dkfeat.cli.options.storage import holds_model, storage_option
from dkfeat.cli.output import answer, facts, show_size

LABELS_SHOWN = 12


@click.command(cls=DkfeatCommand)
@click.argument("target")
@storage_option("TARGET")
@output_options
def inspect(target: str, storage_options: dict[str, Any] | None) -> None:
    """Describe TARGET, a folder of shards or a model.

    For example:
      dkfeat inspect features/train
      dkfeat inspect model --json
    """
    describe = _of_model if holds_model(target, storage_options) else _of_shards
    known = describe(target, storage_options)
    answer(known)
    shown = {key: _readable(key, value, known) for key, value in known.items()}
    facts(**{key: value for key, value in shown.items() if value})


def _of_shards(target: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    from dkfeat.engine.dataset.dataset import open_shards

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
    from dkfeat.learn.model.model import load_model

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
    if key == "labels" and value is None:
        return "more than 10,000 values"
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
