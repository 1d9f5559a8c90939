"""Progress of training: one line that changes, on a terminal and below a notebook's cell; few plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Self, TextIO

from dkfeat.engine.cell_line import CellLine

__all__ = ["EpochLines"]

LINE_SECONDS = 5.0
"""Time between two plain lines."""


class EpochLines:
    """Tells the epochs of one training as they end.

    Plain lines come for the first and the last epoch, and every few seconds in between. As a context manager it ends
    the line that is under way, so that an error has a line of its own on a terminal, and the last epoch is shown.

    Parameters
    ----------
    epochs : int
        How many there will be.
    stream : text file or None
        None: below the cell that runs, in a notebook, else standard error.
    """

    def __init__(self, epochs: int, stream: TextIO | None = None) -> None:
        self._epochs = epochs
        self._cell = CellLine.here() if stream is None else None
        self._stream = sys.stderr if stream is None else stream
        self._rewrites = self._stream.isatty()
        self._began = self._told = time.monotonic()
        self._line_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._cell is not None:
            self._cell.end()
        if self._line_open:
            self._stream.write("\n")
            self._stream.flush()

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Tell an epoch, given its entry of the history."""
        now = time.monotonic()
        last = entry["epoch"] == self._epochs
        line = self._describe(entry, now - self._began)
        self._began = now
        if self._cell is not None:
            self._cell.write(line, entry["epoch"] / self._epochs)
            return
        if self._rewrites:
            # carriage return, and clear to the end of the line
            self._stream.write(f"\r{line}\033[K" + ("\n" if last else ""))
            self._line_open = not last
        elif last or entry["epoch"] == 1 or now - self._told >= LINE_SECONDS:
            self._stream.write(line + "\n")
            self._told = now
        self._stream.flush()

    def _describe(self, entry: Mapping[str, Any], seconds: float) -> str:
        told = [f"train: epoch {entry['epoch']} of {self._epochs}"]
        if entry.get("loss") is not None:
            told.append(f"loss {entry['loss']:.4g}")
        if entry.get("alpha") is not None:
            told.append(f"best alpha {entry['alpha']:g}")
        for part in ("validation", "test"):
            if entry.get(f"{part}_accuracy") is not None:
                told.append(f"{part} accuracy {entry[f'{part}_accuracy']:.2%}")
            elif entry.get(f"{part}_r2") is not None:
                told.append(f"{part} R² {entry[f'{part}_r2']:.4f}")
        told.append(f"{entry['rows'] / max(seconds, 1e-9):,.0f} rows/s")
        return ", ".join(told)
