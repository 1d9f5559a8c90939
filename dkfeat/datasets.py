"""Public data sets of the LIBSVM collection, fetched once into the user's cache folder."""

from __future__ import annotations

import bz2
import csv
import lzma
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from dkfeat.errors import ConfigError, SourceError, cause_of
from dkfeat.filesystems.urls import Retries, is_url
from dkfeat.messages import logger_of, nearest, without_secrets
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
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as lines:
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
"""Time for which a download is tried again."""
_SILENT_SECONDS = 20.0
"""Time in which a server must send data."""

_OPENERS: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".xz": lzma.open}


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
    if own := os.environ.get("DKFEAT_CACHE"):
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
    name: str, *, part: Literal["train", "test"] | None = None, folder: str | os.PathLike[str] | None = None
) -> FetchedDataset:
    """Fetch the files of a data set of the LIBSVM collection that are not in the folder yet.

    A file gets its name when it is complete, can be decompressed and has the number of rows that the collection states.
    A file that exists, also one that was copied there by hand, is used as it is.

    Parameters
    ----------
    name : str
        A key of `DATASETS`, such as "letter".
    part : {"train", "test"}, optional
        Fetch only one of the files.
    folder : str or Path, optional
        Parent folder; files are in its subfolder `name`. Default: ``datasets`` in `cache_folder`.

    Returns
    -------
    fetched : FetchedDataset

    Raises
    ------
    ConfigError
        If there is no such data set or part, or the folder is or lies in a data set or a model that dkfeat wrote.
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
    paths = {key: dataset_folder / file.name for key, file in info.files.items() if part in (None, key)}
    for key, path in paths.items():
        if not path.exists():
            _download(info, info.files[key], path)
    return FetchedDataset(info=info, train=paths.get("train"), test=paths.get("test"))


def _download(info: DatasetInfo, file: DataFile, path: Path) -> None:
    url = f"{COLLECTION}/{file.path}"
    logger.info("fetching %s", url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with LocalFolder(str(path.parent)).writing(path.name) as made:
            Retries(RETRY_SECONDS, url).call("fetch", lambda: _copy(url, made))
            made.seek(0)
            with _OPENERS.get(path.suffix, nullcontext)(made) as lines:
                n_rows = sum(1 for line in lines if not line.isspace())
            if n_rows != file.rows:
                raise ValueError(f"it has {n_rows:,} rows, but the collection states {file.rows:,} rows")
    except (OSError, EOFError, ValueError, lzma.LZMAError) as fault:
        cause = cause_of(fault) if isinstance(fault, OSError) else fault
        raise SourceError(
            f"{url} cannot be fetched to {path}: {cause}; check the network of this machine and the folder, or "
            f"download the file elsewhere, see {info.page}, and put it there"
        ) from fault


def _copy(url: str, made: IO[bytes]) -> None:
    """Write what a server sends in place of what a file has."""
    made.seek(0)
    made.truncate()
    request = urllib.request.Request(url, headers={"User-Agent": "dkfeat", "Accept-Encoding": "identity"})
    try:
        with urllib.request.build_opener(_Redirects).open(request, timeout=_SILENT_SECONDS) as response:
            shutil.copyfileobj(response, made)
            if response.length:  # bytes that are missing
                raise ConnectionError(f"the connection ended {response.length:,} bytes early")
    except urllib.error.HTTPError as answer:
        answer.close()
        raise
    made.flush()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects only to HTTP and HTTPS, and from HTTPS only to HTTPS."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        allowed = ("https://",) if req.full_url.startswith("https://") else ("http://", "https://")
        if not newurl.startswith(allowed):
            msg = f"redirects to {without_secrets(newurl)[:200]}, which is not an {' or '.join(allowed)} URL"
            raise urllib.error.HTTPError(req.full_url, code, msg, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
