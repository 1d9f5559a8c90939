"""Public data sets of the LIBSVM collection, and their files in a folder: fetched once, and checked at each use."""

from __future__ import annotations

import bz2
import csv
import errno
import fcntl
import gzip
import hashlib
import lzma
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from dkfeat.canonical import Count, Sha256, dumps, parse_typed
from dkfeat.datasets.download import VARIABLE, bytes_received, download
from dkfeat.errors import ConfigError, ShardError, SourceError, cause_of
from dkfeat.filesystems.urls import is_url
from dkfeat.messages import logger_of, nearest
from dkfeat.store.manifest.model_folder import LocalFolder
from dkfeat.store.outputs import check_outside

logger = logger_of(__name__)

COLLECTION = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
"""Address of the collection, to which the paths of files are relative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of the collection."""

    path: str
    """Path below the collection's address; its suffix is that of the compression."""
    rows: int
    """Number of rows; a file with another number is rejected."""

    @property
    def name(self) -> str:
        """File name without folders."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """Entry of the registry for a data set."""

    name: str
    """Key of `DATASETS`, and argument of `fetch`."""
    title: str
    """Subject, in a few words."""
    n_features: int
    """Number of columns in both files."""
    n_classes: int
    """Number of different labels."""
    train: DataFile
    """Training rows; all rows if the collection has no test file."""
    test: DataFile | None = None
    """Test rows; None if the collection has no test file."""

    @property
    def page(self) -> str:
        """Address of the collection's page, which has the description, origin and terms."""
        return f"{COLLECTION}/{self.train.path.partition('/')[0]}.html"

    @property
    def files(self) -> dict[str, DataFile]:
        """Files by part, "train" and, if it exists, "test"."""
        return {"train": self.train} | ({"test": self.test} if self.test is not None else {})


def _read_collection() -> dict[str, DatasetInfo]:
    with Path(__file__).with_name("collection.csv").open(encoding="utf-8", newline="") as lines:
        return {
            row["name"]: DatasetInfo(
                name=row["name"],
                title=row["title"],
                n_features=int(row["n_features"]),
                n_classes=int(row["n_classes"]),
                train=DataFile(path=row["train"], rows=int(row["train_rows"])),
                test=DataFile(path=row["test"], rows=int(row["test_rows"])) if row["test"] else None,
            )
            for row in csv.DictReader(lines)
        }


DATASETS = _read_collection()
"""The data sets by name.

:meta hide-value:
"""


def find_dataset(name: str) -> DatasetInfo:
    """Look up a data set by its name.

    Raises
    ------
    ConfigError
        If there is none; the message suggests the nearest name.

    Examples
    --------
    >>> find_dataset("letter").train.rows
    15000
    >>> find_dataset("leter")
    Traceback (most recent call last):
    dkfeat.errors.ConfigError: there is no data set 'leter'; did you mean 'letter'?
    """
    if name not in DATASETS:
        raise ConfigError(f"there is no data set {name!r}; {nearest(str(name).lower(), list(DATASETS), 'data sets')}")
    return DATASETS[name]


RETRY_SECONDS = 20.0
"""Default time for which a download is retried while no data arrives."""
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}

Progress = Callable[[str, int, int | None], None]

_OPENERS: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}


def cache_folder() -> Path:
    """Return the folder for downloads; it need not exist yet.

    Returns
    -------
    folder : Path
        ``$DKFEAT_CACHE`` if that is set, else ``dkfeat`` in ``$XDG_CACHE_HOME``, else ``~/.cache/dkfeat``. A relative
        ``$XDG_CACHE_HOME`` is ignored, as its specification requires.

    Examples
    --------
    >>> import os
    >>> os.environ["DKFEAT_CACHE"] = "/data/cache"
    >>> str(cache_folder())
    '/data/cache'
    >>> del os.environ["DKFEAT_CACHE"]
    """
    if own := os.environ.get(VARIABLE):
        return Path(own).expanduser().absolute()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "dkfeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedDataset:
    """Files of a data set on this machine, ready for `dkfeat.featurize` and `dkfeat.read_libsvm`."""

    info: DatasetInfo
    """Its entry in the registry."""
    train: Path | None
    """Training rows; None if only the test rows were requested."""
    test: Path | None
    """Test rows; None if the collection has no test file, or they were not requested."""

    @property
    def paths(self) -> dict[str, Path]:
        """The files that were requested, by part."""
        return {part: path for part, path in (("train", self.train), ("test", self.test)) if path is not None}

    @property
    def files(self) -> list[Path]:
        """The files that were requested."""
        return list(self.paths.values())


