"""Exception classes of dkfeat.

::

    DkfeatError
      ConfigError (ValueError)       a setting is missing, unknown or out of range
      InputError (ValueError)        an array's shape, dtype, sign or values
      SourceError (OSError)          a source cannot be opened or cut
        SourceNotFoundError          no file matches (also FileNotFoundError)
        ParseError (ValueError)      bad text, with its position
        ParquetError (ValueError)    a damaged Parquet file, or invalid rows
      ShardError (OSError)           a shard or manifest cannot be written or read back
      CommitError (OSError)          publishing was rejected by the storage
        CommitConflictError          another run published there first
          TargetBusyError            another run holds the target; try again when it has ended
      PlanError (ValueError)         a task's projected bytes exceed the worker's limit
      SpecConflictError (ValueError) spec, source or model disagree
      ClusterError (RuntimeError)    workers or the scheduler were lost

Each class also inherits from the usual built-in exception. ``exit_code`` is the exit status of the command line: 2 bad
settings or data, 3 storage, 4 conflict, 5 cluster. Every error can be pickled, so that an error of a worker reaches the
caller with its position.
"""

from __future__ import annotations

import copyreg
import sys
from contextlib import suppress
from os import PathLike
from typing import Any, ClassVar

from dkfeat.messages import in_parameters, without_secrets

_MOST_CAUSES = 20


class DkfeatError(Exception):
    """Base class of all errors of dkfeat; the message has the expected value, the actual one and a remedy.

    The message, notes and the texts of errors that it was raised from have no secrets of URLs.

    Examples
    --------
    >>> print(DkfeatError("https://user:password@host/rows.svm is gone"))
    https://host/rows.svm is gone
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))
        _hide_secrets(sys.exception())

    def __str__(self) -> str:
        """Return the message without flags of the command line, which `args` has."""
        return in_parameters(super().__str__())

    def __reduce__(self) -> tuple[object, ...]:  # without calling constructors, which make the text of places
        return copyreg.__newobj__, (type(self),), {**vars(self), "args": self.args}  # type: ignore[attr-defined]

    def add_note(self, note: str) -> None:
        """Add a line below the message."""
        super().add_note(without_secrets(note))


def _hide_secrets(cause: BaseException | None) -> None:
    """Remove the secrets in URLs from the texts of an error and of those that it was raised from."""

    def hide(value: Any) -> Any:
        text = str(value) if isinstance(value, str | PathLike) else ""
        return value if (clean := without_secrets(text)) == text else clean

    for _ in range(_MOST_CAUSES):
        if cause is None:
            return
        with suppress(AttributeError):  # of a frozen class
            if (args := tuple(map(hide, cause.args))) != cause.args:
                cause.args = args
            for name in ("strerror", "filename", "filename2") if isinstance(cause, OSError) else ():
                if (clean := hide(value := getattr(cause, name))) is not value:
                    setattr(cause, name, clean)
        cause = cause.__cause__ or cause.__context__


class ConfigError(DkfeatError, ValueError):
    """A setting is missing, unknown or out of range."""

    exit_code = 2


class InputError(DkfeatError, ValueError):
    """An array's shape, dtype, sign or values are not what the call accepts.

    Parameters
    ----------
    message : str
    row, column : int or None
        Position of the invalid cell, counted from 0; None if it is not a single one.
    """

    exit_code = 2

    def __init__(self, message: str, *, row: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.row, self.column = row, column


class SourceError(DkfeatError, OSError):
    """A source cannot be opened, read or cut."""

    exit_code = 3


class SourceNotFoundError(SourceError, FileNotFoundError):
    """No file matches the source's path or pattern."""

    exit_code = 2


class ParseError(SourceError, ValueError):
    """Text that violates the format.

    Parameters
    ----------
    reason : str
        Expected and found content.
    path : str
        Source file as it is opened, without possible secrets of a URL.
    line, column : int or None
        1-based line in the decompressed file and 1-based byte column of the token.
    offset : int or None
        0-based byte offset of the token in the decompressed file.

    Examples
    --------
    >>> print(ParseError("indices must ascend", path="day1.svm", line=7, column=5))
    day1.svm:7:5: indices must ascend
    """

    exit_code = 2

    def __init__(
        self, reason: str, *, path: str, line: int | None = None, column: int | None = None, offset: int | None = None
    ) -> None:
        place = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{place}: {reason}")
        self.reason, self.path = without_secrets(reason), without_secrets(path)
        self.line, self.column, self.offset = line, column, offset


class ParquetError(SourceError, ValueError):
    """A Parquet file that is damaged, or whose columns or rows do not match the source.

    Parameters
    ----------
    reason : str
        Expected and found content.
    path : str
        Source file as it is opened, without possible secrets of a URL.
    row_group : int or None
        Row group, counted from 0.
    row : int or None
        Row within the row group, counted from 0.
    column : str or None
        Name of the column.

    Examples
    --------
    >>> print(ParquetError("a null, but features are finite numbers", path="a.parquet", row_group=0, row=7, column="x"))
    a.parquet: row group 0, row 7, column x: a null, but features are finite numbers
    """

    exit_code = 2

    def __init__(
        self, reason: str, *, path: str, row_group: int | None = None, row: int | None = None, column: str | None = None
    ) -> None:
        parts = {"row group": row_group, "row": row, "column": column}
        place = ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
        super().__init__(": ".join(part for part in (path, place, reason) if part))
        self.reason, self.path = without_secrets(reason), without_secrets(path)
        self.row_group, self.row, self.column = row_group, row, column


class ShardError(DkfeatError, OSError):
    """A shard or a manifest cannot be written, or does not read back as it was committed."""

    exit_code = 3


class CommitError(DkfeatError, OSError):
    """Publishing was rejected by the storage."""

    exit_code = 3


class CommitConflictError(CommitError):
    """Another run holds the target or has published there first."""

    exit_code = 4


class TargetBusyError(CommitConflictError):
    """Another run holds the target; nothing was lost, and the same call can be repeated when that run has ended."""


class PlanError(DkfeatError, ValueError):
    """A task's projected bytes exceed what a worker may use."""

    exit_code = 2


class SpecConflictError(DkfeatError, ValueError):
    """The target's spec, the source or the model disagree with the request."""

    exit_code = 4


class ClusterError(DkfeatError, RuntimeError):
    """Workers or the scheduler were lost."""

    exit_code = 5


def cause_of(fault: OSError) -> str:
    """Return the text of an operating system's error without number and file name; the whole text if there is none."""
    return str(fault.strerror or fault)
