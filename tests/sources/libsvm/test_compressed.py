"""Compressed sources: joined members, bounded memory, nothing cut or damaged passes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
import sys
import textwrap

import pytest
import zstandard

from dkfeat.errors import ParseError
from dkfeat.sources import contents
from dkfeat.sources.libsvm.source import LibsvmSource

OPTIONS = {"n_features": 40, "zero_based": False, "label_dtype": "int64"}
TEXT = b"".join(b"%d 1:%d 7:0.5 40:%d\n" % (i % 3, i, i * i) for i in range(1, 3000))


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}
endings = pytest.mark.parametrize("ending", COMPRESS)


def read(folder, name: str, data: bytes, **options):
    (folder / name).write_bytes(data)
    source = LibsvmSource(str(folder / name), **{**OPTIONS, **options})
    (split,) = source.splits()
    return list(source.read(split))


def n_rows(pieces) -> int:
    return sum(piece.block.n_rows for piece in pieces)


@endings
def test_compressed__equals_plain(tmp_path, ending):
    (plain,) = read(tmp_path, "a.svm", TEXT)
    (packed,) = read(tmp_path, "a.svm" + ending, COMPRESS[ending](TEXT))
    assert (packed.start, packed.stop, packed.source_sha256) == (0, len(TEXT), plain.source_sha256)
    assert (packed.block.X != plain.block.X).nnz == 0
    assert packed.block.y.tolist() == plain.block.y.tolist()


@endings
def test_compressed__pieces_end_by_blocksize(tmp_path, ending):
    pieces = read(tmp_path, "a.svm" + ending, COMPRESS[ending](TEXT), blocksize=10_000)
    assert n_rows(pieces) == 2999
    assert all(10_000 <= piece.stop - piece.start < 10_100 for piece in pieces[:-1])
    assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]


@pytest.mark.fault("I-31")
@endings
def test_compressed__members_are_joined(tmp_path, ending):
    parts = [TEXT[:1001], b"", TEXT[1001:1002], TEXT[1002:]]
    assert n_rows(read(tmp_path, "a" + ending, b"".join(map(COMPRESS[ending], parts)))) == 2999


@pytest.mark.fault("I-27")
@endings
@pytest.mark.parametrize("data", [None, b"", b"\n \n", b"# only this"])
def test_compressed__no_rows(tmp_path, ending, data):
    (piece,) = read(tmp_path, "a" + ending, b"" if data is None else COMPRESS[ending](data))
    assert (piece.start, piece.stop, piece.last, piece.block.n_rows) == (0, len(data or b""), True, 0)


@pytest.mark.fault("I-30")
@endings
@pytest.mark.parametrize("left", [0.5, -1, -4, -8, 7])
def test_compressed__truncated(tmp_path, ending, left):
    data = COMPRESS[ending](TEXT)
    cut = data[: int(len(data) * left)] if isinstance(left, float) else data[:left]
    with pytest.raises(ParseError, match=rf"^{tmp_path}/a\{ending}: truncated or corrupt at decompressed byte [0-9,]+"):
        read(tmp_path, "a" + ending, cut)


@pytest.mark.parametrize("ending", [".xz", ".zst"])
def test_compressed__dictionary_above_the_limit(tmp_path, ending, monkeypatch):
    monkeypatch.setattr(contents, "_XZ_MEMORY_BYTES", 1 << 20)
    long = zstandard.ZstdCompressionParameters(window_log=28, hash_log=6, chain_log=6, strategy=1)
    encoder = zstandard.ZstdCompressor(compression_params=long).compressobj()
    data = encoder.compress(TEXT) + encoder.flush() if ending == ".zst" else COMPRESS[ending](TEXT)
    with pytest.raises(ParseError, match=rf"a\{ending}: more memory is needed .* as xz -9 or zstd -19 use"):
        read(tmp_path, "a" + ending, data)


@pytest.mark.fault("I-30")
@endings
def test_compressed__every_flipped_byte_is_found_or_harmless(tmp_path, ending):
    (good,) = read(tmp_path, "a" + ending, COMPRESS[ending](TEXT))
    data = COMPRESS[ending](TEXT)
    found = 0
    for at in range(8, len(data), max(1, len(data) // 60)):
        bad = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        try:
            pieces = read(tmp_path, "a" + ending, bad)
        except ParseError:
            found += 1
        else:
            assert [piece.source_sha256 for piece in pieces] == [good.source_sha256]
    assert found > 50


@pytest.mark.fault("I-31")
@endings
@pytest.mark.parametrize("garbage", [b"x", b"garbage", b"\0\0\0\0x", b"1 1:1\n" * 100_000])
def test_compressed__garbage_after_the_end(tmp_path, ending, garbage):
    with pytest.raises(ParseError, match="follows the end of the"):
        read(tmp_path, "a" + ending, COMPRESS[ending](TEXT) + garbage)


@pytest.mark.fault("I-31")
@pytest.mark.parametrize(
    ("ending", "n_zeros", "accepted"),
    [
        (".gz", 512, True),
        (".gz", 3, True),
        (".gz", 200_000, True),
        (".xz", 8, True),
        (".xz", 3, False),
        (".bz2", 4, False),
        (".zst", 4, False),
    ],
)
def test_compressed__zeros_after_the_end(tmp_path, ending, n_zeros, accepted):
    data = COMPRESS[ending](TEXT) + bytes(n_zeros)
    if accepted:
        assert n_rows(read(tmp_path, "a" + ending, data)) == 2999
        assert n_rows(read(tmp_path, "a" + ending, data + COMPRESS[ending](b"1\n"))) == 3000
    else:
        with pytest.raises(ParseError, match="truncated or corrupt"):
            read(tmp_path, "a" + ending, data)


@pytest.mark.fault("I-32")
@pytest.mark.parametrize("ending", [*COMPRESS, ""])
@pytest.mark.parametrize("content", [*COMPRESS, ""])
def test_compressed__name_and_content_agree(tmp_path, ending, content):
    data = COMPRESS[content](TEXT) if content else TEXT
    (tmp_path / ("a.svm" + ending)).write_bytes(data)
    source = LibsvmSource(str(tmp_path / "a*"))
    if ending == content:
        assert len(source.files()) == 1
    else:
        with pytest.raises(ParseError, match="the suffix means"):
            source.files()


@endings
@pytest.mark.parametrize(("line", "place"), [(b"1 1:x\n", "3: expected"), (b"1 1:1\r", "6: a carriage return")])
def test_compressed__errors_name_lines_of_the_text(tmp_path, ending, line, place):
    with pytest.raises(ParseError, match=rf"^{tmp_path}/a\{ending}:3000:{place}"):
        read(tmp_path, "a" + ending, COMPRESS[ending](TEXT + line), blocksize=1000)


@pytest.mark.fault("X-04")
@pytest.mark.slow
@pytest.mark.parametrize("line", [b" " * 4096, b"1 1:1\n" * 700])
@endings
def test_bomb__memory_is_bounded(tmp_path, ending, line):
    """Some 700 MB of text from a small file, as one line and as many, in 400 MB of address space more."""
    path = tmp_path / ("bomb" + ending)
    path.write_bytes(COMPRESS[ending](line * 4096) * 40)
    program = f"""
        import resource
        from dkfeat.errors import ParseError
        from dkfeat.sources.libsvm.source import LibsvmSource
        source = LibsvmSource({str(path)!r}, blocksize="16MiB", max_line_bytes="32MiB", **{OPTIONS!r})
        (split,) = source.splits()
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (400 << 20),) * 2)
        try:
            print(sum(piece.block.n_rows for piece in source.read(split, 1 << 20)))
        except ParseError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    expected = "32MiB" if line.isspace() else str(700 * 4096 * 40)
    assert done.stdout.strip() == expected or "has more than 33,554,432 bytes" in done.stdout, done.stderr
