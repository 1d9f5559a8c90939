"""Pages: escaped and self-contained."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from dkfeat import html

HOSTILE = "<script>alert('x')</script>"


def evaluation_page(text):
    rows = [{text: text}]
    found = SimpleNamespace(task=text, n_rows=1, n_unknown=0, summary={text: text}, per_class=rows)
    explained = [{"column": text, "value": text, "contribution": 1.0}]
    found.explanation = SimpleNamespace(scores=np.ones((1, 1)), row=lambda _: explained)
    values = {"found": found, "pictures": {text: ([b"", b""], text)}, "errors": rows}
    return html.render("evaluation.html", title=text, most_classes=1, **values)


def test_pages__escape_everything_that_is_told():
    made = evaluation_page(HOSTILE)
    assert "<script" not in made
    assert made.count("&lt;script&gt;") == 13


def test_pages__have_no_control_characters():
    made = evaluation_page("red \x1b[31m\u202e\x00\udcff")
    assert made.replace("\n", "").isprintable()
    assert made.count(r"red \x1b[31m\u202e\x00\udcff") == 12


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "\N{EN DASH}"), (0.00012345, "0.000123"), (0.5, "0.5000"), (12345, "12,345")]
)
def test_page__shows_numbers_short(value, shown):
    assert f"<td>{shown}</td>" in evaluation_page(value)


def test_page__is_light_and_dark_and_fits_a_phone():
    made = evaluation_page("a")
    assert "prefers-color-scheme: dark" in made
    assert 'name="viewport"' in made
    assert not re.search(r"<script|<link|https?://", made)
