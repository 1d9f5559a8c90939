"""HTML pages, rendered from ``dkfeat/templates``.

Pages hold no scripts and no links, and load nothing; their policy forbids it. A page is light or dark as the system is.
Templates escape every value.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from dkfeat.messages import counted, printable, show_bytes

MARK = '<meta name="generator" content="dkfeat">'
"""Element in the head of each page, by which dkfeat recognises its own pages."""


def render(template: str, **values: object) -> str:
    """HTML of a template in ``dkfeat/templates``.

    Parameters
    ----------
    template : str
        Name of the file.
    **values
        Variables of the template. Each is escaped where the template shows it, unless it is marked as safe there.

    Examples
    --------
    >>> "<h1>a &lt; b</h1>" in render("page.html", title="a < b")
    True
    """
    return _environment().get_template(template).render(values)


@lru_cache(maxsize=1)
def _environment() -> Any:
    import jinja2  # loaded with the first page

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("dkfeat"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(str(value)),
    )
    made.globals["MARK"] = MARK
    made.filters |= {"shown": _shown, "columns": _columns}
    made.filters |= {"bytes": show_bytes, "counted": counted, "number": "{:,}".format}
    made.filters["base64"] = lambda data: base64.b64encode(data).decode("ascii")
    return made


def _columns(rows: Sequence[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _shown(value: object) -> str:
    if value is None:
        return "–"  # noqa: RUF001 - an en dash for a missing value
    if isinstance(value, float):
        if 0 < abs(value) < 0.001:
            return f"{value:.3g}"
        return f"{value:.4f}" if abs(value) < 1000 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and abs(value) > 9999 else str(value)
