"""Text for messages and tables: the nearest valid name, counts, sizes in bytes, texts without control characters.

`read_number` is the reverse: it reads the text of a number as all options take it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

Number = TypeVar("Number")


def close(name: str, known: Sequence[str]) -> str | None:
    """Find the known name that is nearest, or None if none is near.

    Examples
    --------
    >>> close("gcsw", ["gcws", "fourier"]), close("x", ["gcws", "fourier"])
    ('gcws', None)
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return near[0] if near else None


def read_number(text: str, kind: Callable[[str], Number]) -> Number:
    """Read a number of ASCII text by `kind`, such as int, which alone takes underscores and digits of any script too.

    Raises
    ------
    ValueError
        For other text.

    Examples
    --------
    >>> read_number("+10", int)
    10
    >>> read_number("1_0", int)
    Traceback (most recent call last):
    ValueError: '1_0' is not a number such as 10 or 0.5; write it in the digits 0 to 9, without underscores
    """
    if "_" in text or not text.isascii():
        raise ValueError(
            f"{text!r} is not a number such as 10 or 0.5; write it in the digits 0 to 9, without underscores"
        )
    return kind(text)


def counted(number: int, noun: str, *verbs: str) -> str:
    """Write a number with its noun, in the plural unless the number is 1, and with the verb for one or for several.

    Examples
    --------
    >>> counted(1, "shard"), counted(1200, "shard"), counted(2, "process"), counted(2, "file", "is", "are")
    ('1 shard', '1,200 shards', '2 processes', '2 files are')
    """
    plural = "es" if noun.endswith("s") else "s"
    return " ".join([f"{number:,} {noun}{'' if number == 1 else plural}", *verbs[number != 1 :][:1]])


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines of a table, with cells padded to columns; `right` holds the numbers, from 0, of right-aligned columns.

    Examples
    --------
    >>> aligned([["map", "rows"], ["gcws", "5"]], right=[1])
    ['map   rows', 'gcws     5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([f"{cell:{'><'[at not in right]}{widths[at]}}" for at, cell in enumerate(row)] for row in rows)
    return ["  ".join(cells).rstrip() for cells in padded]


def show_label(label: float) -> str:
    """Write a label so that different labels differ; integers without a point.

    Examples
    --------
    >>> show_label(9007199254740993), show_label(-1.0), show_label(0.5)
    ('9007199254740993', '-1', '0.5')
    """
    return str(label).removesuffix(".0")


def meant(name: str, known: Sequence[str]) -> str:
    """End of a message that has listed the known names: suggests the nearest one, if any is near.

    Examples
    --------
    >>> meant("rfb", ["rbf", "rbf_cosine"])
    "; did you mean 'rbf'?"
    >>> meant("x", ["rbf", "rbf_cosine"])
    ''
    """
    near = close(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


def nearest(name: str, known: Sequence[str], what: str) -> str:
    """End of a message about an unknown name.

    Examples
    --------
    >>> nearest("gcsw", ["gcws", "fourier"], "maps")
    "did you mean 'gcws'?"
    >>> nearest("x", ["gcws", "fourier"], "maps")
    'the maps are gcws, fourier'
    """
    return meant(name, known).removeprefix("; ") or f"the {what} are {', '.join(known)}"


def shown(text: str) -> str:
    r"""Escape control characters, so that a text cannot control a terminal or a page.

    Examples
    --------
    >>> shown("day-1.svm"), shown("day\x1b[2J.svm")
    ('day-1.svm', 'day\\x1b[2J.svm')
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def show_bytes(size: int) -> str:
    """Size in binary units, as options such as `blocksize` take it.

    Examples
    --------
    >>> show_bytes(12), show_bytes(67_108_864)
    ('12 bytes', '64.0 MiB')
    """
    if size < 1024:
        return f"{size} bytes"
    value, units = size / 1024, ["KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:,.1f} {units[0]}"
