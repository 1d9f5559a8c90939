"""Output of commands: two columns of text, one line of JSON with ``--json``, nothing with ``--quiet``."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dkfeat.messages import show_bytes, shown

if TYPE_CHECKING:
    from dkfeat.store.manifest.manifest import Manifest


QUIET, JSON = "dkfeat.quiet", "dkfeat.json"
"""Keys of ``--quiet`` and ``--json`` in click's shared context data."""


def is_given(key: str) -> bool:
    """Return True if ``--quiet`` or ``--json`` was given to the command or to its group."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx and ctx.meta.get(key))


def is_quiet() -> bool:
    """Return True if ``--quiet`` was given."""
    return is_given(QUIET)


def print_result(record: Mapping[str, Any]) -> None:
    """Print a result as a JSON object if ``--json`` was given; `echo`, `facts` and `table` then print nothing."""
    if is_given(JSON):
        print_json(record)


def echo(text: str = "", *, raw: bool = False) -> None:
    """Print a line of a result as text; control characters are escaped unless the text is `raw`."""
    if not is_given(JSON):
        click.echo(text if raw else shown(text))


def facts(**values: str) -> None:
    """Print names and values as two columns; underscores in names become blanks."""
    width = max(len(name) for name in values)
    for name, value in values.items():
        echo(f"{name.replace('_', ' '):<{width}}  {value}")


def summary(record: Mapping[str, Any], shown: Mapping[str, str]) -> None:
    """Print the result of a command: `record` as a JSON object, or else `shown` as two columns."""
    print_result(record)
    if not is_quiet():
        facts(**shown)


def summary_of(manifest: Manifest, name: str, target: str, **more: Any) -> None:
    """Print the totals of a manifest, and the target under the key `name`; `more` is added to the JSON object."""
    size = manifest.size
    record = {"rows": manifest.rows, "bad_rows": manifest.n_bad_rows, "shards": len(manifest.shards), "size": size}
    shown = {"rows": f"{manifest.rows:,}"}
    if manifest.n_bad_rows:
        shown["bad rows"] = f"{manifest.n_bad_rows:,}, see `dkfeat quarantine {target}`"
    shown |= {"shards": f"{len(manifest.shards):,}", "size": show_size(size, manifest.rows), name: target}
    summary(record | {"manifest": manifest.number, name: target, **more}, shown)


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    """Print rows of cells as columns; `right` holds the numbers, from 0, of the right-aligned columns."""
    rows = [[shown(cell) for cell in row] for row in rows]  # before their widths are measured
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:{'>' if place in right else '<'}{widths[place]}}" for place, cell in enumerate(row))
        echo("  ".join(cells).rstrip())


def note(text: str = "", *, err: bool = False, raw: bool = False) -> None:
    """Print a line that is not part of the result, as `echo` does; with ``--json`` only if it is for standard error."""
    if not is_quiet() and (err or not is_given(JSON)):
        click.echo(text if raw else shown(text), err=err)


def print_json(record: Mapping[str, Any]) -> None:
    """Print plain values as one line of JSON; non-finite numbers become null."""
    click.echo(json.dumps(_finite(record), sort_keys=True))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show_size(size: int, rows: int) -> str:
    """Size as text, with bytes per row if there are rows.

    Examples
    --------
    >>> show_size(6_400_000, 12_500)
    '6.1 MiB (512.0 bytes a row)'
    >>> show_size(12, 0)
    '12 bytes'
    """
    return f"{show_bytes(size)} ({size / rows:,.1f} bytes a row)" if rows else show_bytes(size)
