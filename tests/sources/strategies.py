"""Hypothesis strategies: CSR blocks, LIBSVM text, and ways to cut rows or bytes apart."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from scipy import sparse


@st.composite
def csr_blocks(draw, *, dtype="float32", max_rows=8, max_features=12):
    """Canonical CSR matrices without stored zeros, rows without values among them."""
    n_rows = draw(st.integers(0, max_rows))
    n_features = draw(st.integers(1, max_features))
    width = 32 if dtype == "float32" else 64
    values = st.floats(allow_nan=False, allow_infinity=False, width=width).filter(lambda value: value != 0)
    rows = draw(st.lists(st.dictionaries(st.integers(0, n_features - 1), values), min_size=n_rows, max_size=n_rows))
    X = sparse.csr_matrix((n_rows, n_features), dtype=dtype)
    X.indices = np.array([column for row in rows for column in sorted(row)], dtype=np.int32)
    X.data = np.array([row[column] for row in rows for column in sorted(row)], dtype=dtype)
    X.indptr = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    return X


@st.composite
def numerals(draw):
    """Text of finite numbers in every form that LIBSVM text allows; some beyond float64."""
    digits = st.text("0123456789", max_size=draw(st.sampled_from([2, 6, 20, 45])))
    whole, fraction = draw(digits), draw(st.none() | digits)
    if not whole and not fraction:
        whole = "0"
    text = draw(st.sampled_from(["", "", "-", "+"])) + whole + ("" if fraction is None else "." + fraction)
    if draw(st.booleans()):
        text += draw(st.sampled_from("eE")) + draw(st.sampled_from(["", "+", "-"]))
        text += str(draw(st.integers(0, 12) | st.integers(0, 400)))
    return text


_BLANKS = st.text(" \t", min_size=1, max_size=3)
_COMMENTS = st.text(st.characters(blacklist_characters="\r\n\0", blacklist_categories=["Cs"]), max_size=6)
_SMALL = st.integers(-99, 99).map(lambda n: f"{n / 8:g}")


@st.composite
def _lines(draw):
    kind = draw(st.sampled_from(["row", "row", "row", "comment", "blank"]))
    if kind == "comment":
        return draw(st.just("") | _BLANKS) + "#" + draw(_COMMENTS)
    if kind == "blank":
        return draw(st.just("") | _BLANKS)
    line = draw(st.integers(-3, 3).map(str) | _SMALL)
    for index in sorted(draw(st.sets(st.integers(1, 30), max_size=5))):
        line += f"{draw(_BLANKS)}{index}:{draw(_SMALL)}"
    return line + draw(st.just("") | _BLANKS) + draw(st.just("") | st.builds("#{}".format, _COMMENTS))


@st.composite
def libsvm_texts(draw):
    """Bytes of good LIBSVM text with comments, blank lines, both line ends and, at times, no last one."""
    text = "".join(line + draw(st.sampled_from(["\n", "\r\n"])) for line in draw(st.lists(_lines(), max_size=12)))
    data = draw(st.sampled_from(["", "", "\ufeff"])).encode() + text.encode()
    return data.removesuffix(b"\n").removesuffix(b"\r") if draw(st.booleans()) else data


def partitions(size: int):
    """Sorted cuts of ``range(size)``, the ends left out."""
    return st.lists(st.integers(1, max(size - 1, 1)), max_size=6).map(lambda cuts: sorted(set(cuts)))
