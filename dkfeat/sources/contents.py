"""Contents of input files, local or remote: opening, decompression, and checks that a file is as it was listed."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, BinaryIO

from dkfeat.blocks import SourceFile, differences
from dkfeat.errors import DkfeatError, ParseError, SourceError, SpecConflictError, cause_of
from dkfeat.filesystems.urls import is_url, listed_size, open_filesystem, open_retries
from dkfeat.messages import printable
from dkfeat.process_cache import METER

if TYPE_CHECKING:
    from dkfeat.sources.lines import ByteStream


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
_READ_BYTES, _MOST_BYTES = 1 << 16, 1 << 20
_ZSTD_READ_BYTES = 1 << 10  # the zstd decoder has no output limit: 4 bytes of input can give 128 KiB
_XZ_MEMORY_BYTES = 256 << 20  # a file may require 4 GiB; those of `xz -9` require 65 MiB


def compression_of_name(name: str) -> str | None:
    """Return the compression by the suffix of a file name; None for plain text.

    Examples
    --------
    >>> compression_of_name("day1.svm.gz")
    'gzip'
    """
    return COMPRESSIONS.get(name[name.rfind(".") :].lower())


def compression_of_magic(head: bytes) -> str | None:
    """Detect the compression from the first `MAGIC_BYTES` bytes of a file; None if they match no known format."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def not_read(path: str) -> str:
    r"""End of a message about a file of another format: the formats, and a command that converts a CSV or JSON array.

    Examples
    --------
    >>> print(not_read("day.csv"))
    dkfeat reads Parquet, JSON lines and LIBSVM text; this writes a CSV or JSON array as Parquet (pip install duckdb):
      python -c "import duckdb; duckdb.sql(\"COPY (FROM 'day.csv') TO 'day.parquet'\")"
    """
    folder, slash, name = path.rpartition("/")
    target = f"{folder}{slash}{name.partition('.')[0].replace('*', '') or 'rows'}.parquet"
    return (
        "dkfeat reads Parquet, JSON lines and LIBSVM text; this writes a CSV or JSON array as Parquet (pip install "
        "duckdb):\n"
        f"""  python -c "import duckdb; duckdb.sql(\\"COPY (FROM '{path}') TO '{target}'\\")\""""
    )


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
        self._step = _ZSTD_READ_BYTES if compression == "zstd" else _READ_BYTES
        self._contents = self._decode()
        self._ready = memoryview(b"")
        self._produced = 0

    def readinto(self, view: memoryview) -> int:
        """Read content into the front of `view` and return the number of bytes; 0 at the end of the content."""
        while not self._ready:
            content = next(self._contents, None)
            if content is None:
                return 0
            self._ready = memoryview(content)
        n = min(len(view), len(self._ready))
        view[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        self._produced += n
        return n

    def _decode(self) -> Iterator[bytes]:
        """Yield the content of all members, at most `_MOST_BYTES` at a time if the library supports a limit."""
        data = self._raw.read(self._step)
        limit = () if self._compression == "zstd" else (_MOST_BYTES,)
        while data:
            decoder, errors = _decoder_of(self._compression)
            while not decoder.eof:  # set at the end of a member with a correct checksum
                if not data and getattr(decoder, "needs_input", True):
                    data = self._raw.read(self._step)
                    if not data:
                        raise self._corrupt("the file ends early")
                try:
                    content = decoder.decompress(data, *limit)
                except errors as error:
                    if "emory" in str(error):  # xz and zstd files state how much they need
                        reason = f"more memory is needed to decompress it than is allowed ({error}); "
                        reason += "compress the file again with a smaller dictionary, as xz -9 or zstd -19 use"
                        raise ParseError(reason, path=self._path, offset=self._produced) from None
                    raise self._corrupt(str(error)) from None
                data = getattr(decoder, "unconsumed_tail", b"")
                yield content
            data = self._next_member(decoder.unused_data)

    def _next_member(self, data: bytes) -> bytes:
        """Skip the padding after a member; return the beginning of the next one, empty at the end of the file."""
        padding = 0
        while self._compression in ("gzip", "xz") and (data := data or self._raw.read(self._step)).startswith(b"\0"):
            rest = data.lstrip(b"\0")
            padding += len(data) - len(rest)
            data = rest
        if padding % 4 and self._compression == "xz":
            raise self._corrupt("the number of zero bytes after xz data must be a multiple of four")
        while len(data) < MAGIC_BYTES and (more := self._raw.read(self._step)):
            data += more
        if data and compression_of_magic(data) != self._compression:
            raise self._corrupt(
                f"something that is not {self._compression} data follows the end of the {self._compression} data"
            )
        return data

    def _corrupt(self, detail: str) -> ParseError:
        place = f"decompressed byte {self._produced:,} of its {self._compression} data"
        reason = f"truncated or corrupt at {place} ({detail})"
        return ParseError(reason, path=self._path, offset=self._produced)


def _decoder_of(compression: str) -> tuple[Any, tuple[type[Exception], ...]]:
    """Make the decoder of one member, and name its errors."""
    if compression == "gzip":
        return zlib.decompressobj(wbits=31), (zlib.error,)
    if compression == "bz2":
        return bz2.BZ2Decompressor(), (OSError, ValueError)
    if compression == "xz":
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES), (lzma.LZMAError,)
    import zstandard  # late import: only zstd files need it

    return zstandard.ZstdDecompressor().decompressobj(), (zstandard.ZstdError,)


