"""Order in which a comparison tries maps and sizes, and what it leaves out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from dkfeat.learn.compare.result import Comparison, LeftOut, held_out_accuracy
from dkfeat.learn.compare.store import Result

GAIN_LEFT = 2.0
"""Gain of all further doublings of the number of components together, as a multiple of the gain of the last doubling;
errors that fall as 1/k leave 1 times, errors that fall as 1/sqrt(k) 2.4 times."""
NO_TIME = "no time left"


def race(
    sizes_of: Mapping[str, Sequence[int]],
    fit: Callable[[str, int], Result | None],
    compared: Callable[[Sequence[Result]], Comparison],
    ends: float,
    known: Collection[tuple[str, int]] = (),
) -> tuple[list[Result], list[LeftOut]]:
    """Fit each map with rising numbers of components, the most promising map first.

    Each map is fitted with its two smallest sizes first. A further size is left out, with all larger ones of its map,
    if it could neither be recommended nor displace the recommended one, or if the time would not suffice.

    Parameters
    ----------
    sizes_of : mapping of str to sequence of int
        Ascending numbers of components of each map.
    fit : callable
        Fits a map with a number of components; may return None instead if the time ends before.
    compared : callable
        Makes a comparison of results.
    ends : float
        Time at which fits should have ended, as `time.monotonic` counts. With infinity all sizes are fitted.
    known : collection of (str, int), default=()
        Maps and sizes whose results exist and cost nothing, so that none of them is left out.

    Returns
    -------
    results : list of Result
        In the order of `sizes_of`.
    left_out : list of LeftOut
    """
    done = {
        name: [result for k in sizes if (name, k) in known and (result := fit(name, k))]
        for name, sizes in sizes_of.items()
    }
    unknown = {name: [k for k in sizes if (name, k) not in known] for name, sizes in sizes_of.items()}
    left = {name: sizes for name, sizes in unknown.items() if sizes}
    left_out = []
    while left:
        results = [result for each in done.values() for result in each]
        comparison = compared(results) if results else None
        name = max(left, key=lambda each: _promise(done[each], comparison))
        reason = None
        if comparison is not None and ends < math.inf:
            reason = _reason_against(done[name], left[name][0], comparison, ends)
        result = None if reason else fit(name, left[name][0])
        if result is None:
            left_out.append(LeftOut(name=name, k=tuple(left.pop(name)), reason=reason or NO_TIME))
            continue
        done[name] = sorted([*done[name], result], key=lambda each: each.k or 0)
        left[name].pop(0)
        if not left[name]:
            del left[name]
    return [result for each in done.values() for result in each], left_out


def _promise(results: Sequence[Result], comparison: Comparison | None) -> float:
    """Estimate the highest held-out accuracy that larger sizes of a map may reach."""
    if comparison is None or len(results) < 2:
        return math.inf
    before, last = results[-2:]
    gain, error = comparison.difference(last, before)
    return held_out_accuracy(last) + GAIN_LEFT * max(gain, 0.0) + error


def _reason_against(results: Sequence[Result], size: int, comparison: Comparison, ends: float) -> str | None:
    """Return why the next size of a map is left out, or None; `results` are of its smaller sizes."""
    last = results[-1] if results else None
    growth = 1.0 if last is None or last.k is None else size / last.k
    needed = 0.0 if last is None else last.fit_seconds * growth  # in proportion to the number of components
    if time.monotonic() + needed >= ends:
        return NO_TIME
    if last is None or len(results) < 2:
        return None
    chosen, best = comparison.recommended, comparison.best
    if (last.row_bytes or 0) * growth < (chosen.row_bytes or 0):  # it is recommended if it comes near the best
        wanted = held_out_accuracy(best) - comparison.difference(best, last)[1]
    else:
        wanted = held_out_accuracy(chosen) + comparison.difference(chosen, last)[1]
    return None if _promise(results, comparison) > wanted else "cannot win"
