"""Accuracy against the number of components as a picture in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dkfeat.plot import accuracy_against_k
from dkfeat.report.figures import draw

if TYPE_CHECKING:
    from dkfeat.learn.comparison import Comparison

__all__ = ["plot_accuracy"]


def plot_accuracy(comparison: Comparison) -> bytes:
    """Draw a comparison: a line for each map over k on a log axis, level lines for what has no components.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    png : bytes
        Equal for equal results, with the same version of matplotlib.

    Raises
    ------
    ConfigError
        If matplotlib, of the extra ``plot``, is not installed.
    """
    return draw(lambda axes: accuracy_against_k(comparison, ax=axes), width=7.4, height=4.6)
