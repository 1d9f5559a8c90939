"""Formulas as MathML, which browsers draw by themselves: pages need no network, and no script."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

SYNONYMS = {r"\dots": r"\ldots"}
"""Commands that docutils does not know, and those of the same look that it knows."""

logger = logging.getLogger(__name__)


def formula(node: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    """MathML of a formula; one that is not understood is a warning with its place."""
    text = node.astext()
    for command, known in SYNONYMS.items():
        text = re.sub(re.escape(command) + r"(?![A-Za-z])", lambda _, known=known: known, text)
    try:
        return latex2mathml.tex2mathml(text, as_block=as_block)
    except MathError as error:
        logger.warning("formula %s: %s", text, error, location=node)
        return ""


def inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(formula(node, as_block=False))
    raise nodes.SkipNode


def block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula with lines of its own."""
    self.body.append(self.starttag(node, "div", CLASS="math") + formula(node, as_block=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
