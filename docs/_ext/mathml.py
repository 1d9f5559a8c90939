"""Formulas as MathML, which browsers draw by themselves: pages need no network, and no script."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

UNKNOWN = re.compile(r">(\\[A-Za-z]+)<")
"""Command that the converter did not know, and left as text."""
FUNCTION = re.compile(r'<(m[io])>([a-z]{2,})</\1>(?=(<mo stretchy="false">&#x00028;)?)')
"""Name of a function, and its bracket, if one follows."""

logger = logging.getLogger(__name__)


def formula(node: nodes.math | nodes.math_block, display: str) -> str:
    """MathML of a formula, functions set apart as TeX does; one that is not understood is a warning with its place."""
    text = node.astext()
    try:
        found = convert(text, display=display)
    except Exception as error:
        logger.warning("formula %s: %r", text, error, location=node)
        return ""
    braces = re.sub(r"\\.|[^{}]", "", text)
    if braces.count("{") != braces.count("}"):
        logger.warning("formula %s: a brace has no other one", text, location=node)
    if unknown := UNKNOWN.search(found):
        logger.warning("formula %s: %s is not known", text, unknown[1], location=node)
    return FUNCTION.sub(
        lambda name: f'<mo lspace="0.17em" rspace="{"0" if name[3] else "0.17em"}">{name[2]}</mo>', found
    )


def inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(formula(node, "inline"))
    raise nodes.SkipNode


def block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula with lines of its own."""
    self.body.append(self.starttag(node, "div", CLASS="math") + formula(node, "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
