"""Damaged and malicious text: an error or the rows, in bounded time and memory."""

from __future__ import annotations

import locale
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkfeat.errors import ParseError
from dkfeat.sources.libsvm.source import LibsvmSource
from tests.reference.libsvm import read_rows
from tests.sources.strategies import libsvm_texts

OPTIONS = {"n_features": 40, "zero_based": False, "label_dtype": "float64"}


def read_or_refuse(folder, data: bytes):
    """Return rows, entries and labels; None if the text is rejected, with a position inside the text."""
    path = folder / "rows.svm"
    path.write_bytes(data)
    source = LibsvmSource(str(path), **OPTIONS)
    refusal = None
    try:
        (split,) = source.splits()
        (piece,) = source.read(split)
    except ParseError as error:
        refusal = error
    if refusal is not None:
        assert (refusal.line is None) == (refusal.column is None)
        if refusal.line is not None:
            assert 1 <= refusal.column <= len(data.split(b"\n")[refusal.line - 1]) + 1
        return None
    piece.block.X.check_format(full_check=True)
    return piece.block


@pytest.mark.fault("I-39")
@given(data=st.binary(max_size=60))
@settings(max_examples=300)
def test_random_bytes__are_refused_or_read(tmp_path, data):
    read_or_refuse(tmp_path, data)


@pytest.mark.slow
@pytest.mark.fault("I-39")
@given(data=libsvm_texts(), changes=st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=2)), max_size=3))
@settings(max_examples=300)
def test_mutated_text__is_refused_or_read_as_it_stands(tmp_path, data, changes):
    for at, bytes_ in changes:
        data = data[:at] + bytes_ + data[at + 1 :]
    block = read_or_refuse(tmp_path, data)
    if block is not None:
        text = b"\n".join(line.split(b"#")[0] for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
        rows = read_rows(text)
        assert [row.labels for row in rows] == [[label] for label in block.y]
        assert [len(row.features) for row in rows] == np.diff(block.X.indptr).tolist()


@pytest.mark.fault("I-14")
def test_locale__decimal_comma_changes_nothing(tmp_path):
    before = locale.setlocale(locale.LC_NUMERIC)
    try:
        for name in ("de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "C.UTF-8"):
            try:
                locale.setlocale(locale.LC_NUMERIC, name)
            except locale.Error:
                continue
            long = "0.10000000000000000555111512312578270211815834045410156250001"
            block = read_or_refuse(tmp_path, f"1.5 1:2.25 2:{long} 3:1e-7\n".encode())
            assert block.y.tolist() == [1.5]
            assert block.X.data.tolist() == np.float32([2.25, float(long), 1e-7]).tolist()
            break
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)


def child(program: str, *args: object) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, args)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


GROWTH = """
    import sys
    from dkfeat.sources.libsvm.source import LibsvmSource
    def read(path):
        options = dict(n_features=10**8, zero_based=False, label_dtype="int64", blocksize="8MiB")
        source = LibsvmSource(path, **options)
        rows = 0
        for split in source.splits():
            for piece in source.read(split, 1 << 18):
                rows += piece.block.n_rows
                del piece
        return rows
    def high_water():
        return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
    read(sys.argv[1])
    open("/proc/self/clear_refs", "w").write("5")
    before = high_water()
    rows = read(sys.argv[2])
    print(rows, high_water() - before)
"""
WIDE = "1 " + " ".join(f"{i * 37}:0.{i * 7919}" for i in range(1, 80))
on_linux = pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs the kernel's high-water mark")  # noqa: PTH110 -- at import, once


@pytest.mark.slow
@on_linux
@pytest.mark.parametrize(("line", "most"), [(WIDE, 2.5), ("1", 4.5)], ids=["values", "labels"])
def test_memory__is_a_small_multiple_of_the_blocksize(tmp_path, line, most):
    (tmp_path / "tiny.svm").write_text("1 1:1\n")
    n_lines = (20 << 20) // (len(line) + 1)
    (tmp_path / "large.svm").write_text((line + "\n") * n_lines)
    rows, grown = child(GROWTH, tmp_path / "tiny.svm", tmp_path / "large.svm")
    assert rows == n_lines
    assert grown < most * (8 << 20)


@pytest.mark.fault("I-28")
@on_linux
@pytest.mark.slow
def test_long_line__ten_million_features(tmp_path):
    (tmp_path / "tiny.svm").write_text("1 1:1\n")
    path = tmp_path / "large.svm"
    path.write_text("1 " + " ".join(f"{i}:1" for i in range(1, 10**7)) + "\n-1 3:1\n")
    rows, grown = child(GROWTH, tmp_path / "tiny.svm", path)
    assert rows == 2
    assert grown < 6 * path.stat().st_size
