"""Storage in an object store or any other fsspec file system that creates files exclusively."""

from __future__ import annotations

import errno
import io
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import PurePosixPath
from typing import Any, cast

from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import holds_credentials, open_filesystem, open_retries, protocol_of
from dkfeat.messages import logger_of, printable
from dkfeat.store.storage import base
from dkfeat.store.storage.base import SET_ASIDE, Lock, Storage, file_name

logger = logger_of(__name__)


class ObjectStorage(Storage):
    """Storage in an object store.

    A file is one object, created by one request, which the store rejects if the object exists. So there are no partial
    objects, temporary files or unfinished uploads. Requests are retried after transient faults, for ``retry_seconds``.
    Because the response to a successful request may be lost, an existing file with exactly the bytes to create counts
    as created. A pickle of this object contains the options, including credentials.

    Parameters
    ----------
    url : str
        URL of the data set, such as ``s3://bucket/features/train``.
    options : mapping, optional
        Options of fsspec, and of dkfeat: ``retry_seconds`` (60 by default), and ``exclusive_create``. Set the latter to
        False for a store that cannot create exclusively; then a second writer cannot be excluded.

    Raises
    ------
    ConfigError
        If the URL has no bucket or path, or has credentials, or an option has the wrong type.

    Examples
    --------
    >>> ObjectStorage("memory://features/train/", {"secret": "not shown"})
    ObjectStorage('memory://features/train')
    """

    is_remote = True
    _remedy = "check that the bucket exists, and that the credentials are valid and allow reading, listing, writing "
    _remedy += "and deleting"

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})
        protocol, path = protocol_of(url), url.partition("://")[2].rstrip("/")
        user = path.partition("/")[0].rpartition("@")[0]
        if holds_credentials(url) or ":" in user:
            raise ConfigError(f"target {url} contains credentials; pass them as storage options")
        parts = path.lstrip("/").split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise ConfigError(
                f"target {printable(url)!a} is not the URL of a folder in a store, such as s3://bucket/features/train"
            )
        self.url = f"{protocol}://{path}"
        self.is_exclusive = exclusive = self._options.get("exclusive_create", True)
        if not isinstance(exclusive, bool):
            raise ConfigError(f"storage option exclusive_create={exclusive!r:.40}, but it must be true or false")
        self._retries = open_retries(self.url, self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStorage, (self.url, self._options)

    @cached_property
    def _system(self) -> Any:
        return open_filesystem(self.url, self._options)[0]

    @cached_property
    def _root(self) -> str:
        return open_filesystem(self.url, self._options)[1].rstrip("/")

    def prepare(self, *more: str) -> None:
        """Do nothing: an object store has no folders to create."""

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:  # noqa: ARG002, D102 -- Storage says it
        self._put(name, data, exclusive=False)

    def acquire(self, holder: Mapping[str, Any], *, break_lock: str | None = None) -> Lock:  # noqa: D102 -- Storage
        if not self.is_exclusive:
            logger.warning("%s: exclusive_create=False: a second writer cannot be excluded", self.url)
        return super().acquire(holder, break_lock=break_lock)

    def create(  # noqa: D102 -- Storage says it
        self,
        name: str,
        data: bytes | memoryview,
        *,
        before_publish: Callable[[], object] | None = None,
        durable: bool = True,  # noqa: ARG002 -- each object is
    ) -> None:
        base.passed("before_tmp")
        if not self.is_exclusive and self.size(name) is not None:
            raise FileExistsError(name)
        if before_publish is not None:
            before_publish()
        self._put(name, data, exclusive=self.is_exclusive)
        base.passed("after_publish")

    def _put(self, name: str, data: bytes | memoryview, *, exclusive: bool) -> None:
        path, content = self._path(name), bytes(data)
        settings: dict[str, Any] = {"mode": "create"} if exclusive else {}
        if protocol_of(self.url) in ("s3", "gs"):
            settings["chunksize"] = len(content) + 1  # one request, whatever the size
        try:
            self._retries.call(f"create {name}", lambda: self._system.pipe_file(path, content, **settings))
        except FileExistsError:
            # a retried request may find the object that its first attempt created: equal bytes count as created
            with suppress(FileNotFoundError):  # removed meanwhile by another run
                if self.size(name) == len(content) and self.read(name) == content:
                    return
            raise

    def open(self, name: str) -> io.BufferedReader:  # noqa: D102 -- Storage says it
        return io.BufferedReader(cast("io.RawIOBase", io.BytesIO(self.read(name))))

    def read(self, name: str, most: int | None = None) -> bytes:  # noqa: D102 -- Storage says it
        path, size = self._path(name), self.size(name) if most is None else most
        if size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if not size:
            return b""
        return self._retries.call(f"read {name}", lambda: self._system.cat_file(path, start=0, end=size))

    def size(self, name: str) -> int | None:  # noqa: D102 -- Storage says it
        path = self._path(name)

        def info() -> int | None:
            self._system.invalidate_cache(path)
            found = self._system.info(path)
            return int(found["size"]) if found["type"] == "file" else None

        try:
            return self._retries.call(f"size of {name}", info)
        except FileNotFoundError:
            return None

    def list(  # noqa: D102 -- Storage says it
        self,
        folder: str,
        *,
        sizes: bool = True,  # noqa: ARG002 -- they come with names
        after: str = "",
    ) -> dict[str, int]:
        path = self._path(folder) if folder else self._root
        listed: dict[str, int] = {}
        token = None
        while token != "":
            page, token = self._retries.call(f"list {folder}", partial(self._page, path, after, token))
            listed.update(page)
        return {name: listed[name] for name in sorted(listed) if name}

    def _page(self, path: str, after: str, token: str | None) -> tuple[dict[str, int], str]:
        """Return objects in a folder with their sizes, on S3 at most 1,000, and the token of the next ones, if any."""
        system = self._system
        if protocol_of(self.url) == "s3":
            bucket, key, _ = system.split_path(path)
            start = {"ContinuationToken": token} if token else {"StartAfter": f"{key}/{after}"}
            settings = {"Bucket": bucket, "Prefix": f"{key}/", "Delimiter": "/", **system.req_kw}
            page = system.call_s3("list_objects_v2", **settings, **start)
            found = {item["Key"].removeprefix(f"{key}/"): int(item["Size"]) for item in page.get("Contents", ())}
            return found, page.get("NextContinuationToken", "")
        system.invalidate_cache(path)
        prefix = path.lstrip("/") + "/"
        items: Sequence[Mapping[str, Any]] = ()
        with suppress(FileNotFoundError):  # a folder exists only if it contains an object
            items = system.ls(path, detail=True, refresh=True)
        names = {item["name"].lstrip("/"): int(item["size"] or 0) for item in items if item["type"] == "file"}
        return {name.removeprefix(prefix): size for name, size in names.items() if name.startswith(prefix)}, ""

    def remove(self, name: str, *, durable: bool = True) -> None:  # noqa: ARG002, D102 -- Storage says it
        path = self._path(name)
        with suppress(FileNotFoundError):
            self._retries.call(f"remove {name}", lambda: self._system.rm_file(path))

    def set_aside(self, name: str) -> str:  # noqa: D102 -- Storage says it
        aside = f"{SET_ASIDE}/{file_name(name)}.{uuid.uuid4().hex}"
        source, destination = self._path(name), self._path(aside)
        self._retries.call(f"set {name} aside", lambda: self._system.cp_file(source, destination))
        self.remove(name)
        return aside

    def path_of(self, url: str) -> PurePosixPath | None:  # noqa: D102 -- Storage says it
        if protocol_of(url) != protocol_of(self.url) or "://" not in url:
            return None
        return PurePosixPath("/" + url.partition("://")[2].strip("/"))

    def _path(self, name: str) -> str:
        file_name(name)
        return f"{self._root}/{name}"
