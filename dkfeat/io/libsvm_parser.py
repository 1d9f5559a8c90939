"""One split's text through the compiled parser, window by window, errors placed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.blocks import Split
from dkfeat.compiled import libsvm as loop
from dkfeat.errors import ParseError
from dkfeat.io.files import check_unchanged, open_content
from dkfeat.io.libsvm_errors import parse_error, reason_of, token_at
from dkfeat.io.lines import LineTooLongError, LineWindow

if TYPE_CHECKING:
    from dkfeat.io.libsvm import LibsvmSource

__all__ = ["NO_LIMIT", "SplitParser", "open_split"]

NO_LIMIT = 1 << 62
"""Beyond every offset, row count and index."""

_MOST = 2**63 - 1  # int64


class SplitParser:
    """The rows of one split, parsed into tables that the caller provides.

    Parameters
    ----------
    source : LibsvmSource
    split : Split
    window : LineWindow
        On the lines of the split.

    Attributes
    ----------
    cursor : ndarray of int64
        Counts of the compiled parser; the caller resets what it takes away.
    """

    def __init__(self, source: LibsvmSource, split: Split, window: LineWindow) -> None:
        self._source, self._split, self.window = source, split, window
        self._allowed = None if source.labels is None else np.array(source.labels, dtype=np.float64)
        self._hint = np.zeros(1)
        self.cursor = np.zeros(loop.CURSOR_SIZE, dtype=np.int64)
        self.cursor[loop.HINT_AT] = -1
        self.cursor[loop.LOWEST] = NO_LIMIT

    def load(self) -> bool:
        """Make sure that the window holds lines; False at the end of the split."""
        try:
            return self.window.begin < self.window.end or self.window.advance()
        except LineTooLongError as error:
            reason = (
                f"the line has more than {self._source.max_line_bytes:,} bytes; raise max_line_bytes if it is one row"
            )
            raise self._error(reason, error.offset, 1) from None

    def parse(self, tables: loop.Tables, max_rows: int, stop: int) -> tuple[bool, memoryview]:
        """Parse the window's lines until a row is not admitted.

        Parameters
        ----------
        tables : Tables
            With room for the window's content.
        max_rows : int
            Rows that the tables may come to hold.
        stop : int
            Rows whose line begins at this offset of the stream or later are not admitted, unless first.

        Returns
        -------
        is_full : bool
            A row was not admitted; it is the next.
        passed : memoryview
            The bytes consumed.

        Raises
        ------
        ParseError
        """
        window, cursor, text = self.window, self.cursor, self.window.text
        source = self._source
        base = 0 if source.zero_based is not False else 1
        highest = _MOST if source.n_features is None else source.n_features - 1 + (source.zero_based is not True)
        rules = loop.Rules(base, highest, max_rows, stop - window.origin, source.multilabel, source.query_id)
        cursor[loop.POSITION] = window.begin
        first_label = int(cursor[loop.LABELS])
        while True:
            with np.errstate(over="ignore"):  # wrap-around is meant, where loops run without compilation
                status = loop.parse_lines(text, window.end, tables, rules, cursor, self._hint)
            if status != loop.NEED_FLOAT:
                break
            start = int(cursor[loop.ERROR_AT])
            self._hint[0] = _float_at(window.view, start)
            cursor[loop.HINT_AT] = start
        cursor[loop.HINT_AT] = -1
        self._check_labels(tables, first_label, int(cursor[loop.LABELS]))  # first: they stand before what is wrong
        if status not in (loop.DONE, loop.FULL):
            line, start = int(cursor[loop.LINE]), int(cursor[loop.ERROR_AT])
            last = int(cursor[loop.LAST])
            reason = reason_of(status, window.view, start, source=source, highest=highest, last=last)
            raise self._error(reason, window.origin + line, start - line + 1)
        return status == loop.FULL, window.consume(int(cursor[loop.POSITION]))

    def _check_labels(self, tables: loop.Tables, first: int, stop: int) -> None:
        """Refuse labels that the source does not allow, at the first one's place."""
        if self._allowed is None and self._source.label_dtype != "int64":
            return
        labels = tables.labels[first:stop]
        if self._allowed is not None:
            bad = ~np.isin(labels, self._allowed)
        else:
            bad = ~((labels == np.trunc(labels)) & (np.abs(labels) < 2**53))
        if not bad.any():
            return
        wrong = int(np.argmax(bad))
        start, line = self._place_of_label(wrong)
        token = token_at(self.window.view, start).split(",")[0] + ("'" if self._source.multilabel else "")
        if self._allowed is not None:
            found = sorted(set(labels[:10_000].tolist()))
            reason = f"the label {token} is not one of {_set(self._allowed.tolist())}; labels found here: {_set(found)}"
        else:
            reason = f'the label {token} is no integer below 2^53, but label_dtype="int64"; pass label_dtype="float64"'
        raise self._error(reason, self.window.origin + line, start - line + 1)

    def _place_of_label(self, wrong: int) -> tuple[int, int]:
        """Bytes at which the label with this number among the window's and its line begin: by parsing up to it."""
        window, seen = self.window, 0
        view = window.view
        line = window.begin
        while True:
            stop = _find(view, b"\n", line)
            if view[line] not in b" \t\r\n#":
                end = next(i for i in range(line, stop + 1) if view[i] in b" \t\r\n#")
                commas = bytes(view[line:end]).split(b",")
                if seen + len(commas) > wrong:
                    return line + sum(len(label) + 1 for label in commas[: wrong - seen]), line
                seen += len(commas)
            line = stop + 1

    def _error(self, reason: str, line_offset: int, column: int) -> ParseError:
        return parse_error(reason, self._split.file, line_offset, column, self._source.storage_options)


@contextmanager
def open_split(source: LibsvmSource, split: Split) -> Iterator[SplitParser]:
    """Parser on a split of a file that is as it was listed, and still is at the end."""
    check_unchanged(split.file, source.storage_options)
    is_plain = split.file.compression is None
    start, stop = (split.start, split.stop) if is_plain else (0, NO_LIMIT)
    with open_content(split.file, max(start - 1, 0), source.storage_options) as stream:
        yield SplitParser(source, split, LineWindow(stream, start, stop, max_line_bytes=int(source.max_line_bytes)))


def _find(view: memoryview, wanted: bytes, start: int) -> int:
    for at in range(start, len(view), 4096):
        if (found := bytes(view[at : at + 4096]).find(wanted)) >= 0:
            return at + found
    return len(view)


def _float_at(view: memoryview, start: int) -> float:
    """Round the number at a byte of the text as Python does."""
    size = 64
    while True:
        token = bytes(view[start : start + size])
        end = next((i for i, byte in enumerate(token) if byte not in b"+-.0123456789eE"), None)
        if end is not None:
            return float(token[:end])
        size *= 2


def _set(labels: list[Any]) -> str:
    shown = ", ".join(f"{label:g}" for label in labels[:10])
    return "{" + shown + (", ..." if len(labels) > 10 else "") + "}"
