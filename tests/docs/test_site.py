"""What the site of the documentation is made of; `make docs` builds it, with warnings as errors."""

from __future__ import annotations

import importlib.util
import re

import pytest
from reproduction.pages.results_page import write_page

import dkfeat
from tests.docs.pages import DOCS


def test_reference__has_every_public_name():
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    documented = set(re.findall(r"^(?: {3}|\.\. automodule:: )(dkfeat[\w.]+)$", text, re.MULTILINE))
    missing = [
        name
        for name in dkfeat.__all__
        if not any(f"{entry}.".startswith(f"dkfeat.{name}.") for entry in documented) and name != "__version__"
    ]
    assert missing == []


def test_results_page__becomes_what_the_site_knows(tmp_path):
    pytest.importorskip("sphinx", reason="Sphinx is of the extra docs")
    spec = importlib.util.spec_from_file_location("results_page_of_docs", DOCS / "_ext" / "results_page.py")
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    (tmp_path / "out" / "svm").mkdir(parents=True)
    for style in ("light", "dark"):
        (tmp_path / "out" / "svm" / f"curve-{style}.png").write_bytes(b"png")
    result = {
        "name": "svm",
        "mode": "full",
        "title": "Machines",
        "source": "A paper",
        "split_note": "No data.",
        "verdicts": [],
        "tables": [{"title": "Table", "columns": ["a", "b"], "rows": [[1, 2.5]], "note": ""}],
        "pictures": [{"name": "curve", "title": "Curve", "alt": "what <is> 'seen'", "width": 6.4}],
        "differences": [],
        "date": "2026-11-20",
        "seed": 0,
        "processor_seconds": 60.0,
        "processes": 1,
        "machine": "a machine",
        "versions": {"numpy": "2"},
    }
    write_page(tmp_path / "results.md", tmp_path / "out", [result], ["svm"])
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    adapted = extension.adapted(text)
    assert "<picture" in text
    assert not re.search(r"<(a|picture|img|source)\b", adapted)
    assert "(svm)=\n\n## Machines" in adapted
    for style in ("light", "dark"):
        block = f"```{{image}} images/results/svm-curve-{style}.png\n:class: only-{style}\n:alt: what <is> 'seen'\n"
        assert f"{block}:width: 640px\n```" in adapted
