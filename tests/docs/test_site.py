"""What the site of the documentation is made of; `make docs` builds it, with warnings as errors."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest
from reproduction import NAMES
from reproduction.pages.results_page import write_page

import dkfeat
from tests.docs.pages import DOCS


def test_reference__has_every_public_name():
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    documented = set(re.findall(r"^(?: {3}~?|\.\. automodule:: )(dkfeat[\w.]+)$", text, re.MULTILINE))
    missing = [
        name
        for name in dkfeat.__all__
        if not any(f"{entry}.".startswith(f"dkfeat.{name}.") for entry in documented) and name != "__version__"
    ]
    assert missing == []


def extension_of(name):
    """Module of an extension of the site."""
    pytest.importorskip("sphinx", reason="Sphinx is of the extra docs")
    spec = importlib.util.spec_from_file_location(f"{name}_of_docs", DOCS / "_ext" / f"{name}.py")
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension


def test_references__begin_with_the_title():
    """An initial such as "P." would begin a list."""
    root = Path(dkfeat.__file__).parent
    found = [line for path in root.rglob("*.py") for line in re.findall(r"^ *\.\. \[\d+\] .*", path.read_text(), re.M)]
    assert len(found) > 20
    assert [line for line in found if not re.match(r' *\.\. \[\d+\] "', line)] == []


def test_formulas__are_what_was_written(caplog):
    pytest.importorskip("latex2mathml", reason="latex2mathml is of the extra docs")
    extension, nodes = extension_of("mathml"), pytest.importorskip("docutils.nodes")
    half = "<mfrac><mn>1</mn><mn>2</mn></mfrac>"
    shown = extension.formula(nodes.math("", r"\frac12 \arccos\rho"), "inline")
    assert half + '<mo lspace="0.17em" rspace="0.17em">arccos</mo><mi>&#x003C1;</mi>' in shown
    assert 'rspace="0">exp</mo>' in extension.formula(nodes.math("", r"\exp(x)"), "block")
    for fault in (r"\nonsense x", r"\frac{1"):
        assert not caplog.records
        extension.formula(nodes.math("", fault), "inline")
        assert fault in caplog.text
        caplog.clear()


def test_results_page__is_as_its_own_sections_say(tmp_path):
    shutil.copytree(DOCS / "images" / "results", tmp_path / "images" / "results")
    page, text = Path(shutil.copy(DOCS / "results.md", tmp_path)), (DOCS / "results.md").read_text(encoding="utf-8")
    write_page(page, tmp_path, [], NAMES)
    assert page.read_text(encoding="utf-8") == text
    assert text.count("\n- ✗ ") == 2 * text.count("\n- ✗ (not confirmed)")  # each is named with its reason, too


def test_results_page__becomes_what_the_site_knows(tmp_path):
    extension = extension_of("results_page")
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
