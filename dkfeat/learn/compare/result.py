"""Results of a comparison of feature maps: tables, recommendation, and the file that keeps them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dkfeat.canonical import fingerprint
from dkfeat.engine.progress import NotebookLine, Progress
from dkfeat.errors import ConfigError, ShardError, SpecConflictError
from dkfeat.io.commit.target import locked
from dkfeat.io.outputs import check_folder, check_outputs, write_output
from dkfeat.io.storage import open_storage
from dkfeat.plot.maps import accuracy_against_k
from dkfeat.plot.style import check_plots, draw

if TYPE_CHECKING:
    from numpy.typing import NDArray


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Sizes of a map that a comparison did not try."""

    name: str
    """Name of the map."""
    k: tuple[int, ...]
    """Numbers of components."""
    reason: str
    """Either "no time left", or "cannot win": these sizes would neither be recommended nor displace the recommended
    map, even if their accuracy rose by twice the gain of the last doubling."""

    def describe(self) -> str:
        """Describe the sizes and the reason in one line.

        Examples
        --------
        >>> LeftOut(name="gcws", k=(512, 1024), reason="cannot win").describe()
        'gcws, 512 and 1,024 components: cannot win'
        """
        sizes = " and ".join(", ".join(f"{size:,}" for size in self.k).rsplit(", ", 1))
        return f"{self.name}, {sizes} components: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Results of `dkfeat.compare`, by map and size."""

    results: tuple[Result, ...]
    n_train: int
    """Number of training rows, including those held out."""
    n_validation: int
    """Number of training rows held out to choose C, gamma and the recommendation."""
    n_test: int
    """Number of test rows, which influence no choice."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that determined the results."""
    left_out: tuple[LeftOut, ...] = ()
    """Maps and numbers of components that were not tried."""

    @property
    def best(self) -> Result:
        """Map of the highest held-out accuracy; of equal ones the cheapest."""
        return min(self._maps, key=lambda each: (-held_out_accuracy(each), *_cost(each)))

    @property
    def recommended(self) -> Result:
        """Cheapest map, by bytes and then by time per row, of those within one standard error of the best.

        The standard error is that of the difference between two maps on the same held-out rows; test rows choose
        nothing, so the accuracy on them is unbiased.
        """
        best = self.best
        return min((each for each in self._maps if not self.is_better(best, each)), key=_cost)

    def is_better(self, one: Result, other: Result) -> bool:
        """Return whether a map is better than another one by more than one standard error of the difference."""
        difference, error = self.difference(one, other)
        return difference > error + 1e-12  # if one row differs, both are equal up to rounding

    def difference(self, one: Result, other: Result) -> tuple[float, float]:
        """Return the held-out accuracy of a map less that of another one, and the standard error of the difference."""
        return paired_difference(_right(one, self.n_validation), _right(other, self.n_validation))

    def to_text(self) -> str:
        """Format the results as a table, followed by the recommendation."""
        header = ("map", "k", "test", "held-out", "bytes/row", "µs/row", "fit s", "C", "gamma")
        lines = [header, *(_cells(each) for each in self.results)]
        first, *others = (max(map(len, column)) for column in zip(*lines, strict=True))
        form = "  ".join([f"{{:<{first}}}", *(f"{{:>{width}}}" for width in others)])
        table = "".join(form.format(*line).rstrip() + "\n" for line in lines)
        chosen, best = self.recommended, self.best
        reason = "the best of all maps"
        if chosen is not best:
            loss, error = self.difference(best, chosen)
            reason = (
                f"{100 * loss:.2f} points (standard error {100 * error:.2f}) below {best.name} of {best.k:,} "
                f"components at {best.row_bytes:,} bytes a row"
            )
        return (
            f"{table}\nrecommended: {chosen.name}, {chosen.k:,} components, {chosen.row_bytes:,} bytes a row, "
            f"with {chosen.accuracy:.2%} of the {self.n_test:,} test rows right\n"
            f"chosen on {self.n_validation:,} held-out training rows: {held_out_accuracy(chosen):.2%} right, {reason}\n"
            + "".join(f"left out: {each.describe()}\n" for each in self.left_out)
        )

    def to_mapping(self) -> dict[str, Any]:
        """Convert to plain JSON values."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        best, recommended, *results = (_plain(each) for each in (self.best, self.recommended, *self.results))
        left_out = [asdict(each) for each in self.left_out]
        return {**plain, "best": best, "recommended": recommended, "results": results, "left_out": left_out}

    def to_csv(self) -> str:
        """Format the results as CSV with a header line; values that do not apply are empty."""
        stream = io.StringIO()
        names = [each.name for each in fields(Result) if each.name != "wrong"]
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_plain, self.results))
        return stream.getvalue()

    def plot(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Draw accuracy against components: a line for each map, and a horizontal line for each other model.

        Parameters
        ----------
        path : str or path
            PNG file on this machine, outside of data sets and models; an earlier plot is replaced.
        overwrite : bool, default=False
            Replace also a file that is not a plot of dkfeat.

        Raises
        ------
        ConfigError
            If matplotlib (the extra ``plot``) is not installed, or if the file may not be replaced.
        """
        check_plots()
        check_outputs([path], overwrite=overwrite)
        write_output(path, draw(lambda axes: accuracy_against_k(self, ax=axes), width=7.4, height=4.6))

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> list[Path]:
        """Write ``comparison.txt``, ``.json`` and ``.csv`` and, if matplotlib is installed, ``accuracy.png``.

        Parameters
        ----------
        folder : str or path
            Folder on this machine, outside of data sets and models. The files of an earlier comparison are replaced.
        overwrite : bool, default=False
            Replace also files of these names that do not belong to an earlier comparison.

        Returns
        -------
        paths : list of Path
            Files written.

        Raises
        ------
        ConfigError
            If a file may not be replaced, or if the folder is a data set or a model, or in one.
        """
        root = check_result_folder(folder, overwrite=overwrite)
        as_json = json.dumps(self.to_mapping(), indent=1) + "\n"
        paths = []
        for ending, text in {"txt": self.to_text(), "json": as_json, "csv": self.to_csv()}.items():
            paths.append(root / f"comparison.{ending}")
            write_output(paths[-1], text)
        with suppress(ConfigError):  # matplotlib is optional here
            self.plot(root / _PLOT, overwrite=True)
            paths.append(root / _PLOT)
        return paths

    @property
    def _maps(self) -> list[Result]:
        found = [each for each in self.results if each.k is not None]
        if not found:
            raise ConfigError("no map was compared: all numbers of components are beyond the number of rows")
        return found


