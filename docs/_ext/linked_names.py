"""Links of the types and errors in docstrings: a name without a link is a warning.

`linked_names.txt` has the pages of names of other projects, so that the site is made without network.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

NAMES = Path(__file__).with_suffix(".txt")
PROSE = {"Dask", "JSON", "URL", "URLs", "X", "Y"}
"""Words with capitals that are no names."""
USED = {
    *("fit", "transform", "get_feature_names_out", "n_features_out", "describe", "name_of", "named"),
    *("to_spec", "from_spec", "fingerprint", "replaced", "to_mapping"),
}
"""Methods of sources and encoders that users call."""

logger = logging.getLogger(__name__)


class Words(set[str]):
    """Words of types that are no names: without capitals and dots, and those of `PROSE`."""

    def __contains__(self, word: object) -> bool:
        return word in PROSE or (str(word).islower() and "." not in str(word))


def write_inventories(app: Sphinx, config: Config) -> None:
    """Write the inventories that intersphinx reads, of the names that occur."""
    folder = Path(app.doctreedir)
    folder.mkdir(parents=True, exist_ok=True)
    projects: dict[str, list[str]] = {}
    project = ""
    for line in NAMES.read_text(encoding="utf-8").splitlines():
        role, name, *page = line.split()
        if page and role != "#":
            projects[project].append(f"{name} {role} 1 {page[0]} -\n")
        elif role != "#":
            project = role
            projects[project] = []
            config.intersphinx_mapping[project] = (name, str(folder / f"{project}.inv"))
    for project, lines in projects.items():
        head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n# Names, compressed using zlib.\n"
        (folder / f"{project}.inv").write_bytes(head.encode() + zlib.compress("".join(lines).encode()))


def set_words(app: Sphinx) -> None:
    """Link each name in the types of parameters."""
    app.config.numpydoc_xref_ignore = Words()


def resolve(_: Sphinx, env: Any, node: pending_xref, text: nodes.TextElement) -> nodes.reference | None:
    """Link the last part of a name, as in docstrings, if one documented name ends in it."""
    if node.get("refdomain") != "py":
        return None
    domain, target = env.domains.python_domain, node["reftarget"]
    found = [name for name in domain.objects if name.endswith(f".{target}") and target[:1].isupper()]
    if len({domain.objects[name].docname for name in found}) != 1:
        return None
    return domain.resolve_xref(env, node["refdoc"], env.app.builder, "obj", min(found, key=len), node, text)


def check(_: Sphinx, _what: str, name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Warn of a type whose name a sign follows, which numpydoc does not see."""
    for line in lines:
        if re.match(r"[\w, ]+ : .*\b[A-Z]\w*[;:]", line):
            logger.warning("%s: %r has a name that is not linked; use commas", name, line)


def skip(_: Sphinx, _what: str, name: str, obj: Any, _skip: bool, _options: Any) -> bool | None:
    """Leave out the methods of sources and encoders that only runs call."""
    module = getattr(getattr(obj, "fget", obj), "__module__", None) or ""
    return True if module.startswith(("dkfeat.sources", "dkfeat.encoders")) and name not in USED else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Write inventories before intersphinx reads them."""
    app.connect("config-inited", write_inventories, priority=100)
    app.connect("builder-inited", set_words)  # after the types of the configuration are checked
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", check, priority=100)  # before numpydoc
    app.connect("autodoc-skip-member", skip)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
