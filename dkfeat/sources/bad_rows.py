"""Reasons for setting a row aside, and the text that its record keeps."""

from __future__ import annotations

from dkfeat.filesystems.urls import printable

MOST_BAD_ROWS = 4096
"""Maximum number of bad rows in a piece, to bound a shard's footer and a task's memory."""

LABEL_NOT_ALLOWED, REFUSED = "label not allowed", "refused by the map"
REASONS = (
    "bad label",
    LABEL_NOT_ALLOWED,
    "bad query id",
    "bad feature",
    "index out of range",
    "indices not ascending",
    "bad value",
    "bad weight",
    "bad kept value",
    "not text",
    REFUSED,
)
"""Reasons for setting a row aside, as in the counts of the manifest."""

_SHOWN_CHARACTERS = 160
_MESSAGE_CHARACTERS = (
    240  # both lengths are of escaped ASCII text, so that a shard's footer stays within its readers' limit
)


def shown_text(text: bytes) -> str:
    """Escape a line so that it is safe to print, and truncate it to 160 characters."""
    return _truncate(
        text[: 4 * _SHOWN_CHARACTERS].rstrip(b"\r\n").decode("utf-8", "backslashreplace"), _SHOWN_CHARACTERS
    )


def cut_message(text: str) -> str:
    """Truncate a message to the maximum length in a record."""
    return _truncate(text, _MESSAGE_CHARACTERS)


def _truncate(text: str, max_length: int) -> str:
    shown = printable(text).encode("ascii", "backslashreplace").decode()
    return shown if len(shown) <= max_length else shown[: max_length - 3] + "..."