def paired_difference(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> tuple[float, float]:
    """Compare two models on the same rows.

    Parameters
    ----------
    one, other : ndarray of bool, shape (n_samples,)
        For each row, whether the model is right.

    Returns
    -------
    difference : float
        Accuracy of `one` less that of `other`.
    error : float
        Its standard error. Rows on which both are right or both wrong add nothing to it.

    Examples
    --------
    >>> difference, error = paired_difference(np.array([True] * 9 + [False]), np.array([True] * 8 + [False] * 2))
    >>> f"{difference:.2f} {error:.2f}"
    '0.10 0.10'
    """
    differences = one.astype(np.float64) - other
    n_rows = len(differences)
    return float(differences.mean()), float(differences.std() / max(n_rows - 1, 1) ** 0.5)


def _right(result: Result, n_rows: int) -> NDArray[np.bool_]:
    right = np.ones(n_rows, np.bool_)
    right[list(result.wrong)] = False
    return right


def _plain(result: Result) -> dict[str, Any]:
    """Plain values for tables, without the numbers of rows, which may be many."""
    return {name: value for name, value in asdict(result).items() if name != "wrong"}


def held_out_accuracy(result: Result) -> float:
    """Return the accuracy on the held-out rows, 0 if there is none."""
    return result.validation_accuracy or 0.0


def _cost(result: Result) -> tuple[float, float, float]:
    return result.row_bytes or 0, result.row_microseconds or 0, result.fit_seconds


def _cells(result: Result) -> Sequence[str]:
    values = asdict(result)
    forms = {
        "name": "",
        "k": ",",
        "accuracy": ".2%",
        "validation_accuracy": ".2%",
        "row_bytes": ",",
        "row_microseconds": ".2f",
        "fit_seconds": ".2f",
        "C": "g",
        "gamma": "g",
    }
    return ["" if values[name] is None else format(values[name], form) for name, form in forms.items()]


RESULTS = "results.jsonl"
_PLOT = "accuracy.png"
FORMAT = 3
"""Format of the lines; a file of another format belongs to another comparison."""


def check_result_folder(folder: str | os.PathLike[str], *, inputs: Sequence[str] = (), overwrite: bool = False) -> Path:
    """Check that a comparison can be written into a folder, and return its path; errors as from `Comparison.save`."""
    names = ("comparison.txt", "comparison.json", "comparison.csv", _PLOT)
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
        self._done: dict[str, Any] = {}
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
        self._done = {line["what"]: line["value"] for line in lines[1:]}
        # without a line that was cut when the process was killed
        write_output(path, "".join(json.dumps(line) + "\n" for line in lines or [self._header]))

    @property
    def results(self) -> tuple[Result, ...]:
        """Results requested so far, in the order of the requests."""
        return tuple(self._results)

    def value(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return the plain value of a name; compute and store it if it does not exist yet."""
        if name not in self._done:
            self._done[name] = compute()
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(_sealed(name, self._done[name])) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
        return self._done[name]

    def result(self, name: str, k: int | None, compute: Callable[[], Result]) -> Result:
        """Return and report the result of a name and size; compute it if it does not exist yet."""
        key = f"{name} of {k}"
        is_new = key not in self._done
        result = Result(**self.value(key, lambda: asdict(compute())))
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
