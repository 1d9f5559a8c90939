"""Reader of a committed data set, which checks all that it reads."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dkfeat.blocks import RowBlock
from dkfeat.canonical import fingerprint
from dkfeat.errors import ConfigError, ShardError, SpecConflictError
from dkfeat.io.manifest.manifest import Manifest, ShardEntry
from dkfeat.io.manifest.metadata import landmarks_of, read_manifest, read_sidecar, read_spec
from dkfeat.io.shards import codec as decoding
from dkfeat.io.shards.bad_rows import BadRow
from dkfeat.io.storage.base import DATA, Storage, faults_as

logger = logging.getLogger(__name__)

Verify = Literal["sha256", "size"]


@dataclass(frozen=True, slots=True)
class Report:
    """Findings of `verify`."""

    n_shards: int
    """Shards that the manifest lists."""
    n_bytes: int
    """Bytes of the shards that were read."""
    problems: list[str] = field(default_factory=list)
    """One line each, naming the shard or file; empty if the data set is whole."""
    unlisted: list[str] = field(default_factory=list)
    """Files under ``data/`` that no manifest lists; readers ignore them."""


class ShardReader:
    """Shards of one manifest, as arrays.

    Parameters
    ----------
    storage : Storage
        Where the data set is.
    spec : mapping
        Its spec, from `read_spec`.
    manifest : Manifest
        Which state of it, from `read_manifest`; later commits do not change what is read.

    Raises
    ------
    SpecConflictError
        When the manifest was made for another spec.
    """

    def __init__(self, storage: Storage, spec: Mapping[str, Any], manifest: Manifest) -> None:
        if fingerprint(spec) != manifest.spec_fp:
            raise SpecConflictError(f"{storage.url}: {manifest.name} was made for another spec than the one given")
        self.storage = storage
        self.spec = spec
        self.manifest = manifest
        self._n_columns = _width(spec, storage.url)
        self._checked: set[str] = set()

    def read(self, entry: ShardEntry, verify: Verify = "sha256", *, only: Sequence[str] | None = None) -> RowBlock:
        """Read one shard.

        Parameters
        ----------
        entry : ShardEntry
            One of the manifest's.
        verify : {"sha256", "size"}, default="sha256"
            Whether the file's SHA-256 is compared on the first read by this reader. Where it is not, page checksums
            are; size, footer, schema, rows and the range of values are checked always.
        only : sequence of str, optional
            Columns to read: "encoded", "label", "qid", "weight" and names of kept ones; all by default.

        Returns
        -------
        data : RowBlock
            Codes, labels and query ids are views of what was read, not to be written to.

        Raises
        ------
        ShardError
            Naming the shard, when it is missing or anything does not agree.
        """
        if verify not in ("sha256", "size"):
            raise ConfigError(f"verify={verify!r}, but it is 'sha256' or 'size'")
        return self._decode(self._load(entry), entry, verify == "sha256" and entry.name not in self._checked, only)

    def check(self, entry: ShardEntry) -> None:
        """Read one shard once and check all that can be: what `read` checks, its own seal and page checksums.

        Raises
        ------
        ShardError
            Naming the shard, when it is missing or anything does not agree.
        """
        data = self._load(entry)
        self._decode(data, entry, True)
        decoding.check_whole(data, self._where(entry))

    def _decode(self, data: memoryview, entry: ShardEntry, hashed: bool, only: Sequence[str] | None = None) -> RowBlock:
        if hashed:
            self._check_hash(data, entry)
        return decoding.decode(
            data,
            entry,
            spec_fp=self.manifest.spec_fp,
            schema=self.manifest.schema,
            n_columns=self._n_columns,
            only=only,
            page_checksums=not hashed,
        )

    def bad_rows(self, entry: ShardEntry) -> tuple[BadRow, ...]:
        """Rows that were set aside when a shard was made, in order.

        Raises
        ------
        ShardError
            Naming the shard, when it is missing or damaged.
        """
        data = self._load(entry)
        self._check_hash(data, entry)
        return decoding.read_footer(data, self._where(entry)).bad_rows

    def _check_hash(self, data: memoryview, entry: ShardEntry) -> None:
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise ShardError(
                f"{self._where(entry)}: damaged: its SHA-256 is not the manifest's; delete it and run featurize again"
            )
        self._checked.add(entry.name)

    def batches(self, entry: ShardEntry, rows: int, verify: Verify = "sha256") -> Iterator[RowBlock]:
        """Consecutive stretches of at most `rows` rows of one shard; memory is that of the shard.

        Parameters
        ----------
        entry : ShardEntry
            One of the manifest's.
        rows : int
            At least 1.
        verify : {"sha256", "size"}, default="sha256"
            As in `read`.

        Yields
        ------
        data : RowBlock
            Views; nothing is copied for codes and dense features.
        """
        if rows < 1:
            raise ConfigError(f"rows={rows}, but a batch has at least 1")
        whole = self.read(entry, verify)
        for start in range(0, entry.rows, rows):
            yield whole.take(slice(start, min(start + rows, entry.rows)))

    def unlisted(self) -> list[str]:
        """Files under ``data/`` that the manifest does not list."""
        listed = {entry.name for entry in self.manifest.shards}
        with faults_as(ShardError, f"{self.storage.url}/{DATA} cannot be listed"):
            return [name for name in self.storage.list(DATA) if name not in listed]

    def _where(self, entry: ShardEntry) -> str:
        return f"{self.storage.url}/{DATA}/{entry.name}"

    def _load(self, entry: ShardEntry) -> memoryview:
        path = f"{DATA}/{entry.name}"
        with faults_as(ShardError, f"{self._where(entry)}: cannot be read"):
            size = self.storage.size(path)
            if size != entry.size:
                got = "it is missing" if size is None else f"it has {size:,}"
                raise ShardError(f"{self._where(entry)}: damaged: {entry.size:,} bytes were committed, {got}")
            data = self.storage.load(path)
        if len(data) != entry.size:
            raise ShardError(f"{self._where(entry)}: changed while it was read")
        return data


def open_reader(storage: Storage) -> ShardReader:
    """Reader of the newest manifest; warns once, in the log, of files that it does not list."""
    reader = ShardReader(storage, read_spec(storage), read_manifest(storage))
    strangers = reader.unlisted()
    if strangers:
        logger.warning(
            "%s/%s: ignoring %d files that %s does not list, such as %s",
            storage.url,
            DATA,
            len(strangers),
            reader.manifest.name,
            strangers[0],
        )
    return reader


def verify(storage: Storage) -> Report:
    """Read everything and report every problem, rather than stop at the first.

    Parameters
    ----------
    storage : Storage
        Where the data set is.

    Raises
    ------
    ShardError, SpecConflictError
        When there is no manifest to verify against.
    """
    reader = ShardReader(storage, read_spec(storage), read_manifest(storage))
    problems = []
    n_bytes = 0
    named = {"landmarks": landmarks_of(reader.spec)}
    if isinstance(model := reader.spec.get("model"), Mapping):  # of predictions
        named["model"] = model.get("sha256", "")
    for kind, sha256 in named.items():
        if sha256 is not None:
            try:
                read_sidecar(storage, kind, sha256)
            except ShardError as fault:
                problems.append(str(fault))
    for entry in reader.manifest.shards:
        try:
            reader.check(entry)
            n_bytes += entry.size
        except ShardError as fault:
            problems.append(str(fault))
    return Report(len(reader.manifest.shards), n_bytes, problems, reader.unlisted())


def _width(spec: Mapping[str, Any], where: str) -> int:
    output = spec.get("output")
    key = "row_bytes" if isinstance(output, Mapping) and output.get("layout") == "codes" else "n_features_out"
    width = output.get(key) if isinstance(output, Mapping) else None
    if type(width) is not int or width < 1:
        raise ShardError(f"{where}: its spec states no output.{key}")
    return width
