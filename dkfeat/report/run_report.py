"""Report of the runs of a data set, from its manifest, its logs and, if still available, its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any

from dkfeat.engine.dataset.dataset import open_shards
from dkfeat.engine.open import Target, as_target
from dkfeat.engine.resolve import DROPPED
from dkfeat.engine.scan import scale_warning
from dkfeat.errors import ConfigError
from dkfeat.html import render
from dkfeat.messages import printable, show_bytes
from dkfeat.report.estimates import Estimates, estimate_kernel, remembered_source
from dkfeat.store.commit.run_log import RunLog, read_logs, recorded_shares
from dkfeat.store.commit.status import Status, status
from dkfeat.store.outputs import check_outputs, write_output

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import QuarantinedRow, ShardDataset
    from dkfeat.sources.base import Source


BAD_ROWS = 10
"""Maximum number of quarantined rows in the report."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RunReport:
    """Facts about the runs of a data set; `run_report` collects them."""

    target: str
    """Folder or URL of the data set."""
    status: Status
    """State of the data set."""
    data: ShardDataset | None
    """Committed rows; None before the first commit."""
    logs: tuple[RunLog, ...]
    """Logs of the runs, oldest first; runs without a log are left out."""
    bad_rows: tuple[QuarantinedRow, ...]
    """First quarantined rows, as `ShardDataset.quarantine` gives them."""
    kernel: Estimates | None
    """Kernel estimates; None if the source could not be read."""
    kernel_note: str
    """Reason why there are no kernel estimates; empty if there are."""

    def __repr__(self) -> str:
        figures = list(self.figures.items())[:3]
        listed = ", ".join(f"{value} {name.removesuffix('s') if value == '1' else name}" for name, value in figures)
        return f"RunReport({self.target!r}, {self.status.state}{', ' * bool(listed)}{listed})"

    @property
    def title(self) -> str:
        """Title of the page."""
        return f"Report of {printable(self.target)}"

    @property
    def last_run(self) -> RunLog | None:
        """Last run that committed shards; if there is none, the last run."""
        committed = [log for log in self.logs if log.outcome == "committed" and log.main_stage is not None]
        return next(reversed(committed or self.logs), None)

    @property
    def figures(self) -> dict[str, str]:
        """Figures at the top of the page, by name, as text."""
        figures = {}
        if self.data is not None:
            manifest = self.data.manifest
            figures = {
                "rows": f"{manifest.rows:,}",
                "features": f"{self.data.shape[1]:,}" if self.data.has_features else "",
                "shards": f"{len(manifest.shards):,}",
                "size": show_bytes(manifest.size),
                "bytes a row": f"{manifest.size / manifest.rows:,.1f}" if manifest.rows else "",
                "empty rows": f"{manifest.n_empty_rows:,}",
                "rows set aside": f"{manifest.n_bad_rows:,}",
            }
            figures = {name: value for name, value in figures.items() if value}
        stage = None if self.last_run is None else self.last_run.main_stage
        if stage is not None and stage.seconds > 0:
            figures["rows a second"] = f"{stage.rows / stage.seconds:,.0f}"
        if self.kernel is not None:
            figures["error of an estimate"] = f"{self.kernel.pairs.error:.3g}"
        return figures

    @property
    def warnings(self) -> list[str]:
        """What the figures say against the features."""
        found = [] if self.data is None else [scale_warning(recorded_shares(self.logs), self.data.spec["input"])]
        found += [] if self.kernel is None else self.kernel.problems
        return [text for text in found if text]

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values with the figures of the page."""
        known: dict[str, Any] = {"target": self.target, "state": self.status.state, "warnings": self.warnings}
        if self.data is not None:
            manifest = self.data.manifest
            known |= {
                "rows": manifest.rows,
                "empty_rows": manifest.n_empty_rows,
                "bad_rows": manifest.n_bad_rows,
                "bad_rows_by_reason": manifest.bad_rows,
                "shards": len(manifest.shards),
                "size": manifest.size,
                "features": self.data.shape[1] if self.data.has_features else None,
                "map": dict(self.data.spec["map"]),
                "sources": len(manifest.sources),
                "no_final_newline": manifest.unterminated,
                "source_bytes": sum(source.size for source in manifest.sources),
                "batches": manifest.number,
            }
        known["runs"] = [_log_mapping(log) for log in self.logs]
        known["kernel_estimates"] = {"note": self.kernel_note} if self.kernel is None else self.kernel.to_mapping()
        return known

    def to_html(self) -> str:
        """Page of the whole report as HTML text."""
        return render(
            "run_report.html",
            title=self.title,
            report=self,
            printable=printable,
            dropped=None if self.data is None else self.data.spec.get(DROPPED),
        )

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the page as one file, atomically. Its folder is created if missing, and an earlier page is replaced.

        Parameters
        ----------
        path : str or path
            File on this machine, outside of data sets and models.
        overwrite : bool, default=False
            Replace also a file that is not a page of dkfeat, but never a file of the source.

        Raises
        ------
        dkfeat.errors.ConfigError
            If the file may not be replaced, or is in a data set or a model.
        OSError
            If the page cannot be written.
        """
        inputs = [place for place in remembered_source(self.logs) if "**" not in place]
        check_outputs([path], inputs=inputs, overwrite=overwrite)
        write_output(path, self.to_html())


