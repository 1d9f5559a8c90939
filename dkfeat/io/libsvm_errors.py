"""What is wrong with LIBSVM text, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dkfeat.blocks import SourceFile
from dkfeat.compiled import libsvm as loop
from dkfeat.errors import ParseError
from dkfeat.io.files import open_content, printable

__all__ = ["parse_error", "token_at"]

_SHOWN_CHARACTERS = 60
_COUNT_BYTES = 1 << 20
_TOKEN_ENDS = b" \t\r\n#"

_REASONS = {
    loop.BAD_LABEL: "expected a number as label, got {token}",
    loop.INFINITE_LABEL: "the label {token} is infinite in float64",
    loop.NO_LABEL: "the label is missing: the line begins with a blank, then {token}; write the label in its first column",
    loop.BAD_QID: "expected qid: and an integer from 0 to 2^63 - 1, got {token}",
    loop.MISSING_QID: "expected qid: and an integer behind the label, got {token}; each row of a source with query_id=True has one",
    loop.UNEXPECTED_QID: "the row has a query id, {token}; pass query_id=True to keep it",
    loop.BAD_FEATURE: "expected index:value with an index of digits only, got {token}",
    loop.HUGE_INDEX: "the index of {token} is beyond 2^63 - 1, the source has {n_features:,} features",
    loop.INDEX_ZERO: "{token} has index 0, but indices begin with 1 in this source; pass zero_based=True if they begin with 0",
    loop.INDEX_RANGE: "{token} is beyond the {n_features:,} features of the source, whose highest index is {highest:,}; "
    "raise n_features or repair the row",
    loop.DUPLICATE_INDEX: "{token} repeats the index before it; indices must ascend within a row",
    loop.UNSORTED_INDEX: "indices must ascend within a row: {token} follows index {last:,}",
    loop.BAD_VALUE: "expected a finite decimal number as value, got {token}",
    loop.INFINITE_VALUE: 'the value of {token} overflows {dtype}; pass dtype="float64" if it is meant',
    loop.LONE_CR: "a carriage return without a line feed; end lines with LF or CR LF",
    loop.NUL_BYTE: "a comment holds a NUL byte: this is not LIBSVM text",
}


def parse_error(
    reason: str,
    file: SourceFile,
    line_offset: int,
    column: int,
    storage_options: Mapping[str, Any] | None,
) -> ParseError:
    """Error at a 1-based byte column of the line that begins at a byte of the decompressed file, with its number."""
    line = 1
    with open_content(file, 0, storage_options) as stream:
        buffer = bytearray(_COUNT_BYTES)
        left = line_offset
        while left > 0 and (n := stream.readinto(memoryview(buffer)[: min(left, _COUNT_BYTES)])):
            line += buffer.count(b"\n", 0, n)
            left -= n
    return ParseError(reason, path=printable(file.name), line=line, column=column, offset=line_offset + column - 1)


def token_at(text: memoryview, start: int) -> str:
    """The token at a byte of the text, as a literal that is safe to print, cut at 60 characters."""
    most = 4 * _SHOWN_CHARACTERS + 1  # UTF-8 takes four bytes a character at most
    token = bytes(text[start : start + most])
    end = next((i for i, byte in enumerate(token) if byte in _TOKEN_ENDS), len(token))
    shown = printable(token[:end].decode("utf-8", "backslashreplace"))
    return f"'{shown}'" if len(shown) <= _SHOWN_CHARACTERS else f"'{shown[:_SHOWN_CHARACTERS]}'..."


def reason_of(status: int, text: memoryview, start: int, *, rules: loop.Rules, last: int, dtype: str) -> str:
    """What an error status of the parser means for the token at `start`."""
    byte = text[start]
    if status in (loop.BAD_LABEL, loop.BAD_FEATURE, loop.BAD_VALUE, loop.NO_LABEL, loop.MISSING_QID):
        token = bytes(text[start : start + _SHOWN_CHARACTERS])
        end = next((i for i, byte in enumerate(token) if byte in _TOKEN_ENDS), len(token))
        strange = next((byte for byte in token[:end] if byte < 32 or byte > 126), None)
        if strange is not None:
            return f"this is not LIBSVM text: byte 0x{strange:02X} in {token_at(text, start)}"
    del byte
    if status == loop.INFINITE_VALUE and dtype == "float64":
        return f"the value of {token_at(text, start)} is infinite in float64"
    return _REASONS[status].format(
        token=token_at(text, start),
        n_features=rules.n_features,
        highest=rules.n_features - 1 + rules.base,
        last=last,
        dtype=dtype,
    )