def compress(content: bytes, compression: str | None) -> bytes:
    """Compress the content of a file; None leaves it as it is."""
    if compression == "gzip":
        return gzip.compress(content, 6, mtime=0)
    if compression == "zstd":
        import zstandard  # late import: only zstd files need it

        return zstandard.ZstdCompressor().compress(content)
    if compression is None:
        return content
    return bz2.compress(content) if compression == "bz2" else lzma.compress(content)


READ_AHEAD_BYTES = 4 << 20


def check_unchanged(file: SourceFile, storage_options: Mapping[str, Any] | None = None) -> None:
    """Raise an error unless a file is as it was listed.

    Raises
    ------
    SpecConflictError
        If its size, modification time or ETag differs, or it is gone.
    """
    with source_errors(file.url, listed=file):
        if is_url(file.url):
            system, path = open_filesystem(file.url, storage_options)

            def info() -> Mapping[str, Any]:
                system.invalidate_cache(path)
                return system.info(path)

            now = remote_identity(open_retries(file.url, storage_options or {}).call("look up", info))
        else:
            now = local_identity(os.stat(file.url))  # noqa: PTH116  # Path would change names like "a//b"
    if changed := differences(file.identity, now):
        raise SpecConflictError(f"{printable(file.url)} has changed since the source was listed ({', '.join(changed)})")


@contextmanager
def open_content(
    file: SourceFile, start: int = 0, storage_options: Mapping[str, Any] | None = None
) -> Iterator[ByteStream]:
    """Open a file's text, decompressed; an uncompressed file is read from byte `start` on."""
    with open_bytes(file, storage_options, start) as raw:
        if file.compression is None:
            yield raw  # type: ignore[misc]  # every raw file opened here has readinto
        else:
            yield DecompressedStream(raw, file.compression, printable(file.url))


@contextmanager
def open_bytes(
    file: SourceFile, storage_options: Mapping[str, Any] | None = None, start: int = 0
) -> Iterator[BinaryIO]:
    """Open a file as it is stored, for random access from byte `start` on; unbuffered."""
    with source_errors(file.url, listed=file):
        raw: Any = RemoteFile(file, storage_options) if is_url(file.url) else LocalFile(file.url)
        raw.seek(start)
    with raw:
        yield raw


@contextmanager
def source_errors(path: str, *, listed: SourceFile | None = None) -> Iterator[None]:
    """Turn errors of the operating system or a store into a `SourceError`.

    For a missing file that was `listed`, the error is a `SpecConflictError`.
    """
    try:
        yield
    except DkfeatError:
        raise
    except OSError as error:
        if listed is not None and isinstance(error, FileNotFoundError):
            raise SpecConflictError(
                f"{printable(path)} is gone since the source was listed; restore it, or list the source again "
                "(after `dkfeat abort` for an unfinished batch)"
            ) from None
        raise SourceError(f"{printable(path)} cannot be read: {cause_of(error)}") from error


