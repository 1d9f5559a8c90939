"""Results of a comparison as they come, kept in a file so that an interrupted comparison goes on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dkfeat.canonical import fingerprint
from dkfeat.engine.cell_line import CellLine
from dkfeat.errors import ShardError, SpecConflictError
from dkfeat.learn.comparison import Result

__all__ = ["ResultStore"]

RESULTS = "results.jsonl"
FORMAT = 2
"""Of the file's lines; another one is another comparison's."""


class ResultStore:
    """Results of a comparison, each made once.

    Parameters
    ----------
    folder : str, path or None
        Local folder for ``results.jsonl``, a line for each value; None keeps nothing.
    settings : mapping
        What decides the results; a folder of other settings is refused.
    progress : bool or callable
        True tells each new result on standard error, or in one line below a notebook's cell. A callable is given each
        result, new or not.

    Raises
    ------
    SpecConflictError
        The folder holds results of other settings.
    ShardError
        Its file holds something else.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        settings: Mapping[str, Any],
        progress: bool | Callable[[Result], object],
    ) -> None:
        self._path = None if folder is None else Path(folder) / RESULTS
        self._progress = progress
        self._cell = CellLine.here() if progress is True else None
        self._done: dict[str, Any] = {}
        self._results: list[Result] = []
        if self._path is None:
            return
        plain = json.loads(json.dumps({"format": FORMAT, **settings}))
        own = {"settings": fingerprint(plain)}
        lines = _whole_lines(self._path)
        if lines and lines[0] != own:
            message = (
                f"{self._path.parent} holds a comparison of other settings or other files; "
                "choose another folder, or remove it"
            )
            raise SpecConflictError(message)
        self._done = {line["what"]: line["value"] for line in lines[1:]}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(line) + "\n" for line in lines or [own])
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(text, encoding="utf-8")  # without a line that a kill has torn
        temporary.replace(self._path)

    @property
    def results(self) -> tuple[Result, ...]:
        """Results asked for so far, in that order."""
        return tuple(self._results)

    def value(self, what: str, make: Callable[[], Any]) -> Any:
        """Plain value of that name, made if it is not there yet."""
        if what not in self._done:
            self._done[what] = make()
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"what": what, "value": self._done[what]}) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
        return self._done[what]

    def result(self, name: str, k: int | None, make: Callable[[], Result]) -> Result:
        """Make and tell the result of that name and size, unless it is there already."""
        what = f"{name} of {k}"
        is_new = what not in self._done
        found = Result(**self.value(what, lambda: asdict(make())))
        self._results.append(found)
        if callable(self._progress):
            self._progress(found)
        elif is_new:
            self.tell(found.describe())
        return found

    def tell(self, text: str) -> None:
        """Tell people on standard error, if they want to be told."""
        if self._cell is not None:
            self._cell.write(f"compare: {text}")
            self._cell.end()
        elif self._progress is True:
            print(f"compare: {text}", file=sys.stderr, flush=True)  # noqa: T201 - progress


def _whole_lines(path: Path) -> list[Any]:
    """Values of the file's lines; one at its end that is torn is left out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except ValueError:
            if not line.endswith("\n"):
                continue
            value = None
        if not isinstance(value, dict) or value.keys() != ({"settings"} if number == 1 else {"what", "value"}):
            message = f"{path}, line {number}: not a result that dkfeat wrote; remove the file to begin anew"
            raise ShardError(message)
        found.append(value)
    return found
