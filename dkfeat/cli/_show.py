"""Facts on standard output: aligned on a terminal, the same text in a pipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dkfeat.wording import show_bytes

__all__ = ["facts", "holds_model", "show_size", "shown"]


def facts(**values: str) -> None:
    """Print names and values as two columns; underscores in names become blanks."""
    width = max(len(name) for name in values)
    for name, value in values.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {value}")


def holds_model(target: str, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Whether a folder or URL is a model rather than shards."""
    from dkfeat.io.model_places import MODEL_FILE, model_place  # pyarrow, which the help need not pay

    return model_place(target, storage_options).size(MODEL_FILE) is not None


def show_size(size: int, rows: int) -> str:
    """Size, and bytes a row where there are rows.

    For example:
    >>> show_size(6_400_000, 12_500)
    '6.1 MiB (512.0 bytes a row)'
    >>> show_size(12, 0)
    '12 bytes'
    """
    return f"{show_bytes(size)} ({size / rows:,.1f} bytes a row)" if rows else show_bytes(size)


def shown(text: str) -> str:
    r"""Text of which no character can steer a terminal.

    For example:
    >>> shown("day-1.svm"), shown("day\x1b[2J.svm")
    ('day-1.svm', 'day\\x1b[2J.svm')
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
