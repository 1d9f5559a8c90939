"""Pages and cards: escaped and self-contained."""

import re

import pytest

from dkfeat import html

HOSTILE = "<script>alert('x')</script>"


def evaluation_page(text):
    rows = [{text: text}]
    values = {"figures": rows, "pictures": [(b"", text)], "classes": rows, "errors": rows}
    return html.render("evaluation.html", title=text, most_classes=1, **values)


def test_card__escapes_everything_that_is_told():
    made = html.card(
        HOSTILE, {HOSTILE: HOSTILE}, note=HOSTILE, details={HOSTILE: {HOSTILE: HOSTILE}, "t": [{HOSTILE: HOSTILE}]}
    )
    assert "<script" not in made
    assert made.count("&lt;script&gt;") == 9


def test_pages_and_cards__have_no_control_characters():
    text = "red \x1b[31m\u202e\x00\udcff"
    made = html.card(text, {text: text}, note=text, details={text: {text: text}, "t": [{text: text}]})
    made += evaluation_page(text)
    assert made.replace("\n", "").isprintable()
    assert made.count(r"red \x1b[31m\u202e\x00\udcff") == 18


def test_card__leaves_out_empty_details_and_has_no_colours_of_its_own():
    made = html.card("Map", {"a": 1}, details={"Rows": [], "Facts": {}})
    assert "<details>" not in made
    styles = made.partition("</style>")[0]
    assert not re.search(r"(?<!-)color: (?!inherit)|background: (?!transparent)", styles)  # the theme's are kept


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "\N{EN DASH}"), (0.00012345, "0.000123"), (0.5, "0.5000"), (12345, "12,345")]
)
def test_card__shows_numbers_short(value, shown):
    assert f"<td>{shown}</td>" in html.card("Map", {"a": value})


def test_page__is_light_and_dark_and_fits_a_phone():
    made = evaluation_page("a")
    assert "prefers-color-scheme: dark" in made
    assert 'name="viewport"' in made
    assert not re.search(r"<script|<link|https?://", made)
