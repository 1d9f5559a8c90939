"""Options of a Parquet source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from dkfeat.errors import ConfigError
from dkfeat.io.parquet.filters import Filters, normalized
from dkfeat.io.shards.columns import KEPT_TYPES, RESERVED
from dkfeat.io.sources.options import FileOptions


@dataclass(frozen=True, slots=True, repr=False)
class ParquetOptions(FileOptions):
    """Options of a `ParquetSource`, all that its helpers need to know of it."""

    kind: ClassVar[str] = "parquet"
    row_options: ClassVar[frozenset[str]] = frozenset({"filters", "weight", "id", "keep", "kept_types"})

    features: str | Sequence[str] | None = field(default=None, kw_only=True)
    """Names of the feature columns, in order; kept as a tuple. None: the column ``features`` if it holds vectors or
    structs, else ``indices`` and ``values`` if they hold lists, else all columns of numbers without another use, as the
    first file has them."""
    features_as: Literal["auto", "columns", "vector", "sparse"] = field(default="auto", kw_only=True)
    """Layout of the features; "auto": by their types. Indices without values, which are then 1, are "sparse"."""
    label: str | None = field(default="label", kw_only=True)
    """Column of labels: integers, floats or booleans, or lists of them; None: rows have none, and get 0."""
    weight: str | None = field(default=None, kw_only=True)
    """Column of weights for training, finite and at least 0; shards keep it as ``weight``."""
    query_id: Any = field(default=None, kw_only=True)
    """Column of integers that shards keep as ``qid``; True: the column ``qid``."""
    id: str | None = field(default=None, kw_only=True)
    """Column that shards keep as ``id``."""
    keep: str | Sequence[str] = field(default=(), kw_only=True)
    """Columns that shards keep by their names: integers, floats, booleans, text, dates or timestamps, nulls among them.
    Kept as a tuple."""
    filters: Any = field(default=None, kw_only=True)
    """Filter of rows: comparisons such as ``[("day", ">=", "2026-11-20"), ("kind", "in", ["a", "b"])]`` that must
    all hold, or lists of these of which one must. Row groups that cannot hold such rows are not read."""
    zero_based: bool = field(default=True, kw_only=True)
    """True if index 0 of sparse rows is the first column, not 1."""
    multilabel: bool | Literal["auto"] = field(default="auto", kw_only=True)
    """True if labels are lists; "auto": by the type of their column."""
    kept_types: tuple[str, ...] | None = field(default=None, kw_only=True)
    """Types of `id` and `keep` in shards, in order; None: by the types of the first file."""

    def __post_init__(self) -> None:
        FileOptions.__post_init__(self)  # classes with slots have no super()
        if self.features is not None:
            self._set("features", _names("features", self.features))
            if not self.features:
                raise ConfigError("features is empty; name columns, or leave it out to take all columns of numbers")
        self._set("keep", _names("keep", self.keep))
        if isinstance(self.query_id, bool):
            self._set("query_id", "qid" if self.query_id else None)
        for name in ("label", "weight", "query_id", "id"):
            if (value := getattr(self, name)) is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"{name}={value!r:.100}, but it must be the name of a column")
        self._set("filters", normalized(self.filters))
        if not self.zero_based and self.features_as in ("columns", "vector"):
            raise ConfigError("zero_based=False is for indices of sparse rows; leave it out")
        self._check_kept()

    def _check_kept(self) -> None:
        taken = [name for name in self.keep if name in RESERVED]
        if taken:
            raise ConfigError(
                f"keep={taken[0]!r}, but shards have a column of that name for themselves; rename it in the source"
            )
        if self.id is not None and "id" in self.keep and self.id != "id":
            raise ConfigError(f"keep='id' and id={self.id!r} would both be the shards' column id; leave one out")
        if self.kept_types is not None:
            kinds = tuple(self.kept_types)
            self._set("kept_types", kinds)
            if len(kinds) != len(self.kept_columns) or not set(kinds) <= KEPT_TYPES.keys():
                raise ConfigError(
                    f"kept_types={kinds!r}, but id and keep need {len(self.kept_columns)} of {', '.join(KEPT_TYPES)}"
                )

    @property
    def kept_columns(self) -> dict[str, str]:
        """Columns that shards keep: name there, then name in the source."""
        return {**({} if self.id is None else {"id": self.id}), **{name: name for name in self.keep}}

    @property
    def has_labels(self) -> bool:
        """True if rows have labels of their own."""
        return self.label is not None

    @property
    def has_weights(self) -> bool:
        """True if rows have weights."""
        return self.weight is not None

    @property
    def kept(self) -> dict[str, str]:
        """Types of the columns that shards keep, by their names there; known once they are resolved."""
        return dict(zip(self.kept_columns, self.kept_types or (), strict=True))

    @property
    def filter_columns(self) -> tuple[str, ...]:
        """Columns that filters compare, each once."""
        filters: Filters = self.filters or ()
        return tuple(dict.fromkeys(column for alternative in filters for column, _, _ in alternative))

    @property
    def read_columns(self) -> list[str]:
        """Names of all columns that are read, each once."""
        names = (*(self.features or ()), self.label, self.weight, self.query_id, *self.kept_columns.values())
        return list(dict.fromkeys([name for name in (*names, *self.filter_columns) if name]))

    @property
    def is_resolved(self) -> bool:
        """True if rows can be read: columns, their form, their number and the label type are known."""
        return (
            self.features is not None
            and self.n_features is not None
            and self.kept_types is not None
            and "auto" not in (self.features_as, self.multilabel, self.label_dtype)
        )


def _names(name: str, value: Any) -> tuple[str, ...]:
    """Check names of columns, which come once each."""
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else (None,)
    if not all(isinstance(item, str) and item for item in names):
        raise ConfigError(f"{name}={value!r:.100}, but it must be the name of a column, or a list of names")
    doubled = next((item for item in names if names.count(item) > 1), None) if len(set(names)) < len(names) else None
    if doubled is not None:
        raise ConfigError(f"{name} has {doubled!r} twice; name each column once")
    return tuple(str(item) for item in names)
