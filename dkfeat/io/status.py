"""How a data set stands: what is committed, who writes to it, and what a run left half-way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from dkfeat.errors import ShardError
from dkfeat.io import metadata
from dkfeat.io.decoding import open_footer
from dkfeat.io.entries import SHARD_NAME, manifest_name
from dkfeat.io.manifest import Manifest
from dkfeat.io.plans import PinnedPlan
from dkfeat.io.shards import shard_name
from dkfeat.io.storage import DATA, META, SUCCESS, Holder, Storage, open_storage

__all__ = ["Committed", "Status", "Unfinished", "planned_shards", "status"]

_THREADS = 16
"""Footers that are read at a time: an object store answers one after 30 ms or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What the newest manifest says."""

    number: int
    """Batches committed."""
    rows: int
    """Rows in all shards."""
    shards: int
    """Shards listed."""
    size: int
    """Bytes of these."""
    sources: int
    """Source files covered."""
    at: str
    """When it was committed, as an ISO date and time."""
    run_id: str
    """Run that did it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A batch that is planned and not committed."""

    number: int
    """The plan's, which is that of the manifest to come."""
    sources: tuple[str, ...]
    """Source files that it covers."""
    splits: int
    """Splits planned."""
    splits_done: int
    """Splits whose shards are all there, by their footers."""
    shards: tuple[str, ...]
    """Shards that it has left in ``data/`` so far; no manifest lists them."""

    @property
    def splits_left(self) -> int:
        """Splits still to be worked on."""
        return self.splits - self.splits_done


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a data set stands."""

    target: str
    """Where it is."""
    committed: Committed | None
    """The newest commit, or None before the first."""
    marked: bool
    """Whether ``_SUCCESS`` is there: the sign for plain Parquet readers."""
    holder: Holder | None
    """The run that holds the target, or held it and died."""
    unfinished: Unfinished | None
    """A batch under way or left half-way."""
    missing: tuple[str, ...]
    """Committed shards that are gone or of another size."""
    unlisted: tuple[str, ...]
    """Files under ``data/`` that neither a manifest nor the unfinished batch lists; readers ignore them."""

    @property
    def state(self) -> str:
        """One word: "running", "damaged", "unfinished", "empty" or "complete"; the first that holds.

        Complete: all that was planned is committed and marked, and nobody is writing. After "unfinished" and
        "damaged" the same run again makes it complete.
        """
        if self.holder is not None and self.holder.alive is not False:
            return "running"
        if self.missing:
            return "damaged"
        if self.unfinished is not None or (self.committed is not None and not self.marked):
            return "unfinished"
        return "empty" if self.committed is None else "complete"

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values, `state` among them."""
        values: dict[str, Any] = {"state": self.state, **asdict(self)}
        if self.unfinished is not None:
            values["unfinished"]["splits_left"] = self.unfinished.splits_left
        return values


def status(target: str | PathLike[str] | Storage, *, storage_options: Mapping[str, Any] | None = None) -> Status:
    r"""Tell how a data set stands, also while a run writes to it.

    Manifests, plans, names and sizes are read, and a footer for each split of an unfinished batch; no shard is read
    in full, which `verify` does. Nothing is written and no lock is held.

    Parameters
    ----------
    target : str or path
        Folder that `dkfeat.featurize` wrote or is writing.
    storage_options : mapping or None
        Settings of the storage.

    Returns
    -------
    status : Status
        ``state`` is the answer in one word.

    Raises
    ------
    dkfeat.errors.ShardError
        There is no data set, or what it says of itself is damaged.
    dkfeat.errors.SpecConflictError
        A newer dkfeat wrote it.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", gcws, folder / "features", progress=False)
    >>> found = dkfeat.status(folder / "features")
    >>> found.state, found.committed.rows, found.unfinished
    ('complete', 2, None)
    """
    storage = target if isinstance(target, Storage) else open_storage(target, storage_options)
    try:
        holder = storage.holder()
        manifest, plan = _newest(storage)
        sizes = storage.list(DATA) if manifest or plan else {}
        marked = storage.size(SUCCESS) is not None
        listed = {entry.name: entry.size for entry in manifest.shards} if manifest else {}
        planned = planned_shards(plan, sizes) if plan else {}
        return Status(
            target=storage.url,
            committed=None
            if manifest is None
            else Committed(
                number=manifest.number,
                rows=manifest.rows,
                shards=len(manifest.shards),
                size=sum(listed.values()),
                sources=len(manifest.sources),
                at=str(manifest.run.get("ended", "")),
                run_id=str(manifest.run.get("id", "")),
            ),
            marked=marked,
            holder=holder,
            unfinished=None if plan is None else _unfinished(storage, plan, planned),
            missing=tuple(name for name, size in listed.items() if sizes.get(name) != size),
            unlisted=tuple(name for name in sizes if name not in listed and name not in planned),
        )
    except ShardError:
        raise
    except OSError as fault:
        message = f"{storage.url}: cannot be looked at: {fault.strerror or fault}"
        raise ShardError(message) from fault


def planned_shards(plan: PinnedPlan, names: Iterable[str]) -> dict[str, int]:
    """Pick the names that shards of a plan have, each with its split's number.

    A name holds a hash of spec, source, range and piece: a shard of other settings or sources has another one.
    """
    splits = {split.number: split for split in plan.splits}
    found = {}
    for name in names:
        match = SHARD_NAME.fullmatch(name)
        split = splits.get(int(match[1])) if match else None
        if match and split and shard_name(plan.spec_fp, split, int(match[2])) == name:
            found[name] = split.number
    return found


def _newest(storage: Storage) -> tuple[Manifest | None, PinnedPlan | None]:
    """Newest manifest, and the plan that follows it; read again where a run committed in between."""
    while True:
        manifest = metadata.newest_manifest(storage)
        number = manifest.number + 1 if manifest else 1
        plan = metadata.pending_plan(storage, number)
        if plan is None or storage.size(f"{META}/{manifest_name(number)}") is None:
            return manifest, plan


def _unfinished(storage: Storage, plan: PinnedPlan, planned: Mapping[str, int]) -> Unfinished:
    pieces: dict[int, list[str]] = {}
    for name in sorted(planned):
        pieces.setdefault(planned[name], []).append(name)
    # pieces are made in order: those of a split are all there if the highest says that it is the last
    whole = [names[-1] for names in pieces.values() if _piece(names[-1]) == len(names) - 1]
    with ThreadPoolExecutor(_THREADS) as pool:
        done = sum(pool.map(lambda name: _is_last(storage, name), whole))
    return Unfinished(
        number=plan.number,
        sources=tuple(file.name for file in plan.files),
        splits=len(plan.splits),
        splits_done=done,
        shards=tuple(sorted(planned)),
    )


def _piece(name: str) -> int:
    return int(name.split("-")[2])


def _is_last(storage: Storage, name: str) -> bool:
    try:
        with storage.open(f"{DATA}/{name}") as file:
            return open_footer(file, name).last
    except OSError:  # damaged, or set aside meanwhile: it will be made again
        return False
