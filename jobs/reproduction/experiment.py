"""An experiment: its description, its input and its results.

An experiment is a module of `experiments` with a constant ``EXPERIMENT``. Its ``run`` takes a `Context` and returns
`Results`: tables, pictures and verdicts. It writes no files; everything that takes longer than a second is computed
through `Context.cached` or `Context.cached_all`, so that an interrupted run can be continued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .pages.figures import Style
    from .parts import Parts
    from .rows import DataSet

__all__ = ["Cell", "Context", "Experiment", "Mode", "Picture", "Results", "Table", "Verdict"]

Mode = Literal["quick", "full"]
Cell = str | int | float | None
"""Cell of a table: text is unchanged, floats get four digits, None is a dash."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    distance: str = ""
    """How far the numbers are from the paper's, as a sentence with one number."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the report, drawn once for light and once for dark pages."""

    name: str
    """Name of its files, without a suffix; unique in its experiment."""
    title: str
    paint: Callable[[Any, Style], None]
    """Function that draws on a matplotlib ``Figure`` in the colours of a `Style`."""
    data: Mapping[str, Any]
    """All numbers that are drawn, as plain JSON values: the content of ``NAME.json``."""
    alt: str
    """Description of the picture: its alternative text and its caption."""
    width: float = 6.4
    """Width in inches. Text of 11 points stays readable on a phone up to about 7 inches."""
    height: float = 4.4


@dataclass(frozen=True, slots=True)
class Verdict:
    """Statement of a paper, and whether the measurements confirm it."""

    sentence: str
    holds: bool | None
    """None: not measured, because data are missing or the mode leaves it out."""
    detail: str = ""
    """The numbers on which the verdict is based."""
    reason: str = ""
    """Why the measurements do not confirm the statement, where they do not."""


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
    """Name of its module."""
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
    """Seed from which all others are derived."""
    parts: Parts = field(repr=False)
    tell: Callable[[str], None] = field(repr=False)

    @property
    def quick(self) -> bool:
        """True in quick mode."""
        return self.mode == "quick"

    def progress(self, text: str) -> None:
        """Report the current step in a few words."""
        self.tell(text)

    def rows(self, name: str) -> DataSet | None:
        """Return the rows of a data set, or None if the folder lacks it; the table then says so."""
        from .rows import load_rows

        return load_rows(self.data, name)

    def cached(self, key: str, compute: Callable[[], Any], **settings: Any) -> Any:
        """Compute a value, or read it if an earlier run computed it.

        Parameters
        ----------
        key : str
            Name of the part: letters, digits, ``-``, ``_`` and ``.``.
        compute : callable
            Function that returns a plain JSON value (no NaN); NumPy floats are allowed.
        **settings : plain JSON values
            Everything that determines the value besides seed and key: other settings make another part.

        Returns
        -------
        value : plain JSON value
            As read from JSON, also if it was just computed.
        """
        return self.parts.cached(key, compute, {"seed": self.seed, **settings})

    def cached_all(
        self, compute: Callable[..., Any], tasks: Mapping[str, Mapping[str, Any]], *others: Any
    ) -> dict[str, Any]:
        """Compute the missing ones of many parts in parallel processes.

        Parameters
        ----------
        compute : callable
            Module-level function, called as ``compute(*others, **task)``.
        tasks : mapping of str to mapping
            Keyword arguments by the part's key, plain JSON values; they are also the part's settings.
        *others
            Arguments that do not determine the values, such as the folder of data.

        Returns
        -------
        values : dict
            Values by key, in the order of `tasks`.
        """
        return self.parts.cached_all(compute, tasks, others, self.tell)
