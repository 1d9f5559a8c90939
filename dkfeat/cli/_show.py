"""Facts on standard output: aligned on a terminal, the same text in a pipe."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["facts", "holds_model", "show_bytes"]

UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def facts(**values: str) -> None:
    """Print names and values as two columns; underscores in names become blanks."""
    width = max(len(name) for name in values)
    for name, value in values.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {value}")


def holds_model(target: str) -> bool:
    """Whether a folder is a model rather than shards."""
    return (Path(target) / "model.json").is_file()


def show_bytes(size: int, rows: int) -> str:
    """Size in decimal units, and bytes a row where there are rows.

    For example:
    >>> show_bytes(6_400_000, 12_500)
    '6.4 MB (512.0 bytes a row)'
    >>> show_bytes(12, 0)
    '12 bytes'
    """
    value, unit = float(size), 0
    while value >= 1000 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    text = f"{size:,} bytes" if unit == 0 else f"{value:.1f} {UNITS[unit]}"
    return f"{text} ({size / rows:,.1f} bytes a row)" if rows else text
