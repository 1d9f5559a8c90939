"""What tests of the engine share; ``python -m tests.engine.helpers SOURCE TARGET SCHEDULER`` runs one featurization."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dkfeat

BLOCK = 4_000
"""Bytes of a split: some twenty in the tiny source."""


def gcws(n_components: int = 24, **params: Any) -> Any:
    return dkfeat.GCWSFeatures(n_components, **{"random_state": 11, **params})


def featurized(source: Any, target: Path, **options: Any) -> Any:
    return dkfeat.featurize(source, options.pop("map", gcws()), target, **{"progress": False, **options})


def tell(state: Any) -> None:
    sys.stdout.write(f"{state.stage} {state.tasks}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    pattern, folder, name = sys.argv[1:]
    featurized(dkfeat.LibsvmSource(pattern, blocksize=BLOCK), Path(folder), scheduler=name, n_workers=2, progress=tell)
