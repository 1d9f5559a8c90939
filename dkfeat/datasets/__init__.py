"""Public data sets of the LIBSVM collection, fetched once into the user's cache folder."""

from __future__ import annotations

from dkfeat.datasets.collection import (
    COLLECTION,
    DATASETS,
    DataFile,
    DatasetInfo,
    FetchedDataset,
    cache_folder,
    fetch,
    find_dataset,
)

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
