"""Rows like those of Webspam's trigrams, drawn from 500 real pages of its unigrams, and how like them they are.

Webspam counts the trigrams of bytes in 350,000 web pages, each row scaled to unit length: 16,609,143 columns, of which
about 680,000 occur, and 3,728 nonzeros a row on average, 3,889 in the median. The set is too large to come with dkfeat,
but 500 of its pages do as counts of single bytes. A new row starts from such a page:

- A trigram (a, b, c) is column 65,536 a + 256 b + c + 1. Its probability is u(a) u(b) u(c) g(a, b, c) / z(a), where u
  are the page's shares of bytes, and z makes the sum over b and c equal u(a). So bytes keep the page's shares.
- The language g, the same for all pages, is log-normal: most trigrams of frequent bytes are rare, as in written text.
- Trigrams come in bursts, as words do that a page repeats: as many bursts as the page has bytes, divided by the mean
  length of a burst, which is geometric.

The spread of g and the length of bursts are chosen so that rows have 3,728 nonzeros on average, and 350,000 rows about
680,000 columns. A page's label is its rows' label. Values are counts divided by the row's length, with six digits.

`report` compares drawn rows, summed to counts of bytes, with the real rows, and their trigrams with what is known of
the whole set.
"""

from __future__ import annotations

import lzma
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_matrix, vstack
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import normalize

from dkfeat.kernels import gmm

N_FEATURES = 16_609_143
SPREAD, BURST = 2.7, 2.25
BLOCK_ROWS = 3500
TEXT_ROWS = 500
"""Rows that are turned into text at a time."""
SPLIT_ROWS = 940
"""Rows in 64 MiB of text."""
KNOWN = {"nonzeros": 3728, "nonzeros_median": 3889, "columns of 350,000 rows": 680_000, "GB of 350,000 rows": 24}


def real_rows(folder: Path) -> tuple[csr_matrix, np.ndarray]:
    """The 500 real rows: column 1 + b has the share of byte b, scaled to unit length, and their labels."""
    parts = []
    for name in ("train", "test"):
        with lzma.open(folder / "webspam500" / f"{name}.svm.xz") as file:
            parts.append(load_svmlight_file(file, n_features=257, zero_based=True))
    return vstack([X[:, 1:] for X, _ in parts]).tocsr(), np.concatenate([y for _, y in parts]).astype(int)


