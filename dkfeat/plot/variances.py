"""Theoretical variances of estimates over the kernel's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkfeat.errors import ConfigError
from dkfeat.plot.style import LINES, axes_of

if TYPE_CHECKING:
    from dkfeat.maps import FeatureMap

__all__ = ["variance_curves"]

Curve = tuple[ArrayLike, ArrayLike]


def variance_curves(
    curves: FeatureMap | Sequence[FeatureMap] | Mapping[str, FeatureMap | Curve], *, ax: Any = None
) -> Any:
    """Draw the variance of kernel estimates over the kernel's value, by theory.

    Parameters
    ----------
    curves : FeatureMap, sequence of them, or mapping
        Maps, fitted or not, whose variance theory knows, exactly or as a bound (see `GCWSFeatures.expected_error_at`,
        which all maps have); a mapping names them. In a mapping, pairs of arrays too: kernel values, and variances
        there.
    ax : matplotlib.axes.Axes or None
        Where to draw; None makes a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    dkfeat.errors.ConfigError
        A map has no known variance, or parameters out of range; or matplotlib is not installed.

    See Also
    --------
    dkfeat.theory : The variances, one component's, as functions.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import dkfeat, dkfeat.plot
    >>> ax = dkfeat.plot.variance_curves([dkfeat.GCWSFeatures(512), dkfeat.FourierFeatures(512)])
    >>> [line.get_label() for line in ax.lines]
    ['GCWSFeatures(n_components=512)', 'FourierFeatures(n_components=512)']
    """
    named = _named(curves)
    lines = {name: _line(name, curve) for name, curve in named.items()}
    axes = axes_of(ax)
    for (name, (at, variance)), (color, _) in zip(lines.items(), cycle(LINES), strict=False):
        axes.plot(at, np.where(variance > 0, variance, np.nan), color=color, linewidth=1.6, label=name)
    axes.set(xlabel="kernel", ylabel="variance of an estimate", yscale="log")
    axes.legend(fontsize=9, frameon=False)
    return axes


def _named(curves: FeatureMap | Sequence[FeatureMap] | Mapping[str, FeatureMap | Curve]) -> Mapping[str, Any]:
    if isinstance(curves, Mapping):
        return curves
    maps = curves if isinstance(curves, Sequence) else [curves]
    return {_title(features): features for features in maps}


def _title(features: FeatureMap) -> str:
    return " ".join(repr(features).split())  # scikit-learn breaks long ones into lines


def _line(name: str, curve: FeatureMap | Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if not isinstance(curve, tuple | list):
        at = np.linspace(*curve.kernel_range, 257)
        errors = curve.expected_error_at(at)
        if errors is None:
            message = f"{name}: theory has no variance for {type(curve).__name__}; measure it with kernel_pairs(X)"
            raise ConfigError(message)
        return at, np.asarray(errors) ** 2
    at, variance = (np.asarray(values, dtype=np.float64) for values in curve)
    if at.shape != variance.shape or at.ndim != 1:
        message = f"{name}: kernel values of shape {at.shape} came with variances of shape {variance.shape}"
        raise ConfigError(message)
    return at, variance
