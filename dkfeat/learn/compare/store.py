"""Results of the models of a comparison, and the file that keeps them, one a line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from dkfeat.canonical import fingerprint
from dkfeat.engine.progress import NotebookLine, Progress
from dkfeat.errors import ShardError, SpecConflictError
from dkfeat.store.commit.target import locked
from dkfeat.store.outputs import check_folder, write_output
from dkfeat.store.storage import open_storage

RESULTS = "results.jsonl"
PLOT = "accuracy.png"
FORMAT = 3
"""Format of the lines; a file of another format belongs to another comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One trained model of a comparison."""

    name: str
    """Name of the map, "linear" for the raw rows, or "exact" and the kernel."""
    k: int | None = None
    """Number of components of a map."""
    accuracy: float
    """Accuracy, on the test rows, of the model fitted to all training rows."""
    validation_accuracy: float | None = None
    """Accuracy, on the held-out training rows, of the model with this C fitted to the other training rows; None for an
    exact kernel machine with only one candidate."""
    wrong: tuple[int, ...] = field(default=(), repr=False)
    """Numbers, among the held-out rows, of those whose predicted label is wrong; empty for exact kernel machines."""
    C: float
    """Chosen weight of the losses against the penalty."""
    gamma: float | None = None
    """Chosen gamma of an RBF kernel."""
    row_bytes: int | None = None
    """Bytes of a row in shards; for "linear", of a raw row in memory."""
    row_microseconds: float | None = None
    """Time to transform one of many test rows, with compiled code and tables ready; None without a map."""
    fit_seconds: float = 0.0
    """Time to try each C, and for exact machines each gamma, on the held-out rows and to fit the best to all rows."""
    is_cut_short: bool = False
    """Whether the time ended before C or gamma was chosen, so that only some values were tried."""

    def describe(self) -> str:
        """Describe the result in one line.

        Examples
        --------
        >>> Result(name="gcws", k=64, accuracy=0.925, C=1.0, row_bytes=64, fit_seconds=2.0).describe()
        'gcws, 64 components: test accuracy 92.50%, 64 bytes a row, fitted in 2.0 s'
        """
        size = "" if self.row_bytes is None else f", {self.row_bytes:,} bytes a row"
        of = "" if self.k is None else f", {self.k:,} components"
        return f"{self.name}{of}: test accuracy {self.accuracy:.2%}{size}, fitted in {self.fit_seconds:.1f} s"


def check_result_folder(folder: str | os.PathLike[str], *, inputs: Sequence[str] = (), overwrite: bool = False) -> Path:
    """Check that a comparison can be written into a folder, and return its path; errors as from `Comparison.save`."""
    names = ("comparison.txt", "comparison.json", "comparison.csv", PLOT)
    root = check_folder(folder, (*names, RESULTS), inputs=inputs, overwrite=True)
    is_ours = bool(_whole_lines(root / RESULTS))
    return check_folder(folder, names, inputs=inputs, overwrite=overwrite or is_ours)


class ResultStore:
    """Results of a comparison, each computed once; a ``with`` statement locks the folder against other comparisons.

    Parameters
    ----------
    folder : str, path or None
        Local folder for ``results.jsonl``, which has one line for each value. None: nothing is written.
    settings : mapping
        Settings and files that determine the results.
    progress : bool or callable
        True prints each new result on standard error, or below a notebook's cell. A callable receives each result, new
        or not.

    Raises
    ------
    TargetBusyError
        If another comparison holds the folder.
    SpecConflictError
        If the folder holds results with other settings.
    ShardError
        If the file holds anything else, or a damaged result.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        settings: Mapping[str, Any],
        progress: bool | Callable[[Result], object],
    ) -> None:
        self._path = None if folder is None else check_folder(folder, [], overwrite=True) / RESULTS
        self._on_result = progress if callable(progress) else None
        self._progress = Progress(progress is True)
        self._line = NotebookLine.here() if progress is True else None
        self._done: dict[str, tuple[Any, bool]] = {}
        self._results: list[Result] = []
        plain = json.loads(json.dumps({"format": FORMAT, **settings}))
        self._header = {"settings": fingerprint(plain)}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as stack:
                stack.enter_context(locked(open_storage(self._path.parent)))
                self._read(self._path)
                self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _read(self, path: Path) -> None:
        lines = _whole_lines(path)
        if lines and lines[0] != self._header:
            raise SpecConflictError(
                f"{path.parent} holds a comparison of other settings or other files; "
                "choose another folder, or remove it"
            )
        self._done = {line["what"]: (line["value"], True) for line in lines[1:]}
        # without a line that was cut when the process was killed
        write_output(path, "".join(json.dumps(line) + "\n" for line in lines or [self._header]))

    @property
    def results(self) -> tuple[Result, ...]:
        """Results requested so far, in the order of the requests."""
        return tuple(self._results)

    def value(self, name: str, compute: Callable[[], tuple[Any, bool]]) -> tuple[Any, bool]:
        """Return the plain value of a name, and whether it is final; compute it if it does not exist yet.

        A value that is not final, because the time ended while it was computed, is not written to the file.
        """
        if name not in self._done:
            value, is_final = self._done[name] = compute()
            if is_final and self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(_sealed(name, value)) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
        return self._done[name]

    def has(self, name: str, k: int | None) -> bool:
        """Return whether the result of a name and size exists."""
        return _key(name, k) in self._done

    def result(self, name: str, k: int | None, compute: Callable[[], Result]) -> Result:
        """Return and report the result of a name and size; compute it if it does not exist yet."""

        def plain() -> tuple[dict[str, Any], bool]:
            result = compute()
            return asdict(result), not result.is_cut_short

        is_new = not self.has(name, k)
        value, _ = self.value(_key(name, k), plain)
        result = Result(**value)
        result = replace(result, wrong=tuple(result.wrong))  # JSON has lists
        self._results.append(result)
        if self._on_result is not None:
            self._on_result(result)
        if is_new:
            self.note(result.describe())
        return result

    def note(self, text: str) -> None:
        """Print a line on standard error, or show it in the one line below a notebook's cell, if progress is True."""
        if self._line is None:
            self._progress.note(f"compare: {text}")
        else:
            self._line.write(f"compare: {text}")
            self._line.end()


def _key(name: str, k: int | None) -> str:
    return f"{name} of {k}"


def _sealed(name: str, value: Any) -> dict[str, Any]:
    return {"what": name, "value": value, "seal": fingerprint({"what": name, "value": value})}


def _whole_lines(path: Path) -> list[Any]:
    """Read the values of the lines, except for a last line that was cut."""
    if not path.exists():
        return []
    *lines, last = path.read_text(encoding="utf-8", errors="replace").split("\n")
    with suppress(ValueError):
        json.loads(last)
        lines.append(last)
    values = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
            is_ours = value.keys() == {"settings"} if number == 1 else _sealed(value["what"], value["value"]) == value
        except (ValueError, TypeError, KeyError, AttributeError):
            is_ours = False
        if not is_ours:
            raise ShardError(
                f"{path}, line {number}: not an intact result of this version of dkfeat; remove the file to start again"
            )
        values.append(value)
    return values
