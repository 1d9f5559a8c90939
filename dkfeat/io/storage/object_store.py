"""Storage in an object store, or in any other fsspec file system that can create a file exclusively."""

from __future__ import annotations

import io
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, TypeVar, cast

from dkfeat.errors import CommitError, ConfigError, cause_of
from dkfeat.io.storage import crash_points
from dkfeat.io.storage.base import META, PROBE, SET_ASIDE, Holder, Storage, file_name
from dkfeat.io.storage.locks import CLAIM, ObjectLock, lock_holder
from dkfeat.io.storage.retries import code_of
from dkfeat.io.storage.urls import holds_credentials, open_filesystem, open_retries, protocol_of, shown_url

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

MOST_BYTES = 5 << 30
"""Bytes that one request may carry, by the rules of S3; a shard is far smaller."""
_PROBES = 3  # another run's holder may sweep a probe away between its two creates


class ObjectStorage(Storage):
    """A data set in an object store.

    A file is one object and comes into being by one request that the store refuses if there is one already: there is
    never a part of one, no temporary file and no unfinished upload. Requests are repeated while a fault is likely to
    pass, for ``retry_seconds``; since the answer to one that acted may be lost, a file that has the very bytes to be
    created counts as created. A pickle of this value carries the options, credentials among them.

    Parameters
    ----------
    url : str
        Place of the data set, such as ``s3://bucket/features/train``.
    options : mapping, optional
        For fsspec, and dkfeat's own: ``retry_seconds`` (60 by default), and ``exclusive_create``, which is False for a
        store that cannot create exclusively: then a second writer cannot be excluded.

    Raises
    ------
    ConfigError
        If the URL names no place in a store, or holds credentials, or an option is of the wrong type.

    Examples
    --------
    >>> ObjectStorage("memory://features/train/", {"secret": "not shown"})
    ObjectStorage('memory://features/train')
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})
        protocol, path = protocol_of(url), url.partition("://")[2].rstrip("/")
        if holds_credentials(url):
            raise ConfigError(f"target {shown_url(url)} is given with credentials in it; pass them as target_options")
        parts = path.lstrip("/").split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise ConfigError(f"target {url!a} names no place in a store; give one such as s3://bucket/features/train")
        self._url = f"{protocol}://{path}"
        self._exclusive = self._options.get("exclusive_create", True)
        if not isinstance(self._exclusive, bool):
            raise ConfigError(f"storage option exclusive_create={self._exclusive!r:.40}, but it must be true or false")
        self._retries = open_retries(self._url, self._options)
        self._is_proved = False

    def __repr__(self) -> str:
        return f"ObjectStorage({self._url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStorage, (self._url, self._options)

    @property
    def url(self) -> str:  # noqa: D102 -- Storage says it
        return self._url

    @property
    def retries(self) -> int:
        """Number of requests that this process made again."""
        return self._retries.count

    @cached_property
    def _system(self) -> Any:
        return open_filesystem(self._url, self._options)[0]

    @cached_property
    def _root(self) -> str:
        return open_filesystem(self._url, self._options)[1].rstrip("/")

    def prepare(self) -> None:
        """Do nothing: an object store has no folders to make."""

    def check_writable(self) -> None:  # noqa: D102 -- Storage says it
        self.probe()

    def probe(self) -> None:  # noqa: D102 -- Storage says it
        if self._is_proved:
            return
        try:
            created_twice = all(self._create_twice() for _ in range(_PROBES))
        except OSError as fault:
            raise CommitError(
                f"{self._url}: cannot create objects here: {cause_of(fault)}; check that the bucket exists, "
                "and that the credentials are valid and allow to read, list, write and delete"
            ) from fault
        if created_twice and self._exclusive:
            raise CommitError(
                f"{self._url}: an object was created twice; this store cannot keep two writers apart. Choose another, "
                "or make sure yourself that there is only one writer and pass the option exclusive_create=False"
            )
        self._is_proved = True

    def replace(self, name: str, data: bytes) -> None:
        """Put an object, in place of the one of that name if there is one, by one request."""
        self._put(name, data, exclusive=False)

    def _create_twice(self) -> bool:
        name = f"{META}/{PROBE}{uuid.uuid4().hex}"
        try:
            self._put(name, b"probe", exclusive=self._exclusive)
            try:
                self._put(name, b"again", exclusive=self._exclusive)
            except FileExistsError:
                return False
            return True
        finally:
            with suppress(OSError):
                self.remove(name)

    def acquire(self, holder: Mapping[str, Any], *, break_lock: str | None = None) -> ObjectLock:  # noqa: D102 -- Storage
        if not self._exclusive:
            logger.warning("%s: exclusive_create=False: a second writer cannot be excluded", self._url)
        return ObjectLock(self, holder, break_lock=break_lock)

    def holder(self) -> Holder | None:  # noqa: D102 -- Storage says it
        found = lock_holder(self)
        return None if found is None else Holder.of(*found)

    def create(self, name: str, data: bytes | memoryview) -> None:  # noqa: D102 -- Storage says it
        if len(data) >= MOST_BYTES:
            raise OSError(
                f"{name} has {len(data):,} bytes, but an object is made by one request of less than {MOST_BYTES:,}"
            )
        crash_points.passed("before_tmp")
        if not self._exclusive and self.size(name) is not None:
            raise FileExistsError(name)
        self._put(name, data, exclusive=self._exclusive)
        crash_points.passed("after_publish")

    def _put(self, name: str, data: bytes | memoryview, *, exclusive: bool) -> None:
        path, content = self._path(name), bytes(data)
        settings: dict[str, Any] = {"mode": "create"} if exclusive else {}
        if protocol_of(self._url) in ("s3", "gs"):
            settings["chunksize"] = len(content) + 1  # one request, whatever the size
        try:
            self._call(f"create {name}", lambda: self._system.pipe_file(path, content, **settings))
        except FileExistsError:
            # a request that was made again, by us or below us, may have met its own effect: equal bytes are ours
            with suppress(FileNotFoundError):  # removed meanwhile: it was another's
                if self.size(name) == len(content) and self.read(name) == content:
                    return
            raise

    def open(self, name: str) -> io.BufferedReader:  # noqa: D102 -- Storage says it
        return io.BufferedReader(cast("io.RawIOBase", io.BytesIO(self.read(name))))

    def read(self, name: str) -> bytes:  # noqa: D102 -- Storage says it
        path = self._path(name)
        return self._call(f"read {name}", lambda: self._system.cat_file(path))

    def load(self, name: str) -> memoryview:  # noqa: D102 -- Storage says it
        return memoryview(self.read(name))

    def size(self, name: str) -> int | None:  # noqa: D102 -- Storage says it
        path = self._path(name)

        def info() -> int | None:
            self._system.invalidate_cache(path)
            found = self._system.info(path)
            return int(found["size"]) if found["type"] == "file" else None

        try:
            return self._call(f"size of {name}", info)
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> dict[str, int]:  # noqa: D102 -- Storage says it
        path = self._path(folder) if folder else self._root

        def ls() -> Iterable[Mapping[str, Any]]:
            self._system.invalidate_cache(path)
            try:
                return self._system.ls(path, detail=True, refresh=True)
            except FileNotFoundError as fault:  # a folder is there once there is something in it
                if code_of(fault) == "NoSuchBucket":
                    raise
                return []

        found = self._call(f"list {folder}", ls)
        prefix = path.lstrip("/") + "/"
        sizes = {
            item["name"].lstrip("/").removeprefix(prefix): int(item["size"] or 0)
            for item in found
            if item["type"] == "file" and item["name"].lstrip("/").startswith(prefix)
        }
        return {name: sizes[name] for name in sorted(sizes) if name}

    def remove(self, name: str) -> None:  # noqa: D102 -- Storage says it
        path = self._path(name)
        with suppress(FileNotFoundError):
            self._call(f"remove {name}", lambda: self._system.rm_file(path))

    def set_aside(self, name: str) -> str:  # noqa: D102 -- Storage says it
        aside = f"{SET_ASIDE}/{file_name(name)}.{uuid.uuid4().hex}"
        source, place = self._path(name), self._path(aside)
        self._call(f"set {name} aside", lambda: self._system.cp_file(source, place))
        self.remove(name)
        return aside

    def leftovers(self) -> tuple[str, ...]:  # noqa: D102 -- Storage says it
        names = self.list(META)
        probes = [name for name in names if name.startswith(PROBE)]
        claims = [name for name in names if name.startswith(CLAIM)]
        if claims:  # those on the present holder may be in use
            holder = lock_holder(self)
            mine = "" if holder is None else f"{CLAIM}{holder[0].get('run_id')}.json"
            claims = [name for name in claims if name != mine]
        return tuple(f"{META}/{name}" for name in (*probes, *claims))

    def free_bytes(self) -> int | None:  # noqa: D102 -- Storage says it
        return None

    def place(self, url: str) -> PurePosixPath | None:  # noqa: D102 -- Storage says it
        if protocol_of(url) != protocol_of(self._url) or "://" not in url:
            return None
        return PurePosixPath("/" + url.partition("://")[2].strip("/"))

    def _path(self, name: str) -> str:
        file_name(name)
        return f"{self._root}/{name}"

    def _call(self, what: str, function: Callable[[], Result]) -> Result:
        return self._retries.call(what, function)
