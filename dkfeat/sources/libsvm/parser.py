"""Parser of a split of LIBSVM text, window by window: its options, the tables that it fills, messages of bad rows."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_matrix

from dkfeat.blocks import BadRow, RowBlock, SourceFile, Split
from dkfeat.compiled import libsvm as loop
from dkfeat.errors import ParseError
from dkfeat.messages import printable, show_label
from dkfeat.sources.base import Source
from dkfeat.sources.contents import check_unchanged, not_read, open_content
from dkfeat.sources.lines import BOM, LineTooLongError, LineWindow
from dkfeat.sources.options import parse_size
from dkfeat.sources.pieces import LABEL_NOT_ALLOWED, MOST_BAD_ROWS, cut_message, shown_text
from dkfeat.validation import rounding

_SHOWN_CHARACTERS = 60
_COUNT_BYTES = 1 << 20
MOST_COUNTED_BYTES = 1 << 26  # more is not read again for the number of a line in a warning
_TOKEN = re.compile(rb"[^ \t\r\n#]{0,%d}" % (4 * _SHOWN_CHARACTERS + 1))  # UTF-8 has at most four bytes per character

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
    "repair the row or raise n_features; a model, or shards given as like, keep the width of their own rows",
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
    message: str, file: SourceFile, line_offset: int, column: int, storage_options: Mapping[str, Any] | None
) -> ParseError:
    """Make the error at a byte column, from 1, of the line that begins at `line_offset` in the decompressed file."""
    line = 1 + _count_lines(file, line_offset, storage_options)
    return ParseError(message, path=printable(file.url), line=line, column=column, offset=line_offset + column - 1)


def unterminated_line(file: SourceFile, storage_options: Mapping[str, Any] | None) -> str:
    """Describe the last line of a file, which has no line end, with its number if the file is not large."""
    place = printable(file.url)
    if file.size <= MOST_COUNTED_BYTES:
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
    if status in (loop.HUGE_INDEX, loop.INDEX_RANGE) and n_features in (None, 2**63 - 1):
        return f"{shown} is beyond the highest index that any source can have, {rules.highest:,}"
    return _MESSAGES[status].format(
        token=shown,
        n_features="not given" if n_features is None else f"{n_features:,}",
        highest=rules.highest,
        last=last,
        dtype=dtype,
        remedy='; pass dtype="float64" if the value is correct' if dtype == "float32" else "",
    )


def other_format(text: bytes, path: str) -> str:
    """End of a message about the first line of a file, which is no LIBSVM text."""
    line = text.split(b"\n", 1)[0]
    if line.startswith(b"{"):
        return "; JSON lines are read by dkfeat.JsonLinesSource (--format jsonl)"
    if labels := re.match(rb"(\S+) +\d+:", line):
        is_list = b"," in labels[1]
        words = "" if _NUMBER.fullmatch(labels[1]) else "; words can be labels in Parquet and JSON lines"
        return "; lists of labels are read with multilabel=True (--multilabel)" if is_list else words
    if re.search(rb"[,;\t]", line) and not re.search(rb"[\x00-\x08]", line):
        return f"; {not_read(path)}"
    return "; dkfeat reads Parquet, JSON lines and LIBSVM text, whose lines are such as '+1 3:0.5 7:2'"


def _token(text: memoryview, start: int) -> bytes:
    return _TOKEN.match(text, start)[0]  # type: ignore[index]  # matches anything


NO_LIMIT = 1 << 62
"""Larger than every offset, row count and index."""

_MOST = 2**63 - 1  # int64
_LABEL_TYPES = {"int64": loop.INT64, "float64": loop.FLOAT64, "auto": loop.INT64 | loop.FLOAT64}
_INT32_COLUMNS = 1 << 31
_STEP_BYTES = 1 << 12  # parsed at a time after a bad line; `_MORE` times as many after each step without one
_MORE = 4
_WIDE = re.compile(rb"\d+:([-+]?\d{8,300})(?=[ \t\r\n#])")  # features that may be rounded
_NUMBER = re.compile(rb"[-+.0-9eE]*")
_INTEGER = re.compile(rb"[-+]?0*([0-9]+)")
_LABELS = re.compile(rb"^[^ \t\r\n#]+", re.MULTILINE)


@dataclass(frozen=True, slots=True, repr=False)
class LibsvmOptions(Source):
    """Options of a `LibsvmSource`, without the methods that read files."""

    kind: ClassVar[str] = "libsvm"

    zero_based: bool | Literal["auto"] = field(default="auto", kw_only=True)
    """True if index 0 is the first column, False if index 1 is; "auto": True if any index in the whole source is 0."""
    multilabel: bool = field(default=False, kw_only=True)
    """Labels are comma-separated lists; a line that begins with a blank is a row without labels."""
    query_id: bool = field(default=False, kw_only=True)
    """Each row has a query id, ``qid:n`` after its label. Without this option a query id is an error."""
    max_line_bytes: int | str = field(default="256MiB", kw_only=True)
    """Maximum length of a line; a longer line is an error. It bounds the memory that a file can require. Stored as a
    number of bytes."""

    def __post_init__(self) -> None:
        Source.__post_init__(self)  # classes with slots have no super()
        self._set("max_line_bytes", parse_size("max_line_bytes", self.max_line_bytes))


class Fault(NamedTuple):
    """Error in a line of the window."""

    line: int
    """Byte of the window at which the line begins."""
    at: int
    """Byte of the window at which the invalid token begins."""
    reason: str
    """One of ``dkfeat.sources.pieces.REASONS``."""
    message: str
    """Message with the expected and the actual text, which depends only on the line."""
    hint: str = ""
    """Further text, which depends on other lines."""


class GrowingTables:
    """Tables of the compiled parser, which grow with the text."""

    def __init__(self, options: LibsvmOptions, split: Split) -> None:
        self._options = options
        self.label_types = _LABEL_TYPES[options.label_dtype]
        index_type = np.int32 if (options.n_features or 0) < _INT32_COLUMNS else np.int64
        self._likely_bytes = int(options.blocksize)
        if not split.is_compressed:
            self._likely_bytes = min(self._likely_bytes, split.stop - split.start)
        self.text_bytes = 0
        self.arrays = loop.Tables(
            indices=np.empty(0, index_type),
            values=np.empty(0, options.dtype),
            indptr=np.zeros(1, np.int32),
            labels=np.empty(0, np.float64),
            integers=np.empty(0, np.int64),
            label_offsets=np.zeros(1, np.int64),
            qids=np.empty(0, np.int64),
        )

    def reserve(self, cursor: np.ndarray, n_bytes: int, max_rows: int) -> None:
        """Make the tables long enough for any text of `n_bytes`; unused parts take no memory."""
        rows, nnz, n_labels = (int(count) for count in cursor[[loop.ROWS, loop.NNZ, loop.LABELS]])
        most_rows = min(rows + n_bytes // 2 + 1, max_rows) + 1
        most_nnz = nnz + n_bytes // 4 + 2
        a, options = self.arrays, self._options
        most_labels = n_labels + n_bytes // 2 + 1 if options.multilabel else most_rows
        self.arrays = loop.Tables(
            indices=self._grown(a.indices, nnz, most_nnz),
            values=self._grown(a.values, nnz, most_nnz),
            indptr=self._grown(a.indptr, rows + 1, most_rows),
            labels=self._grown(a.labels, n_labels, most_labels) if self.label_types & loop.FLOAT64 else a.labels,
            integers=self._grown(a.integers, n_labels, most_labels) if self.label_types & loop.INT64 else a.integers,
            label_offsets=self._grown(a.label_offsets, rows + 1, most_rows) if options.multilabel else a.label_offsets,
            qids=self._grown(a.qids, rows, most_rows) if options.query_id else a.qids,
        )

    def _grown(self, array: np.ndarray, used: int, needed: int) -> np.ndarray:
        if len(array) >= needed:
            return array
        likely = used * self._likely_bytes // self.text_bytes if self.text_bytes else 0
        grown = empty_array(max(needed, int(1.05 * likely), 3 * used // 2), array.dtype)
        grown[:used] = array[:used]
        return grown

    def labels(self, cursor: np.ndarray) -> NDArray:
        """Return the labels, as int64 if all fit, else float64; valid until the tables grow or are overwritten."""
        is_int64 = self.label_types & loop.INT64 and not cursor[loop.N_NOT_INT64]
        return (self.arrays.integers if is_int64 else self.arrays.labels)[: int(cursor[loop.LABELS])]

    def take_block(self, cursor: np.ndarray) -> RowBlock:
        """Return the rows as a block, and reset the cursor's counts."""
        rows, nnz, n_labels = (int(count) for count in cursor[[loop.ROWS, loop.NNZ, loop.LABELS]])
        cursor[[loop.ROWS, loop.NNZ, loop.LABELS]] = 0
        a, options = self.arrays, self._options
        indices = first_items(a.indices, nnz)
        indptr = first_items(a.indptr, rows + 1).astype(indices.dtype, copy=False)
        X = csr_matrix((first_items(a.values, nnz), indices, indptr), shape=(rows, options.n_features), copy=False)
        X.has_sorted_indices = X.has_canonical_format = True
        return RowBlock(
            X=X,
            y=first_items(a.integers if options.label_dtype == "int64" else a.labels, n_labels),
            label_offsets=first_items(a.label_offsets, rows + 1) if options.multilabel else None,
            qid=first_items(a.qids, rows) if options.query_id else None,
        )


