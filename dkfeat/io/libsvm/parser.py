"""Parser of one split's text: the compiled loop run window by window, its errors located."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

import numpy as np

from dkfeat.blocks import SourceFile, Split
from dkfeat.compiled.text import libsvm as loop
from dkfeat.errors import ParseError
from dkfeat.io.files.find import check_unchanged, open_content
from dkfeat.io.files.lines import LineTooLongError, LineWindow
from dkfeat.io.libsvm.messages import LABEL_NOT_ALLOWED, message_of, parse_error, reason_of, token_at
from dkfeat.io.libsvm.options import LibsvmOptions
from dkfeat.io.shards.bad_rows import MOST_BAD_ROWS, BadRow, cut_message, shown_text

NO_LIMIT = 1 << 62
"""Beyond every offset, row count and index."""

_MOST = 2**63 - 1  # int64
_STEP_BYTES = 1 << 12  # parsed at a time behind a wrong line, and so many times more behind a good stretch
_MORE = 4


class Fault(NamedTuple):
    """Error in a line of the window."""

    line: int
    """Byte of the window at which the line begins."""
    at: int
    """Byte of the window at which the token to blame begins."""
    reason: str
    """One of ``quarantine.REASONS``."""
    message: str
    """Text of the error: what was expected and what came, a function of the line alone."""
    hint: str = ""
    """Further help, which depends on other lines."""


class SplitParser:
    """The rows of one split, file by file, parsed into tables that the caller provides.

    Parameters
    ----------
    options : LibsvmOptions
        With ``on_bad_row="quarantine"`` wrong lines are set aside in `bad_rows`, else they are errors.
    split : Split

    Attributes
    ----------
    cursor : ndarray of int64
        Counts of the compiled parser; the caller resets what it takes away.
    position : int
        Of the current file in the split; set by `open`, as are `file` and `window`.
    file : SourceFile
        The current file.
    window : LineWindow
        On its lines.
    rows_by_file : list of int
        Rows parsed of each file.
    bad_rows : list of BadRow
        Lines set aside, at most `MOST_BAD_ROWS`.
    lines : int
        Lines passed, where wrong ones are set aside.
    """

    position: int
    file: SourceFile
    window: LineWindow

    def __init__(self, options: LibsvmOptions, split: Split) -> None:
        self._options, self._split, self._files = options, split, split.files
        self._allowed = None if options.labels is None else np.array(options.labels, dtype=np.float64)
        self._hint = np.zeros(1)
        self._stack = ExitStack()
        self._text_before = 0
        self.cursor = np.zeros(loop.CURSOR_SIZE, dtype=np.int64)
        self.cursor[loop.HINT_AT] = -1
        self.cursor[loop.LOWEST] = NO_LIMIT
        self.reset()

    def reset(self) -> None:
        """Begin to count rows and lines anew, for another piece."""
        self.rows_by_file = [0] * len(self._files)
        self.bad_rows: list[BadRow] = []
        self.lines = 0

    def close(self) -> None:
        """Close the current file."""
        self._stack.close()

    @property
    def offset(self) -> int:
        """Offset of the next line in the text of all files of the split."""
        return self._text_before + self.window.offset

    def check_unchanged(self) -> None:
        """Refuse a file that is not as it was listed."""
        check_unchanged(self.file, self._options.storage_options)

    def open(self, position: int) -> None:
        """Turn to a file of the split, as it was listed; memory of the window before is used again."""
        options, split, file = self._options, self._split, self._files[position]
        self.position, self.file = position, file
        self._lines_of_file = 0
        self.check_unchanged()
        whole = bool(split.others) or file.compression is not None
        start, stop = (0, file.size) if whole else (split.start, split.stop)
        if file.compression is not None:
            stop = NO_LIMIT
        stream = self._stack.enter_context(open_content(file, max(start - 1, 0), options.storage_options))
        memory = self.window.memory if position else None
        self.window = LineWindow(stream, start, stop, max_line_bytes=int(options.max_line_bytes), memory=memory)

    def load(self) -> bool:
        """Make sure that the window holds lines; False at the end of the split, when all files are still as listed."""
        while True:
            try:
                if self.window.begin < self.window.end or self.window.advance():
                    return True
            except LineTooLongError as error:
                most = self._options.max_line_bytes
                raise self._error(
                    f"the line has more than {most:,} bytes; raise max_line_bytes if it is one row", error.offset, 1
                ) from None
            self.check_unchanged()
            if self.position + 1 == len(self._files):
                return False
            self._text_before = self.offset
            self._stack.close()
            self.open(self.position + 1)

    def parse(self, tables: loop.Tables, max_rows: int, stop: int) -> tuple[bool, memoryview]:
        """Parse the window's lines until a row is not admitted.

        Parameters
        ----------
        tables : Tables
            With room for the window's content.
        max_rows : int
            Rows that the tables may come to hold.
        stop : int
            Rows whose line begins at this offset of the split's text or later are not admitted, unless first.

        Returns
        -------
        is_full : bool
            A row was not admitted; it is the next.
        passed : memoryview
            The bytes consumed.

        Raises
        ------
        ParseError
            For a wrong line, unless these are set aside.
        """
        window, cursor, options = self.window, self.cursor, self._options
        base = 0 if options.zero_based is not False else 1
        highest = _MOST if options.n_features is None else options.n_features - 1 + (options.zero_based is not True)
        stop -= self._text_before + window.origin
        rules = loop.Rules(base, highest, max_rows, stop, options.multilabel, options.query_id)
        cursor[loop.POSITION] = window.begin
        rows = int(cursor[loop.ROWS])
        if options.is_quarantined:
            is_full = self._parse_good(tables, rules)
        else:
            is_full, fault = self._parse_until(window.end, tables, rules)
            if fault is not None:
                reason, line = fault.message + fault.hint, window.origin + fault.line
                raise self._error(reason, line, fault.at - fault.line + 1)
        self.rows_by_file[self.position] += int(cursor[loop.ROWS]) - rows
        return is_full, window.consume(int(cursor[loop.POSITION]))

    def _parse_good(self, tables: loop.Tables, rules: loop.Rules) -> bool:
        """Parse the window's lines and set wrong ones aside; True before a row that is not admitted.

        A wrong line has left its traces in tables and counts. So the lines before it are parsed once more, from the
        counts as they were, up to it. A label that is not allowed shows only behind the lines that were parsed at a
        time: these are few after a wrong line, and more again where none follows.
        """
        window, cursor = self.window, self.cursor
        counted, step = window.begin, window.end
        while True:
            position = int(cursor[loop.POSITION])
            end = window.end if position + step >= window.end else window.line_end(position + step)
            before = cursor.copy()
            is_full, fault = self._parse_until(end, tables, rules)
            if fault is not None:
                cursor[:] = before
                self._parse_until(fault.line, tables, rules)
                is_full = len(self.bad_rows) == MOST_BAD_ROWS
            self._count_lines(counted, counted := int(cursor[loop.POSITION]))
            if is_full or (fault is None and end == window.end):
                return is_full
            if fault is None:
                step *= _MORE
                continue
            end = window.line_end(fault.line)
            self.bad_rows.append(self._bad_row(fault, bytes(window.view[fault.line : end])))
            cursor[loop.POSITION] = end
            step = _STEP_BYTES

    def _count_lines(self, start: int, stop: int) -> None:
        n = self.window.count_lines(start, stop)
        self.lines += n
        self._lines_of_file += n

    def _bad_row(self, fault: Fault, text: bytes) -> BadRow:
        return BadRow(
            file=self.position,
            offset=self.window.origin + fault.line,
            line=self._lines_of_file + 1,
            column=fault.at - fault.line + 1,
            reason=fault.reason,
            message=cut_message(fault.message),
            text=shown_text(text),
        )

    def _parse_until(self, end: int, tables: loop.Tables, rules: loop.Rules) -> tuple[bool, Fault | None]:
        """Parse lines of the window up to `end`: whether a row was not admitted, and the first fault if any."""
        cursor, window = self.cursor, self.window
        begin, first_label = int(cursor[loop.POSITION]), int(cursor[loop.LABELS])
        while True:
            with np.errstate(over="ignore"):  # wrap-around is meant, where loops run without compilation
                status = loop.parse_lines(window.text, end, tables, rules, cursor, self._hint)
            if status != loop.NEED_FLOAT:
                break
            start = int(cursor[loop.ERROR_AT])
            self._hint[0] = _float_at(window.view, start)
            cursor[loop.HINT_AT] = start
        cursor[loop.HINT_AT] = -1
        labels = tables.labels[first_label : int(cursor[loop.LABELS])]
        fault = self._fault_of_labels(labels, begin)  # first: they stand before what is wrong
        if fault is None and status not in (loop.DONE, loop.FULL):
            line, start = int(cursor[loop.LINE]), int(cursor[loop.ERROR_AT])
            last = int(cursor[loop.LAST])
            message = message_of(status, window.view, start, options=self._options, highest=rules.highest, last=last)
            fault = Fault(line, start, reason_of(status), message)
        return status == loop.FULL, fault

    def _fault_of_labels(self, labels: np.ndarray, begin: int) -> Fault | None:
        """Find the first label, of lines from byte `begin` of the window on, that the source does not allow."""
        if self._allowed is None and self._options.label_dtype != "int64":
            return None
        if self._allowed is not None:
            bad = ~np.isin(labels, self._allowed)
        else:
            bad = ~((labels == np.trunc(labels)) & (np.abs(labels) < 2**53))
        if not bad.any():
            return None
        start, line = self._place_of_label(int(np.argmax(bad)), begin)
        token = token_at(self.window.view, start).split(",")[0] + ("'" if self._options.multilabel else "")
        if self._allowed is not None:
            found = sorted(set(labels[:10_000].tolist()))
            message = f"the label {token} is not one of {_set(self._allowed.tolist())}"
            return Fault(line, start, LABEL_NOT_ALLOWED, message, f"; labels found here: {_set(found)}")
        message = f'the label {token} is no integer below 2^53, but label_dtype="int64"; pass label_dtype="float64"'
        return Fault(line, start, LABEL_NOT_ALLOWED, message)

    def _place_of_label(self, wrong: int, line: int) -> tuple[int, int]:
        """Bytes at which a label and its line begin; labels are counted from the line at a byte of the window."""
        view, seen = self.window.view, 0
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
        return parse_error(reason, self.file, line_offset, column, self._options.storage_options)


@contextmanager
def open_split(options: LibsvmOptions, split: Split) -> Iterator[SplitParser]:
    """Parser on the files of a split, each of which is as it was listed when it is opened."""
    with closing(SplitParser(options, split)) as parser:
        parser.open(0)
        yield parser


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
