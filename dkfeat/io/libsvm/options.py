"""Options of a LIBSVM source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from dkfeat.io.sources.options import FileOptions, parse_size


@dataclass(frozen=True, slots=True, repr=False)
class LibsvmOptions(FileOptions):
    """Options of a `LibsvmSource`, in the form that its helpers use."""

    kind: ClassVar[str] = "libsvm"

    zero_based: bool | Literal["auto"] = field(default="auto", kw_only=True)
    """True if index 0 is the first column, False if index 1 is; "auto": True if any index in the whole source is 0."""
    multilabel: bool = field(default=False, kw_only=True)
    """Labels are comma-separated lists; a line that begins with a blank is a row without labels."""
    query_id: bool = field(default=False, kw_only=True)
    """Each row has ``qid:n`` after its label, which is kept. Without this option a query id is an error."""
    max_line_bytes: int | str = field(default="256MiB", kw_only=True)
    """Maximum length of a line; a longer line is an error. It bounds memory for hostile files. Stored as an int."""

    def __post_init__(self) -> None:
        FileOptions.__post_init__(self)  # classes with slots have no super()
        self._set("max_line_bytes", parse_size("max_line_bytes", self.max_line_bytes))

    @property
    def is_resolved(self) -> bool:
        """True if rows can be read: columns, index base and label type are known."""
        return self.n_features is not None and self.zero_based != "auto" and self.label_dtype != "auto"
