"""One line below a notebook's cell, written anew in place; for progress, which would fill the page line by line."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any, Self

__all__ = ["CellLine"]

UPDATE_SECONDS = 0.2
"""Least time between two states of the line: each is a message to the browser."""


class CellLine:
    """A line of the output of the cell that runs now, with a bar where a share is known.

    It appears when it is first written. Themes are the notebook's own; where HTML is not shown, the text is.

    Examples
    --------
    >>> CellLine.here() is None  # no notebook
    True
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._told: dict[str, str] | None = None
        self._next = 0.0

    @classmethod
    def here(cls) -> Self | None:
        """Make a line in the notebook that this process is the kernel of; None elsewhere, IPython on a terminal too."""
        if "IPython" not in sys.modules:  # a kernel has loaded it, and nobody else need pay for it
            return None
        from IPython import get_ipython

        return None if getattr(get_ipython(), "kernel", None) is None else cls()

    def write(self, text: str, share: float | None = None) -> None:
        """Show another text in place of the one before; if that came just now, with the next one or at the end.

        Parameters
        ----------
        text : str
        share : float or None
            What is done, in [0, 1], for a bar before the text.
        """
        self._told = {"text/plain": text, "text/html": _html(text, share)}
        if time.monotonic() >= self._next:
            self.end()

    def end(self) -> None:
        """Show the text that was written last, if it is not there yet."""
        bundle, self._told = self._told, None
        if bundle is None:
            return
        self._next = time.monotonic() + UPDATE_SECONDS
        if self._handle is None:
            from IPython.display import display

            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    @classmethod
    def say(cls, text: str) -> bool:
        """Show a text by itself below the cell that runs; False where there is no notebook, and nothing is shown."""
        line = cls.here()
        if line is not None:
            line.write(text)
        return line is not None


def _html(text: str, share: float | None) -> str:
    bar = ""
    if share is not None:
        # not <progress>, whose colours a page's theme does not reach
        full = 100 * min(max(share, 0.0), 1.0)
        bar = (
            '<span style="display:inline-block;width:12em;height:.7em;margin-right:.8em;border-radius:.35em;'
            'overflow:hidden;background:rgba(128,128,128,.3)"><span style="display:block;height:100%;'
            f'width:{full:.1f}%;background:#2f7fd0"></span></span>'
        )
    style = "margin:.3em 0;font-size:13px;font-variant-numeric:tabular-nums;overflow-wrap:anywhere"
    return f'<div style="{style}">{bar}{escape(text)}</div>'
