"""Window of whole lines that moves over a byte range of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Protocol

import numpy as np
import pyarrow as pa

from dkfeat.blocks import SourceFile, Split
from dkfeat.compiled.libsvm import PADDING
from dkfeat.errors import ConfigError

WINDOW_BYTES = 1 << 20
"""Bytes of text loaded at a time; they stay in a core's second-level cache while they are parsed."""

MOST_RANGES = 200_000
"""Maximum number of ranges of uncompressed files, twice the number of tasks of the largest supported job."""

LINE = "line"
"""Column of lines of text, in `Source.stored_rows`."""
_TAIL_BYTES = 1 << 16  # read at a time after the end of the range, to find the end of its last line
_CR = 13
BOM = b"\xef\xbb\xbf"


def line_table(lines: Sequence[bytes]) -> pa.Table:
    """Make the table of `Source.stored_rows` from lines with their line ends."""
    return pa.table({LINE: pa.array(lines, pa.large_binary())})


def cut_text(files: Sequence[SourceFile], blocksize: int) -> Iterator[Split]:
    """Cut files of text into splits: ranges of `blocksize` bytes of uncompressed files, and whole compressed files.

    Raises
    ------
    ConfigError
        For more than `MOST_RANGES` ranges.
    """
    plain_bytes = sum(file.size for file in files if file.compression is None)
    if plain_bytes > blocksize * MOST_RANGES:
        raise ConfigError(
            f"blocksize={blocksize:,} bytes cuts {plain_bytes:,} bytes of text into more than {MOST_RANGES:,} "
            f"tasks; raise blocksize to {-(-plain_bytes // (MOST_RANGES << 20))}MiB"
        )
    number = count()
    for file in files:
        step = blocksize if file.compression is None else max(file.size, 1)
        for start in range(0, max(file.size, 1), step):
            yield Split(number=next(number), file=file, start=start, stop=min(start + step, file.size))


