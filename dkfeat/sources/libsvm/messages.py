"""Messages and locations of errors in LIBSVM text, and the reason of each for setting a row aside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dkfeat.blocks import SourceFile
from dkfeat.compiled import libsvm as loop
from dkfeat.errors import ParseError
from dkfeat.filesystems.urls import printable
from dkfeat.sources.contents import open_content
from dkfeat.sources.pieces import LABEL_NOT_ALLOWED

_SHOWN_CHARACTERS = 60
_COUNT_BYTES = 1 << 20
_MOST_COUNTED_BYTES = 1 << 26  # a larger file, as stored, is not read again for the number of its last line
_TOKEN = re.compile(rb"[^ \t\r\n#]{0,%d}" % (4 * _SHOWN_CHARACTERS + 1))  # UTF-8 has at most four bytes per character
_COMMAS = "if this is CSV, write it as Parquet; if labels are lists, pass multilabel=True (--multilabel)"

_MESSAGES = {
    loop.BAD_LABEL: "expected a number as label, got {token}",
    loop.INFINITE_LABEL: "the label {token} is infinite in float64",
    loop.NO_LABEL: "the label is missing: the line begins with a blank, then {token}; labels begin in column 1",
    loop.BAD_QID: "expected qid: and an integer from 0 to 2^63 - 1, got {token}",
    loop.MISSING_QID: "expected qid:n after the label, got {token}; with query_id=True each row has a query id",
    loop.UNEXPECTED_QID: "the row has a query id, {token}; pass query_id=True to keep it",
    loop.BAD_FEATURE: "expected index:value with an index of digits only, got {token}",
    loop.HUGE_INDEX: "the index of {token} is beyond 2^63 - 1 and beyond the source's n_features, {n_features}",
    loop.INDEX_ZERO: "{token} has index 0, but the first index of this source is 1; pass zero_based=True if it is 0",
    loop.INDEX_RANGE: "{token} is beyond the source's n_features, {n_features}, whose highest index is {highest:,}; "
    "repair the row or raise n_features; with like, make that data set again with a higher n_features",
    loop.DUPLICATE_INDEX: "{token} repeats the index before it; indices must ascend within a row",
    loop.UNSORTED_INDEX: "indices must ascend within a row: {token} follows index {last:,}",
    loop.BAD_VALUE: "expected a finite decimal number as value, got {token}",
    loop.INFINITE_VALUE: "the value of {token} overflows {dtype}{remedy}",
    loop.LONE_CR: "a carriage return without a line feed; end lines with LF or CR LF",
    loop.NOT_INT64: 'the label {token} is not an integer of int64, but label_dtype="int64"; pass label_dtype="float64"',
    loop.INEXACT_LABEL: "the label {token} is an integer that is not exact in float64, the type of the labels; pass "
    'label_dtype="int64" if all labels are integers of int64, or write a quantity with a point or an exponent',
    loop.NUL_BYTE: "a comment holds a NUL byte: this is not LIBSVM text",
}
_TEXT_EXPECTED = (loop.BAD_LABEL, loop.BAD_FEATURE, loop.BAD_VALUE, loop.NO_LABEL, loop.MISSING_QID)

REASONS = {
    **dict.fromkeys((loop.BAD_LABEL, loop.INFINITE_LABEL, loop.NO_LABEL), "bad label"),
    **dict.fromkeys((loop.BAD_QID, loop.MISSING_QID, loop.UNEXPECTED_QID), "bad query id"),
    **dict.fromkeys((loop.NOT_INT64, loop.INEXACT_LABEL), LABEL_NOT_ALLOWED),
    loop.BAD_FEATURE: "bad feature",
    **dict.fromkeys((loop.HUGE_INDEX, loop.INDEX_ZERO, loop.INDEX_RANGE), "index out of range"),
    **dict.fromkeys((loop.DUPLICATE_INDEX, loop.UNSORTED_INDEX), "indices not ascending"),
    **dict.fromkeys((loop.BAD_VALUE, loop.INFINITE_VALUE), "bad value"),
    **dict.fromkeys((loop.LONE_CR, loop.NUL_BYTE), "not text"),
}
"""Reason of a bad row, as in ``dkfeat.sources.pieces.REASONS``, by error status of the parser."""


def parse_error(
    message: str,
    file: SourceFile,
    line_offset: int,
    column: int,
    storage_options: Mapping[str, Any] | None,
) -> ParseError:
    """Make the error at a byte column, from 1, of the line that begins at `line_offset` in the decompressed file."""
    line = 1 + _count_lines(file, line_offset, storage_options)
    return ParseError(message, path=printable(file.url), line=line, column=column, offset=line_offset + column - 1)


def unterminated_line(file: SourceFile, storage_options: Mapping[str, Any] | None) -> str:
    """Describe the last line of a file, which has no line end, with its number if the file is not large."""
    place = printable(file.url)
    if file.size <= _MOST_COUNTED_BYTES:
        place += f":{1 + _count_lines(file, 2**63 - 1, storage_options)}"
    return f"{place}: the last line has no line end; it is read as a row, but the file may be cut off"


def _count_lines(file: SourceFile, stop: int, storage_options: Mapping[str, Any] | None) -> int:
    """Count the line ends in the text of a file before byte `stop`."""
    n_lines = 0
    with open_content(file, 0, storage_options) as stream:
        buffer = bytearray(_COUNT_BYTES)
        while stop > 0 and (n := stream.readinto(memoryview(buffer)[: min(stop, _COUNT_BYTES)])):
            n_lines += buffer.count(b"\n", 0, n)
            stop -= n
    return n_lines


def token_at(text: memoryview, start: int) -> str:
    """Quote the token at a byte of the text."""
    return quoted(_token(text, start))


def quoted(token: bytes) -> str:
    """Quote a token so that it is safe to print, cut at 60 characters."""
    shown = printable(token[: 4 * _SHOWN_CHARACTERS + 1].decode("utf-8", "backslashreplace"))
    return f"'{shown}'" if len(shown) <= _SHOWN_CHARACTERS else f"'{shown[:_SHOWN_CHARACTERS]}'..."


def message_of(
    status: int, text: memoryview, start: int, rules: loop.Rules, last: int, n_features: int | None, dtype: str
) -> str:
    """Return the message for an error status of the parser and the token at `start`; `last` is the index before it."""
    token, shown = _token(text, start), token_at(text, start)
    unprintable = next((byte for byte in token if byte < 32 or byte > 126), None)
    if unprintable is not None and status in _TEXT_EXPECTED:
        return f"this is not LIBSVM text: byte 0x{unprintable:02X} in {shown}"
    has_commas = status == loop.BAD_LABEL and not rules.multilabel and b"," in token
    if status in (loop.HUGE_INDEX, loop.INDEX_RANGE) and n_features in (None, 2**63 - 1):
        return f"{shown} is beyond the highest index that any source can have, {rules.highest:,}"
    return _MESSAGES[status].format(
        token=f"{shown}; {_COMMAS}" if has_commas else shown,
        n_features="not given" if n_features is None else f"{n_features:,}",
        highest=rules.highest,
        last=last,
        dtype=dtype,
        remedy='; pass dtype="float64" if the value is correct' if dtype == "float32" else "",
    )


def _token(text: memoryview, start: int) -> bytes:
    return _TOKEN.match(text, start)[0]  # type: ignore[index]  # matches anything
