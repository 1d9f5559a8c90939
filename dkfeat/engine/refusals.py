"""Rows that a map refuses, such as negative ones where values must not be: found, explained and set aside."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dkfeat.errors import InputError
from dkfeat.io.source import Refusal

if TYPE_CHECKING:
    from dkfeat.blocks import Split
    from dkfeat.io.source import Piece, Source

__all__ = ["accepted", "refusals"]

MOST_REFUSALS = 1 << 13
"""Rows of one piece that a map may refuse before they count as a wrong map rather than as wrong rows."""

_ROWS_AT_A_TIME = 1024
_CELL = re.compile(r" at row [\d,]+, column [\d,]+ \(counted from 0\)")
_ROW = re.compile(r"\brow [\d,]+ \(counted from 0\)")


def accepted(encode: Callable[[Any], Any], source: Source, split: Split, piece: Piece) -> tuple[Any, Piece]:
    """Encode a piece without the rows that the map refuses.

    A row is refused if `encode` raises an `InputError` that names it: whether it does depends on that row alone.

    Parameters
    ----------
    encode : callable
        From the rows of a block to their features.
    source : Source
        With ``on_bad_row="raise"`` the first such row is an error, at its place in the source.
    split, piece
        What is encoded.

    Returns
    -------
    encoded
        What `encode` gave for the rows that are left.
    piece : Piece
        With these rows, the others among its bad ones.

    Raises
    ------
    dkfeat.errors.DkfeatError
        A row is refused and the source is to raise; too many are.
    """
    try:
        return encode(piece.block.X), piece
    except InputError as error:
        if error.row is None:
            raise
        if source.on_bad_row == "raise":
            first = Refusal(error.row, error.column, _reason(encode, piece.block.X, error.row))
            raise source.refused(split, piece, first) from None
    found = refusals(encode, piece.block.X)
    left = piece.without([refusal.row for refusal in found], source.refused_rows(split, piece, found))
    return encode(left.block.X), left


def refusals(encode: Callable[[Any], Any], X: Any) -> list[Refusal]:
    """All rows that `encode` refuses, in order.

    Raises
    ------
    InputError
        For more than `MOST_REFUSALS`, and where `encode` blames no row.

    Examples
    --------
    >>> import numpy as np
    >>> def encode(X):
    ...     for row in np.flatnonzero(X[:, 0] < 0):
    ...         raise InputError("a negative value", row=int(row), column=0)
    >>> refusals(encode, np.array([[1.0], [-1.0], [2.0], [-2.0]]))
    [Refusal(row=1, column=0, reason='a negative value'), Refusal(row=3, column=0, reason='a negative value')]
    """
    found: list[Refusal] = []
    for stop in range(_ROWS_AT_A_TIME, X.shape[0] + _ROWS_AT_A_TIME, _ROWS_AT_A_TIME):
        start = stop - _ROWS_AT_A_TIME
        while start < X.shape[0]:
            try:
                encode(X[start:stop])
                break
            except InputError as error:
                if error.row is None:
                    raise
                row = start + error.row
                found.append(Refusal(row, error.column, _reason(encode, X, row)))
                start = row + 1
        if len(found) > MOST_REFUSALS:
            message = (
                f"the map refuses more than {MOST_REFUSALS:,} rows of one piece, the first for this: "
                f"{found[0].reason}; choose another map, or lower blocksize if so many are to be set aside"
            )
            raise InputError(message)
    return found


def _reason(encode: Callable[[Any], Any], X: Any, row: int) -> str:
    """Say why a row is refused, in words that do not depend on the block that it stands in."""
    try:
        encode(X[row : row + 1])
    except InputError as error:
        return _ROW.sub("the row", _CELL.sub("", str(error)))
    message = f"the map refuses row {row:,} of a block, but takes it alone"
    raise InputError(message)
