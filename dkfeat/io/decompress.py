"""Compressed files as bounded streams of bytes that are checked to their end."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any, BinaryIO

from dkfeat.errors import ParseError

__all__ = ["COMPRESSIONS", "DecompressedStream", "compression_of_magic", "compression_of_name"]

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zstd": "zstd"}
"""Compression that a file name's ending promises."""

MAGIC_BYTES = 6
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    **{bytes([0x50 + k, 0x2A, 0x4D, 0x18]): "zstd" for k in range(16)},  # frames to be skipped
}
_READ_BYTES = 1 << 16
_ZSTD_READ_BYTES = 1 << 10  # this decoder has no bound on what it returns: 4 bytes can give 128 KiB
_XZ_MEMORY_BYTES = 256 << 20  # the format lets a file ask for 4 GiB; `xz -9` needs 65 MiB


def compression_of_name(name: str) -> str | None:
    """Compression that the ending of a file name promises; None for plain text.

    Examples
    --------
    >>> compression_of_name("day1.svm.gz")
    'gzip'
    """
    return next((kind for ending, kind in COMPRESSIONS.items() if name.lower().endswith(ending)), None)


def compression_of_magic(head: bytes) -> str | None:
    """Compression told by the first `MAGIC_BYTES` bytes of a file; None if they are of no known one."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


class DecompressedStream:
    """The content of a compressed file, part by part, in memory that does not depend on how far it inflates.

    Members or frames that follow one another are joined. Zero bytes after the last one are accepted in gzip files and,
    by fours, in xz files, where the formats allow them; anything else after it, a missing end and a wrong check
    sum are errors. A file of no bytes has no content.

    Parameters
    ----------
    raw : binary file
        The compressed bytes.
    compression : {"gzip", "bz2", "xz", "zstd"}
    path : str
        Named in errors.
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
        """Fill the front of `view`; 0 at the end of the content."""
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
                detail = "the file ends early"
                raise self._corrupt(detail)
        data, self._left = self._left, b""
        try:
            content = self._decoder.decode(data, limit)
        except self._decoder.errors as error:
            raise self._corrupt(str(error)) from None
        if self._decoder.eof:
            self._left = self._decoder.unused
            self._decoder = None
            self._members += 1
        return content

    def _is_next_member(self) -> bool:
        """Pass over the padding after a member; False at the end of the file."""
        padding = 0
        if self._compression in ("gzip", "xz"):
            while self._left:
                rest = self._left.lstrip(b"\0")
                padding += len(self._left) - len(rest)
                self._left = rest or self._raw.read(self._step)
                if rest:
                    break
        if padding % 4 and self._compression == "xz":
            detail = "zeros after the end of xz data come by fours"
            raise self._corrupt(detail)
        while len(self._left) < MAGIC_BYTES and (more := self._raw.read(self._step)):
            self._left += more
        if self._left and compression_of_magic(self._left) != self._compression:
            detail = f"something that is not {self._compression} data follows the end of the {self._compression} data"
            raise self._corrupt(detail)
        return bool(self._left)

    def _corrupt(self, detail: str) -> ParseError:
        at = self._produced + len(self._ready)
        reason = f"truncated or corrupt at decompressed byte {at:,} of its {self._compression} data ({detail})"
        return ParseError(reason, path=self._path, offset=at)


class _Decoder:
    """One member of a compressed file, behind one interface for all libraries."""

    def __init__(self, compression: str) -> None:
        self._compression, self._tail = compression, b""
        self._object: Any
        self.errors: tuple[type[Exception], ...]
        if compression == "gzip":
            self._object, self.errors = zlib.decompressobj(wbits=31), (zlib.error,)
        elif compression == "bz2":
            self._object, self.errors = bz2.BZ2Decompressor(), (OSError, ValueError)
        elif compression == "xz":
            self._object = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
            self.errors = (lzma.LZMAError,)
        else:
            import zstandard  # late: only zstd files need it

            self._object, self.errors = zstandard.ZstdDecompressor().decompressobj(), (zstandard.ZstdError,)

    @property
    def needs_input(self) -> bool:
        """Nothing more can come out before more goes in."""
        return not self._tail and getattr(self._object, "needs_input", True)

    @property
    def eof(self) -> bool:
        """The member has ended, its check sum was right."""
        return self._object.eof

    @property
    def unused(self) -> bytes:
        """Bytes that follow the member."""
        return self._object.unused_data

    def decode(self, data: bytes, limit: int) -> bytes:
        """Content from more data, up to `limit` bytes where the library can stop there."""
        if self._compression == "zstd":
            return self._object.decompress(data)
        content = self._object.decompress(self._tail + data, limit)
        if self._compression == "gzip":
            self._tail = self._object.unconsumed_tail
        return content
