"""LIBSVM text read by Python's own split and float: slow, for good text only."""

from __future__ import annotations

import re
from typing import NamedTuple


class Row(NamedTuple):
    labels: list[float]
    features: dict[int, float]
    qid: int | None = None


def read_rows(data: bytes) -> list[Row]:
    """Rows of good text; zeros are not kept."""
    rows = []
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        text = line.split(b"#")[0].removesuffix(b"\r").decode("ascii")
        if not text.strip(" \t"):
            continue
        tokens = [token for token in re.split(r"[ \t]+", text) if token]
        labels = [] if text[0] in " \t" else [float(label) for label in tokens.pop(0).split(",")]
        qid = int(tokens.pop(0)[4:]) if tokens and tokens[0].startswith("qid:") else None
        pairs = [token.split(":") for token in tokens]
        rows.append(Row(labels, {int(index): float(value) for index, value in pairs if float(value) != 0}, qid))
    return rows
