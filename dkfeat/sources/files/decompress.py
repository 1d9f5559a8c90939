"""Decompression of gzip, bz2, xz and zstd files as bounded streams with integrity checks."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any, BinaryIO

from dkfeat.errors import ParseError

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zstd": "zstd"}
"""Compression by suffix of the file name."""

MAGIC_BYTES = 6
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    **{bytes([0x50 + k, 0x2A, 0x4D, 0x18]): "zstd" for k in range(16)},  # skippable frames
}
_READ_BYTES = 1 << 16
_ZSTD_READ_BYTES = 1 << 10  # the zstd decoder has no output limit: 4 bytes of input can give 128 KiB
_XZ_MEMORY_BYTES = 256 << 20  # a file may require 4 GiB; those of `xz -9` require 65 MiB


def compression_of_name(name: str) -> str | None:
    """Return the compression by the suffix of a file name; None for plain text.

    Examples
    --------
    >>> compression_of_name("day1.svm.gz")
    'gzip'
    """
    return next((kind for ending, kind in COMPRESSIONS.items() if name.lower().endswith(ending)), None)


def compression_of_magic(head: bytes) -> str | None:
    """Detect the compression from the first `MAGIC_BYTES` bytes of a file; None if they match no known format."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


class DecompressedStream:
    """Stream of the content of a compressed file, in memory that does not depend on the compression ratio.

    Consecutive members or frames are joined. Zero bytes may follow any gzip member, and a multiple of four zero bytes
    any xz stream. Any other bytes after a member, a missing end and a wrong checksum are errors. An empty file has no
    content.

    Parameters
    ----------
    raw : binary file
        Compressed file, open for reading.
    compression : {"gzip", "bz2", "xz", "zstd"}
        Format of the compressed bytes.
    path : str
        Path of the file, for error messages.
    """

    def __init__(self, raw: BinaryIO, compression: str, path: str) -> None:
        self._raw, self._compression, self._path = raw, compression, path
        self._decoder: _Decoder | None = None
        self._left = b""
        self._produced = 0
        self._members = 0
        self._step = _ZSTD_READ_BYTES if compression == "zstd" else _READ_BYTES
        self._ready = memoryview(b"")

    def readinto(self, view: memoryview) -> int:
        """Read content into the front of `view` and return the number of bytes; 0 at the end of the content."""
        while not self._ready:
            content = self._decode(len(view))
            if content is None:
                return 0
            self._ready = memoryview(content)
        n = min(len(view), len(self._ready))
        view[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        self._produced += n
        return n

    def _decode(self, limit: int) -> bytes | None:
        if self._decoder is None:
            self._left = self._left or self._raw.read(self._step)
            if not self._left:
                return None
            if self._members and not self._is_next_member():
                return None
            self._decoder = _Decoder(self._compression)
        if self._decoder.needs_input and not self._left:
            self._left = self._raw.read(self._step)
            if not self._left:
                raise self._corrupt("the file ends early")
        data, self._left = self._left, b""
        try:
            content = self._decoder.decode(data, limit)
        except self._decoder.errors as error:
            raise self._corrupt(str(error)) from None
        if self._decoder.object.eof:  # end of a member, with a correct checksum
            self._left = self._decoder.object.unused_data
            self._decoder = None
            self._members += 1
        return content

    def _is_next_member(self) -> bool:
        """Skip the padding after a member; return False at the end of the file."""
        padding = 0
        if self._compression in ("gzip", "xz"):
            while self._left:
                rest = self._left.lstrip(b"\0")
                padding += len(self._left) - len(rest)
                self._left = rest or self._raw.read(self._step)
                if rest:
                    break
        if padding % 4 and self._compression == "xz":
            raise self._corrupt("the number of zero bytes after xz data must be a multiple of four")
        while len(self._left) < MAGIC_BYTES and (more := self._raw.read(self._step)):
            self._left += more
        if self._left and compression_of_magic(self._left) != self._compression:
            raise self._corrupt(
                f"something that is not {self._compression} data follows the end of the {self._compression} data"
            )
        return bool(self._left)

    def _corrupt(self, detail: str) -> ParseError:
        at = self._produced + len(self._ready)
        reason = f"truncated or corrupt at decompressed byte {at:,} of its {self._compression} data ({detail})"
        return ParseError(reason, path=self._path, offset=at)


class _Decoder:
    """Decoder of one member of a compressed file, with the same methods for all formats."""

    def __init__(self, compression: str) -> None:
        self._compression, self._tail = compression, b""
        self.object: Any
        self.errors: tuple[type[Exception], ...]
        if compression == "gzip":
            self.object, self.errors = zlib.decompressobj(wbits=31), (zlib.error,)
        elif compression == "bz2":
            self.object, self.errors = bz2.BZ2Decompressor(), (OSError, ValueError)
        elif compression == "xz":
            self.object = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
            self.errors = (lzma.LZMAError,)
        else:
            import zstandard  # late import: only zstd files need it

            self.object, self.errors = zstandard.ZstdDecompressor().decompressobj(), (zstandard.ZstdError,)

    @property
    def needs_input(self) -> bool:
        """True if the decoder needs more input before it can return more content."""
        return not self._tail and getattr(self.object, "needs_input", True)

    def decode(self, data: bytes, limit: int) -> bytes:
        """Decompress `data`; at most `limit` bytes are returned if the library supports a limit."""
        if self._compression == "zstd":
            return self.object.decompress(data)
        content = self.object.decompress(self._tail + data, limit)
        if self._compression == "gzip":
            self._tail = self.object.unconsumed_tail
        return content
