"""Parameters that were renamed or moved, and that a public function accepts with a warning for one version."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def moved_parameters(
    move: Callable[[dict[str, Any], dict[str, Any]], object], new_ways: Mapping[str, str], *, stacklevel: int = 2
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function accept keywords that it had before, with a `DeprecationWarning` for each.

    The function's signature, as `inspect.signature` returns it, has only the present parameters.

    Parameters
    ----------
    move : callable
        ``move(arguments, old)`` changes the arguments of a call, by their present names, as the old keywords say. It is
        only called for calls with old keywords.
    new_ways : mapping of str to str
        Old keywords, each with the text that the warning recommends instead.
    stacklevel : int, default=2
        Number of frames up to the caller whom the warning names; more than 2 below another decorator.

    Examples
    --------
    >>> @moved_parameters(lambda arguments, old: arguments.update(y=-old["z"]), {"z": "y=-z"})
    ... def f(x, y=0):
    ...     return x + y
    >>> import warnings
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     f(3, z=1)
    2
    >>> print(caught[0].message)
    f: z is deprecated and will be removed in the next minor version; use y=-z
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            old: dict[str, Any] = {name: kwargs.pop(name) for name in new_ways if name in kwargs}
            if not old:
                return function(*args, **kwargs)
            for name in old:
                warnings.warn(
                    f"{function.__name__}: {name} is deprecated and will be removed in the next minor version; "
                    f"use {new_ways[name]}",
                    DeprecationWarning,
                    stacklevel=stacklevel,
                )
            arguments: Any = parameters.bind_partial(*args, **kwargs).arguments
            try:
                move(arguments, old)
            except KeyError:
                parameters.bind(**arguments)  # raises TypeError if the argument that lacks is required
                raise
            return function(**arguments)  # type: ignore[call-arg]  # the same parameters by name

        return call

    return decorate
