"""Pieces of a split: CSR blocks of bounded size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from dkfeat.blocks import RowBlock, Split
from dkfeat.compiled import libsvm as loop
from dkfeat.io.libsvm_parser import NO_LIMIT, SplitParser, open_split
from dkfeat.io.pages import empty_array, first_items
from dkfeat.io.source import Piece

if TYPE_CHECKING:
    from dkfeat.io.libsvm import LibsvmSource

__all__ = ["read_pieces"]

_INT32_COLUMNS = 1 << 31


def read_pieces(source: LibsvmSource, split: Split, max_piece_rows: int | None, checksum: bool) -> Iterator[Piece]:
    """Read a split piece by piece; see ``LibsvmSource.read``."""
    number = 0
    with open_split(source, split) as parser:
        is_full = True
        while is_full:
            start = parser.offset
            digest = hashlib.sha256() if checksum else None
            rows = _Rows(source, split)
            is_full = _fill(rows, parser, digest, max_piece_rows or NO_LIMIT, start + int(source.blocksize))
            if is_full:  # at the end of a file the parser has looked
                parser.check_unchanged()
            yield Piece(
                number=number,
                last=not is_full,
                block=rows.take(parser.cursor),
                start=start,
                stop=parser.offset,
                source_sha256=digest.hexdigest() if digest else "",
                rows_by_file=tuple(parser.rows_by_file) if split.others else (),
                bad_rows=tuple(parser.bad_rows),
                lines=parser.lines if source.on_bad_row == "quarantine" else None,
            )
            del rows  # the caller alone holds the block while the next one is read
            parser.reset()
            number += 1


def _fill(rows: _Rows, parser: SplitParser, digest: Any, max_rows: int, stop: int) -> bool:
    """Parse one piece; True if the row after it is already in sight."""
    while parser.load():
        rows.reserve(parser.cursor, parser.window.end - parser.window.begin, max_rows)
        is_full, passed = parser.parse(rows.tables, max_rows, stop)
        if digest:
            digest.update(passed)
        rows.text_bytes += len(passed)
        if is_full:
            return True
    return False


class _Rows:
    """Tables that grow with what is parsed into them."""

    def __init__(self, source: LibsvmSource, split: Split) -> None:
        assert source.n_features is not None  # is_settled
        self._source, self._n_features = source, source.n_features
        indices = np.int32 if self._n_features < _INT32_COLUMNS else np.int64
        self._likely_bytes = int(source.blocksize)
        if not split.is_compressed:
            self._likely_bytes = min(self._likely_bytes, split.stop - split.start)
        self.text_bytes = 0
        self.tables = loop.Tables(
            indices=np.empty(0, indices),
            values=np.empty(0, source.dtype),
            indptr=np.zeros(1, np.int32),
            labels=np.empty(0, np.float64),
            label_offsets=np.zeros(1, np.int64),
            qids=np.empty(0, np.int64),
        )

    def reserve(self, cursor: np.ndarray, n_bytes: int, max_rows: int) -> None:
        """Make room for what `n_bytes` of text can hold; untouched room costs no memory."""
        rows, nnz, n_labels = int(cursor[loop.ROWS]), int(cursor[loop.NNZ]), int(cursor[loop.LABELS])
        most_rows = min(rows + n_bytes // 2 + 1, max_rows) + 1
        t = self.tables
        multilabel, query_id = self._source.multilabel, self._source.query_id
        self.tables = loop.Tables(
            indices=self._grown(t.indices, nnz, nnz + n_bytes // 4 + 2),
            values=self._grown(t.values, nnz, nnz + n_bytes // 4 + 2),
            indptr=self._grown(t.indptr, rows + 1, most_rows),
            labels=self._grown(t.labels, n_labels, n_labels + n_bytes // 2 + 1 if multilabel else most_rows),
            label_offsets=self._grown(t.label_offsets, rows + 1, most_rows) if multilabel else t.label_offsets,
            qids=self._grown(t.qids, rows, most_rows) if query_id else t.qids,
        )

    def _grown(self, array: np.ndarray, used: int, needed: int) -> np.ndarray:
        if len(array) >= needed:
            return array
        likely = used * self._likely_bytes // self.text_bytes if self.text_bytes else 0
        grown = empty_array(max(needed, int(1.05 * likely), 3 * used // 2), array.dtype)
        grown[:used] = array[:used]
        return grown

    def take(self, cursor: np.ndarray) -> RowBlock:
        """Hand the rows out as a block; the cursor's counts begin anew."""
        rows, nnz, n_labels = int(cursor[loop.ROWS]), int(cursor[loop.NNZ]), int(cursor[loop.LABELS])
        cursor[[loop.ROWS, loop.NNZ, loop.LABELS]] = 0
        t = self.tables
        indices, values, indptr, labels = (
            first_items(array, size)
            for array, size in ((t.indices, nnz), (t.values, nnz), (t.indptr, rows + 1), (t.labels, n_labels))
        )
        indptr = indptr.astype(indices.dtype, copy=False)
        X = csr_matrix((values, indices, indptr), shape=(rows, self._n_features), copy=False)
        X.has_sorted_indices = X.has_canonical_format = True
        return RowBlock(
            X=X,
            y=labels.astype(np.int64) if self._source.label_dtype == "int64" else labels,
            label_offsets=first_items(t.label_offsets, rows + 1) if self._source.multilabel else None,
            qid=first_items(t.qids, rows) if self._source.query_id else None,
        )
