"""Parquet codec of one shard: encoding, sealing, and decoding with integrity checks.

The footer holds the key ``dkfeat.seal``. Its value is the SHA-256 of the whole file with that value replaced by 64
zeros, so that a file can be verified without any other file. Page checksums alone do not cover page headers and the
footer; the seal detects any changed bit.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dkfeat
from dkfeat.blocks import BadCount, BadRow, RowBlock
from dkfeat.canonical import Count, Name, Sha256, dumps, fingerprint, parse_object, typed, without_defaults
from dkfeat.errors import InputError, ShardError
from dkfeat.store.manifest.record_table import open_parquet, read_table
from dkfeat.store.manifest.records import FILE_NAME, SHARD_NAME, Piece, ShardEntry, check
from dkfeat.store.shards import columns
from dkfeat.store.storage.base import DATA, Storage, faults_as

if TYPE_CHECKING:
    from dkfeat.blocks import Split
    from dkfeat.store.manifest.batch_plan import BatchPlan
    from dkfeat.store.manifest.manifest import Manifest


FORMAT = 1
PREFIX = "dkfeat."
KEY = "dkfeat.seal"
BLANK = "0" * 64

_MAGIC = b"PAR1"
# In Thrift's compact protocol a key-value pair is a length-prefixed key, then 0x18 (a string field), then the value.
_PATTERN = bytes([len(KEY)]) + KEY.encode() + b"\x18" + bytes([len(BLANK)])


def seal(data: memoryview) -> str:
    """Write the seal into a Parquet file whose footer holds `KEY` with the value `BLANK`.

    Parameters
    ----------
    data : memoryview
        Whole file, writable, with one-byte items.

    Returns
    -------
    sha256 : str
        SHA-256 of the sealed file.
    """
    position = _find(data)
    assert position is not None
    prefix = hashlib.sha256(data[:position])
    digest = _digest(prefix, data, position)
    data[position : position + 64] = digest.encode()
    prefix.update(data[position:])
    return prefix.hexdigest()


def check_seal(data: memoryview) -> str | None:
    """Return the SHA-256 of a sealed file, or None if its seal is missing or broken."""
    position = _find(data)
    if position is None:
        return None
    prefix = hashlib.sha256(data[:position])
    if _digest(prefix, data, position).encode() != bytes(data[position : position + 64]):
        return None
    prefix.update(data[position:])
    return prefix.hexdigest()


def _digest(prefix: hashlib._Hash, data: memoryview, position: int) -> str:
    state = prefix.copy()
    state.update(BLANK.encode())
    state.update(data[position + 64 :])
    return state.hexdigest()


def _find(data: memoryview) -> int | None:
    if len(data) < 12 or bytes(data[-4:]) != _MAGIC:
        return None
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    if start < 4:
        return None
    at = bytes(data[start:-8]).rfind(_PATTERN)
    position = start + at + len(_PATTERN)
    return position if at >= 0 and position + 64 <= len(data) - 8 else None


def shard_name(spec_fp: str, split: Split, piece: int) -> str:
    """Return the name of a shard, a function of its inputs.

    Sorted names are in the source's row order up to a million splits, and 10,000 pieces of a split.

    Parameters
    ----------
    spec_fp : str
        Fingerprint of the spec.
    split : Split
        Split as recorded in the plan.
    piece : int
        Position of the piece within the split, from 0.

    Examples
    --------
    >>> from dkfeat.blocks import SourceFile, Split
    >>> file = SourceFile(name="day1.svm", url="", size=120, mtime_ns=1)
    >>> shard_name("0" * 64, Split(number=3, file=file, start=0, stop=120), 1)
    'part-000003-0001-d111afcece5c.parquet'
    """
    identities = [file.identity for file in split.files]
    made_from = [spec_fp, identities if split.others else identities[0], [split.start, split.stop], piece]
    return f"part-{split.number:06d}-{piece:04d}-{fingerprint(made_from)[:12]}.parquet"


def planned_shards(plan: BatchPlan, names: Iterable[str]) -> dict[str, int]:
    """Select the names of a plan's shards, each with the number of its split.

    A name contains a hash of spec, source, range and piece, so a shard of other settings or sources has another name.
    """
    splits = {split.number: split for split in plan.splits}
    found = {}
    for name in names:
        match = SHARD_NAME.fullmatch(name)
        split = splits.get(int(match[1])) if match else None
        if match and split and shard_name(plan.spec_fp, split, int(match[2])) == name:
            found[name] = split.number
    return found


def shard_files(storage: Storage) -> dict[str, str]:
    """List the files in ``data/`` and the files of text beside it: their paths, and the names of their shards."""
    shards = {f"{DATA}/{name}": name for name in storage.list(DATA, sizes=False)}
    return shards | {name: shard for name, (shard, _) in text_files(storage).items()}


def text_files(storage: Storage) -> dict[str, tuple[str, int]]:
    """Return the names of the shards and the sizes of the files of text beside ``data/``, by their names."""
    found = {name: size for name, size in storage.list("").items() if FILE_NAME.fullmatch(name)}
    shards = {name: f"{name.partition('.')[0]}.parquet" for name in found if not SHARD_NAME.fullmatch(name)}
    return {name: (shard, found[name]) for name, shard in shards.items()}


def missing_shards(storage: Storage, manifest: Manifest, sizes: Mapping[str, int]) -> list[ShardEntry]:
    """Return the shards that are missing or have another size in a listing of ``data/``, or lack their text."""
    missing = manifest.missing(sizes)
    if manifest.text_size:
        lost, texts = {each.name for each in missing}, {shard for shard, _ in text_files(storage).values()}
        lost |= {each.name for each in manifest.shards if each.rows and each.name not in texts}
        missing = [each for each in manifest.shards if each.name in lost]
    return missing


def versions() -> dict[str, str]:
    """Versions of the software that determines a shard's bytes."""
    return {"dkfeat": dkfeat.__version__, "numpy": np.__version__, "pyarrow": pa.__version__}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """File beside ``data/`` with the text of the rows of a shard."""

    name: Name
    """File name: that of the shard, with another ending."""
    size: Count
    """Size of the file in bytes."""
    sha256: Sha256
    """SHA-256 of the file."""

    def check(self, storage: Storage) -> None:
        """Raise `ShardError` unless the file is there, and whole."""
        check(FILE_NAME.fullmatch(self.name) is not None, f"{self.name!a} is not the name of a file of text")
        where, found = f"{storage.url}/{self.name}", None
        with faults_as(ShardError, f"{where}: cannot be read"):
            if storage.size(self.name) == self.size:
                found = hashlib.sha256(storage.load(self.name, self.size)).hexdigest()
        check(found == self.sha256, f"{where}: missing or damaged; delete it and repeat the run")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFooter(Piece):
    """Footer of a shard, with everything that a resumed run needs to list the shard in a manifest."""

    spec_fp: Sha256
    """Fingerprint of the spec."""
    versions: Mapping[str, Any]
    """Versions of the software that wrote the shard, from `versions`."""
    rows_by_file: tuple[Count, ...] = ()
    """Number of rows of each file of a group; empty for a split of one file."""
    bad_rows: tuple[BadRow, ...] = ()
    """Rows of the piece that were set aside, in order."""
    text: TextFile | None = None
    """File with the text of the rows, if the layout has one and there are rows."""

    def to_metadata(self) -> dict[str, str]:
        """Key-value pairs of the Parquet footer, in a fixed order."""
        values = {"format": FORMAT, "spec_fp": self.spec_fp, **without_defaults(self)}
        return {PREFIX + key: dumps(value).decode().strip() for key, value in values.items()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None, what: str) -> ShardFooter:
        """Read the key-value pairs of `to_metadata`; unknown keys are ignored.

        Raises
        ------
        ShardError
            If keys are missing or ill-formed, or the format is newer.
        """
        names = {(PREFIX + key).encode(): key for key in ("format", *_names(cls))}
        texts = {names[key]: text for key, text in (metadata or {}).items() if key in names}
        values = parse_object(
            b"{%b}" % b",".join(b'"%b":%b' % (key.encode(), text) for key, text in texts.items()), what
        )
        check(values.pop("format", None) == FORMAT, f"{what}: not of shard format {FORMAT}")
        return typed(values, cls, f"{what}: footer")

    def entry(self, name: str, size: int, sha256: str) -> ShardEntry:
        """Make the manifest's record of the shard."""
        shared = {key: getattr(self, key) for key in (*_names(Piece), "rows_by_file")}
        return ShardEntry(name=name, size=size, sha256=sha256, bad_rows=count_bad_rows(self.bad_rows), **shared)


