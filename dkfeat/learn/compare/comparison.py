"""Results of a comparison of feature maps: tables and recommendation."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.learn.scores import paired_difference
from dkfeat.messages import aligned, logger_of
from dkfeat.plot import accuracy_against_k, draw, has_matplotlib
from dkfeat.store.outputs import check_folder, write_output

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logger_of(__name__)

PLOT = "accuracy.png"
COLUMNS = {
    "name": ("map", ""),
    "k": ("k", ","),
    "accuracy": ("test", ".2%"),
    "validation_accuracy": ("held-out", ".2%"),
    "row_bytes": ("bytes/row", ","),
    "row_microseconds": ("µs/row", ".2f"),
    "fit_seconds": ("fit s", ".2f"),
    "C": ("C", "g"),
    "gamma": ("gamma", "g"),
}
"""Columns of the table of text, by fields of `Result`: title and format."""
FILES = ("comparison.txt", "comparison.json", PLOT)


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
    """Accuracy, on the held-out training rows, of the model with this C fitted to the other training rows."""
    wrong: tuple[int, ...] = field(default=(), repr=False)
    """Numbers, among the held-out rows, of those whose predicted label is wrong."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Sizes of a map that a comparison did not try."""

    name: str
    """Name of the map."""
    k: tuple[int, ...]
    """Numbers of components."""

    def describe(self) -> str:
        """Describe the sizes in one line.

        Examples
        --------
        >>> LeftOut(name="gcws", k=(512, 1024)).describe()
        'gcws, 512 and 1,024 components: no time left'
        """
        sizes = " and ".join(", ".join(f"{size:,}" for size in self.k).rsplit(", ", 1))
        return f"{self.name}, {sizes} components: no time left"


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
        rows: list[list[str]] = [[title for title, _ in COLUMNS.values()]]
        for each in self.results:
            values = ((getattr(each, name), form) for name, (_, form) in COLUMNS.items())
            rows.append(["" if value is None else format(value, form) for value, form in values])
        table = "\n".join(aligned(rows, right=range(1, len(COLUMNS))))
        chosen, best = self.recommended, self.best
        largest = [each for each in self._maps if each.name == chosen.name][-1]
        reason = "the best of all maps that were tried"
        if chosen is not best:
            loss, error = self.difference(best, chosen)
            reason = (
                f"{100 * loss:.2f} points (standard error {100 * error:.2f}) below {best.name} of {best.k:,} "
                f"components at {best.row_bytes:,} bytes a row"
            )
        return (
            f"{table}\n\nrecommended: {chosen.name}, {chosen.k:,} components, {chosen.row_bytes:,} bytes a row, "
            f"with {chosen.accuracy:.2%} of the {self.n_test:,} test rows right\n"
            f"chosen on {self.n_validation:,} held-out training rows: {held_out_accuracy(chosen):.2%} right, {reason}\n"
            + "".join(
                f"no map that was tried is as good as the linear model of the rows themselves, with "
                f"{held_out_accuracy(each):.2%} of the held-out rows right: use that, or compare more components\n"
                for each in self.results
                if each.name == "linear" and self.is_better(each, best)
            )
            + f"more components of {chosen.name} may be better, but no time was left: give more minutes (--minutes)\n"
            * (chosen is largest and chosen.name in {each.name for each in self.left_out})
            + "".join(f"cut short: {each.describe()}\n" for each in self.results if each.is_cut_short)
            + "".join(f"left out: {each.describe()}\n" for each in self.left_out)
        )

    def to_mapping(self) -> dict[str, Any]:
        """Convert to plain JSON values."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        best, recommended, *results = (_plain(each) for each in (self.best, self.recommended, *self.results))
        left_out = [asdict(each) for each in self.left_out]
        return {**plain, "best": best, "recommended": recommended, "results": results, "left_out": left_out}

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> list[Path]:
        """Write ``comparison.txt``, ``comparison.json`` and, if matplotlib is installed, ``accuracy.png``.

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
        root = check_folder(folder, FILES, kind="a comparison", overwrite=overwrite)
        as_json = json.dumps(self.to_mapping(), indent=1) + "\n"
        files = {"txt": self.to_text(), "json": as_json}
        paths = [root / f"comparison.{ending}" for ending in files]
        if has_matplotlib():
            picture = draw(lambda axes: accuracy_against_k(self, ax=axes), width=7.4, height=4.6)
            write_output(root / PLOT, picture)  # first, because its mark tells that the other files are dkfeat's
            paths.append(root / PLOT)
        else:
            logger.warning("%s: no %s, which needs matplotlib: pip install matplotlib", root, PLOT)
        for path, text in zip(paths, files.values(), strict=False):
            write_output(path, text)
        return paths

    @property
    def _maps(self) -> list[Result]:
        return [each for each in self.results if each.k is not None]


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
