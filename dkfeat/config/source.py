"""Settings of a source: which files, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dkfeat.config.settings import Settings, at_least
from dkfeat.errors import ConfigError

__all__ = ["SourceConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig(Settings):
    """Where rows come from; the options are those of ``LibsvmSource`` and ``ParquetSource``, and so are defaults."""

    urlpath: str | tuple[str, ...]
    """Path, glob or fsspec URL, or several."""
    format: Literal["auto", "libsvm", "parquet"] = "auto"
    """"auto": Parquet for names in .parquet, .parq and .pq and for folders of such files, else LIBSVM text."""
    n_features: int | None = None
    """Number of columns; left out: settled by a scan."""
    zero_based: bool | Literal["auto"] = "auto"
    """Whether the first column is 0 rather than 1."""
    blocksize: int | str = "64MiB"
    """Bytes of text a split or a piece holds, as a number or with a unit."""
    dtype: Literal["float32", "float64"] = "float32"
    """Type of the values in memory."""
    multilabel: bool = False
    """Labels are comma-separated lists."""
    query_id: bool | str = False
    """Rows carry ``qid:n``, or of Parquet a column ``qid`` or of this name, which is kept."""
    labels: tuple[float, ...] | None = None
    """Allowed labels; any other is an error."""
    label_dtype: Literal["auto", "int64", "float64"] = "auto"
    """Type of the labels."""
    max_line_bytes: int | str = "256MiB"
    """Bytes that the longest line may have, as a number or with a unit."""
    features: str | tuple[str, ...] | None = None
    """Parquet: feature columns; left out: all columns of numbers without another use."""
    features_as: Literal["auto", "columns", "vector", "sparse"] = "auto"
    """Parquet: how features are told."""
    label: str | None = "label"
    """Parquet: column of labels; null: rows have none."""
    weight: str | None = None
    """Parquet: column of weights, kept in shards."""
    id: str | None = None
    """Parquet: column kept in shards as ``id``."""
    keep: str | tuple[str, ...] = ()
    """Parquet: columns kept in shards."""
    filters: tuple[Any, ...] | None = None
    """Parquet: which rows are read, such as ``[[day, ">=", 2026-11-20]]``; all comparisons must hold."""
    storage_options: Mapping[str, Any] | None = None
    """For URLs, as fsspec takes them; a credential is given as ``env:NAME``, the name of a variable."""

    def __post_init__(self) -> None:
        if not self.urlpath:
            message = "urlpath is empty, but a source needs at least one file, glob or URL"
            raise ConfigError(message)
        if self.n_features is not None:
            at_least("n_features", self.n_features, 1)
