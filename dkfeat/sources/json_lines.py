"""JSON lines as a source of rows: types of columns, splits of text, and batches of parsed lines."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from dkfeat.blocks import BadRow, SourceFile, Split
from dkfeat.errors import ConfigError, DkfeatError
from dkfeat.filesystems.urls import identifying
from dkfeat.messages import printable
from dkfeat.sources.contents import COMPRESSIONS, check_unchanged, open_content
from dkfeat.sources.libsvm.parser import NO_LIMIT, parse_error
from dkfeat.sources.lines import LineTooLongError, LineWindow, cut_text, line_table
from dkfeat.sources.options import parse_size
from dkfeat.sources.parquet.batches import ColumnBatch, RowError, passing_rows
from dkfeat.sources.parquet.options import condition_of
from dkfeat.sources.parquet.schema import Schema, check_schema
from dkfeat.sources.pieces import cut_message, shown_text
from dkfeat.sources.table_source import TableSource

ENDINGS = (".jsonl", ".ndjson")
_PLAIN = {"bool": pa.bool_(), "int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}
_TYPES = {**_PLAIN, **{f"list<{name}>": pa.list_(kind) for name, kind in _PLAIN.items()}}
_NAMES = {bool: "bool", int: "int64", float: "float64", str: "string"}
_NO_OBJECT = "expected one JSON object in the line"
_OBJECT = re.compile(rb"\s*\{.*\}\s*", re.DOTALL)
_HEAD_BYTES = 4 << 20


def _kinds(value: Any) -> set[str]:
    """Return the type of a value, or those of the items of a list; empty if there is none."""
    if isinstance(value, list):
        return {f"list<{kind}>" for item in value for kind in _kinds(item)} & _TYPES.keys()
    return {_NAMES[type(value)]} if type(value) in _NAMES else set()


@dataclass(frozen=True, slots=True, repr=False)
class JsonLinesSource(TableSource):
    """Files of JSON lines as a source of rows: each line is an object, and its members are columns.

    Columns have the roles that they have in a `ParquetSource`, and a member that a line lacks is null. Types of the
    columns are settled once for the whole source by `types`; a value of another type is an error with the number of its
    line, or its row is set aside. Objects in objects and lists of them are not read. Blank lines are not rows.

    Files with the suffixes .gz, .bz2, .xz and .zst are decompressed while they are read, each as one split.

    Raises
    ------
    dkfeat.errors.ConfigError
        If a setting is out of range.

    Examples
    --------
    >>> source = JsonLinesSource("docs-*.jsonl.gz", label=None, id="url", types=["url=string", "text=string"])
    >>> source.types
    ('url=string', 'text=string')
    """

    kind: ClassVar[str] = "jsonl"
    _to_resolve: ClassVar[tuple[str, ...]] = ("types", *TableSource._to_resolve)

    types: Sequence[str] | None = field(default=None, kw_only=True)
    """Columns with their types, such as ``text=string``; others are not read. Types are bool, int64, float64, string,
    and lists of these such as ``list<string>``. None: found in the first 4 MiB of the first file that has rows. There,
    integers and other numbers together are float64, as all numbers of features are; other mixtures are an error."""
    max_line_bytes: int | str = field(default="256MiB", kw_only=True)
    """Maximum length of a line; a longer line is an error. It bounds the memory that a file can require. Stored as a
    number of bytes."""

    def __post_init__(self) -> None:
        TableSource.__post_init__(self)  # classes with slots have no super()
        self._set("max_line_bytes", parse_size("max_line_bytes", self.max_line_bytes))
        if self.types is not None:
            self._set("types", (self.types,) if isinstance(self.types, str) else tuple(self.types))
            for text in self.types:
                if str(text).rpartition("=")[2] not in _TYPES or not str(text).rpartition("=")[0]:
                    raise ConfigError(f"types has {text!r:.100}, but it must be NAME=TYPE, of {', '.join(_TYPES)}")

    @classmethod
    def recognises(cls, paths: Sequence[str]) -> bool:
        """Return True if all paths have a suffix of JSON lines.

        Examples
        --------
        >>> JsonLinesSource.recognises(["day-*.jsonl.zst"]), JsonLinesSource.recognises(["rows.svm"])
        (True, False)
        """
        endings = tuple(one + other for one in ENDINGS for other in ("", *COMPRESSIONS))
        return all(identifying(path).lower().endswith(endings) for path in paths)

    def inspect(self, files: Sequence[SourceFile]) -> Self:
        """Return the source with the options that the first lines of its first file with rows determine."""
        source = self
        if self.types is None and files:
            source = self.replaced(types=next(filter(None, map(self._found_types, files)), ()))
        return super(JsonLinesSource, source).inspect(files)

    def schema_of(self, file: SourceFile) -> pa.Schema:
        """Return the columns that are read, or those in the first lines of a file, with their types."""
        types = self._found_types(file) if self.types is None else self.types
        return pa.schema([(name, _TYPES[kind]) for name, _, kind in (text.rpartition("=") for text in types)])

    def _found_types(self, file: SourceFile) -> tuple[str, ...]:
        """Find the types of the columns in the first lines of a file."""
        exact = {self.label, self.query_id, *self.kept_columns.values()}
        found: dict[str, set[str]] = {}
        for line in self._head(file).splitlines():
            with suppress(ValueError, RecursionError):  # a bad line is found when it is read
                row = json.loads(line)
                for name, value in row.items() if isinstance(row, dict) else ():
                    found.setdefault(name, set()).update(_kinds(value))
        for name, kinds in found.items():
            if "int64" in kinds and ("float64" in kinds or name not in exact):
                kinds.remove("int64")
                kinds.add("float64")
            if {"list<int64>", "list<float64>"} <= kinds:
                kinds.remove("list<int64>")
            if len(kinds) > 1:
                types = " and ".join(sorted(kinds))
                raise ConfigError(
                    f"{printable(file.url)}: column {printable(name)} has values of the types {types}; make them "
                    "equal in all lines, or pass types= (--types) without this column"
                )
        return tuple(f"{name}={kind}" for name, kinds in found.items() for kind in kinds)

    def _head(self, file: SourceFile) -> bytes:
        """Read the first whole lines of a file."""
        with open_content(file, 0, self.storage_options) as stream:
            window = LineWindow(stream, 0, _HEAD_BYTES, max_line_bytes=int(self.max_line_bytes))
            parts = []
            with suppress(LineTooLongError):
                while window.advance():
                    parts.append(bytes(window.view[window.begin : window.end]))
                    window.consume(window.end)
        return b"".join(parts)

    def splits(self, files: Sequence[SourceFile] | None = None, first_number: int = 0) -> tuple[Split, ...]:
        """Cut files into splits: ranges of uncompressed files, whole compressed files."""
        return tuple(cut_text(self.files() if files is None else files, int(self.blocksize), first_number))

    def row_error(self, file: SourceFile, error: RowError) -> DkfeatError:
        """Return an error in a row with the number of its line."""
        reason = error.reason if error.column is None else f"column {error.column}: {error.reason}"
        return parse_error(reason, file, error.row or 0, 1, self.storage_options)

    def bad_row_error(self, file: SourceFile, row: BadRow, reason: str) -> DkfeatError:
        """Make the error for a row that was set aside, with the number of its line."""
        return parse_error(reason, file, row.offset, row.column, self.storage_options)

    @contextmanager
    def open_rows(self, split: Split, columns: Sequence[str]) -> Iterator[_LineReader]:
        """Open a split to read some columns of it."""
        file = split.file
        check_unchanged(file, self.storage_options)
        schema = self.schema_of(file)
        check_schema(self, Schema(schema, file))
        start, stop = (split.start, split.stop) if file.compression is None else (0, NO_LIMIT)
        with open_content(file, max(start - 1, 0), self.storage_options) as stream:
            window = LineWindow(stream, start, stop, max_line_bytes=int(self.max_line_bytes))
            yield _LineReader(self, split, window, pa.schema([schema.field(name) for name in columns]))

    def stored_rows(self, split: Split, bad: Collection[tuple[int, int]]) -> Iterator[pa.Table]:
        """See `Source.stored_rows`."""
        yield line_table(())
        bad_lines = [offset for _, offset in bad]
        with self.open_rows(split, self.filter_columns) as reader:
            for lines, batch in reader.stored():
                yield line_table(lines).filter(~np.isin(batch.rows, bad_lines))
            check_unchanged(split.file, self.storage_options)


class _LineReader:
    """Rows of a split, see `RowReader`."""

    n_rows: int | None = None

    def __init__(self, source: JsonLinesSource, split: Split, window: LineWindow, schema: pa.Schema) -> None:
        self._source, self._file, self._window, self._schema = source, split.file, window, schema
        whole = source.schema_of(split.file)
        self._condition = None if source.filters is None else condition_of(source.filters, whole, split.file)
        self.first_row = split.start if split.file.compression is None else 0
        self.n_lines: int | None = 0
        self.bad: list[BadRow] = []

    @property
    def stop_row(self) -> int:
        """Byte after the lines read so far."""
        return self._window.offset

    def batches(self) -> Iterator[tuple[ColumnBatch, int]]:
        """See `RowReader.batches`."""
        for _, batch in self.stored():
            yield batch, 0

    def stored(self) -> Iterator[tuple[list[bytes], ColumnBatch]]:
        """Yield rows that pass the filters, as lines and as columns; bad lines are set aside, or raise an error."""
        window = self._window
        while self._advance():
            lines = [*BytesIO(window.view[window.begin : window.end])]
            sizes = np.array([len(line) for line in lines])
            offsets = window.origin + window.begin + np.cumsum(sizes) - sizes
            numbers = int(self.n_lines or 0) + 1 + np.arange(len(lines))
            self.n_lines = int(numbers[-1])
            window.consume(window.end)
            shown = np.flatnonzero([not line.isspace() for line in lines])
            good, table = self._parsed([lines[at] for at in shown], offsets[shown], numbers[shown])
            rows, columns = shown[good], {name: table[name].combine_chunks() for name in table.column_names}
            if self._condition is not None:
                passing, columns = passing_rows(self._condition, columns, np.arange(len(rows)))
                rows = rows[passing]
            yield [lines[at] for at in rows], ColumnBatch(self._file, 0, offsets[rows], columns, numbers[rows])

    def _advance(self) -> bool:
        try:
            return self._window.advance()
        except LineTooLongError as error:
            most = self._source.max_line_bytes
            reason = f"the line has more than {most:,} bytes; raise max_line_bytes (--max-line-bytes) if it is one row"
            raise parse_error(reason, self._file, error.offset, 1, self._source.storage_options) from None

    def _parsed(self, lines: list[bytes], offsets: Any, numbers: Any) -> tuple[list[int], pa.Table]:
        """Parse lines that are not blank; return the positions of the good ones, and their columns."""
        good, tables, pending = list[int](), [self._schema.empty_table()], [(0, len(lines))]
        while pending:
            start, stop = pending.pop()
            table, reason = self._table(lines[start:stop])
            if table is not None:
                good += range(start, stop)
                tables.append(table)
            elif stop - start > 1:
                middle = (start + stop) // 2
                pending += [(middle, stop), (start, middle)]
            elif self._source.is_quarantined:
                place = int(offsets[start]), int(numbers[start])
                self.bad.append(BadRow(0, *place, 1, "bad value", cut_message(reason), shown_text(lines[start])))
            else:
                raise parse_error(reason, self._file, int(offsets[start]), 1, self._source.storage_options)
        return good, pa.concat_tables(tables)

    def _table(self, lines: list[bytes]) -> tuple[pa.Table | None, str]:
        """Parse lines of one object each; for others, or bad ones, return None and the reason."""
        if not all(line[:1] + line[-2:-1] == b"{}" or _OBJECT.fullmatch(line) for line in lines):
            return None, _NO_OBJECT
        if not self._schema.names or not lines:
            return self._schema.empty_table(), ""
        try:
            table = _read(b"".join(lines), self._schema)
        except pa.ArrowException as fault:
            return None, self._reason(lines[0]) or printable(str(fault))
        return (table, "") if table.num_rows == len(lines) else (None, _NO_OBJECT)

    def _reason(self, line: bytes) -> str:
        """Return the reason for which a line cannot be parsed; empty for others."""
        try:
            json.loads(line)
        except (ValueError, RecursionError) as fault:
            return f"no JSON: {printable(str(fault))}"
        for column in self._schema:
            try:
                _read(line, pa.schema([column]))
            except pa.ArrowException:
                return f"column {printable(column.name)}: no {column.type}, its type by types (--types)"
        return ""


def _read(text: bytes, schema: pa.Schema) -> pa.Table:
    options = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
    parsing = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    return pj.read_json(pa.BufferReader(text), options, parsing)
