"""Reader of the shards of a committed data set, with checks of all data read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dkfeat.blocks import BadRow, RowBlock
from dkfeat.canonical import fingerprint
from dkfeat.errors import ConfigError, ShardError, SpecConflictError
from dkfeat.process_cache import ProcessCache
from dkfeat.store.manifest.manifest import Manifest
from dkfeat.store.manifest.metadata import (
    Named,
    next_batch,
    read_manifest,
    read_numbered,
    read_sidecar,
    read_spec,
    sidecars_of,
)
from dkfeat.store.manifest.records import SHARD_NAME, ShardEntry
from dkfeat.store.shards import codec as decoding
from dkfeat.store.storage.base import DATA, META, SPEC, Storage, faults_as

Verify = Literal["sha256", "size"]


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a check of all shards."""

    n_shards: int
    """Number of shards in the manifest."""
    n_bytes: int
    """Total size of the shards without problems, in bytes."""
    problems: list[str] = field(default_factory=list)
    """Messages of one line, each with the name of the shard or file; empty if nothing is wrong."""
    unlisted: list[str] = field(default_factory=list)
    """Files under ``data/`` that no manifest lists; readers ignore them."""


class ShardReader:
    """Reader of the shards of one manifest.

    Parameters
    ----------
    storage : Storage
        Storage of the data set.
    spec : mapping
        Spec of the data set, from `read_spec`.
    manifest : Manifest
        Manifest, from `read_manifest`; later commits do not affect the reader.

    Raises
    ------
    SpecConflictError
        If the manifest was made for another spec.
    """

    spec: Mapping[str, Any]
    manifest: Manifest

    def __init__(self, storage: Storage, spec: Mapping[str, Any], manifest: Manifest) -> None:
        if fingerprint(spec) != manifest.spec_fp:
            raise SpecConflictError(f"{storage.url}: {manifest.name} was made for another spec than the one given")
        self.storage = storage
        self.spec = spec
        self.manifest = manifest
        self._n_columns = _width(spec, storage.url)
        self._checked: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the records, if there are any: whoever gets this reader reads them, once a process."""
        manifest = self.__dict__.get("manifest")
        if manifest is None or not (manifest.sha256 and len(manifest.shards)):
            return self.__dict__
        return {"storage": self.storage, "_numbered": (manifest.number, manifest.sha256)}

    def __getattr__(self, name: str) -> Any:
        """Open the manifest when a reader that was sent to this process is first used."""
        if name not in ("spec", "manifest", "_n_columns", "_checked"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        storage, numbered = self.storage, self._numbered

        def open_numbered() -> ShardReader:
            return ShardReader(storage, read_spec(storage), read_numbered(storage, *numbered))

        self.__dict__.update(_OPENED.get((storage.url, numbered), open_numbered).__dict__ | {"storage": storage})
        return self.__dict__[name]

    def read(self, entry: ShardEntry, verify: Verify = "sha256", *, only: Sequence[str] | None = None) -> RowBlock:
        """Read one shard.

        Parameters
        ----------
        entry : ShardEntry
            Entry of the shard in the manifest.
        verify : {"sha256", "size"}, default="sha256"
            With "sha256", the first read of a shard by this reader checks the SHA-256 of its file. All other reads
            check the page checksums. Size, footer, schema, rows and the range of values are always checked.
        only : sequence of str, optional
            Columns to read: "encoded" (the features), "label", "qid", "weight" and names of kept columns; all by
            default.

        Returns
        -------
        data : RowBlock
            Rows. Codes, labels and query ids are views of the bytes read; do not write to them.

        Raises
        ------
        ShardError
            If the shard is missing or a check fails; the message names it.
        """
        if verify not in ("sha256", "size"):
            raise ConfigError(f"verify={verify!r}, but it is 'sha256' or 'size'")
        return self._decode(self._load(entry), entry, verify == "sha256" and entry.name not in self._checked, only)

    def check(self, entry: ShardEntry) -> RowBlock:
        """Read one shard and make all checks: those of `read`, and of its seal, page checksums and file of text.

        Raises
        ------
        ShardError
            If the shard is missing or a check fails; the message names it.
        """
        data = self._load(entry)
        if decoding.check_seal(data) != entry.sha256:
            self._check_hash(data, entry)
            raise ShardError(f"{self._where(entry)}: damaged: its seal does not match its contents")
        if (text := decoding.read_footer(data, self._where(entry)).text) is not None:
            text.check(self.storage)
        return self._decode(data, entry, False)

    def _decode(
        self, data: memoryview, entry: ShardEntry, check_hash: bool, only: Sequence[str] | None = None
    ) -> RowBlock:
        if check_hash:
            self._check_hash(data, entry)
        return decoding.decode(
            data,
            entry,
            spec_fp=self.manifest.spec_fp,
            schema=self.manifest.schema,
            n_columns=self._n_columns,
            only=only,
            page_checksums=not check_hash,
        )

    def bad_rows(self, entry: ShardEntry) -> tuple[BadRow, ...]:
        """Read the records of the rows that were set aside when a shard was made, in order.

        Raises
        ------
        ShardError
            If the shard is missing or damaged; the message names it.
        """
        data = self._load(entry)
        self._check_hash(data, entry)
        return decoding.read_footer(data, self._where(entry)).bad_rows

    def _check_hash(self, data: memoryview, entry: ShardEntry) -> None:
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise ShardError(
                f"{self._where(entry)}: damaged: its SHA-256 is not the manifest's; delete it and repeat the run"
            )
        self._checked.add(entry.name)

    def _where(self, entry: ShardEntry) -> str:
        return f"{self.storage.url}/{DATA}/{entry.name}"

    def _load(self, entry: ShardEntry) -> memoryview:
        path = f"{DATA}/{entry.name}"
        with faults_as(ShardError, f"{self._where(entry)}: cannot be read"):
            if (size := self.storage.size(path)) != entry.size:
                got = "it is missing" if size is None else f"it has {size:,}"
                raise ShardError(f"{self._where(entry)}: damaged: {entry.size:,} bytes were committed, {got}")
            data = self.storage.load(path, entry.size)
        if len(data) != entry.size:
            raise ShardError(f"{self._where(entry)}: changed while it was read")
        return data


_OPENED = ProcessCache[ShardReader](4)
"""Readers of this process that were sent to it."""


def open_reader(storage: Storage) -> ShardReader:
    """Make a reader of the newest manifest; other files in ``data/`` are not looked for, as `report_of` does."""
    return ShardReader(storage, read_spec(storage), read_manifest(storage))


def check_shard(shards: ShardReader, entry: ShardEntry) -> tuple[str | None, frozenset[int | float]]:
    """Check a shard in full; return a problem as a message of one line, and the labels if the manifest lists labels."""
    try:
        y = shards.check(entry).y
    except ShardError as fault:
        return str(fault), frozenset()
    return None, frozenset(() if shards.manifest.labels is None or y is None else np.unique(y).tolist())


def report_of(reader: ShardReader, found: Mapping[str, str | None], labels: set[int | float]) -> Report:
    """Check everything but the shards of a data set, and report it together with the problems and labels of all shards.

    `found` has the problem of each shard, or None, by its name.
    """
    storage, listed = reader.storage, reader.manifest.labels
    problems = []
    for kind, sha256 in sidecars_of(reader.spec).items():
        try:
            read_sidecar(storage, kind, sha256)
        except ShardError as fault:
            problems.append(str(fault))
    problems.extend(problem for name in reader.manifest.shards.names if (problem := found[name]))
    if listed is not None and not problems and not _agree(labels, set(listed), reader.spec):
        problems.append(f"{storage.url}/{META}/{reader.manifest.name}: lists other labels than its shards have")
    sizes = reader.manifest.sizes()
    with faults_as(ShardError, f"{storage.url}/{DATA} cannot be listed"):
        others = {path: shard for path, shard in decoding.shard_files(storage).items() if shard not in sizes}
    strays = {path: shard for path, shard in others.items() if SHARD_NAME.fullmatch(shard)}
    try:
        plan = next_batch(storage, reader.manifest)[1]
    except ShardError as fault:
        problems.append(str(fault))
        strays = {}  # they may be shards of that plan
    else:
        planned = decoding.planned_shards(plan, strays.values()) if plan else {}
        strays = {path: shard for path, shard in strays.items() if shard not in planned}
    problems.extend(
        f"{storage.url}/{path}: no manifest lists this shard, but other readers find it; remove it with dkfeat clean"
        for path in strays
    )
    n_bytes = reader.manifest.size - sum(sizes[name] for name, problem in found.items() if problem)
    return Report(len(found), n_bytes, problems, [shard for path, shard in others.items() if path.startswith(DATA)])


def _agree(labels: set[int | float], listed: set[int | float], spec: Mapping[str, Any]) -> bool:
    """Return True if the manifest lists the labels of the shards, or more labels if the source declared them."""
    given = spec.get("input", {})
    numbers = {word: number for number, word in enumerate(given.get("classes", ()))}
    labels = {numbers.get(label, label) for label in labels}  # predictions store words
    declared = given.get("labels") is not None
    return labels <= listed if declared else labels == listed


def _width(spec: Mapping[str, Any], where: str) -> int:
    output = Named(spec, f"{where}/{SPEC}")["output"]
    return int(output["row_bytes" if output["layout"] == "codes" else "n_features_out"])
