"""The small immutable values that the layers hand to one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["PackedCodes", "RowBlock", "SourceFile", "Split"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowBlock:
    """Consecutive rows of a source, held in memory together."""

    X: csr_matrix
    """Features, shape (n_rows, n_features): sorted indices, no duplicates; int32 indices while they fit."""
    y: NDArray[Any]
    """Labels, int64 or float64. Shape (n_rows,), or all labels end to end if `label_offsets` is given."""
    label_offsets: NDArray[np.int64] | None = None
    """Multi-label only: row i has the labels ``y[label_offsets[i]:label_offsets[i + 1]]``."""
    qid: NDArray[np.int64] | None = None
    """Query of each row, shape (n_rows,), where the source has one."""

    def __post_init__(self) -> None:
        rows = self.X.shape[0]
        labels = len(self.y) if self.label_offsets is None else len(self.label_offsets) - 1
        if labels != rows or (self.qid is not None and len(self.qid) != rows):
            qids = "no" if self.qid is None else f"{len(self.qid):,}"
            message = f"a block of {rows:,} rows came with labels for {labels:,} rows and {qids} query ids"
            raise ValueError(message)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])


class PackedCodes(NamedTuple):
    """Hash codes as shards keep them: what ``GCWSFeatures.encode`` returns and ``decode`` takes."""

    codes: NDArray[np.uint8]
    """Shape (n_rows, ceil(n_components * bits / 8)): codes in component order, least significant bit first."""
    empty: NDArray[np.bool_]
    """Shape (n_rows,): rows without features, whose bytes are zero and mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file of a source, pinned by what tells whether it has changed."""

    name: str
    """Path relative to the source's root, with forward slashes: its identity in plans and manifests."""
    url: str
    """Where it is opened: an fsspec URL or a local path. Never part of an identity, never written to disk."""
    size: int
    """Bytes as stored, at least 0."""
    mtime_ns: int | None = None
    """Time of last change in nanoseconds, where the file system keeps one."""
    etag: str | None = None
    """Version tag, on object stores."""
    compression: str | None = None
    """None, "gzip", "bz2", "xz" or "zstd"."""

    @property
    def identity(self) -> dict[str, str | int | None]:
        """What must be equal for the file to count as unchanged."""
        return {"name": self.name, "size": self.size, "mtime_ns": self.mtime_ns, "etag": self.etag}


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What one task reads: a byte range of a plain text file, or one whole compressed file."""

    number: int
    """Position in the plan, from 0, in source order; continues over batches."""
    file: SourceFile
    start: int
    """First byte of the range; the split holds the lines that begin in [start, stop)."""
    stop: int
    """End of the range, exclusive, in bytes as stored."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values, without the URL."""
        file = asdict(self.file)
        del file["url"]
        return {"number": self.number, "file": file, "start": self.start, "stop": self.stop}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, url: str = "") -> Self:
        """Inverse of `to_mapping`; `url` says where the file is now."""
        file = SourceFile(**mapping["file"], url=url)
        return cls(number=mapping["number"], file=file, start=mapping["start"], stop=mapping["stop"])