def _names(kind: type[Piece]) -> list[str]:
    return [item.name for item in fields(kind)]


@dataclass(frozen=True, slots=True, eq=False)
class EncodedShard:
    """Encoded shard in memory, ready to be published."""

    data: memoryview
    """Bytes of the whole file."""
    sha256: str
    """SHA-256 of `data`."""
    footer: ShardFooter
    """Footer of the shard."""

    def entry(self, name: str) -> ShardEntry:
        """Make the manifest's record of the shard under this name."""
        return self.footer.entry(name, len(self.data), self.sha256)


def encode_shard(layout: str, block: RowBlock, footer: ShardFooter, *, values: bool = True) -> EncodedShard:
    """Encode rows as canonical Parquet bytes of one shard, with a seal.

    Parameters
    ----------
    layout : str
        Layout of the features, of ``columns.LAYOUTS``, or of a table, of ``columns.TABLES``.
    block : RowBlock
        Rows. ``X`` has the features in the type of the layout: PackedCodes, csr_matrix or ndarray of float32, or
        pyarrow.Table. Kept columns have types in `dkfeat.blocks.KEPT_TYPES`; without labels there is no
        column for them.
    footer : ShardFooter
        Footer; its counts must be those of the rows.
    values : bool, default=True
        Store values; sparse layout only. If False, all values must be 1, as in one-hot rows.

    Returns
    -------
    shard : EncodedShard
        Encoded shard. It takes as much memory as one more copy of the features.

    Raises
    ------
    InputError
        If the rows do not fit the layout or the footer.
    """
    table, settings = columns.to_table(layout, block, values=values)
    if table.num_rows != footer.rows:
        raise InputError(f"the shard's footer states {footer.rows:,} rows, its columns have {table.num_rows:,}")
    metadata = footer.to_metadata()
    footer_bytes = sum(map(len, metadata.values()))
    # no encoding makes data more than an eighth larger
    sink: Any = pa.BufferOutputStream()  # pages of repeated values may be larger than these
    if layout != columns.ROWS:
        buffer = pa.allocate_buffer(table.nbytes + table.nbytes // 8 + footer_bytes + (1 << 20))
        sink = pa.FixedSizeBufferWriter(buffer)
    with pq.ParquetWriter(sink, table.schema, **{**columns.WRITER_OPTIONS, **settings}) as writer:
        writer.write_table(table, row_group_size=columns.ROW_GROUP_ROWS)
        writer.add_key_value_metadata({**metadata, KEY: BLANK})
    size = sink.tell()
    data = memoryview(sink.getvalue() if layout == columns.ROWS else buffer)[:size].cast("B")
    return EncodedShard(data, seal(data), footer)


def read_footer(data: bytes | memoryview | BinaryIO, what: str) -> ShardFooter:
    """Read a shard's footer without checking it against the rows; from an open file only the end is read."""
    return ShardFooter.from_metadata(open_parquet(data, what).metadata.metadata, what)


def check_whole(data: memoryview, what: str) -> tuple[ShardFooter, str]:
    """Check a shard by its own contents alone: seal, page checksums, rows.

    Returns
    -------
    footer : ShardFooter
        Footer of the shard.
    sha256 : str
        SHA-256 of the file.

    Raises
    ------
    ShardError
        If any check fails.
    """
    sha256 = check_seal(data)
    if sha256 is None:
        raise ShardError(f"{what}: damaged or truncated: its seal does not match its contents")
    file = open_parquet(data, what)
    footer = ShardFooter.from_metadata(file.metadata.metadata, what)
    table = read_table(file, None, what)
    if table.num_rows != footer.rows or file.metadata.num_rows != footer.rows:
        raise ShardError(f"{what}: its footer states {footer.rows:,} rows, its columns have {table.num_rows:,}")
    return footer, sha256


def decode(
    data: bytes | memoryview,
    entry: ShardEntry,
    *,
    spec_fp: str,
    schema: Mapping[str, str],
    n_columns: int,
    only: Sequence[str] | None = None,
    page_checksums: bool = True,
) -> RowBlock:
    """Decode rows of a shard whose bytes are verified, and check them against the manifest.

    Parameters
    ----------
    data : bytes or memoryview
        Bytes of the whole file.
    entry : ShardEntry
        Entry of the shard in the manifest.
    spec_fp : str
        Fingerprint of the spec.
    schema : mapping
        Columns and their types, as in the manifest; empty: any, which are not decoded.
    n_columns : int
        Width of the features: bytes per row for codes, else number of columns.
    only : sequence of str, optional
        Names of the columns to read; default all. The name "encoded" selects the feature columns of any layout.
    page_checksums : bool, default=True
        Verify page checksums; unnecessary if the SHA-256 of these bytes was just verified.

    Raises
    ------
    ShardError
        If footer, schema, rows or values are wrong.
    """
    what = entry.name
    file = _open_listed(data, entry, spec_fp, schema, page_checksums=page_checksums)
    table = read_table(file, _select_columns(schema, only), what)
    if table.num_rows != entry.rows:
        raise ShardError(f"{what}: its columns have {table.num_rows:,} rows, the manifest states {entry.rows:,}")
    if not schema:
        return RowBlock(X=table, y=None)
    try:
        return columns.from_table(table, n_columns)
    except ShardError as fault:
        raise ShardError(f"{what}: {fault}") from fault


def _open_listed(
    data: bytes | memoryview, entry: ShardEntry, spec_fp: str, schema: Mapping[str, str], *, page_checksums: bool
) -> pq.ParquetFile:
    """Open a shard, and compare its footer with the manifest."""
    what = entry.name
    file = open_parquet(data, what, page_checksums=page_checksums)
    footer = ShardFooter.from_metadata(file.metadata.metadata, what)
    if footer.spec_fp != spec_fp or footer.entry(what, entry.size, entry.sha256) != entry:
        raise ShardError(f"{what}: its footer does not agree with the manifest")
    if file.metadata.num_rows != entry.rows:
        raise ShardError(f"{what}: has {file.metadata.num_rows:,} rows, the manifest states {entry.rows:,}")
    kinds = columns.kinds(file.schema_arrow)
    if schema and kinds != dict(schema):
        raise ShardError(f"{what}: its columns are {kinds}, the manifest states {dict(schema)}")
    return file


def _select_columns(kinds: Mapping[str, str], only: Sequence[str] | None) -> list[str] | None:
    if only is None:
        return None
    features = {"codes", "indices", "values", "features"}
    return [name for name in kinds if name in only or (name in features and "encoded" in only)]


def count_bad_rows(rows: Iterable[BadRow]) -> tuple[BadCount, ...]:
    """Count bad rows by file and reason, sorted.

    Examples
    --------
    >>> one = BadRow(file=0, offset=7, line=2, column=1, reason="bad label", message="", text="spam")
    >>> count_bad_rows([one, one])
    ((0, 'bad label', 2),)
    """
    counts = Counter((row.file, row.reason) for row in rows)
    return tuple((file, reason, n) for (file, reason), n in sorted(counts.items()))
