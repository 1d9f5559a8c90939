"""Passes over a split of LIBSVM text: rows in pieces, counts for a scan, locations of rejected rows."""

from __future__ import annotations

import hashlib
import mmap
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_matrix

from dkfeat.blocks import RowBlock, Split
from dkfeat.compiled.text import libsvm as loop
from dkfeat.io.libsvm.messages import token_at
from dkfeat.io.libsvm.options import LibsvmOptions
from dkfeat.io.libsvm.parser import NO_LIMIT, SplitParser, open_split
from dkfeat.io.shards.bad_rows import REFUSED, BadRow, cut_message, shown_text
from dkfeat.io.sources.base import Piece, RejectedRow, SplitScan, are_integers

_INT32_COLUMNS = 1 << 31
_MOST_BINS = 1 << 16
_TOKEN = re.compile(rb"[^ \t\r\n]+")


def read_pieces(options: LibsvmOptions, split: Split, max_piece_rows: int | None, checksum: bool) -> Iterator[Piece]:
    """Read a split piece by piece; see ``LibsvmSource.read``."""
    number = 0
    with open_split(options, split) as parser:
        is_full = True
        while is_full:
            start = parser.offset
            digest = hashlib.sha256() if checksum else None
            tables = _GrowingTables(options, split)
            is_full = _fill(tables, parser, digest, max_piece_rows or NO_LIMIT, start + int(options.blocksize))
            if is_full:  # at the end of a file the parser has looked
                parser.check_unchanged()
            yield Piece(
                number=number,
                last=not is_full,
                block=tables.take_block(parser.cursor),
                start=start,
                stop=parser.offset,
                source_sha256=digest.hexdigest() if digest else "",
                rows_by_file=tuple(parser.rows_by_file) if split.others else (),
                bad_rows=tuple(parser.bad_rows),
                lines=parser.lines if options.is_quarantined else None,
            )
            del tables  # the caller alone holds the block while the next one is read
            parser.reset()
            number += 1


def _fill(tables: _GrowingTables, parser: SplitParser, digest: Any, max_rows: int, stop: int) -> bool:
    """Parse one piece; True if the row after it is already in sight."""
    while parser.load():
        tables.reserve(parser.cursor, parser.window.end - parser.window.begin, max_rows)
        is_full, passed = parser.parse(tables.arrays, max_rows, stop)
        if digest:
            digest.update(passed)
        tables.text_bytes += len(passed)
        if is_full:
            return True
    return False


