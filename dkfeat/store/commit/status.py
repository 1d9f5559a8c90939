"""Status of a data set: its newest commit, an unfinished batch, and files that are missing or that nothing lists."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from dkfeat.errors import ShardError
from dkfeat.store.commit.run_log import RunLog, read_logs
from dkfeat.store.manifest import metadata
from dkfeat.store.manifest.batch_plan import BatchPlan
from dkfeat.store.manifest.manifest import Manifest, manifest_name
from dkfeat.store.shards.codec import missing_shards, planned_shards, read_footer
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import DATA, META, Holder, Storage, faults_as

_OUTCOME = ("run_id", "outcome", "error", "shards", "started", "ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Summary of the newest manifest."""

    number: int
    """Number of committed batches."""
    rows: int
    """Number of rows in all shards."""
    shards: int
    """Number of shards."""
    size: int
    """Size of the shards in bytes."""
    sources: int
    """Number of source files covered."""
    at: str
    """Time of the commit, as an ISO date and time."""
    run_id: str
    """Id of the run that committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Batch that is planned and not committed."""

    number: int
    """Number of the plan, and of the manifest that will commit it."""
    sources: tuple[str, ...]
    """Names of the source files in the batch."""
    splits: int
    """Number of planned splits."""
    splits_done: int
    """Number of splits whose shards are all present, by their footers."""
    shards: tuple[str, ...]
    """Shards of the batch that are in ``data/`` so far; no manifest lists them."""
    splits_left: int
    """Number of splits still to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Status of a data set."""

    target: str
    """Path or URL of the data set."""
    committed: Committed | None
    """Newest commit; None before the first."""
    marked: bool
    """True if ``_SUCCESS`` names the newest manifest and so tells other Parquet readers that it is complete."""
    holder: Holder | None
    """Run that holds the target, or held it and died; None if there is none."""
    unfinished: Unfinished | None
    """Batch that is in progress or was interrupted; None if there is none."""
    missing: tuple[str, ...]
    """Committed shards that are missing, of another size, or without their file of text. A damaged file of text is
    found by `verify` alone."""
    unlisted: tuple[str, ...]
    """Files under ``data/`` that neither a manifest nor the unfinished batch lists; readers ignore them."""
    last_run: RunLog | None = None
    """Newest run that has a log; None if there is none."""

    @property
    def state(self) -> str:
        """One word: the first that applies of "running", "damaged", "unfinished", "empty" and "complete".

        "complete": everything planned is committed and marked by ``_SUCCESS``, and no run is writing. If the state is
        "unfinished" or "damaged", another run with the same arguments completes it.
        """
        if self.holder is not None and self.holder.alive is not False:
            return "running"
        if self.missing:
            return "damaged"
        if self.unfinished is not None or (self.committed is not None and not self.marked):
            return "unfinished"
        return "empty" if self.committed is None else "complete"

    @property
    def meaning(self) -> str:
        """Explanation of `state`."""
        return {
            "running": "a run holds the lock",
            "damaged": "committed shards are missing or have another size; repeat the run to write them again",
            "unfinished": "a batch was interrupted; repeat the run to finish it",
            "empty": "nothing is committed",
            "complete": "all that was planned is committed",
        }[self.state]

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values, including `state`; of the last run only its outcome."""
        values: dict[str, Any] = {"state": self.state, **asdict(self)}
        if self.last_run is not None:
            values["last_run"] = {key: values["last_run"][key] for key in _OUTCOME}
        return values


def status(target: str | PathLike[str] | Storage, *, storage_options: Mapping[str, Any] | None = None) -> Status:
    r"""Report the status of a data set, also while a run writes to it.

    The function reads manifests, plans, names and sizes, and one footer for each split of an unfinished batch. It reads
    no shard in full; `verify` does. It writes nothing and takes no lock.

    Parameters
    ----------
    target : str or path
        Folder or URL that `dkfeat.featurize` wrote or is writing.
    storage_options : mapping or None
        Options of fsspec for a URL.

    Returns
    -------
    status : Status
        Status; its ``state`` is a summary in one word.

    Raises
    ------
    dkfeat.errors.ShardError
        If there is no data set, or its metadata is damaged.
    dkfeat.errors.SpecConflictError
        If a newer version of dkfeat wrote it.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", gcws, progress=False)
    >>> found = dkfeat.status(folder / "features")
    >>> found.state, found.committed.rows, found.unfinished
    ('complete', 2, None)
    """
    storage = open_storage(target, storage_options)
    with faults_as(ShardError, f"{storage.url}: cannot be inspected"):
        holder = storage.holder()
        manifest, plan = _newest(storage)
        sizes = {}
        if manifest or plan:
            with suppress(FileNotFoundError):  # without the folder, all shards are missing
                sizes = storage.list(DATA)
        marked = manifest is not None and metadata.read_success(storage) == (manifest.name, manifest.sha256)
        listed = manifest.sizes() if manifest else {}
        planned = planned_shards(plan, sizes) if plan else {}
        return Status(
            target=storage.url,
            committed=None
            if manifest is None
            else Committed(
                number=manifest.number,
                rows=manifest.rows,
                shards=len(manifest.shards),
                size=manifest.size,
                sources=len(manifest.sources),
                at=str(manifest.run.get("ended", "")),
                run_id=str(manifest.run.get("id", "")),
            ),
            marked=marked,
            holder=holder,
            unfinished=None if plan is None else _unfinished(storage, plan, planned),
            missing=tuple(entry.name for entry in missing_shards(storage, manifest, sizes)) if manifest else (),
            unlisted=tuple(name for name in sizes if name not in listed and name not in planned),
            last_run=next(iter(read_logs(storage, only_newest=True)), None),
        )


def _newest(storage: Storage) -> tuple[Manifest | None, BatchPlan | None]:
    """Newest manifest, and the plan that follows it; read again if a run commits in between."""
    while True:
        manifest = metadata.newest_manifest(storage)
        number, plan = metadata.next_batch(storage, manifest)
        if plan is None or storage.size(f"{META}/{manifest_name(number)}") is None:
            return manifest, plan


def _unfinished(storage: Storage, plan: BatchPlan, planned: Mapping[str, int]) -> Unfinished:
    pieces: dict[int, list[str]] = {}
    for name in sorted(planned):
        pieces.setdefault(planned[name], []).append(name)

    def is_done(names: list[str]) -> bool:
        """Pieces are made in order: a split is complete if its highest piece is marked as the last."""
        if int(names[-1].split("-")[2]) == len(names) - 1:
            with suppress(OSError), storage.open(f"{DATA}/{names[-1]}") as file:
                return read_footer(file, names[-1]).last
        return False  # or damaged, or removed meanwhile: the piece will be made again

    n_done = sum(storage.map(is_done, pieces.values()))
    return Unfinished(
        number=plan.number,
        sources=tuple(file.name for file in plan.files),
        splits=len(plan.splits),
        splits_done=n_done,
        splits_left=len(plan.splits) - n_done,
        shards=tuple(sorted(planned)),
    )
