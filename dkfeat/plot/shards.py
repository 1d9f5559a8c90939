"""Rows or bytes of each shard of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dkfeat.plot.style import BLUE, axes_of
from dkfeat.validation import check_choice

if TYPE_CHECKING:
    from dkfeat.engine.dataset import ShardDataset
    from dkfeat.io.manifest import Manifest

__all__ = ["shard_sizes"]

_MOST_BARS = 200
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def shard_sizes(
    shards: ShardDataset | Manifest | Sequence[int], *, unit: Literal["rows", "bytes"] = "rows", ax: Any = None
) -> Any:
    """Draw the size of each shard, in the source's order: work is even where the bars are.

    Parameters
    ----------
    shards : ShardDataset, Manifest, or sequence of int
        A data set, its manifest, or plain sizes in `unit`.
    unit : {"rows", "bytes"}, default="rows"
    ax : matplotlib.axes.Axes or None
        Where to draw; None makes a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    dkfeat.errors.ConfigError
        The unit is unknown, or matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import dkfeat.plot
    >>> ax = dkfeat.plot.shard_sizes([1000, 1000, 250])
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1000, 1000, 250]
    """
    chosen = check_choice(unit, "unit", ("rows", "bytes"))
    manifest = getattr(shards, "manifest", shards)
    entries = getattr(manifest, "shards", None)
    sizes = shards if entries is None else [entry.rows if chosen == "rows" else entry.size for entry in entries]
    values = np.asarray(sizes, dtype=np.float64)
    shown, divisor = ("rows", 1) if chosen == "rows" else _unit(values.max(initial=0))
    values = values / divisor
    axes = axes_of(ax)
    from matplotlib.ticker import MaxNLocator  # `axes_of` has found it to be there

    if len(values) <= _MOST_BARS:
        axes.bar(np.arange(len(values)), values, color=BLUE, width=0.8)
    else:
        axes.stairs(values, np.arange(len(values) + 1) - 0.5, fill=True, color=BLUE)
    if len(values):
        name = f"mean {values.mean():,.{0 if divisor == 1 else 1}f} {shown}"
        axes.axhline(values.mean(), color="#1c1e21", linestyle="--", linewidth=1.2, label=name)
        axes.legend(fontsize=9, loc="lower right", framealpha=0.9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set(xlabel="shard", ylabel=shown, xlim=(-0.6, max(len(values), 1) - 0.4))
    return axes


def _unit(largest: float) -> tuple[str, int]:
    """Binary unit in which the largest size is 1 or more, and its bytes."""
    power = min(len(_UNITS) - 1, max(0, int(largest).bit_length() - 1) // 10)
    return _UNITS[power], 1 << (10 * power)
