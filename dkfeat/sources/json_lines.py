"""JSON lines as a source of rows: types of columns, splits of text, and batches of parsed lines."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from dkfeat.blocks import BadRow, SourceFile, Split
from dkfeat.errors import ConfigError, DkfeatError, ParseError
from dkfeat.filesystems.urls import identifying
from dkfeat.messages import counted, logger_of, printable
from dkfeat.sources.contents import COMPRESSIONS, check_unchanged, not_read, open_content
from dkfeat.sources.libsvm.parser import NO_LIMIT, parse_error, quoted
from dkfeat.sources.lines import LineTooLongError, LineWindow, cut_text, line_table
from dkfeat.sources.options import parse_size
from dkfeat.sources.parquet.batches import ColumnBatch, RowError, passing_rows
from dkfeat.sources.parquet.options import column_names, condition_of
from dkfeat.sources.parquet.schema import Schema, check_schema
from dkfeat.sources.pieces import cut_message, shown_text
from dkfeat.sources.tabular import TabularSource

logger = logger_of(__name__)

_NAME = re.compile(rf".*\.(jsonl?|ndjson)({'|'.join(map(re.escape, COMPRESSIONS))})?\*?", re.DOTALL)
_PLAIN = {"bool": pa.bool_(), "int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}
_UNREAD = {"null": pa.null(), "object": pa.struct([])}
_READ = {**_PLAIN, **{f"list<{name}>": pa.list_(kind) for name, kind in _PLAIN.items()}}
_TYPES = _READ | _UNREAD
_NAMES_OF_TYPES = {kind: name for name, kind in _TYPES.items()}
_NAMES = {bool: "bool", int: "int64", float: "float64", str: "string", dict: "object"}
_WIDE = "int64 beyond 2^53"
_OBJECT = re.compile(rb"\s*\{.*\}\s*", re.DOTALL)
_TYPES_BYTES = 4 << 20
_MOST_HEADS, _HEAD_BYTES, _HEAD_THREADS = 100, 64 << 10, 16


def _kinds(value: Any) -> set[str]:
    """Return the type of a value, or those of the items of a list; empty if there is none."""
    if isinstance(value, list):
        return {kind if (kind := f"list<{item}>") in _TYPES else "object" for item in set().union(*map(_kinds, value))}
    return set() if value is None else {_NAMES[type(value)]}


@dataclass(frozen=True, slots=True, repr=False)
class JsonLinesSource(TabularSource):
    """Files of JSON lines as a source of rows: each line is an object, and its members are columns.

    Columns have the roles that they have in a `ParquetSource`, and a member that a line lacks is null. Types of the
    columns are settled once for the whole source by `types`; a value of another type is an error with the number of its
    line, or its row is set aside. Objects in objects and lists of them are not read. Blank lines are not rows. A run
    reads the first 64 KiB of at most 100 new files, and warns if they lack a column that is read, or have others.

    Files with the suffixes .gz, .bz2, .xz and .zst are decompressed while they are read, each as one split.

    Raises
    ------
    dkfeat.errors.ConfigError
        If a setting is out of range.

    Examples
    --------
    >>> source = JsonLinesSource("docs-*.jsonl.gz", label=None, id="url", types={"url": "string", "text": "string"})
    >>> source.types
    ('url=string', 'text=string')
    """

    kind: ClassVar[str] = "jsonl"
    column_remedy: ClassVar[str] = "; if some lines have it, name it in types= (--types), as in {}=string"
    _to_resolve: ClassVar[tuple[str, ...]] = ("types", *TabularSource._to_resolve)

    types: Sequence[str] | Mapping[str, str] | None = field(default=None, kw_only=True)
    """Columns with their types, such as ``text=string``; others are not read. Types are bool, int64, float64, string,
    and lists of these such as ``list<string>``. None: found in the first 4 MiB of the first file that has rows. There,
    integers are float64, as numbers of features are, but int64 for labels, categories and columns that shards keep, and
    beyond 2^53; columns of objects, and those without a value (null), are left out; other mixtures are an error."""
    max_line_bytes: int | str = field(default="256MiB", kw_only=True)
    """Maximum length of a line; a longer line is an error. It bounds the memory that a file can require. Stored as a
    number of bytes."""

    def __post_init__(self) -> None:
        TabularSource.__post_init__(self)  # classes with slots have no super()
        self._set("max_line_bytes", parse_size("max_line_bytes", self.max_line_bytes))
        if self.types is not None:
            given = self.types
            if isinstance(given, Mapping):
                given = [f"{name}={kind}" for name, kind in given.items()]
            is_list = isinstance(given, Sequence) and not isinstance(given, str)
            self._set("types", tuple(map(str, given if is_list else [given])))
            for text in self.types:
                _, equals, kind = text.rpartition("=")
                if not equals or kind not in _TYPES:
                    raise ConfigError(f"types has {text!r:.100}, but it must be NAME=TYPE, of {', '.join(_READ)}")
            column_names("types", [name for text in self.types if (name := text.rpartition("=")[0])])

    @classmethod
    def recognises(cls, paths: Sequence[str]) -> bool:
        """Return True if all paths have a suffix of JSON lines, which may end with ``*``.

        Examples
        --------
        >>> JsonLinesSource.recognises(["day-*.jsonl.zst"]), JsonLinesSource.recognises(["rows.svm"])
        (True, False)
        """
        return all(_NAME.fullmatch(identifying(path).lower()) for path in paths)

    def inspect(self, files: Sequence[SourceFile]) -> Self:
        """Return the source with the options that the first lines of its first file with rows determine."""
        source = self
        if self.types is None and files:
            types = next(filter(None, map(self._found_types, files)), ())
            if not types:
                self._check_first_line(files)
            source = self.replaced(types=types)
        return super(JsonLinesSource, source).inspect(files)

    def schema_of(self, file: SourceFile) -> pa.Schema:
        """Return the columns that are read, or those in the first lines of a file, with their types."""
        types = self._found_types(file) if self.types is None else self.types
        return pa.schema([(name, _TYPES[kind]) for name, _, kind in (text.rpartition("=") for text in types)])

    def column_error(self, file: SourceFile, column: str | None, reason: str) -> DkfeatError:
        """Make an error about a column of a file, or about all."""
        return ParseError(reason if column is None else f"column {column}: {reason}", path=printable(file.url))

    def warn_of_columns(self, files: Sequence[SourceFile] | None, known: Collection[str] | None) -> None:
        """Warn of unknown members in the first lines of some files, and of columns that these do not have."""
        files, read = self.files() if files is None else files, {*self.read_columns}
        some = files[:: 1 + len(files) // _MOST_HEADS]
        with ThreadPoolExecutor(_HEAD_THREADS) as pool:
            names = dict(zip(some, pool.map(lambda file: _members(self, file, _HEAD_BYTES).keys(), some), strict=True))
        if known is not None:
            self._warn_of_new(sorted({*chain.from_iterable(names.values())} - {*known}))
        if lacking := [file for file, found in names.items() if found and read - found]:
            missing = printable(", ".join(sorted(read - names[lacking[0]])))
            text = (
                "%s: its first lines have no member %s, which is null if a line lacks it; compare the names (%d of %s)"
            )
            logger.warning(text, printable(lacking[0].url), missing, len(lacking), counted(len(some), "file"))

    def _found_types(self, file: SourceFile) -> tuple[str, ...]:
        """Find the types of the columns in the first lines of a file."""
        categories = getattr(self.encoder, "categories", None) or ()
        exact = {self.label, self.query_id, *self.kept_columns.values(), *categories}
        types = []
        for name, found in _members(self, file, _TYPES_BYTES).items():
            kinds = found - {_WIDE} or {"string" if name in self.texts else "null"}
            if "int64" in kinds and ("float64" in kinds or not (name in exact or _WIDE in found)):
                kinds = kinds - {"int64"} | {"float64"}
            if {"list<int64>", "list<float64>"} <= kinds:
                kinds -= {"list<int64>"}
            if len(kinds) > 1:
                reason = (
                    f"has values of the types {' and '.join(sorted(kinds))}; make them equal in all lines, or pass "
                    "types= (--types) with one for each column to read; then lines with another are errors or set aside"
                )
                raise self.column_error(file, printable(name), reason)
            types.append(f"{name}={min(kinds)}")
        return tuple(types)

    def _check_first_line(self, files: Sequence[SourceFile]) -> None:
        """Raise an error about the first line if it is no object, or if there is none or it is empty."""
        for file in files:
            head, nothing = self._head(file, _TYPES_BYTES), pa.schema([])
            text = head.lstrip()
            line = text.partition(b"\n")[0] + b"\n"
            if text and (reason := _parsed([line], nothing)[1]):
                reason += f"; {not_read(printable(file.url))}"
            if text and (reason := reason or _reason(line, nothing)):
                raise parse_error(reason, file, len(head) - len(text), 1, self.storage_options)
        raise self.column_error(files[0], None, "it has no columns; name them by types= (--types), or add rows")

    def _head(self, file: SourceFile, n_bytes: int) -> bytes:
        """Read the first whole lines of a file."""
        with open_content(file, 0, self.storage_options) as stream:
            window = LineWindow(stream, 0, n_bytes, max_line_bytes=int(self.max_line_bytes))
            parts = []
            with suppress(LineTooLongError):
                while window.advance():
                    parts.append(bytes(window.view[window.begin : window.end]))
                    window.consume(window.end)
        return b"".join(parts)

    def splits(self, files: Sequence[SourceFile] | None = None) -> tuple[Split, ...]:
        """Cut files into splits: ranges of uncompressed files, whole compressed files."""
        return tuple(cut_text(self.files() if files is None else files, int(self.blocksize)))

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
        check_schema(self, Schema(self, schema, file))
        start, stop = (split.start, split.stop) if file.compression is None else (0, NO_LIMIT)
        with open_content(file, max(start - 1, 0), self.storage_options) as stream:
            window = LineWindow(stream, start, stop, max_line_bytes=int(self.max_line_bytes))
            yield _LineReader(self, split, window, [schema.field(name) for name in columns])

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

    def __init__(self, source: JsonLinesSource, split: Split, window: LineWindow, fields: Sequence[pa.Field]) -> None:
        self._source, self._file, self._window = source, split.file, window
        self._schema = pa.schema([field for field in fields if field.type not in _UNREAD.values()])
        self._unread = {field.name: field.type for field in fields if field.type in _UNREAD.values()}
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
            columns |= {name: pa.nulls(len(good), kind) for name, kind in self._unread.items()}
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
            table, reason = _parsed(lines[start:stop], self._schema)
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


def _parsed(lines: list[bytes], schema: pa.Schema) -> tuple[pa.Table | None, str]:
    """Parse lines of one object each; for others, or bad ones, return None and the reason."""
    reason = f"expected one JSON object in the line, got {quoted(lines[0].strip())}" if lines else ""
    if not all(line[:1] + line[-2:-1] == b"{}" or _OBJECT.fullmatch(line) for line in lines):
        return None, reason
    if not schema.names or not lines:
        return schema.empty_table(), ""
    try:
        table = _read(b"".join(lines), schema)
    except pa.ArrowException as fault:
        return None, _reason(lines[0], schema) or printable(str(fault))
    return (table, "") if table.num_rows == len(lines) else (None, reason)


def _reason(line: bytes, schema: pa.Schema) -> str:
    """Return the reason for which a line cannot be parsed; empty for others."""
    column = None
    try:
        row = json.loads(line)
        for column in (None, *schema):  # without columns other faults are found
            _read(line, pa.schema([] if column is None else [column]))
    except (ValueError, RecursionError, pa.ArrowException) as fault:
        cause = printable(str(fault).removeprefix("JSON parse error: ").removesuffix(" in row 0"))
        if column is None:
            return f"no JSON: {cause}"
        kind, value = _NAMES_OF_TYPES[column.type], quoted(json.dumps(row.get(column.name)).encode())
        if "twice" in cause:  # others say that the type is another
            return f"column {printable(column.name)}: the line has this key twice, as {value} at last; give it once"
        return f"column {printable(column.name)}: expected {kind} by types, got {value}"
    return ""


def _read(text: bytes, schema: pa.Schema) -> pa.Table:
    options = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
    parsing = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    return pj.read_json(pa.BufferReader(text), options, parsing)


@lru_cache
def _members(source: JsonLinesSource, file: SourceFile, n_bytes: int) -> dict[str, set[str]]:
    """Find the members in the first lines of a file, with the types of their values; cached for the file as listed."""
    found: dict[str, set[str]] = {}
    for line in source._head(file, n_bytes).splitlines():
        with suppress(ValueError, RecursionError):  # a bad line is found when it is read
            row = json.loads(line)
            for name, value in row.items() if isinstance(row, dict) else ():
                kinds = found.setdefault(name, set())
                kinds |= _kinds(value)
                if isinstance(value, int) and 2**53 < abs(value) < 2**63:
                    kinds.add(_WIDE)
    return found
