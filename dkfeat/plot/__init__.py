"""Pictures of kernel estimates and feature maps, drawn on matplotlib axes.

Each function takes plain arrays, or an object of dkfeat that holds them, and an optional `ax`; it draws there, or on a
figure of its own, and returns the axes, so that you can change titles, limits and colours. Needs the extra ``plot``.
"""

from dkfeat.plot.maps import accuracy_against_k, kernel_estimates, variance_curves

__all__ = [
    "accuracy_against_k",
    "kernel_estimates",
    "variance_curves",
]
