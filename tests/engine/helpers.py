"""What tests of the engine share."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import dkfeat


def gcws(n_components: int = 24, **params: Any) -> Any:
    return dkfeat.GCWSFeatures(n_components, **{"random_state": 11, **params})


def state(folder: Path) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Shards by name with their SHA-256, and every manifest without its run block: what IDENTICAL compares."""
    shards = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "data").iterdir()}
    manifests = []
    for path in sorted((folder / "_dkfeat").glob("manifest-*.json")):
        manifest = json.loads(path.read_bytes())
        del manifest["run"]
        manifests.append(manifest)
    return shards, manifests


def featurized(source: Any, target: Path, **options: Any) -> Any:
    return dkfeat.featurize(source, options.pop("map", gcws()), target, **{"progress": False, **options})