class SplitParser:
    """Parser of the rows of one split, file by file, into growing tables.

    Parameters
    ----------
    options : LibsvmOptions
        With ``on_bad_row="quarantine"`` bad lines are set aside in `bad_rows`, else they are errors.
    split : Split

    Attributes
    ----------
    tables : GrowingTables
        Rows parsed since `reset`.
    cursor : ndarray of int64
        Counts of the compiled parser; the caller resets the counts of rows that it takes.
    position : int
        Position of the current file in the split; set by `open`, as are `file` and `window`.
    file : SourceFile
        Current file.
    window : LineWindow
        Window over the lines of the current file.
    rows_by_file : list of int
        Number of rows parsed from each file.
    bad_rows : list of BadRow
        Lines set aside, at most `MOST_BAD_ROWS`.
    lines : int
        Number of lines parsed, if bad ones are set aside.
    unterminated : list of int
        Positions in the split of the files that were read to their end and whose last line has no line end.
    rounded : BadRow or None
        First row with an integer feature that was rounded; only its location and its message are set.
    """

    position: int
    file: SourceFile
    window: LineWindow

    def __init__(self, options: LibsvmOptions, split: Split) -> None:
        self._options, self._split, self._files = options, split, split.files
        dtype = np.int64 if options.label_dtype == "int64" else np.float64
        self._allowed = None if options.labels is None else np.array(options.labels, dtype)
        self._hint = np.zeros(1)
        self._stack = ExitStack()
        self._text_before = 0
        self.unterminated: list[int] = []
        self.rounded: BadRow | None = None
        self._exact = 2.0 ** (np.finfo(options.dtype).nmant + 1)
        self.cursor = np.zeros(loop.CURSOR_SIZE, dtype=np.int64)
        self.cursor[[loop.HINT_AT, loop.EXACT_AT, loop.ROUNDED_AT]] = -1
        self.cursor[[loop.LOWEST, loop.HIGHEST]] = _MOST, -1
        self.reset()

    def reset(self) -> None:
        """Begin another piece, with new tables and counts of 0."""
        self.tables = GrowingTables(self._options, self._split)
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
        """Raise SpecConflictError if the current file is not as it was listed."""
        check_unchanged(self.file, self._options.storage_options)

    def open(self, position: int) -> None:
        """Open a file of the split, which must be as listed."""
        options, split, file = self._options, self._split, self._files[position]
        self.position, self.file = position, file
        self._lines_of_file = 0
        self.check_unchanged()
        whole = bool(split.others) or file.compression is not None
        start, stop = (0, file.size) if whole else (split.start, split.stop)
        if file.compression is not None:
            stop = NO_LIMIT
        stream = self._stack.enter_context(open_content(file, max(start - 1, 0), options.storage_options))
        self.window = LineWindow(stream, start, stop, max_line_bytes=int(options.max_line_bytes))

    def load(self) -> bool:
        """Load lines if the window has no more; return False at the end of the split.

        Each file must be as listed at its end too.
        """
        while True:
            try:
                if self.window.begin < self.window.end or self.window.advance():
                    return True
            except LineTooLongError as error:
                most = self._options.max_line_bytes
                raise self._error(
                    f"the line has more than {most:,} bytes; raise max_line_bytes (--max-line-bytes) if it is one row",
                    error.offset,
                    1,
                ) from None
            self.check_unchanged()
            if self.window.is_unterminated:
                self.unterminated.append(self.position)
            if self.position + 1 == len(self._files):
                return False
            self._text_before = self.offset
            self._stack.close()
            self.open(self.position + 1)

    def parse(self, max_rows: int, stop: int) -> tuple[bool, memoryview]:
        """Parse the window's lines into the tables, up to a limit.

        Parameters
        ----------
        max_rows : int
            Maximum number of rows in the tables.
        stop : int
            Offset in the split's text; parsing stops before a row that begins there or later, unless it is the first.

        Returns
        -------
        is_full : bool
            True if a limit was reached before the next row.
        parsed : memoryview
            Bytes that were parsed.

        Raises
        ------
        ParseError
            For a bad line, unless bad lines are set aside.
        """
        window, cursor, options = self.window, self.cursor, self._options
        self.tables.reserve(cursor, window.end - window.begin, max_rows)
        base = 0 if options.zero_based is not False else 1
        highest = (_MOST if options.n_features is None else options.n_features) - (options.zero_based is True)
        stop -= self._text_before + window.origin
        label_types = self.tables.label_types
        kinds = (options.multilabel, options.query_id, label_types, self._exact)
        rules = loop.Rules(base, highest, max_rows, stop, *kinds)
        cursor[loop.POSITION] = window.begin
        rows = int(cursor[loop.ROWS])
        if options.is_quarantined:
            is_full = self._parse_good(rules)
        else:
            is_full, fault = self._parse_until(window.end, rules)
            if fault is not None:
                message, line = fault.message + fault.hint, window.origin + fault.line
                raise self._error(message, line, fault.at - fault.line + 1)
        self.rows_by_file[self.position] += int(cursor[loop.ROWS]) - rows
        if self.rounded is None and cursor[loop.ROUNDED_AT] >= 0:
            self.rounded = self._rounded_from(int(cursor[loop.ROUNDED_AT]), int(cursor[loop.POSITION]))
            cursor[loop.ROUNDED_AT] = -1 if self.rounded is None else 0  # 0: no others are sought
        parsed = window.consume(int(cursor[loop.POSITION]))
        self.tables.text_bytes += len(parsed)
        return is_full, parsed

    def _parse_good(self, rules: loop.Rules) -> bool:
        """Parse the window's lines and set bad ones aside; return True at a limit.

        A bad line changes tables and counts, so the lines before it are parsed again, from the counts before the step.
        A label that is not allowed is found only after all lines of a step; therefore steps are short after a bad line,
        and grow again while no other follows.
        """
        window, cursor = self.window, self.cursor
        counted, step = window.begin, window.end
        while True:
            position = int(cursor[loop.POSITION])
            end = window.end if position + step >= window.end else window.line_end(position + step)
            before = cursor.copy()
            is_full, fault = self._parse_until(end, rules)
            if fault is not None:
                cursor[:] = before
                self._parse_until(fault.line, rules)
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

    def _rounded_from(self, at: int, end: int) -> BadRow | None:
        """Make the record of the first rounded feature from byte `at` on, where an exact one may be."""
        window, dtype = self.window, np.dtype(self._options.dtype)
        text = bytes(window.view[window.begin : end])
        for feature in _WIDE.finditer(text, at - window.begin):
            start, number = feature.start(), int(feature[1])
            line = text.rfind(b"\n", 0, start) + 1
            if int(dtype.type(float(number))) != number and b"#" not in text[line:start]:
                message = f"{quoted(feature[0])} is {rounding(number, str(dtype))}"
                offset = window.origin + window.begin + line
                return BadRow(self.position, offset, 0, start - line + 1, "", message, "")
        return None

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

    def _parse_until(self, end: int, rules: loop.Rules) -> tuple[bool, Fault | None]:
        """Parse lines of the window up to `end`; return True if a limit was reached, and the first fault, if any."""
        cursor, window, tables = self.cursor, self.window, self.tables.arrays
        begin, first_label = int(cursor[loop.POSITION]), int(cursor[loop.LABELS])
        while True:
            with np.errstate(over="ignore"):  # overflow is intended; NumPy warns if loops are not compiled
                status = loop.parse_lines(window.text, end, tables, rules, cursor, self._hint)
            start = int(cursor[loop.ERROR_AT])
            if status == loop.NEED_FLOAT:
                self._hint[0] = float(_NUMBER.match(window.view, start)[0])  # type: ignore[index]  # matches anything
                cursor[loop.HINT_AT] = start
            elif status == loop.INEXACT_LABEL and _is_exact_at(window.view, start):
                cursor[loop.EXACT_AT] = start
            else:
                break
        cursor[[loop.HINT_AT, loop.EXACT_AT]] = -1
        fault = self._fault_of_labels(first_label, begin)  # has priority: the parser stopped after these labels
        if fault is None and status not in (loop.DONE, loop.FULL):
            line, start, last = (int(cursor[slot]) for slot in (loop.LINE, loop.ERROR_AT, loop.LAST))
            options = self._options
            message = message_of(status, window.view, start, rules, last, options.n_features, options.dtype)
            if self._allowed is not None and REASONS[status] == LABEL_NOT_ALLOWED:
                message = self._not_allowed(token_at(window.view, start))
            hint = ""
            if status in _TEXT_EXPECTED and window.origin + line <= len(BOM):
                hint = other_format(bytes(window.view[line:end]), printable(self.file.url))
            fault = Fault(line, start, REASONS[status], message, hint)
        return status == loop.FULL, fault

    def _fault_of_labels(self, first: int, begin: int) -> Fault | None:
        """Find the first label that is not allowed, beginning with label `first`, whose line begins at byte `begin`."""
        if self._allowed is None:
            return None
        labels = self.tables.labels(self.cursor)[first:]
        good = np.isin(labels, self._allowed)
        if good.all():
            return None
        start, line, label = self._locate_label(int(np.argmin(good)), begin)
        message = self._not_allowed(quoted(label))
        hint = f"; labels found here: {_format_set(sorted(set(labels[:10_000].tolist())))}"
        return Fault(line, start, LABEL_NOT_ALLOWED, message, hint)

    def _not_allowed(self, token: str) -> str:
        return f"the label {token} is not one of {_format_set(list(self._options.labels or ()))}"

    def _locate_label(self, position: int, begin: int) -> tuple[int, int, bytes]:
        """Return the first byte of a label, the first byte of its line, and its text; labels count from `begin`."""
        for match in _LABELS.finditer(self.window.view[begin:]):
            line, labels = begin + match.start(), match[0].split(b",")
            if position < len(labels):
                return line + sum(len(label) + 1 for label in labels[:position]), line, labels[position]
            position -= len(labels)
        raise IndexError(position)  # unreachable: the label was parsed

    def _error(self, message: str, line_offset: int, column: int) -> ParseError:
        return parse_error(message, self.file, line_offset, column, self._options.storage_options)


