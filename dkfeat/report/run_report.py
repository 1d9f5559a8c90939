"""What became of the runs of a data set: read from the data set itself, its logs and, where it is there, its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.engine.arguments import as_path
from dkfeat.engine.dataset import open_shards
from dkfeat.engine.label_counts import count_labels, spread
from dkfeat.engine.row_sample import sample_rows
from dkfeat.errors import ConfigError, DkfeatError, SourceNotFoundError
from dkfeat.html import card
from dkfeat.io.remote import is_url, printable
from dkfeat.io.run_logs import RunLog, read_logs
from dkfeat.io.status import Status, status
from dkfeat.io.storage import open_storage
from dkfeat.wording import show_bytes

if TYPE_CHECKING:
    from dkfeat.engine.dataset import ShardDataset
    from dkfeat.io.quarantine import QuarantinedRow
    from dkfeat.io.source import Source
    from dkfeat.maps._kernel_pairs import KernelPairs

__all__ = ["Estimates", "Labels", "RunReport", "run_report"]

LABEL_BYTES = 1 << 30
"""Bytes of shards that are read to count labels."""
MOST_CLASSES = 100
"""Labels beyond which they are told as numbers, by a histogram."""
BAD_ROWS = 10
"""Rows set aside that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """How far inner products of features are from the kernel, on a sample of rows."""

    pairs: KernelPairs
    """The kernel and its estimate, for each pair of these rows."""
    n_rows: int
    """Rows in the sample."""
    n_shards: int
    """Shards that they were drawn from."""
    same: bool
    """Whether these rows, featurized again, give what the shards hold."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain figures."""
        return {
            "kernel": self.pairs.kernel,
            "rows": self.n_rows,
            "pairs": len(self.pairs),
            "shards": self.n_shards,
            "root_mean_squared_error": self.pairs.error,
            "mean_error": self.mean_error,
            "expected_error": self.pairs.expected_error,
            "within_two_standard_errors": self.pairs.share_within,
            "equal_to_the_shards": self.same,
        }

    @property
    def mean_error(self) -> float:
        """Mean of estimates less the kernel: what is left of an error that does not average out."""
        return float(np.mean(self.pairs.estimates - self.pairs.exact))


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Labels of the shards that were read."""

    counts: tuple[tuple[float, int], ...]
    """Rows of each label, by label; empty where there are too many to be classes."""
    edges: tuple[float, ...]
    """Of the histogram otherwise."""
    histogram: tuple[int, ...]
    """Rows between two edges."""
    rows: int
    """Rows in these shards."""
    n_shards: int
    """Shards read."""
    multilabel: bool
    """Whether a row has any number of labels."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RunReport:
    """All that a report tells; made by `run_report`."""

    target: str
    """Where the data set is."""
    status: Status
    """How it stands."""
    data: ShardDataset | None
    """What is committed; None before the first commit."""
    logs: tuple[RunLog, ...]
    """Runs that left a log, oldest first."""
    labels: Labels | None
    """None where nothing is committed, or rows have no labels."""
    bad_rows: tuple[QuarantinedRow, ...]
    """The first rows that were set aside, as `ShardDataset.quarantine` gives them."""
    kernel: Estimates | None
    """None where the source could not be read."""
    kernel_note: str
    """Why not."""

    def __repr__(self) -> str:
        figures = list(self.figures.items())[:3]
        told = ", ".join(f"{value} {name.removesuffix('s') if value == '1' else name}" for name, value in figures)
        return f"RunReport({self.target!r}, {self.status.state}{', ' * bool(told)}{told})"

    def _repr_html_(self) -> str:
        return card(f"Report of {printable(self.target)}", self.figures, note=self.status.state)

    @property
    def last_run(self) -> RunLog | None:
        """The last run that committed what it made, or where there is none the last run of all."""
        committed = [log for log in self.logs if log.outcome == "committed" and log.main_stage is not None]
        return next(reversed(committed or self.logs), None)

    @property
    def figures(self) -> dict[str, str]:
        """What there is to know at a glance, for people."""
        figures = {}
        if self.data is not None:
            manifest = self.data.manifest
            size = sum(entry.size for entry in manifest.shards)
            figures["rows"] = f"{manifest.rows:,}"
            figures["features"] = f"{self.data.shape[1]:,}"
            figures["shards"] = f"{len(manifest.shards):,}"
            figures["size"] = show_bytes(size)
            if manifest.rows:
                figures["bytes a row"] = f"{size / manifest.rows:,.1f}"
            figures["empty rows"] = f"{manifest.n_empty_rows:,}"
            figures["rows set aside"] = f"{manifest.n_bad_rows:,}"
        stage = None if self.last_run is None else self.last_run.main_stage
        if stage is not None and stage.seconds > 0:
            figures["rows a second"] = f"{stage.rows / stage.seconds:,.0f}"
        if self.kernel is not None:
            figures["error of an estimate"] = f"{self.kernel.pairs.error:.3g}"
        return figures

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values: the figures of the page."""
        known: dict[str, Any] = {"target": self.target, "state": self.status.state}
        if self.data is not None:
            manifest = self.data.manifest
            known |= {
                "rows": manifest.rows,
                "empty_rows": manifest.n_empty_rows,
                "bad_rows": manifest.n_bad_rows,
                "bad_rows_by_reason": manifest.bad_rows,
                "shards": len(manifest.shards),
                "size": sum(entry.size for entry in manifest.shards),
                "features": self.data.shape[1],
                "map": dict(self.data.spec["map"]),
                "sources": len(manifest.sources),
                "source_bytes": sum(source.size for source in manifest.sources),
                "batches": manifest.number,
            }
        known["labels"] = None if self.labels is None else asdict(self.labels)
        known["runs"] = [
            {
                "batch": log.batch,
                "outcome": log.outcome,
                "error": log.error,
                "started": log.started,
                "ended": log.ended,
                "where": log.where,
                "shards": log.shards,
                "shards_found": log.found,
                "stages": [
                    {key: value for key, value in stage.to_mapping().items() if key != "points"} for stage in log.stages
                ],
            }
            for log in self.logs
        ]
        known["kernel_estimates"] = {"note": self.kernel_note} if self.kernel is None else self.kernel.to_mapping()
        return known

    def to_html(self) -> str:
        """One page with everything in it."""
        from dkfeat.report.run_page import run_page

        return run_page(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page, into a folder that is made if missing; a file that is there is replaced.

        Raises
        ------
        OSError
            It cannot be written.
        """
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(self.to_html(), encoding="utf-8")


