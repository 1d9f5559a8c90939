"""Results of a comparison: kept as they come, told as tables, and the cheapest good one of them."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from dkfeat.canonical import fingerprint
from dkfeat.errors import ConfigError, ShardError, SpecConflictError

__all__ = ["Comparison", "Result", "ResultStore"]

RESULTS = "results.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One trained model of a comparison."""

    name: str
    """Map, "linear" for the raw rows, or "exact" and a kernel."""
    k: int | None = None
    """Number of components, for a map."""
    accuracy: float
    """Share of the test rows that got their own label."""
    C: float
    """Chosen weight of the losses."""
    gamma: float | None = None
    """Chosen width of the RBF kernel, where there is one."""
    row_bytes: int | None = None
    """Bytes of a row as shards keep it; for raw rows in memory."""
    map_seconds: float = 0.0
    """Time to map the training rows."""
    fit_seconds: float = 0.0
    """Time to fit all C and the best one."""

    def describe(self) -> str:
        """One line for people.

        Examples
        --------
        >>> Result(name="gcws", k=64, accuracy=0.925, C=1.0, row_bytes=64, fit_seconds=2.0).describe()
        'gcws, 64 components: accuracy 92.50%, 64 bytes a row, 2.0 s'
        """
        size = "" if self.row_bytes is None else f", {self.row_bytes:,} bytes a row"
        of = "" if self.k is None else f", {self.k:,} components"
        return f"{self.name}{of}: accuracy {self.accuracy:.2%}{size}, {self.map_seconds + self.fit_seconds:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Results of `dkfeat.compare`, in the order in which they were made."""

    results: tuple[Result, ...]
    within: float
    """Accuracy below the best map's that the recommended one may have."""
    n_train: int
    n_test: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What decided the results, beside the files."""

    @property
    def best(self) -> Result:
        """Map of the highest accuracy; of equal ones the cheapest."""
        return min(self._maps, key=lambda each: (-each.accuracy, *_cost(each)))

    @property
    def recommended(self) -> Result:
        """Cheapest map within `within` of the best one: by bytes a row, then by time."""
        least = self.best.accuracy - self.within - 1e-12
        return min((each for each in self._maps if each.accuracy >= least), key=_cost)

    def to_text(self) -> str:
        """Table for people, and the recommendation."""
        header = ("map", "k", "accuracy", "bytes/row", "map s", "fit s", "C", "gamma")
        lines = [header, *(_cells(each) for each in self.results)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                [line[0].ljust(widths[0]), *(cell.rjust(size) for cell, size in zip(line[1:], widths[1:], strict=True))]
            )
            for line in lines
        ]
        chosen, best = self.recommended, self.best
        reason = "the best accuracy"
        if chosen is not best:
            points = 100 * (best.accuracy - chosen.accuracy)
            reason = f"{points:.2f} points below {best.name} of {best.k:,}, at {chosen.row_bytes:,} bytes a row"
        told = f"recommended: {chosen.name}, {chosen.k:,} components ({reason})"
        return "\n".join([*(line.rstrip() for line in table), "", told]) + "\n"

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "n_train": self.n_train,
            "n_test": self.n_test,
            "settings": dict(self.settings),
            "within": self.within,
            "recommended": asdict(self.recommended),
            "results": [asdict(each) for each in self.results],
        }

    def to_csv(self) -> str:
        """Table with a header line; what does not apply is empty."""
        stream = io.StringIO()
        writer = csv.DictWriter(stream, [each.name for each in fields(Result)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(each) for each in self.results)
        return stream.getvalue()

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw accuracy against components: a line for each map, level lines for the others.

        Raises
        ------
        ConfigError
            If matplotlib, of the extra ``plot``, is not installed.
        """
        from dkfeat.report.accuracy import plot_accuracy

        Path(path).write_bytes(plot_accuracy(self))

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write ``comparison.txt``, ``.json`` and ``.csv`` and, with matplotlib, ``accuracy.png``.

        Returns
        -------
        paths : list of Path
            What was written.
        """
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        paths = []
        for ending, text in (
            ("txt", self.to_text()),
            ("json", json.dumps(self.to_mapping(), indent=1) + "\n"),
            ("csv", self.to_csv()),
        ):
            paths.append(root / f"comparison.{ending}")
            paths[-1].write_text(text, encoding="utf-8")
        try:
            self.plot(root / "accuracy.png")
        except ConfigError:  # the tables do without
            return paths
        return [*paths, root / "accuracy.png"]

    @property
    def _maps(self) -> list[Result]:
        found = [each for each in self.results if each.k is not None]
        if not found:
            message = "no map was compared: all numbers of components are beyond the number of rows"
            raise ConfigError(message)
        return found


class ResultStore:
    """Results as they come, kept in a file so that an interrupted comparison goes on.

    Parameters
    ----------
    folder : str, path or None
        None keeps nothing.
    settings : mapping
        What decides the results; a folder of other settings is refused.
    progress : bool or callable
        True tells each new result on standard error.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        settings: Mapping[str, Any],
        progress: bool | Callable[[Result], object],
    ) -> None:
        plain = json.loads(json.dumps(settings))
        self._path = None if folder is None else Path(folder) / RESULTS
        self._progress = progress
        self._done: dict[str, Any] = {}
        self._results: list[Result] = []
        if self._path is None:
            return
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
        self._path.write_text(text, encoding="utf-8")  # without a line that a kill has torn

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
        elif self._progress and is_new:
            print(f"compare: {found.describe()}", file=sys.stderr, flush=True)  # noqa: T201 - progress
        return found


def _cost(result: Result) -> tuple[float, float]:
    return result.row_bytes or 0, result.map_seconds + result.fit_seconds


def _cells(result: Result) -> Sequence[str]:
    return (
        result.name,
        "" if result.k is None else f"{result.k:,}",
        f"{result.accuracy:.2%}",
        "" if result.row_bytes is None else f"{result.row_bytes:,}",
        f"{result.map_seconds:.2f}",
        f"{result.fit_seconds:.2f}",
        f"{result.C:g}",
        "" if result.gamma is None else f"{result.gamma:g}",
    )


def _whole_lines(path: Path) -> list[Any]:
    """Values of the file's lines; one at its end that is torn is left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except ValueError:
            if line.endswith("\n"):
                message = f"{path}, line {number}: not a result that dkfeat wrote; remove the file to begin anew"
                raise ShardError(message) from None
    return found