class LocalFile(io.FileIO):
    """Local file; errors of reading name it, since any read of a network disk may fail."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as `io.FileIO.read` does, with errors that name the file."""
        with source_errors(str(self.name)):
            data = super().read(-1 if size is None else size)
        METER.read(len(data))
        return data

    def readinto(self, buffer: Any, /) -> int:
        """Read as `io.FileIO.readinto` does, with errors that name the file."""
        with source_errors(str(self.name)):
            n_bytes = super().readinto(buffer)
        METER.read(n_bytes)
        return n_bytes


class RemoteFile(io.RawIOBase):
    """File in a store, read by byte ranges; a change since it was listed is an error.

    Parameters
    ----------
    file : SourceFile
        As it was listed, which the caller has compared. On S3 each request requires the ETag that the file has when it
        is opened. On S3 and web servers each answer must have the range asked for, of a file of the listed size.
    options : mapping, optional
        Options of fsspec.

    Raises
    ------
    SpecConflictError
        If the file has changed or is gone; reading raises it too.
    OSError
        If the store raises it.
    """

    def __init__(self, file: SourceFile, options: Mapping[str, Any] | None) -> None:
        super().__init__()
        self._file = file
        self._retries = open_retries(file.url, options or {})
        system, path = open_filesystem(file.url, options)

        def opened() -> Any:
            return system.open(path, "rb", block_size=READ_AHEAD_BYTES, cache_type="readahead")

        self._raw = self._retries.call("open", opened)
        if (cache := getattr(self._raw, "cache", None)) is not None:
            cache.fetcher = _checked(cache.fetcher)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to another byte; nothing is read."""
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._raw.tell()

    def readinto(self, view: Any, /) -> int:
        """Read bytes into the front of `view` and return their number; 0 at the end."""

        def read() -> int:
            try:
                return self._raw.readinto(view)
            except OSError as fault:
                if type(fault).__name__ == "FileExpired":  # s3fs found another ETag
                    raise FileExistsError from fault
                raise

        with source_errors(self._file.url, listed=self._file), listed_size(self._file.size):
            try:
                n_bytes: int = self._retries.call("read", read)
            except FileExistsError:  # the request requires the listed ETag, but the file has another
                raise self._changed() from None
        METER.read(n_bytes)
        return n_bytes

    def close(self) -> None:
        """Close the underlying file."""
        if not self.closed and hasattr(self, "_raw"):
            self._raw.close()
        super().close()

    def _changed(self) -> SpecConflictError:
        return SpecConflictError(
            f"{printable(self._file.url)} has changed since the source was listed; its ETag was {self._file.etag}"
        )


def _checked(fetch: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
    """Make a function that fetches a range fail if it gets more or fewer bytes, which fsspec would take for it."""

    def fetch_all(start: int, end: int) -> bytes:
        data = fetch(start, end)
        if len(data) != end - start:
            raise ConnectionError(errno.EIO, f"the store sent {len(data)} bytes for {end - start} from byte {start} on")
        return data

    return fetch_all


def local_identity(status: os.stat_result) -> dict[str, Any]:
    """Return the size and modification time of a local file, as in ``SourceFile.identity``."""
    return {"size": status.st_size, "mtime_ns": min(status.st_mtime_ns, 2**63 - 1)}  # later than 2262


def remote_identity(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the size and ETag, or the modification time if there is no ETag, as in ``SourceFile.identity``.

    `info` is the result of fsspec's ``info`` for a file.

    Raises
    ------
    SourceError
        If the server does not send the size, which splitting and checks of the file need.
    """
    names = ("mtime", "LastModified", "created", "Last-Modified")
    changed = next((info[key] for key in names if info.get(key)), None)
    if isinstance(changed, str):
        try:
            changed = parsedate_to_datetime(changed)
        except ValueError:
            changed = None
    if isinstance(changed, datetime):
        changed = changed.timestamp()
    if info["size"] is None or info["size"] < 0:
        raise SourceError(
            f"{printable(info['name'])}: the server does not send its size (Content-Length); download the file first"
        )
    etag = info.get("ETag") or info.get("etag")
    mtime_ns = None if changed is None or etag else int(changed * 1e9)
    return {"size": int(info["size"]), "mtime_ns": mtime_ns, "etag": etag}
