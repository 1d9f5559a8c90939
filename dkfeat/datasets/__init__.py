"""Public data sets of the LIBSVM collection, fetched once and kept in the user's cache folder."""

from __future__ import annotations

from dkfeat.datasets.download import cache_folder
from dkfeat.datasets.fetching import FetchedDataset, fetch
from dkfeat.datasets.registry import COLLECTION, DATASETS, DataFile, DatasetInfo, find_dataset

__all__ = [
    "COLLECTION",
    "DATASETS",
    "DataFile",
    "DatasetInfo",
    "FetchedDataset",
    "cache_folder",
    "fetch",
    "find_dataset",
]
