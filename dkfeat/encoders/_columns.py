"""Columns of a fitted encoder: their encodings, the reasons for them, and the tables of their ranks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from shlex import quote
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dkfeat.canonical import Count
from dkfeat.compiled import tables
from dkfeat.messages import aligned, printable

N_KNOTS = 1024  # at most
Encoding = Literal["rank", "rank, zeros absent", "date", "category", "tags", "n-grams", "left out"]
Part = Literal["hour", "weekday", "month"]
_OFTEN, _SELDOM, _FEWEST_ROWS = 0.2, 0.05, 100
"""Values are drift if of this many rows or more a larger share is odd, but of the drawn rows a smaller one."""
_OF_FIT = "example", "is_row_number"
LEFT_OUT: Encoding = "left out"
ZEROS_ABSENT: Encoding = "rank, zeros absent"
NGRAMS: Encoding = "n-grams"
_ROLES = {"date": tables.DATE, "category": tables.CATEGORY, "tags": tables.TAGS}  # others are numbers
ENCODINGS: dict[str, tuple[Encoding, ...]] = {
    "number": ("rank", ZEROS_ABSENT, "category"),
    "duration": ("rank", ZEROS_ABSENT),
    "date": ("date",),
    "time": ("date",),
    "text": ("category", NGRAMS),
    "boolean": ("category",),
    "tags": ("tags",),
}
"""Possible encodings of each family; the first is the usual one."""
PARTS: tuple[Part, ...] = ("hour", "weekday", "month")
"""Parts of dates, in the order of their bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column as it was in the drawn rows, and its encoding.

    Type and family are those of `dkfeat.encoders._arrow.Storage`. In `rows` drawn rows are `distinct` values or tags,
    `nulls` missing values (NaN too) and `zeros`; `parts` are the parts of a date that vary. Columns of n-grams are
    encoded without drawn rows, except those with idf; `ngrams` are their lengths and weights. Specs hold neither the
    `example`, a drawn value, nor `is_row_number`, True for integers that differ as the numbers of rows do.
    """

    name: str
    type: str
    family: str
    encoding: Encoding
    rows: Count = 0
    distinct: Count = 0
    nulls: Count = 0
    zeros: Count = 0
    parts: tuple[Part, ...] = ()
    n_knots: Count = 0
    ngrams: str = ""
    example: str = field(default="", compare=False)
    is_row_number: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        has_ranks = self.encoding in ("rank", ZEROS_ABSENT, "date")
        allowed = (LEFT_OUT, *ENCODINGS.get(self.family, ()))
        if self.encoding not in allowed or has_ranks != (0 < self.n_knots <= N_KNOTS):
            raise ValueError(f"column {self.name!r} cannot be {self.encoding!r} with {self.n_knots} knots")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for a spec, without the n-grams of a column that has none."""
        values = asdict(self) | {"parts": list(self.parts), "ngrams": self.ngrams or None}
        return {name: values[name] for name in values if name not in _OF_FIT and values[name] is not None}

    @property
    def job(self) -> dict[int, int]:
        """Fields of the column's job that do not depend on storage, for the compiled loops."""
        parts = sum(1 << PARTS.index(part) for part in self.parts)
        return {tables.ROLE: _ROLES.get(self.encoding, tables.NUMBER), tables.PARTS: parts}

    @property
    def reason(self) -> str:
        """Reason for the encoding."""
        if self.encoding == NGRAMS:
            return self.ngrams
        if not self.family:
            return "binary and nested types have no encoding"
        n_values, is_left_out = self.rows - self.nulls, self.encoding == LEFT_OUT
        text = f"{self.distinct:,}{f' of {n_values:,}' * is_left_out} distinct"
        if self.encoding == ZEROS_ABSENT:
            text = f"{self.zeros / n_values:.0%} zeros"
        elif is_left_out and (self.distinct < 2 or self.family == "tags"):
            text = "the same in all rows" if self.distinct else "no values"
        elif self.is_row_number or (is_left_out and self.distinct == n_values):
            text = "every value distinct"
        text += f", such as {self.example}" * bool(self.example)
        text += f"; {self.nulls / self.rows:.1%} null" * (0 < self.nulls < self.rows)
        return text + f"; rank, {', '.join(self.parts)}".rstrip(", ") * (self.encoding == "date")


