"""A comparison of feature maps: its results as tables, and the cheapest good one of them."""

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
from dkfeat.engine.progress import NotebookLine
from dkfeat.errors import ConfigError, ShardError, SpecConflictError
from dkfeat.plot.maps import accuracy_against_k
from dkfeat.plot.style import draw


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One trained model of a comparison."""

    name: str
    """Map, "linear" for the raw rows, or "exact" and a kernel."""
    k: int | None = None
    """Number of components, for a map."""
    accuracy: float
    """Share of the test rows that got their own label, by the model that was fitted to all training rows."""
    validation_accuracy: float | None = None
    """Share of the held-out training rows that got theirs, by the model of this C that was fitted to the others; None
    for an exact kernel machine with one candidate alone."""
    C: float
    """Chosen weight of the losses."""
    gamma: float | None = None
    """Chosen width of the RBF kernel, where there is one."""
    row_bytes: int | None = None
    """Bytes of a row as shards keep it; for raw rows in memory."""
    row_microseconds: float | None = None
    """Time to turn a test row, among many, into features, compiled code and tables warm; None without a map."""
    fit_seconds: float = 0.0
    """Time to try all C on the held-out rows and to fit the chosen one to all, of exact machines all gamma too."""

    def describe(self) -> str:
        """One line for people.

        Examples
        --------
        >>> Result(name="gcws", k=64, accuracy=0.925, C=1.0, row_bytes=64, fit_seconds=2.0).describe()
        'gcws, 64 components: test accuracy 92.50%, 64 bytes a row, fitted in 2.0 s'
        """
        size = "" if self.row_bytes is None else f", {self.row_bytes:,} bytes a row"
        of = "" if self.k is None else f", {self.k:,} components"
        return f"{self.name}{of}: test accuracy {self.accuracy:.2%}{size}, fitted in {self.fit_seconds:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Results of `dkfeat.compare`, in the order in which they were made."""

    results: tuple[Result, ...]
    within: float
    """Held-out accuracy below the best map's that the recommended one may have."""
    n_train: int
    """Training rows, those held out among them."""
    n_validation: int
    """Training rows that were held out to choose C, gamma and the recommendation."""
    n_test: int
    """Rows that chose nothing and measure accuracy."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that decided the results, with the files."""

    @property
    def best(self) -> Result:
        """Map of the highest held-out accuracy; of equal ones the cheapest."""
        return min(self._maps, key=lambda each: (-_held_out(each), *_cost(each)))

    @property
    def recommended(self) -> Result:
        """Cheapest map, by bytes and then by time a row, of those within `within` of the best.

        Held-out rows choose it and test rows do not, so that its accuracy on the latter is not one of many tries.
        """
        least = _held_out(self.best) - self.within - 1e-12
        return min((each for each in self._maps if _held_out(each) >= least), key=_cost)

    def to_text(self) -> str:
        """Table for people, and the recommendation."""
        header = ("map", "k", "test", "held-out", "bytes/row", "µs/row", "fit s", "C", "gamma")
        lines = [header, *(_cells(each) for each in self.results)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                [line[0].ljust(widths[0]), *(cell.rjust(size) for cell, size in zip(line[1:], widths[1:], strict=True))]
            )
            for line in lines
        ]
        return "\n".join([*(line.rstrip() for line in table), "", *self._recommendation()]) + "\n"

    def _recommendation(self) -> list[str]:
        chosen, best = self.recommended, self.best
        share = _held_out(chosen)
        error = 100 * (share * (1 - share) / max(1, self.n_validation)) ** 0.5
        reason = "the best of all maps"
        if chosen is not best:
            points = 100 * (_held_out(best) - share)
            reason = f"{points:.2f} points below {best.name} of {best.k:,} components at {best.row_bytes:,} bytes a row"
        return [
            f"recommended: {chosen.name}, {chosen.k:,} components, {chosen.row_bytes:,} bytes a row, "
            f"with {chosen.accuracy:.2%} of the {self.n_test:,} test rows right",
            f"chosen on {self.n_validation:,} held-out training rows: {share:.2%} right (standard error {error:.2f} "
            f"points), {reason}",
        ]

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "n_train": self.n_train,
            "n_validation": self.n_validation,
            "n_test": self.n_test,
            "settings": dict(self.settings),
            "within": self.within,
            "best": asdict(self.best),
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
        Path(path).write_bytes(draw(lambda axes: accuracy_against_k(self, ax=axes), width=7.4, height=4.6))

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
            raise ConfigError("no map was compared: all numbers of components are beyond the number of rows")
        return found


def _held_out(result: Result) -> float:
    return result.validation_accuracy or 0.0


def _cost(result: Result) -> tuple[float, float, float]:
    return result.row_bytes or 0, result.row_microseconds or 0, result.fit_seconds


def _cells(result: Result) -> Sequence[str]:
    return (
        result.name,
        "" if result.k is None else f"{result.k:,}",
        f"{result.accuracy:.2%}",
        "" if result.validation_accuracy is None else f"{result.validation_accuracy:.2%}",
        "" if result.row_bytes is None else f"{result.row_bytes:,}",
        "" if result.row_microseconds is None else f"{result.row_microseconds:.2f}",
        f"{result.fit_seconds:.2f}",
        f"{result.C:g}",
        "" if result.gamma is None else f"{result.gamma:g}",
    )


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
        self._line = NotebookLine.here() if progress is True else None
        self._done: dict[str, Any] = {}
        self._results: list[Result] = []
        if self._path is None:
            return
        plain = json.loads(json.dumps({"format": FORMAT, **settings}))
        own = {"settings": fingerprint(plain)}
        lines = _whole_lines(self._path)
        if lines and lines[0] != own:
            raise SpecConflictError(
                f"{self._path.parent} holds a comparison of other settings or other files; "
                "choose another folder, or remove it"
            )
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
        """Show a line on standard error or below a notebook's cell, if progress is wanted."""
        if self._line is not None:
            self._line.write(f"compare: {text}")
            self._line.end()
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
            raise ShardError(f"{path}, line {number}: not a result that dkfeat wrote; remove the file to begin anew")
        found.append(value)
    return found
