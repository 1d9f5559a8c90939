"""Helpers of the engine's tests.

``python -m tests.engine.helpers SOURCE TARGET SCHEDULER [SPLITS [SIGNAL]]`` runs one featurization, which sends itself
SIGSTOP, or SIGNAL, when SPLITS splits are done; after SIGSTOP the next signal arrives in the middle of the run.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.engine.open import Opened, with_bad_rows
from dkfeat.engine.resolve import complete, inherit
from dkfeat.sources.formats import as_source

BLOCK = 4_000
"""Bytes of a split; the tiny source has about twenty splits."""


def gcws(n_components: int = 24, **params: Any) -> Any:
    return dkfeat.GCWSFeatures(n_components, **{"random_state": 11, **params})


def featurized(source: Any, target: Path, **options: Any) -> Any:
    """Featurize; options may include settings of `ExecutionConfig`, fields of `Target` and options for bad rows."""
    options = {"progress": False, **ExecutionConfig.gather(options)}
    bad_rows = {name: options.pop(name) for name in ("on_bad_row", "max_bad_rows") if name in options}
    if bad_rows:
        source = with_bad_rows(as_source(source), **bad_rows)
    policy = {name: options.pop(name) for name in ("resume", "on_changed_source") if name in options}
    to = dkfeat.Target(target, storage_options=options.pop("target_options", None), **policy)
    return dkfeat.featurize(source, to, options.pop("map", gcws()), **options)


def resolved(
    source: Any, map: Any = None, *, scan: Any = dkfeat.scan, layout: str | None = None, **existing: Any
) -> Any:
    """Resolve settings by the specs `target` and `like`, each with its name, and by a scan if one is needed."""
    found = inherit(Opened(source=source, files=source.files(), **existing), map, layout)
    return complete(replace(found, scan=scan(found.source) if found.needs_scan else None))


def main(pattern: str, folder: str, scheduler: str, splits: str = "0", name: str = "stop") -> None:
    def stop(state: Any) -> None:
        if (state.stage, state.tasks) == ("featurize", int(splits)):
            os.kill(os.getpid(), signal.Signals[f"SIG{name.upper()}"])

    source = dkfeat.LibsvmSource(pattern, blocksize=BLOCK)
    featurized(source, Path(folder), scheduler=scheduler, n_workers=2, progress=stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
