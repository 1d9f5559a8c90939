"""One shard: its name, its columns, and the canonical Parquet bytes that hold it.

Equal rows under an equal spec give equal bytes, on any worker and at any time, for the same versions of dkfeat, numpy
and pyarrow: one codec and level for each column, no dictionary, no statistics, one rule for row groups, nothing that
depends on threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dkfeat
from dkfeat.canonical import fingerprint
from dkfeat.errors import InputError
from dkfeat.io import columns, strict_json
from dkfeat.io.entries import ShardEntry, as_tuples, check, check_count, check_hash, pick
from dkfeat.io.quarantine import BadRow, count_bad_rows
from dkfeat.io.seal import BLANK, KEY, seal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import Split

__all__ = ["FORMAT", "LAYOUTS", "EncodedShard", "ShardFooter", "encode_shard", "schema_of", "shard_name", "versions"]

FORMAT = 1
LAYOUTS = columns.LAYOUTS
schema_of = columns.schema_of
PREFIX = "dkfeat."


def shard_name(spec_fp: str, split: Split, piece: int) -> str:
    """Name of a shard: a function of what it is made from, which sorts in the source's row order.

    Parameters
    ----------
    spec_fp : str
        Fingerprint of the spec.
    split : Split
        The pinned split.
    piece : int
        Position within the split, from 0.

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


def versions() -> dict[str, str]:
    """Versions of what decides a shard's bytes."""
    return {"dkfeat": dkfeat.__version__, "numpy": np.__version__, "pyarrow": pa.__version__}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFooter:
    """What a shard says of itself in its Parquet footer: all that a resume needs to list it."""

    spec_fp: str
    """Fingerprint of the spec."""
    split: int
    """Number of the split."""
    piece: int
    """Position within the split, from 0."""
    last: bool
    """Whether it is the split's last piece."""
    source: str
    """Name of the source file, the first of a group."""
    range: tuple[int, int]
    """First and past-the-end byte of its rows in the decompressed source; of a group, in its files' joined."""
    source_sha256: str
    """SHA-256 of those bytes."""
    rows: int
    """Number of rows, empty ones included."""
    nnz: int
    """Nonzeros of the source's rows."""
    n_empty: int
    """Rows without features: null codes, no stored columns, or zeros alone."""
    versions: Mapping[str, str]
    """What `versions` gave when it was written."""
    rows_by_file: tuple[int, ...] = ()
    """Rows of each file of a group; empty for a split of one file."""
    bad_rows: tuple[BadRow, ...] = ()
    """Rows of its text that were set aside, in order."""

    def __post_init__(self) -> None:
        for key in ("split", "piece", "rows", "nnz", "n_empty"):
            check_count(getattr(self, key), f"shard footer: {key}")
        check_hash(self.spec_fp, "shard footer: spec_fp")
        check_hash(self.source_sha256, "shard footer: source_sha256")
        check(isinstance(self.last, bool), f"shard footer: last={self.last!r} is not a boolean")

    def to_metadata(self) -> dict[str, str]:
        """Key-value pairs of the Parquet footer, in a fixed order."""
        values: dict[str, Any] = {"format": FORMAT, **{key: getattr(self, key) for key in _ALWAYS}}
        values["range"] = list(self.range)
        values["versions"] = dict(self.versions)
        if self.rows_by_file:
            values["rows_by_file"] = list(self.rows_by_file)
        if self.bad_rows:
            values["bad_rows"] = [row.to_list() for row in self.bad_rows]
        return {PREFIX + key: strict_json.dumps(value).decode().strip() for key, value in values.items()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None, what: str) -> ShardFooter:
        """Inverse of `to_metadata`; unknown keys are ignored.

        Raises
        ------
        ShardError
            When keys are missing or ill-formed, or the format is newer.
        """
        prefix = PREFIX.encode()
        texts = {key[len(prefix) :].decode("ascii", "replace"): value for key, value in (metadata or {}).items()}
        rare = {key: texts[key] for key in _RARE if key in texts}
        texts = {**pick(texts, ("format", *_ALWAYS), f"{what}: footer"), **rare}
        values = {key: strict_json.parse_object(b'{"value":%b}' % text, what)["value"] for key, text in texts.items()}
        check(values.pop("format") == FORMAT, f"{what}: not of shard format {FORMAT}")
        if isinstance(values["range"], list):
            values["range"] = tuple(values["range"])
        if rare:
            bad_rows = values.pop("bad_rows", [])
            check(isinstance(bad_rows, list), f"{what}: footer: bad_rows is not a list")
            values = as_tuples(values)
            values["bad_rows"] = tuple(map(BadRow.from_list, bad_rows))
        return cls(**values)

    def entry(self, name: str, size: int, sha256: str) -> ShardEntry:
        """Make the manifest's record of the shard."""
        shared = {key: getattr(self, key) for key in self.__slots__ if key not in ("spec_fp", "versions", "bad_rows")}
        return ShardEntry(name=name, size=size, sha256=sha256, bad_rows=count_bad_rows(self.bad_rows), **shared)