class WebspamRows:
    """Draw rows of trigrams."""

    def __init__(self, X: csr_matrix, y: np.ndarray, seed: int = 0) -> None:
        self.labels = y
        self.pages = [(row.indices.astype(np.int32), row.data / row.data.min()) for row in X]
        normal = np.random.default_rng(seed).standard_normal(256**3, dtype=np.float32)
        self.language = np.exp(np.float32(SPREAD) * normal)

    def trigrams(self, page: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns, from 0 and ascending, of all trigrams of a page's bytes, and how often each starts."""
        present, counts = self.pages[page]
        columns = (65_536 * present[:, None, None] + 256 * present[:, None] + present).reshape(len(present), -1)
        pairs = np.outer(counts, counts).ravel()
        rates = pairs * self.language[columns]
        rates *= (counts / BURST / rates.sum(axis=1))[:, None]
        return columns.ravel(), rates.ravel()

    def block(self, n_rows: int, seed: int, number: int) -> tuple[csr_matrix, np.ndarray]:
        """Draw a block of rows: counts of trigrams, and labels."""
        rng = np.random.default_rng([seed, number])
        pages = rng.integers(len(self.pages), size=n_rows)
        drawn = []
        for page in np.unique(pages):
            of_page = int((pages == page).sum())
            columns, rates = self.trigrams(page)
            upto = np.cumsum(rates)
            n_bursts = rng.poisson(of_page * upto[-1])
            found = np.searchsorted(upto, np.sort(rng.random(n_bursts)) * upto[-1]).clip(max=len(columns) - 1)
            cells = rng.geometric(1 / BURST, n_bursts), (rng.integers(of_page, size=n_bursts), columns[found])
            drawn.append(csr_matrix(coo_array(cells, shape=(of_page, N_FEATURES))))  # sums bursts of one trigram
        back = np.argsort(np.argsort(pages, kind="stable"))
        return vstack(drawn, format="csr")[back], self.labels[pages]

    def blocks(self, n_rows: int, seed: int = 1) -> Iterator[tuple[csr_matrix, np.ndarray]]:
        """Draw rows in blocks; fewer rows are the first ones of more, by whole blocks."""
        for number, start in enumerate(range(0, n_rows, BLOCK_ROWS)):
            yield self.block(min(BLOCK_ROWS, n_rows - start), seed, number)

    def n_columns(self, *n_rows: int) -> list[int]:
        """Compute the expected number of columns that occur in so many rows."""
        missing = np.zeros((len(n_rows), 256**3), np.float32)  # logarithm of the probability
        for page in range(len(self.pages)):
            columns, rates = self.trigrams(page)
            hit = -np.expm1(-rates) / len(self.pages)
            for row, n in zip(missing, n_rows, strict=True):
                row[columns] -= n * hit  # pages are drawn about as often as their probability says
        return [round(float(-np.expm1(row).sum())) for row in missing]


def text(counts: csr_matrix, y: np.ndarray) -> bytes:
    """Write rows as LIBSVM text, values divided by the row's length, with six digits."""
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    lengths = np.sqrt(np.bincount(rows, counts.data.astype(float) ** 2, counts.shape[0]))
    pairs, of_pair = np.unique(rows << 32 | counts.data, return_inverse=True)
    values = (pairs & 0xFFFFFFFF) / lengths[pairs >> 32]
    words = np.array([b"%g" % value for value in values.tolist()] or [b"0"])
    cells = np.zeros((counts.nnz, 10 + words.itemsize), np.uint8)
    cells[:, 0], cells[:, 9] = b" :"
    left = counts.indices + 1
    for at in range(8, 0, -1):
        cells[:, at] = np.where(left > 0, left % 10 + ord("0"), 0)
        left //= 10
    cells[:, 10:] = words[of_pair].view(np.uint8).reshape(counts.nnz, -1)
    is_text = cells != 0
    stops = np.concatenate([[0], is_text.sum(axis=1).cumsum()])[counts.indptr].tolist()
    flat = cells[is_text].tobytes()
    return b"".join(b"%d%b\n" % (y[row], flat[stops[row] : stops[row + 1]]) for row in range(len(y)))


def write(path: Path, rows: WebspamRows, n_rows: int) -> None:
    """Write rows as LIBSVM text, unless the file exists."""
    if path.exists():
        return
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        for counts, y in rows.blocks(n_rows):
            for start in range(0, len(y), TEXT_ROWS):
                file.write(text(counts[start : start + TEXT_ROWS], y[start : start + TEXT_ROWS]))
    temporary.replace(path)


def bytes_of(counts: csr_matrix) -> csr_matrix:
    """Sum trigrams to their first bytes, and scale rows to unit length."""
    first = csr_matrix(
        (counts.data.astype(float), counts.indices >> 16, counts.indptr.copy()), shape=(len(counts.indptr) - 1, 256)
    )
    first.sum_duplicates()
    return normalize(first)


def moments(X: csr_matrix) -> dict[str, float]:
    """Moments of rows of unit length: nonzeros, values, popularity of columns, and GMM between rows."""
    nonzeros = np.diff(X.indptr)
    popularity = np.sort(X.getnnz(axis=0) / X.shape[0])[::-1]
    similar = gmm(X[:500])[np.triu_indices(min(500, X.shape[0]), 1)]
    found = {
        "nonzeros": nonzeros.mean(),
        "nonzeros_sd": nonzeros.std(),
        "nonzeros_median": np.median(nonzeros),
        "value": X.data.mean(),
        "value_sd": X.data.std(),
        "value_skewness": (((X.data - X.data.mean()) / X.data.std()) ** 3).mean(),
        "row_sum": X.sum(axis=1).mean(),
        "row_sum_sd": X.sum(axis=1).std(),
        "columns": (popularity > 0).sum(),
        **{f"columns_in_{share:.0%}_of_rows": (popularity > share).sum() for share in (0.5, 0.1, 0.01)},
        "gmm": similar.mean(),
        "gmm_sd": similar.std(),
        **{f"gmm_{q:.0%}": np.quantile(similar, q) for q in (0.05, 0.5, 0.95)},
    }
    return {name: round(float(value), 4) for name, value in found.items()}


def report(real: csr_matrix, y: np.ndarray, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Compare drawn rows with the real ones, and with what is known of the whole set; print tables."""
    rows = WebspamRows(real, y)
    n_rows = 200 if quick else BLOCK_ROWS
    with tempfile.TemporaryDirectory() as folder:
        path, started = Path(folder) / "rows.svm", time.process_time()
        write(path, rows, n_rows)
        seconds, size = time.process_time() - started, path.stat().st_size
    yield {"what": "text", "rows": n_rows, "MB": size / 1e6, "cpu_seconds": round(seconds, 1)}
    counts, _ = rows.block(n_rows, 1, 0)
    of_bytes, drawn_bytes, trigrams = (moments(X) for X in (real, bytes_of(counts), normalize(counts.astype(float))))
    yield {"what": "real bytes", **of_bytes}
    yield {"what": "drawn bytes", **drawn_bytes}
    yield {"what": "drawn trigrams", **trigrams}
    growth = (500, 3500, 35_000, 350_000)
    expected = dict(zip(growth, rows.n_columns(*growth), strict=True))
    counted = {n: int(np.count_nonzero(counts[:n].getnnz(axis=0))) for n in growth if n <= n_rows}
    few = counts[:SPLIT_ROWS]
    uses = round(few.nnz / np.count_nonzero(few.getnnz(axis=0)), 1)
    yield {"what": "columns that occur", "expected": expected, "counted": counted, "uses_in_64_MiB": uses}

    print(f"\n{'bytes':<24}{'real':>12}{'drawn':>12}{'ratio':>8}")
    for name, value in of_bytes.items():
        print(f"{name:<24}{value:>12.4f}{drawn_bytes[name]:>12.4f}{drawn_bytes[name] / value:>8.3f}")
    facts = {**trigrams, "columns of 350,000 rows": expected[350_000], "GB of 350,000 rows": 350e-6 * size / n_rows}
    print(f"\n{'trigrams':<24}{'Webspam':>12}{'drawn':>12}{'ratio':>8}")
    for name, value in KNOWN.items():
        print(f"{name:<24}{value:>12,}{facts[name]:>12,.0f}{facts[name] / value:>8.3f}")