def scan_pieces(options: LibsvmOptions, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
    """Parse a split and keep counts only; see ``LibsvmSource.scan_split``."""
    counts = SplitScan(nnz=0)
    tables = _GrowingTables(options, split)  # written over with every window
    with open_split(options, split) as parser:
        cursor = parser.cursor
        while parser.load():
            if proceed is not None:
                proceed()
            tables.reserve(cursor, parser.window.end - parser.window.begin, NO_LIMIT)
            parser.parse(tables.arrays, NO_LIMIT, NO_LIMIT)
            if counts.needs_labels:
                counts.add_labels(_distinct(tables.arrays.labels[: cursor[loop.LABELS]]))
            counts.n_rows += int(cursor[loop.ROWS])
            counts.nnz += int(cursor[loop.NNZ])  # type: ignore[operator]  # it is counted
            cursor[[loop.ROWS, loop.NNZ, loop.LABELS]] = 0
            counts.add_bad_rows(parser.bad_rows)
            parser.bad_rows.clear()
    counts.n_empty_rows = int(cursor[loop.EMPTY_ROWS])
    if cursor[loop.LOWEST] < NO_LIMIT:
        counts.min_index, counts.max_index = int(cursor[loop.LOWEST]), int(cursor[loop.HIGHEST])
    return counts


def _distinct(labels: np.ndarray) -> np.ndarray:
    """Sorted distinct labels: by counting where they are few integers, which is ten times as fast as sorting."""
    if len(labels) and are_integers(labels[:100]):
        low, high = labels.min(), labels.max()
        if high - low < _MOST_BINS and np.all(labels == np.trunc(labels)):
            return np.flatnonzero(np.bincount((labels - low).astype(np.int64))) + low
    return np.unique(labels)


def locate_rows(options: LibsvmOptions, split: Split, piece: Piece, rejected: Sequence[RejectedRow]) -> list[BadRow]:
    """Locate rows that a map does not take, in ascending order, by reading the split's lines up to them."""
    aside = {(bad.file, bad.offset) for bad in piece.bad_rows}
    wanted = {one.row: one for one in rejected}
    found: list[BadRow] = []
    row = -1
    for position, at, offset, number, line in _lines(options, split):
        is_row = line.strip(b" \t\r\n") and line.lstrip(b" \t")[0] != ord("#")
        if at < piece.start or not is_row or (position, offset) in aside:
            continue
        row += 1
        if row in wanted:
            blamed = wanted[row].column
            column = 0 if blamed is None else _column(options, line, blamed)
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


def _lines(options: LibsvmOptions, split: Split) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Lines with their file, offset in the split's text, offset in the file, and number in it from the split on."""
    with open_split(options, split) as parser:
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


def _column(options: LibsvmOptions, line: bytes, column: int) -> int:
    """Byte of the line at which the value of a column stands; 0 if the line does not write it."""
    wanted = column + (options.zero_based is False)
    for token in _TOKEN.finditer(line.partition(b"#")[0]):
        index, colon, _ = token[0].partition(b":")
        if colon and index.isdigit() and int(index) == wanted:
            return token.start()
    return 0


class _GrowingTables:
    """Tables of the compiled parser, made longer as text comes."""

    def __init__(self, options: LibsvmOptions, split: Split) -> None:
        self._options = options
        indices = np.int32 if (options.n_features or 0) < _INT32_COLUMNS else np.int64
        self._likely_bytes = int(options.blocksize)
        if not split.is_compressed:
            self._likely_bytes = min(self._likely_bytes, split.stop - split.start)
        self.text_bytes = 0
        self.arrays = loop.Tables(
            indices=np.empty(0, indices),
            values=np.empty(0, options.dtype),
            indptr=np.zeros(1, np.int32),
            labels=np.empty(0, np.float64),
            label_offsets=np.zeros(1, np.int64),
            qids=np.empty(0, np.int64),
        )

    def reserve(self, cursor: np.ndarray, n_bytes: int, max_rows: int) -> None:
        """Make room for what `n_bytes` of text can hold; untouched room costs no memory."""
        rows, nnz, n_labels = (int(count) for count in cursor[[loop.ROWS, loop.NNZ, loop.LABELS]])
        most_rows = min(rows + n_bytes // 2 + 1, max_rows) + 1
        most_nnz = nnz + n_bytes // 4 + 2
        a, options = self.arrays, self._options
        self.arrays = loop.Tables(
            indices=self._grown(a.indices, nnz, most_nnz),
            values=self._grown(a.values, nnz, most_nnz),
            indptr=self._grown(a.indptr, rows + 1, most_rows),
            labels=self._grown(a.labels, n_labels, n_labels + n_bytes // 2 + 1 if options.multilabel else most_rows),
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

    def take_block(self, cursor: np.ndarray) -> RowBlock:
        """Make the rows a block; the cursor's counts begin anew."""
        rows, nnz, n_labels = (int(count) for count in cursor[[loop.ROWS, loop.NNZ, loop.LABELS]])
        cursor[[loop.ROWS, loop.NNZ, loop.LABELS]] = 0
        a, options = self.arrays, self._options
        indices, labels = first_items(a.indices, nnz), first_items(a.labels, n_labels)
        indptr = first_items(a.indptr, rows + 1).astype(indices.dtype, copy=False)
        X = csr_matrix((first_items(a.values, nnz), indices, indptr), shape=(rows, options.n_features), copy=False)
        X.has_sorted_indices = X.has_canonical_format = True
        return RowBlock(
            X=X,
            y=labels.astype(np.int64) if options.label_dtype == "int64" else labels,
            label_offsets=first_items(a.label_offsets, rows + 1) if options.multilabel else None,
            qid=first_items(a.qids, rows) if options.query_id else None,
        )


# Arrays on memory pages of their own go back to the system with the last view of them. Blocks of ten megabytes that
# come and go by the thousand would leave a heap in holes, and a worker's memory would grow with the number of blocks.

_SMALL_BYTES = 1 << 18
_HUGE_PAGE_BYTES = 1 << 21


def empty_array(size: int, dtype: DTypeLike) -> NDArray:
    """Make an uninitialised array of shape (size,), or somewhat longer, whose pages cost nothing until used."""
    n_bytes = size * np.dtype(dtype).itemsize
    if n_bytes <= _SMALL_BYTES:
        return np.empty(size, dtype)
    is_large = n_bytes >= 2 * _HUGE_PAGE_BYTES
    if is_large:  # whole huge pages: the kernel puts those where it can use them
        n_bytes = -(-n_bytes // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if is_large and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype)


def first_items(array: NDArray, size: int) -> NDArray:
    """Give the first items of an array from `empty_array` their own base, so that scipy sees no memory to save."""
    if array.base is None:
        return array[:size].copy()
    return np.frombuffer(array.base, array.dtype, count=size)[:]
