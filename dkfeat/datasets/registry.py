"""Registry of public data sets of the LIBSVM collection: addresses, rows, columns, classes."""

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
    """Path below the collection's address; its ending is that of the compression."""
    rows: int
    """Rows it holds; a file with another number of them is refused."""
    size: int | None = None
    """Size in bytes as stored there, where that is known for certain."""
    sha256: str | None = None
    """Digest of those bytes, where that is known for certain."""

    @property
    def name(self) -> str:
        """File name without folders."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """A data set as the registry knows it."""

    name: str
    """Key of `DATASETS`, and argument of `fetch`."""
    title: str
    """Subject, in a few words."""
    n_features: int
    """Columns, over both files."""
    n_classes: int
    """Different labels."""
    train: DataFile
    """Rows to learn from; all rows, where the collection does not divide the set."""
    test: DataFile | None = None
    """Held-out rows, where the collection has them in a file of their own."""

    @property
    def page(self) -> str:
        """Page of the collection that describes it and names its origin and terms."""
        return f"{COLLECTION}/{self.train.path.partition('/')[0]}.html"

    @property
    def files(self) -> dict[str, DataFile]:
        """Its files by part, "train" and, where there is one, "test"."""
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
"""The data sets by name."""


def find_dataset(name: str) -> DatasetInfo:
    """Look a data set up by its name.

    Raises
    ------
    ConfigError
        If there is none; the nearest name is offered.

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
