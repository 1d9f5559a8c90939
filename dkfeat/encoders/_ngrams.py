"""N-grams of text columns: their settings, the classes of characters, and rows of coordinates."""

from __future__ import annotations

import pkgutil
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from dkfeat.compiled import tables
from dkfeat.compiled import text as loops
from dkfeat.encoders._arrow import Plan, Rows, as_type
from dkfeat.errors import ConfigError, InputError

WEIGHTS = ("binary", "count", "log", "sqrt")
"""Weights of the grams of a text by their counts, in the order of their numbers in the loops."""
_UNITS = ("word", "char")
_FORM = re.compile(
    rf"\s*(word|char)\s+(\d{{1,9}})(?:\s*-\s*(\d{{1,9}}))?(?:\s+({'|'.join(WEIGHTS)}))?(\s+idf)?(\s+cased)?\s*"
)
_CHANGING = r"[^\x00-\x7f\x{c0}-\x{ff}\x{2013}\x{2014}\x{2018}-\x{201d}]"
"""Texts without such a character are their own normal form: that of letters of Western Europe, dashes and quotes."""
_MOST_GRAMS = 1 << 24
"""Grams of a text, at most: with them a row takes half a gigabyte while it is made."""
_BLOCK_GRAMS = 1 << 26
"""Grams for which memory is reserved at a time, about, unless a single row needs more."""
_BUCKET_BITS = 22
"""Top bits of a coordinate that number the bucket in which the drawn rows that hold the gram are counted."""
_FEWEST_ROWS = 3
"""Grams that fewer of the drawn rows hold weigh nothing under idf."""
_COUNTED_ROWS = 256
"""Rows whose grams are in memory at a time while they are counted."""