def _log_mapping(log: RunLog) -> dict[str, Any]:
    names = ("batch", "outcome", "error", "started", "ended", "where", "shards", "drift")
    stages = [asdict(stage) for stage in log.stages]
    return {name: getattr(log, name) for name in names} | {"shards_found": log.found, "stages": stages}


def run_report(
    target: str | PathLike[str] | Target,
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    *,
    pair_rows: int = 256,
    random_state: int = 0,
    storage_options: Mapping[str, Any] | None = None,
) -> RunReport:
    r"""Report on the runs of a data set: speed, shards, bad rows, and errors of kernel estimates.

    The function writes nothing and does not disturb a run in progress. It reads the first rows of up to eight splits of
    the source.

    Parameters
    ----------
    target : str, path or Target
        Folder or URL of the data set that `dkfeat.featurize` or `dkfeat.predict` wrote or is writing.
    source : LibsvmSource, ParquetSource, path, glob, URL, a list of these, or None
        Source as passed to `featurize`. None: the local files that the last run read, if they are unchanged.
    pair_rows : int, default=256
        Number of rows whose pairs are compared with the exact kernel; 0 skips the comparison.
    random_state : int, default=0
        Seed for the choice of these rows.
    storage_options : mapping or None
        Options of the storage for a source given by URL.

    Returns
    -------
    report : RunReport
        ``save(path)`` writes an HTML page, ``to_mapping()`` returns the figures.

    Raises
    ------
    dkfeat.errors.ShardError
        If there is no data set, or its files contradict each other.
    dkfeat.errors.ConfigError
        If `source` is not a source, or is given for predictions.
    dkfeat.errors.SourceNotFoundError
        If no file matches the given `source`.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n+1 4:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", gcws, progress=False)
    >>> report = dkfeat.run_report(folder / "features")
    >>> report.logs[0].outcome, report.kernel.n_rows
    ('committed', 3)
    >>> report.save(folder / "report.html")
    """
    place = as_target(target)
    storage = place.open()
    state, logs = status(storage), read_logs(storage)
    data = (
        None
        if state.committed is None
        else open_shards(place.path, storage_options=place.storage_options, verify="size")
    )
    kernel, note = None, "Nothing is committed yet."
    if data is not None and not data.has_features:
        if source is not None:
            raise ConfigError(f"{storage.url} holds {data.layout}, for which no source is read; leave it out")
        note = f"These are {data.layout}; kernel estimates are about features."
    elif data is not None:
        kernel, note = estimate_kernel(data, source, logs, pair_rows, random_state, storage_options)
    return RunReport(
        target=storage.url,
        status=state,
        data=data,
        logs=logs,
        bad_rows=() if data is None else tuple(islice(data.quarantine(), BAD_ROWS)),
        kernel=kernel,
        kernel_note=note,
    )