@contextmanager
def open_split(options: LibsvmOptions, split: Split) -> Iterator[SplitParser]:
    """Open a parser on the files of a split; each file must be as listed when it is opened."""
    with closing(SplitParser(options, split)) as parser:
        parser.open(0)
        yield parser


def _format_set(labels: list[float]) -> str:
    return "{" + ", ".join(map(show_label, labels[:10])) + (", ..." if len(labels) > 10 else "") + "}"


def _is_exact_at(view: memoryview, start: int) -> bool:
    """Return True if the finite integer at a byte of the text is exact in float64."""
    digits = _INTEGER.match(view, start)[1]  # type: ignore[index]  # the parser found an integer there
    return int(digits) == int(float(digits))


# Large arrays have their own memory pages, which are returned to the system when their last view is deleted. On the
# heap, thousands of blocks of ten megabytes would cause fragmentation, and a worker's memory would grow with the number
# of blocks.

_SMALL_BYTES = 1 << 18
_HUGE_PAGE_BYTES = 1 << 21


def empty_array(size: int, dtype: DTypeLike) -> NDArray:
    """Make an uninitialised array of shape (size,), or somewhat longer, whose pages take no memory until used."""
    n_bytes = size * np.dtype(dtype).itemsize
    if n_bytes <= _SMALL_BYTES:
        return np.empty(size, dtype)
    is_large = n_bytes >= 2 * _HUGE_PAGE_BYTES
    if is_large:  # whole huge pages, which the kernel aligns so that it can use them
        n_bytes = -(-n_bytes // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if is_large and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype)


def first_items(array: NDArray, size: int) -> NDArray:
    """Return the first items of an array from `empty_array`; SciPy would copy a view whose base is much longer."""
    if array.base is None:
        return array[:size].copy()
    return np.frombuffer(array.base, array.dtype, count=size)[:]
