"""Where in LIBSVM text the rows of a piece stand, looked up once something is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dkfeat.blocks import Split
from dkfeat.errors import ParseError
from dkfeat.io.libsvm_errors import parse_error, token_at
from dkfeat.io.libsvm_parser import open_split
from dkfeat.io.quarantine import REFUSED, BadRow, cut_message, shown_text

if TYPE_CHECKING:
    from dkfeat.io.libsvm import LibsvmSource
    from dkfeat.io.source import Piece, Refusal

__all__ = ["place_rows", "refused_row"]

_TOKEN = re.compile(rb"[^ \t\r\n]+")


def place_rows(source: LibsvmSource, split: Split, piece: Piece, refusals: Sequence[Refusal]) -> list[BadRow]:
    """Places of rows that a map refuses, which rise: by reading the split's lines up to them."""
    aside = {(bad.file, bad.offset) for bad in piece.bad_rows}
    wanted = {refusal.row: refusal for refusal in refusals}
    found: list[BadRow] = []
    row = -1
    for position, at, offset, number, line in _lines(source, split):
        is_row = line.strip(b" \t\r\n") and line.lstrip(b" \t")[0] != ord("#")
        if at < piece.start or not is_row or (position, offset) in aside:
            continue
        row += 1
        if row in wanted:
            blamed = wanted[row].column
            column = 0 if blamed is None else _column(source, line, blamed)
            what = "this row" if blamed is None else token_at(memoryview(line), column)
            found.append(
                BadRow(
                    file=position,
                    offset=offset,
                    line=number,
                    column=column + 1,
                    reason=REFUSED,
                    message=cut_message(f"the map refuses {what}: {wanted[row].reason}"),
                    text=shown_text(line),
                )
            )
            if len(found) == len(wanted):
                break
    return found


def refused_row(source: LibsvmSource, split: Split, piece: Piece, refusal: Refusal) -> ParseError:
    """Error for a row that a map refuses, at its place."""
    (place,) = place_rows(source, split, piece, [refusal])
    file = split.files[place.file]
    return parse_error(place.message, file, place.offset, place.column, source.storage_options)


def _lines(source: LibsvmSource, split: Split) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Lines with their file, offset in the split's text, offset in the file, and number in it from the split on."""
    with open_split(source, split) as parser:
        position, number = -1, 0
        while parser.load():
            if parser.position != position:
                position, number = parser.position, 0
            window = parser.window
            at = window.begin
            while at < window.end:
                end = window.line_end(at)
                number += 1
                offset = window.origin + at
                yield position, parser.offset - window.offset + offset, offset, number, bytes(window.view[at:end])
                at = end
            window.consume(window.end)


def _column(source: LibsvmSource, line: bytes, column: int) -> int:
    """Byte of the line at which the value of a column stands; 0 if the line does not write it."""
    wanted = column + (source.zero_based is False)
    for token in _TOKEN.finditer(line.partition(b"#")[0]):
        index, colon, _ = token[0].partition(b":")
        if colon and index.isdigit() and int(index) == wanted:
            return token.start()
    return 0