class LineTooLongError(Exception):
    """A line is longer than allowed; `offset` is its first byte in the stream."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class ByteStream(Protocol):
    """Input of a window: a raw file or a decompressed stream."""

    def readinto(self, view: memoryview, /) -> int | None:
        """Read bytes into the front of `view` and return their number; 0 at the end."""


class LineWindow:
    """The lines that begin in [start, stop) of a stream, about `WINDOW_BYTES` of them at a time.

    Every byte is read once; those before the first line, which belong to the previous range, are skipped. The window
    grows to hold a whole line that is longer.

    Parameters
    ----------
    stream : ByteStream
        Stream whose next byte is ``start - 1``, or 0 if `start` is 0.
    start, stop : int
        Range of the first bytes of the lines, in bytes of the stream. A line ends with its LF, or at the end of the
        stream, where a missing LF is added to the text. A byte order mark at byte 0 is skipped.
    max_line_bytes : int
        Maximum length of a line, without its LF; a longer line is an error.

    Attributes
    ----------
    text : ndarray of uint8
        Bytes of the window; `advance` overwrites them, or replaces the array by a longer one.
    view : memoryview
        The same bytes.
    begin, end : int
        Range of the bytes of `text` that are whole lines not consumed yet.
    origin : int
        Offset in the stream of ``text[0]``.
    is_unterminated : bool
        True if the last line of the stream has no LF and has been in the window.

    Raises
    ------
    LineTooLongError
        If a line is longer than `max_line_bytes`; raised by `advance`.
    """

    def __init__(self, stream: ByteStream, start: int, stop: int, *, max_line_bytes: int) -> None:
        self._stream, self._stop = stream, stop
        self._max_bytes = max_line_bytes + 1
        self._filled = 0
        self.begin = self.end = self._consumed = 0
        self.is_unterminated = False
        self.origin = max(start - 1, 0)
        self._is_last = stop <= start
        self._has_bom = start == 0
        self._use(bytearray(min(WINDOW_BYTES, self._max_bytes, max(stop - start, 0) + _TAIL_BYTES) + PADDING))
        if start > 0:
            self._skip_line()

    @property
    def offset(self) -> int:
        """Offset in the stream of the next line, or of the end of the last one; `stop` if the range has no lines."""
        return self.origin + min(self._consumed, self._filled)

    def line_end(self, start: int) -> int:
        """Return the byte of the window after the line that begins at `start`."""
        return self._buffer.index(b"\n", start, self.end) + 1

    def count_lines(self, start: int, stop: int) -> int:
        """Count the line ends between two bytes of the window."""
        return self._buffer.count(b"\n", start, stop)

    def consume(self, position: int) -> memoryview:
        """Move `begin` to `position` and return the stream's bytes up to it, which are valid until `advance`."""
        consumed = memoryview(self._buffer)[self._consumed : min(position, self._filled)]
        self.begin = self._consumed = position
        return consumed

    def advance(self) -> bool:
        """Load more lines after all in the window are consumed; return False if the range has no more."""
        while not self._is_last:
            self._make_room()
            at, before = self.origin + self._filled, self._filled
            wanted = self._stop - at if at < self._stop else _TAIL_BYTES
            n = self._read(wanted)
            if n == 0:
                self._is_last = True
                self.is_unterminated = self._filled > self.begin
                if self.is_unterminated:
                    # after a carriage return a blank is added too, because CR LF would be a valid line end
                    added = b" \n" if self._buffer[self._filled - 1] == _CR else b"\n"
                    end = self._filled + len(added)
                    self._buffer[self._filled : end] = added
                    return self._set_end(end)
                return False
            if at < self._stop:
                newline = self._buffer.rfind(b"\n", before, self._filled)
                self._is_last = at + n == self._stop and newline == self._filled - 1
            else:
                newline = self._buffer.find(b"\n", before, self._filled)
                if newline >= 0:
                    self._filled = newline + 1
                    self._is_last = True
            if newline >= 0:
                return self._set_end(newline + 1)
        return False

    def _set_end(self, end: int) -> bool:
        if self._has_bom:
            self._has_bom = False
            if self._buffer.startswith(BOM) and end > len(BOM):
                self.begin = len(BOM)  # `consume` still returns it
        self.end = end
        return True

    def _skip_line(self) -> None:
        """Skip the previous line to its LF in [start - 1, stop - 1); without this LF no line begins in the range."""
        while (wanted := self._stop - 1 - self.origin) > 0 and (n := self._read(wanted)) > 0:
            newline = self._buffer.find(b"\n", 0, n)
            if newline >= 0:
                self.begin = self._consumed = newline + 1
                self.end = self._buffer.rfind(b"\n", newline, n) + 1
                return
            self.origin += n
            self._filled = 0
        self.origin = self._stop
        self._is_last = True

    def _make_room(self) -> None:
        size = len(self._buffer) - PADDING
        if self.begin > 0:
            rest = self._buffer[self.begin : self._filled]
            self._buffer[: len(rest)] = rest
            self.origin += self.begin
            self._filled = len(rest)
            self.begin = self.end = self._consumed = 0
        if self._filled == size:
            if size == self._max_bytes:
                raise LineTooLongError(self.origin)
            rest = self._buffer[: self._filled]
            self._use(bytearray(min(2 * size, self._max_bytes) + PADDING))
            self._buffer[: len(rest)] = rest

    def _use(self, memory: bytearray) -> None:
        self._buffer = memory
        self.text, self.view = np.frombuffer(memory, dtype=np.uint8), memoryview(memory)

    def _read(self, wanted: int) -> int:
        """Append up to `wanted` bytes, limited by the room in the buffer, and return their number."""
        first = self._filled
        stop = min(first + wanted, len(self._buffer) - PADDING)
        view = memoryview(self._buffer)
        while self._filled < stop and (n := self._stream.readinto(view[self._filled : stop])):
            self._filled += n
        return self._filled - first
