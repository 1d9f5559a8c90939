"""Words that people type into the search, and the pages that answer them: entries of the index, which score highest.

`search_words.txt` has them; a page or section that does not exist is a warning.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import ENV_PICKLE_FILENAME, Sphinx
from sphinx.util import logging

WORDS = Path(__file__).with_suffix(".txt")

logger = logging.getLogger(__name__)


def words() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each page, the id of a section or "", and the words that lead there."""
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        place, _, listed = line.partition(": ")
        if not line.startswith("#"):
            page, _, section = place.partition("#")
            yield page, section, listed.split(", ")


def add(app: Sphinx, doctree: nodes.document) -> None:
    """Add the words of a page to it."""
    ids = {each for node in doctree.findall(nodes.section) for each in node["ids"]}
    for page, section, listed in words():
        if page == app.env.current_document.docname:
            if section and section not in ids:
                logger.warning("%s: %s has no section #%s", WORDS.name, page, section)
            doctree += addnodes.index(entries=[("single", word, section, "main", None) for word in listed])


def check(_: Sphinx, env: Any) -> None:
    """Warn of pages that do not exist, and of words that are listed twice."""
    seen: set[str] = set()
    for page, _section, listed in words():
        if page not in env.found_docs:
            logger.warning("%s: there is no page %s", WORDS.name, page)
        if twice := seen & set(listed):
            logger.warning("%s: %s is listed twice", WORDS.name, ", ".join(sorted(twice)))
        seen |= set(listed)


def drop(_: Sphinx, env: Any) -> None:
    """Drop the entries of pages that are gone, which Sphinx forgets to do."""
    entries = env._search_index_index_entries
    for page in entries.keys() - env.found_docs:
        del entries[page]


def keep(app: Sphinx, error: Exception | None) -> None:
    """Save the entries and titles of this build for the next one, which writes only what changed; Sphinx does not."""
    if error is None:
        (app.doctreedir / ENV_PICKLE_FILENAME).write_bytes(pickle.dumps(app.env))


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the words when pages are read."""
    app.connect("doctree-read", add)
    app.connect("env-check-consistency", check)
    app.connect("env-updated", drop)
    app.connect("build-finished", keep)
    app.add_config_value("search_words", WORDS.read_text(encoding="utf-8"), "env")  # pages are read again if it changed
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