def fetch(
    name: str,
    *,
    part: Literal["train", "test"] | None = None,
    folder: str | os.PathLike[str] | None = None,
    mirror: str | None = None,
    retry_seconds: float = RETRY_SECONDS,
    progress: Progress | None = None,
) -> FetchedDataset:
    """Fetch a data set of the LIBSVM collection, or find it in the cache.

    An interrupted download is continued, and complete files in the folder are used, also those that were copied there
    by hand. After the call, the files are in the folder, each with a ``.json`` file of its size, SHA-256, rows and
    origin; every later call compares the file with these values. Concurrent calls of processes and threads wait for
    each other. An interrupted call leaves a ``.part`` file and can be repeated.

    Parameters
    ----------
    name : str
        A key of `DATASETS`, such as "letter".
    part : {"train", "test"}, optional
        Fetch only one of the files.
    folder : str or Path, optional
        Parent folder; files are in its subfolder `name`. Default: ``datasets`` in `cache_folder`.
    mirror : str, optional
        Address to fetch from instead of the collection's; paths below it are the same.
    retry_seconds : float, default=20
        Time in seconds for which a download is retried while no data arrives.
    progress : callable, optional
        Called with a file's name, the number of bytes received and, if the server sends it, the size.

    Returns
    -------
    fetched : FetchedDataset

    Raises
    ------
    ConfigError
        If there is no such data set or part, the mirror is not an address, or the folder is or lies in a data set or a
        model that dkfeat wrote.
    SourceError
        If a file cannot be fetched or written, or fails a check.

    Examples
    --------
    >>> import dkfeat
    >>> letter = dkfeat.datasets.fetch("letter")  # doctest: +SKIP
    >>> dkfeat.featurize(letter.train, "features", dkfeat.GCWSFeatures(256, random_state=0))  # doctest: +SKIP
    """
    info = find_dataset(name)
    if part is not None and part not in info.files:
        has = "has no file of held-out rows" if part == "test" else f"has no part {part!r}"
        raise ConfigError(f"data set {name!r} {has}; its parts are: {', '.join(info.files)}")
    if folder is not None and is_url(os.fspath(folder)):
        raise ConfigError(f"folder={folder!r} is a URL, but data sets are fetched to this machine only; give a path")
    dataset_folder = (Path(folder) if folder is not None else cache_folder() / "datasets").absolute() / info.name
    check_outside(dataset_folder, kind="a public data set")
    wanted = {key: file for key, file in info.files.items() if part in (None, key)}
    address = _address(mirror)
    with _locked(dataset_folder):
        found = {
            key: _File(info, file, dataset_folder, f"{address}/{file.path}").fetch(retry_seconds, progress)
            for key, file in wanted.items()
        }
    return FetchedDataset(info=info, train=found.get("train"), test=found.get("test"))


def _address(mirror: str | None) -> str:
    if mirror is None:
        return COLLECTION
    parts = urlsplit(mirror)
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc:
        raise ConfigError(
            f"mirror {mirror!r} is not an address to fetch from; give one that begins with https:// or "
            "http://, without a user and a password"
        )
    return mirror.rstrip("/")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make a folder and lock it for writing in the ``with`` block, after waiting for any other writer.

    An existing folder without write permission needs no lock: a site may share data sets with all its users.

    Raises
    ------
    SourceError
        If the folder cannot be made, or its file system has no locks.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as fault:
        if fault.errno in _READ_ONLY and folder.is_dir():
            yield
            return
        raise _unusable(folder, fault) from fault
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.warning("%s: another process is fetching into this folder; waiting for it", folder)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as fault:
            raise _unusable(folder, fault) from fault
        yield
    finally:
        os.close(descriptor)  # releases the lock, as does the end of the process