def run_report(
    target: str | PathLike[str],
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    *,
    pair_rows: int = 256,
    random_state: int = 0,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> RunReport:
    r"""Tell what became of the runs of a data set: speed, shards, labels, bad rows, and errors of kernel estimates.

    Nothing is written, and a run that goes on is not disturbed. Of the shards, labels are read, from up to 1 GiB of
    files spread over the data set; of the source, the beginnings of up to eight splits.

    Parameters
    ----------
    target : str or path
        Folder that `dkfeat.featurize` wrote or is writing.
    source : LibsvmSource, ParquetSource, path, glob, URL, a list of these, or None
        As it was given to `featurize`. None: the files of this machine that the last run read, if they are unchanged.
    pair_rows : int, default=256
        Rows whose pairs are compared with the exact kernel; 0 leaves that out.
    random_state : int, default=0
        Seed of the rows that are drawn.
    storage_options, target_options : mapping or None
        For a source given by URL, and for a target given by URL.

    Returns
    -------
    report : RunReport
        ``save(path)`` writes a page, ``to_mapping()`` gives its figures.

    Raises
    ------
    dkfeat.errors.ShardError
        There is no data set, or it does not agree with itself.
    dkfeat.errors.ConfigError
        It holds predictions, or `source` is none.
    dkfeat.errors.SourceNotFoundError
        No file matches the `source` that is given.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n+1 4:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", gcws, folder / "features", progress=False)
    >>> report = dkfeat.run_report(folder / "features")
    >>> report.labels.counts, report.logs[0].outcome, report.kernel.n_rows
    (((-1, 1), (1, 2)), 'committed', 3)
    >>> report.save(folder / "report.html")
    """
    place = as_path(target, "target")
    storage = open_storage(place, target_options if is_url(place) else None)
    state, logs = status(storage), read_logs(storage)
    data = None if state.committed is None else open_shards(place, storage_options=target_options, verify="size")
    if data is not None and data.spec["output"]["layout"] == "predictions":
        message = f"{storage.url} holds predictions; a report is about features: give the folder that featurize made"
        raise ConfigError(message)
    kernel, note = None, "Nothing is committed yet."
    if data is not None:
        kernel, note = _compared(data, source, logs, pair_rows, random_state, storage_options)
    return RunReport(
        target=storage.url,
        status=state,
        data=data,
        logs=logs,
        labels=None if data is None else _labels(data),
        bad_rows=() if data is None else tuple(islice(data.quarantine(), BAD_ROWS)),
        kernel=kernel,
        kernel_note=note,
    )


def _compared(
    data: ShardDataset,
    source: Any,
    logs: Sequence[RunLog],
    rows: int,
    seed: int,
    storage_options: Mapping[str, Any] | None,
) -> tuple[Estimates | None, str]:
    """Compare estimates with the kernel, or say why not.

    A log is as little to be trusted as the folder that it lies in: of what it names no URL is opened, no tree is
    searched, and no file is read but those that the manifest knows.
    """
    if rows < 2:
        return None, "Not asked for."
    given = source is not None
    remembered = next((log.sources for log in reversed(logs) if log.sources), ())
    if not given and not remembered:
        return None, "No log says where the source is; give it to the report too."
    if not given and any(is_url(place) or "**" in place for place in remembered):
        return (
            None,
            f"The source is {', '.join(remembered)[:200]}; give it to the report too, and it is read from there.",
        )
    try:
        sample = sample_rows(
            data,
            source if given else list(remembered),
            rows=rows,
            random_state=seed,
            unchanged=not given,
            storage_options=storage_options if given else None,
        )
        features = data.map
        pairs = features.kernel_pairs(sample.X, n_rows=sample.X.shape[0])
    except (DkfeatError, OSError, ValueError) as error:
        if given and isinstance(error, SourceNotFoundError | ConfigError):
            raise  # a mistake in the call, not a source that went away
        return None, f"The source cannot be compared: {error}"
    same = sample.is_made_by(features)
    return Estimates(pairs=pairs, n_rows=sample.X.shape[0], n_shards=sample.n_shards, same=same), ""


def _labels(data: ShardDataset) -> Labels | None:
    spec, entries = data.spec["input"], data.manifest.shards
    if "label" not in data.manifest.schema or not data.n_rows:
        return None
    labels = data.manifest.labels
    if labels is not None and len(labels) <= MOST_CLASSES:
        found = count_labels(data.shards, LABEL_BYTES)
        counts, rows, n_shards = tuple(found.counts.items()), found.rows, found.n_shards
        edges, heights = np.empty(0), np.empty(0, int)
    else:
        chosen = spread([entry for entry in entries if entry.rows], LABEL_BYTES)
        drawn = [np.asarray(data.shards.read(entry, data.verifies, only=("label",)).y) for entry in chosen]
        heights, edges = np.histogram(np.concatenate(drawn), bins=30)
        counts, rows, n_shards = (), sum(entry.rows for entry in chosen), len(chosen)
    return Labels(
        counts=counts,
        edges=tuple(edges.tolist()),
        histogram=tuple(heights.tolist()),
        rows=rows,
        n_shards=n_shards,
        multilabel=bool(spec.get("multilabel")),
    )
