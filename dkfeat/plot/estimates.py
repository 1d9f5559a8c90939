"""Kernel estimates against exact values, with the errors that theory expects."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkfeat.maps._kernel_pairs import error_band
from dkfeat.plot.style import BLUE, GREY, RED, axes_of

__all__ = ["kernel_estimates"]


def kernel_estimates(
    exact: Any, estimates: ArrayLike | None = None, *, deviations: ArrayLike | None = None, ax: Any = None
) -> Any:
    """Draw estimates of a kernel against its exact values, a dot for each pair of rows.

    Parameters
    ----------
    exact : array of any shape, or KernelPairs
        Exact values; or what ``features.kernel_pairs(X)`` gives, which holds all three arrays.
    estimates : array of the same shape, or None
        What the features say of the same pairs.
    deviations : array of the same shape, or None
        Standard error of each estimate by theory: draws a band of two of them on either side.
    ax : matplotlib.axes.Axes or None
        Where to draw; None makes a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    ValueError
        The arrays differ in shape, or there are no estimates.
    dkfeat.errors.ConfigError
        Matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import dkfeat.plot
    >>> ax = dkfeat.plot.kernel_estimates([0.2, 0.5], [0.25, 0.48], deviations=[0.03, 0.04])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('exact kernel', 'estimate')
    """
    name = "kernel"
    if estimates is None and hasattr(exact, "estimates"):
        name, exact, estimates, deviations = exact.kernel, exact.exact, exact.estimates, exact.deviations
    true, found, deviation = _checked(exact, estimates, deviations)
    axes = axes_of(ax, 5.6, 5.0)
    low, high = float(min(true.min(), found.min())), float(max(true.max(), found.max()))
    axes.plot([low, high], [low, high], color=GREY, linewidth=1, zorder=2)
    if deviation is not None:
        at, half = error_band(true, deviation)
        label = "theory, ± 2 standard errors"
        axes.fill_between(at, at - 2 * half, at + 2 * half, color=RED, alpha=0.18, linewidth=0, label=label)
    error = float(np.sqrt(np.mean((found - true) ** 2)))
    size = 12 if len(true) <= 1000 else 5
    dots = f"{len(true):,} pairs of rows,\nRMS error {error:.3g}"
    axes.scatter(true, found, s=size, alpha=0.45, color=BLUE, linewidths=0, zorder=3, label=dots)
    axes.set(xlabel=f"exact {name}", ylabel="estimate")
    axes.legend(fontsize=9, frameon=False, loc="upper left")
    return axes


def _checked(
    exact: Any, estimates: Any, deviations: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None]:
    if estimates is None:
        message = "exact values came without estimates; pass both, or what features.kernel_pairs(X) gives"
        raise ValueError(message)
    arrays = [np.asarray(values, dtype=np.float64) for values in (exact, estimates)]
    arrays += [] if deviations is None else [np.asarray(deviations, dtype=np.float64)]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1 or not arrays[0].size:
        told = ", ".join(str(array.shape) for array in arrays)
        message = f"arrays of shapes {told} came, but they must be of one shape and hold a pair or more"
        raise ValueError(message)
    true, found, *rest = (array.reshape(-1) for array in arrays)
    return true, found, rest[0] if rest else None