class NGrams(NamedTuple):
    """Settings of the n-grams of a text column."""

    unit: str
    low: int
    high: int
    weights: str
    idf: bool
    cased: bool

    @classmethod
    def parse(cls, text: object, where: str) -> Self:
        """Read a text such as ``word 5`` or ``char 3-5 sqrt idf cased``.

        Raises
        ------
        ConfigError
            If it is none, or a gram would be too long.

        Examples
        --------
        >>> str(NGrams.parse("char 3-5 sqrt idf", "text")), NGrams.parse("word 2", "text").weights
        ('char 3-5 sqrt idf', 'binary')
        """
        match = _FORM.fullmatch(text) if isinstance(text, str) else None
        low, high = (int(match[2]), int(match[3] or match[2])) if match else (0, 0)
        if match is None or not 1 <= low <= high <= loops.MOST_LENGTH:
            raise ConfigError(
                f"{where}={text!r:.100}, but n-grams are given as 'word 5', 'word 1-2 sqrt' or 'char 3-5 cased': from "
                f"1 to {loops.MOST_LENGTH} words or characters, then weights ({', '.join(WEIGHTS)}), idf or cased"
            )
        return cls(match[1], low, high, match[4] or WEIGHTS[0], idf=bool(match[5]), cased=bool(match[6]))

    def __str__(self) -> str:
        return f"{self.form} {self.weights}" + " idf" * self.idf + " cased" * self.cased

    @property
    def form(self) -> str:
        """Unit and lengths, such as ``word 1-2``."""
        return f"{self.unit} {self.low}" + (f"-{self.high}" if self.high > self.low else "")

    @property
    def row_bytes(self) -> int:
        """Bytes of coordinates that a byte of text makes, about: a word has three bytes, a character one."""
        return (self.high - self.low + 1) * (4 if self.unit == "word" else 12)

    @property
    def most_bytes(self) -> int:
        """Bytes of a text, at most."""
        return _MOST_GRAMS // (self.high - self.low + 1) * (2 if self.unit == "word" else 1)

    def first_bad(self, texts: pa.Array) -> tuple[int, str] | None:
        """Find the first text that is too long or not valid UTF-8: its position and the reason."""
        found = []
        sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy()
        for at in np.flatnonzero(sizes > self.most_bytes)[:1].tolist():
            reason = f"a text of {sizes[at]:,} bytes, but n-grams {self.form!r} are made of at most {self.most_bytes:,}"
            found.append((at, f"{reason}; cut it into several rows"))
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            data = [value or b"" for value in texts.cast(pa.large_binary()).to_pylist()]
            at = next(at for at, value in enumerate(data) if value.decode(errors="ignore").encode() != value)
            found.append((at, "text that is not valid UTF-8; convert it, or leave the row out"))
        return min(found, default=None)

    def encode(self, plan: Plan, number: int, rows: Rows, frequencies: Frequencies | None = None) -> csr_matrix:
        """Encode the texts of a column of the plan, given by the number of its job.

        Parameters
        ----------
        frequencies : Frequencies or None, default=None
            Of the grams in drawn rows, if they count under idf.

        Returns
        -------
        encoded : csr_matrix of shape (n_rows, 2**40), float32
            Canonical, with int64 indices.

        Raises
        ------
        InputError
            If a text is too long or not valid UTF-8; ``row`` is the number of its row.
        """
        starts, sizes, _owners = self._find(plan, number, rows)
        encoded = self._encode(starts, sizes)
        return encoded if frequencies is None else frequencies.weigh(encoded)

    def _find(self, plan: Plan, number: int, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Any]]:
        """Find the addresses and sizes of texts, normalised where needed, and the objects that must outlive them."""
        n_rows = sum(len(numbers) for _, numbers in rows)
        starts, sizes, owners, first = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64), [], 0
        job = plan.jobs[number]
        child = int(job[tables.CHILD])
        for batch, numbers in rows:
            address, owner = plan.exported(batch)
            own = slice(first, first + len(numbers))
            tables.find_texts(address, numbers, job, starts[own], sizes[own])
            others = np.flatnonzero(~loops.are_ascii(starts[own], sizes[own]) | (sizes[own] > self.most_bytes))
            if len(others):
                texts = as_type(batch.column(child), pa.large_string()).take(pa.array(numbers[others]))
                if bad := self.first_bad(texts):
                    row = first + int(others[bad[0]])
                    raise InputError(f"row {row:,} of column {plan.schema.names[child]!r} is {bad[1]}", row=row)
                texts = self._folded(texts)
                starts[first + others], sizes[first + others] = _places(texts)
                owners.append(texts)
            owners.append(owner)
            first += len(numbers)
        return starts, sizes, owners

    def count_rows(self, plan: Plan, number: int, rows: Rows) -> NDArray[np.int32]:
        """Count the drawn rows that hold a gram, for the grams of the texts that `encode` would encode.

        Returns
        -------
        counted : ndarray of shape (2, n_buckets), int32
            Numbers of buckets, ascending, and numbers of rows.

        Raises
        ------
        ConfigError
            If no gram is in enough rows.
        """
        starts, sizes, _owners = self._find(plan, number, rows)
        counts = np.zeros(1 << _BUCKET_BITS, np.int32)
        for first in range(0, len(starts), _COUNTED_ROWS):
            own = slice(first, first + _COUNTED_ROWS)
            np.add.at(counts, _buckets(self._encode(starts[own], sizes[own])), 1)
        kept = np.flatnonzero(counts >= _FEWEST_ROWS)
        if not len(kept):
            name = plan.schema.names[int(plan.jobs[number][tables.CHILD])]
            raise ConfigError(
                f"idf leaves out n-grams that fewer than {_FEWEST_ROWS} of the rows of fit hold, but that are all of "
                f"column {name!r} in {len(starts):,} rows; leave idf out, or give more rows"
            )
        return np.stack([kept, counts[kept]]).astype(np.int32)

    def _folded(self, texts: pa.Array) -> pa.Array:
        """Normalise texts, and convert them to lower case unless case counts."""
        others = pc.match_substring_regex(texts, _CHANGING)
        # Arrow before version 24 decomposes characters where NFKC composes them.
        changed = [unicodedata.normalize("NFKC", text) for text in texts.filter(others).to_pylist()]
        texts = pc.replace_with_mask(texts, others, pa.array(changed, pa.large_string()))
        return texts if self.cased else pc.utf8_lower(texts)

    def _encode(self, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> csr_matrix:
        """Encode texts at these addresses, block by block, because most have fewer grams than could be."""
        unit, n_lengths = _UNITS.index(self.unit), self.high - self.low + 1
        tokens = np.maximum(sizes if self.unit == "char" else (sizes + 1) // 2, 1)
        settings = unit, self.low, self.high, WEIGHTS.index(self.weights), not self.cased, classes()
        cuts = np.flatnonzero(np.diff(np.cumsum(tokens * n_lengths) // _BLOCK_GRAMS)) + 1
        parts = []
        for block in map(slice, [0, *cuts], [*cuts, len(sizes)]):
            size, indptr = int(tokens[block].sum()) * n_lengths, np.zeros(len(sizes[block]) + 1, np.int64)
            indices, values, most = np.empty(size, np.int64), np.empty(size, np.float32), tokens[block].max(initial=1)
            loops.encode_texts(starts[block], sizes[block], *settings, int(most), indptr, indices, values)
            indices.resize(indptr[-1], refcheck=False)
            values.resize(indptr[-1], refcheck=False)
            parts.append(csr_matrix((values, indices, indptr), shape=(len(indptr) - 1, 1 << loops.GRAM_BITS)))
        encoded = parts[0] if len(parts) == 1 else vstack(parts, "csr")
        encoded.has_canonical_format = True
        return encoded

    def grams_of(self, texts: Iterable[str]) -> dict[int, str]:
        """Return the grams of texts by their coordinates, as text; words are separated by one space."""
        found: dict[int, set[str]] = {}
        joint = " " if self.unit == "word" else ""
        for text in self._folded(pa.array(texts, pa.large_string())).drop_null().to_pylist():
            tokens = list(_words(text) if self.unit == "word" else text)
            for length in range(max(1, min(self.low, len(tokens))), min(self.high, len(tokens)) + 1):
                grams = (joint.join(tokens[at : at + length]) for at in range(len(tokens) - length + 1))
                found.setdefault(length, set()).update(grams)
        named: dict[int, str] = {}
        for length, of_length in found.items():
            held = pa.array(of_length, pa.large_string())
            encoded = self._replace(low=length, high=length)._encode(*_places(held))
            named |= zip(encoded.indices.tolist(), held.to_pylist(), strict=True)
        return named


@dataclass(frozen=True, eq=False)
class Frequencies:
    """How many of the drawn rows hold the grams of a column, in buckets, and the weights that follow."""

    n_rows: int
    counted: NDArray[np.int32]
    """From `NGrams.count_rows`."""

    def __reduce__(self) -> tuple[Any, ...]:  # the table of weights is not pickled
        return partial(Frequencies, self.n_rows, self.counted), ()

    @cached_property
    def weights(self) -> NDArray[np.float32]:
        """Weight of each bucket: 1 + log(rows / rows that hold it), or 0 for few rows."""
        weights = np.zeros(1 << _BUCKET_BITS, np.float32)
        loops.weigh_buckets(self.counted[0], self.counted[1], self.n_rows, weights)
        return weights

    def weigh(self, encoded: csr_matrix) -> csr_matrix:
        """Multiply encoded rows by the weights, and leave zeros out."""
        encoded.data *= self.weights[_buckets(encoded)]
        if encoded.nnz:  # SciPy takes no columns above 2^31 without an entry
            encoded.eliminate_zeros()
        return encoded


def _buckets(encoded: csr_matrix) -> NDArray[np.int64]:
    """Return the number of the bucket of each gram of encoded rows."""
    buckets: NDArray[np.int64] = encoded.indices >> loops.GRAM_BITS - _BUCKET_BITS
    return buckets


def _places(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Addresses and sizes of the texts of a large_string array without nulls, which must outlive them."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return ends[:-1] + (data.address if data else 0), np.diff(ends)


def _words(text: str) -> Iterator[str]:
    """Split a text into words."""
    word = ""
    for character in text:
        kind = classes()[ord(character)]
        if kind == 1:
            word += character
            continue
        if word:
            yield word
        if kind == 2:
            yield character
        word = ""
    if word:
        yield word


@cache
def classes() -> NDArray[np.uint8]:
    """Class of each code point: 1 if it is part of a word, 2 if it is a word, else 0; never to be changed.

    Parts of words are the letters, marks, numbers and connectors of Unicode 18; those of Han, kana and Thai are words
    of their own.

    Examples
    --------
    >>> [int(classes()[ord(character)]) for character in "é_日 "]
    [1, 1, 2, 0]
    """
    # of each run of code points of one class: three times its length, plus the class, as little-endian words
    runs = np.frombuffer(pkgutil.get_data("dkfeat.encoders", "character_classes.bin") or b"", "<u4")
    return np.repeat(runs % 3, runs // 3).astype(np.uint8)
