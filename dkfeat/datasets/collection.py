"""Registry of public data sets: those of the LIBSVM collection, with their files."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from dkfeat.errors import ConfigError
from dkfeat.messages import nearest

COLLECTION = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
"""Address of the collection, to which the paths of files are relative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of the collection."""

    path: str
    """Path below the collection's address; its suffix is that of the compression."""
    rows: int
    """Number of rows; a file with another number is rejected."""
    size: int | None = None
    """Size in bytes in the collection; None if it is not known for certain."""
    sha256: str | None = None
    """SHA-256 of these bytes; None if it is not known for certain."""

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
