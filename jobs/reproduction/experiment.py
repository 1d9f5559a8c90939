"""An experiment: its description, its input and its results.

An experiment is a module of this package with a constant ``EXPERIMENT``. Its ``run`` is given a `Context` and returns
`Results`: tables, pictures and verdicts. It writes nothing itself; whatever takes longer than a second goes through
`Context.cached` or `Context.cached_all`, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .figures import Style
    from .parts import Parts
    from .rows import DataSet

__all__ = ["Cell", "Context", "Experiment", "Mode", "Picture", "Results", "Table", "Verdict"]

Mode = Literal["quick", "full"]
Cell = str | int | float | None
"""Of a table: text stands as it is, floats get four digits, None is a dash."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the report, drawn once for light and once for dark pages."""

    name: str
    """Of its files, without a suffix; unique in its experiment."""
    title: str
    paint: Callable[[Any, Style], None]
    """Draws on a matplotlib ``Figure`` in the colours of a `Style`."""
    data: Mapping[str, Any]
    """All numbers that are drawn, as plain JSON values: what ``NAME.json`` holds."""
    alt: str
    """What it shows, for those who do not see it, and its caption."""
    width: float = 6.4
    """Inches. With the 11 points of our style, text stays readable on a phone up to about 7 inches."""
    height: float = 4.4


@dataclass(frozen=True, slots=True)
class Verdict:
    """Statement of a paper, and whether the measurements confirm it."""

    sentence: str
    holds: bool | None
    """None: nothing was measured, for data are missing or the mode leaves it out."""
    detail: str = ""
    """The figures that decide."""


@dataclass(frozen=True, slots=True)
class Results:
    """Results of an experiment."""

    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    verdicts: Sequence[Verdict] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment; texts are plain sentences for the report."""

    name: str
    """That of its module."""
    title: str
    source: str
    """Paper, tables and figures."""
    split_note: str
    """Rows, splits and normalisation that are used here."""
    differences: Sequence[str]
    """Differences from the paper, with the reason; one sentence or two each."""
    run: Callable[[Context], Results]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Resources that an experiment may use."""

    data: Path
    """Folder of data sets, each a folder with ``train.svm.xz`` and ``test.svm.xz``."""
    mode: Mode
    seed: int
    """Root of all randomness."""
    parts: Parts = field(repr=False)
    tell: Callable[[str], None] = field(repr=False)

    @property
    def quick(self) -> bool:
        """True if minutes matter more than digits."""
        return self.mode == "quick"

    def progress(self, text: str) -> None:
        """Report the current step to people, in a few words."""
        self.tell(text)

    def rows(self, name: str) -> DataSet | None:
        """Rows of a data set, or None if the folder does not have it: then the table's row says so."""
        from .rows import load_rows

        return load_rows(self.data, name)

    def cached(self, key: str, compute: Callable[[], Any], **settings: Any) -> Any:
        """Compute a value, or read it if an earlier run had it.

        Parameters
        ----------
        key : str
            Name of the part: letters, digits, ``-``, ``_`` and ``.``.
        compute : callable
            Gives a value of plain JSON (no NaN), a float of NumPy included.
        **settings : plain JSON values
            All that decides the value beside seed and key: another value is another part.

        Returns
        -------
        value : as read from JSON, whether it was computed now or before
        """
        return self.parts.cached(key, compute, {"seed": self.seed, **settings})

    def cached_all(
        self, compute: Callable[..., Any], tasks: Mapping[str, Mapping[str, Any]], *others: Any
    ) -> dict[str, Any]:
        """Compute many parts side by side, those that are missing, in processes.

        Parameters
        ----------
        compute : callable
            A function of a module. It is called as ``compute(*others, **task)``.
        tasks : mapping of str to mapping
            Keyword arguments of plain JSON values by the part's key; they are its settings too.
        *others
            Arguments that decide nothing, such as the folder of data.

        Returns
        -------
        values : dict, in the order of `tasks`
        """
        return self.parts.cached_all(compute, tasks, others, self.tell)
