"""Pages of HTML for plain viewers become what a theme knows; the papers' experiments may be missing."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

_ANCHOR = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)
_PICTURE = re.compile(
    r'<picture><source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">'
    r'<img alt="([^"]*)" src="([^"]+)" width="(\d+)"></picture>'
)


def adapted(text: str) -> str:
    """Page with targets for anchors, and pictures that follow the theme's light and dark.

    Examples
    --------
    >>> print(adapted('<a id="variance"></a>'))
    (variance)=
    """

    def picture(found: re.Match[str]) -> str:
        dark, alt, light, width = found.groups()
        return "\n\n".join(
            f"```{{image}} {file}\n:class: only-{kind}\n:alt: {html.unescape(alt)}\n:width: {width}px\n```"
            for kind, file in (("light", light), ("dark", dark))
        )

    return _PICTURE.sub(picture, _ANCHOR.sub(r"(\1)=", text))


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Adapt a page, and take that of the experiments out of the contents where it is not."""
    source[0] = adapted(source[0])
    if docname == "results":  # its contents at the side have sections, not all of their tables and pictures
        source[0] = f"---\ntocdepth: 2\n---\n{source[0]}"
    if docname == "index" and not (Path(app.srcdir) / "results.md").exists():
        source[0] = source[0].replace("\nresults\n", "\n")


def setup(app: Sphinx) -> dict[str, Any]:
    """Adapt pages when they are read."""
    app.connect("source-read", read)
    app.connect("env-get-outdated", lambda *_: ["index"])  # the page may have come or gone
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
