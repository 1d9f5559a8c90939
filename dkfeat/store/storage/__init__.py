"""Storage of data sets: local folders and object stores, with locks and retries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import path_in, protocol_of
from dkfeat.store.storage.base import Storage

__all__ = ["is_read_only", "open_storage"]

_READ_ONLY = {"http", "https", "data", "zip", "tar"}


def open_storage(target: str | os.PathLike[str] | Storage, storage_options: Mapping[str, Any] | None = None) -> Storage:
    """Open the storage at a path or URL; nothing is read or written yet.

    Parameters
    ----------
    target : str, Path or Storage
        Path of a folder, a ``file://`` URL, or the URL of a folder in an object store, such as
        ``s3://bucket/features/train``. It need not exist. A `Storage` is returned unchanged.
    storage_options : mapping, optional
        Settings of the store, see `dkfeat.store.storage.object_store.ObjectStorage`; a local folder takes none.

    Raises
    ------
    ConfigError
        If the kind of storage is not supported, the target is not a folder, or a URL contains credentials.

    Examples
    --------
    >>> open_storage("features/train").url.endswith("features/train")
    True
    >>> open_storage("s3://bucket/features/train/").url
    's3://bucket/features/train'
    """
    if isinstance(target, Storage):
        return target
    text = str(target)
    path = path_in(text)
    if path is None:
        if is_read_only(text):
            raise ConfigError(
                f"target {text} is not supported; give a local folder or a URL such as s3://bucket/features/train"
            )
        from dkfeat.store.storage.object_store import ObjectStorage

        return ObjectStorage(text, storage_options)
    from dkfeat.store.storage.local import LocalStorage  # late import: it loads pyarrow

    if storage_options:
        raise ConfigError(f"a local target takes no storage options, got {sorted(storage_options)}")
    if not path or "\0" in path:
        raise ConfigError(f"target={text!a} is not the path of a folder; give one such as features/train")
    return LocalStorage(path)


def is_read_only(url: str) -> bool:
    """Return True for a URL that can be read but cannot be a target: of a web page or an archive, or a chained URL.

    Examples
    --------
    >>> is_read_only("https://host/rows.svm"), is_read_only("s3://bucket/features")
    (True, False)
    """
    return "::" in url or protocol_of(url) in _READ_ONLY