class ColumnTable(tuple[Column, ...]):
    """Columns of a table, shown as one: name, type, encoding and reason."""

    __slots__ = ()

    @property
    def left_out(self) -> list[Column]:
        """Columns that are not encoded."""
        return [column for column in self if column.encoding == LEFT_OUT]

    @property
    def hints(self) -> list[str]:
        """Options for text that is left out, and for columns that differ as the numbers of rows do."""
        texts = [column.name for column in self.left_out if column.family == "text" and column.distinct > 1]
        numbers = [column.name for column in self if column.is_row_number]
        of_text = "categories (--categories {0}) keeps {1!r}, text (--text {0}='word 1-2') its n-grams"
        of_number = "{1!r} differs in every row, as an id does; id (--id {0}) leaves it out"
        found = [(of_text, name) for name in texts[:1]] + [(of_number, name) for name in numbers[:1]]
        return [hint.format(quote(f"{name} ")[:-2] + "'", name) for hint, name in found]  # in quotes: no flag's name

    def drift(self, odd: NDArray[np.int64], n_rows: int) -> list[str]:
        """Describe columns with far more odd values than in the drawn rows, unless there are few rows.

        Parameters
        ----------
        odd : ndarray of shape (n_columns, 2), int64
            Numbers of missing values, and of numbers and dates beyond those of the drawn rows.
        n_rows : int
            Number of the rows in which they were counted.
        """
        found = []
        for column, *counts in zip(self, *(odd / max(n_rows, 1)).T, strict=True) if n_rows >= _FEWEST_ROWS else ():
            usual = (column.nulls / max(column.rows, 1), 0)  # the lowest and the highest drawn number are knots
            for kind, now, before in zip(("null", "beyond the drawn values"), counts, usual, strict=True):
                if now > _OFTEN and before < _SELDOM:
                    found.append(f"{printable(column.name)}: {now:.0%} {kind} ({before:.0%} when drawn)")
        return found

    def __repr__(self) -> str:
        return "\n".join(aligned([[printable(cell) for cell in row.values()] for row in self.rows()]))

    def rows(self) -> list[dict[str, str]]:
        """Cells of the table."""
        return [{"column": c.name, "type": c.type, "encoding": c.encoding, "reason": c.reason} for c in self]


def draw_knots(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Take numbers of equal distances in rank, at most 1,024, ascending.

    Examples
    --------
    >>> draw_knots(np.array([3.0, 1.0, 3.0])).tolist(), len(draw_knots(np.arange(5000.0)))
    ([1.0, 3.0, 3.0], 1024)
    """
    numbers = np.sort(numbers)
    if len(numbers) <= N_KNOTS:
        return numbers
    return numbers[np.arange(N_KNOTS) * (len(numbers) - 1) // (N_KNOTS - 1)]


def rank_table(knots: NDArray[np.float64], *, zeros_absent: bool) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Compute the weights of slots 0 and 1 for all places among knots.

    Parameters
    ----------
    knots : ndarray, float64
        From `draw_knots`; without zeros if they are absent.
    zeros_absent : bool
        True: ranks of the positive numbers, and of the negative ones by magnitude. False: the midrank r among all,
        scaled to 0 at the lowest knot and 1 at the highest, and 1 - r.

    Returns
    -------
    distinct : ndarray of shape (n,), float64
        The distinct knots, with 0 if zeros are absent, ascending.
    weights : ndarray of shape (2 n + 1, 2), float32
        For the places below the first knot, at it, between it and the second, and so on.

    Examples
    --------
    >>> rank_table(np.array([1.0, 2.0, 2.0]), zeros_absent=False)[1].tolist()
    [[0.0, 1.0], [0.0, 1.0], [0.3333333432674408, 0.6666666865348816], [1.0, 0.0], [1.0, 0.0]]
    >>> rank_table(np.array([1.0, 2.0]), zeros_absent=True)[1][:, 0].tolist()
    [0.0, 0.0, 0.5, 0.5, 0.5, 1.0, 1.0]
    """
    distinct, counts = np.unique(knots, return_counts=True)
    if zeros_absent:
        middle = int(np.searchsorted(distinct, 0.0))
        below, above = _shares(counts[:middle][::-1])[::-1], _shares(counts[middle:])
        up, down = np.append(np.zeros(len(below) + 1), above), np.append(below, np.zeros(len(above) + 1))
        return np.insert(distinct, middle, 0.0), np.stack([up, down], axis=1).astype(np.float32)
    last = np.cumsum(counts)
    ranks = np.zeros(2 * len(distinct) + 1)  # twice the number of lower knots, plus that of equal ones
    ranks[1::2], ranks[2::2] = 2 * last - counts, 2 * last
    low, high = ranks[1], ranks[-2]
    if low == high:  # a single knot
        low, high = low - 1, high + 1
    ranks = np.clip(ranks, low, high)
    return distinct, (np.stack([ranks - low, high - ranks], axis=1) / (high - low)).astype(np.float32)


def _shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of the knots of one sign that are as near to 0, for the places from 0 outwards; that of one at least."""
    last = np.cumsum(counts)
    return np.repeat([1, *last], 2)[1:] / last[-1] if len(last) else np.zeros(1)