def _unusable(folder: Path, fault: OSError) -> SourceError:
    return SourceError(
        f"{folder} cannot be used for fetched data sets: {cause_of(fault)}; set {VARIABLE}, or `folder` "
        "for this call, to a folder on a local disk"
    )


@dataclass(frozen=True, slots=True)
class _Record:
    """What is recorded beside a file, as far as it is compared."""

    size: Count
    sha256: Sha256
    fetched: str


class _File:
    """A file of a data set in its locked folder."""

    def __init__(self, info: DatasetInfo, file: DataFile, folder: Path, url: str) -> None:
        self._info, self._file, self._url = info, file, url
        self._path = folder / file.name
        self._record_path = folder / f"{file.name}.json"
        self._part = folder / f"{file.name}.part"

    def fetch(self, retry_seconds: float, progress: Progress | None) -> Path:
        """Fetch the file if it is missing, check it, and return its path."""
        record = self._read_record()
        if self._path.exists():
            facts = self._checked(self._path, record, "remove it, and it is fetched again")
            if record is None:  # copied by hand, or the fetch was killed before it wrote the record
                with suppress(OSError):  # a shared folder of another user: the file is checked each time
                    self._write_record(facts, None)
            return self._path
        report = None if progress is None else partial(progress, self._file.name)
        try:
            download(self._url, self._part, retry_seconds, report)
        except SourceError:
            raise
        except OSError as fault:
            raise self._not_fetched(fault) from fault
        try:
            what = f"it came from {self._url}; see {self._info.page}"
            if record is not None:
                what += f", and if the collection has a new version, remove {self._record_path}"
            facts = self._checked(self._part, record, what)
        except SourceError:
            self._part.unlink()  # complete, but not the expected file
            raise
        self._part.replace(self._path)
        self._write_record(facts, self._url)
        return self._path

    def _read_record(self) -> _Record | None:
        try:
            return parse_typed(self._record_path.read_bytes(), _Record, str(self._record_path))
        except FileNotFoundError:
            return None
        except ShardError as fault:
            raise SourceError(
                f"{fault}: the file is damaged; remove it, and the file beside it is checked and recorded again"
            ) from None

    def _checked(self, path: Path, record: _Record | None, to_do: str) -> dict[str, Any]:
        """Return size, digest and rows of a file after comparing them with the registry and the record."""
        with path.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        facts: dict[str, Any] = {"size": path.stat().st_size, "sha256": digest}
        if record is None:
            facts["rows"] = self._rows(path, to_do)
            self._compare("rows", self._file.rows, facts["rows"], to_do)
        else:
            remedy = f"as on {record.fetched}; {to_do}"
            self._compare("bytes", record.size, facts["size"], remedy)
            self._compare("the SHA-256", record.sha256, digest, remedy)
        return facts

    def _compare(self, what: str, known: int | str, found: int | str, to_do: str) -> None:
        if known != found:
            names = [f"{value:,} {what}" if isinstance(value, int) else f"{what} {value}" for value in (found, known)]
            raise SourceError(f"{self._path}: got {names[0]}, expected {names[1]}; {to_do}")

    def _rows(self, path: Path, to_do: str) -> int:
        opener = _OPENERS.get(self._path.suffix, open)
        try:
            with opener(path, "rb") as lines:
                return sum(1 for line in lines if not line.isspace())
        except (OSError, EOFError, lzma.LZMAError) as fault:
            raise SourceError(f"{self._path} cannot be decompressed: {fault}; {to_do}") from fault

    def _write_record(self, facts: dict[str, Any], url: str | None) -> None:
        record = {**facts, "url": url, "fetched": datetime.now(UTC).isoformat(timespec="seconds")}
        LocalFolder(str(self._path.parent)).replace(self._record_path.name, dumps(record))

    def _not_fetched(self, fault: OSError) -> SourceError:
        received = bytes_received(self._part)
        kept = f"{received:,} bytes have been received, and the same call continues after them; " if received else ""
        return SourceError(
            f"{self._url} cannot be fetched: {cause_of(fault)}; {kept}check the network of this machine and the "
            f"address at {self._info.page}, or download the file elsewhere and put it at {self._path}"
        )