_RARE = ("rows_by_file", "bad_rows")
_ALWAYS = tuple(item.name for item in fields(ShardFooter) if item.name not in _RARE)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedShard:
    """A shard in memory, ready to be published."""

    data: memoryview
    """The whole file."""
    sha256: str
    """SHA-256 of `data`."""
    footer: ShardFooter
    """What it says of itself."""

    def entry(self, name: str) -> ShardEntry:
        """Make the manifest's record of the shard under this name."""
        return self.footer.entry(name, len(self.data), self.sha256)


def encode_shard(
    *,
    layout: str,
    encoded: Any,
    labels: NDArray[Any] | None,
    label_offsets: NDArray[np.int64] | None = None,
    qid: NDArray[np.int64] | None = None,
    weight: NDArray[np.float64] | None = None,
    kept: Mapping[str, pa.Array] | None = None,
    values: bool = True,
    footer: ShardFooter,
) -> EncodedShard:
    """Canonical Parquet bytes of one shard, sealed.

    Parameters
    ----------
    layout : {"codes", "sparse", "dense", "predictions"}
        Which columns hold the features, or that there are predictions instead.
    encoded : PackedCodes, csr_matrix, ndarray of float32, or mapping of str to pyarrow.Array
        The rows' features, codes, sparse or dense; or columns of predictions.
    labels : ndarray of int64 or float64, or None
        Shape (n_rows,), or all labels end to end with `label_offsets`. None: no column of labels.
    label_offsets : ndarray of int64, shape (n_rows + 1,), optional
        Multi-label only.
    qid : ndarray of int64, shape (n_rows,), optional
        Query of each row.
    weight : ndarray of float64, shape (n_rows,), optional
        Weight of each row.
    kept : mapping of str to pyarrow.Array of n_rows, optional
        Further columns, of ``columns.KEPT_TYPES``.
    values : bool, default=True
        Sparse only: whether values are kept. Without them all must be 1, as one-hot rows are.
    footer : ShardFooter
        Its counts must be those of the rows.

    Returns
    -------
    shard : EncodedShard
        Memory is one more copy of the features.

    Raises
    ------
    InputError
        When the parts disagree about the rows.
    """
    table, settings = columns.to_table(
        layout, encoded, labels, label_offsets, qid, weight=weight, kept=kept, values=values
    )
    if table.num_rows != footer.rows:
        message = f"the shard's footer states {footer.rows:,} rows, its columns have {table.num_rows:,}"
        raise InputError(message)
    if layout == "codes" and footer.n_empty != int(encoded.empty.sum()):
        message = f"the shard's footer states {footer.n_empty:,} empty rows, its mask has {int(encoded.empty.sum()):,}"
        raise InputError(message)
    told = footer.to_metadata()
    footer_bytes = sum(map(len, told.values()))
    # no encoding grows by an eighth
    buffer = pa.allocate_buffer(table.nbytes + table.nbytes // 8 + footer_bytes + (1 << 20))
    sink = pa.FixedSizeBufferWriter(buffer)
    with pq.ParquetWriter(sink, table.schema, **columns.WRITER_OPTIONS, **settings) as writer:
        writer.write_table(table, row_group_size=columns.ROW_GROUP_ROWS)
        writer.add_key_value_metadata({**told, KEY: BLANK})
    data = memoryview(buffer)[: sink.tell()].cast("B")
    return EncodedShard(data, seal(data), footer)
