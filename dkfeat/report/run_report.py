"""Report of the runs of a data set, from its manifest, its logs and, if still available, its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.engine.dataset.dataset import LabelCounts, count_labels, open_shards
from dkfeat.engine.open import Target, as_target, target_parameters
from dkfeat.engine.resolve import DROPPED
from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import printable
from dkfeat.html import card, render
from dkfeat.messages import counted, show_bytes, show_label
from dkfeat.plot import has_matplotlib
from dkfeat.report import page
from dkfeat.report.estimates import Estimates, estimate_kernel, remembered_source
from dkfeat.store.commit.maintenance import Status, status
from dkfeat.store.commit.run_log import RunLog, StageLog, read_logs

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import QuarantinedRow, ShardDataset
    from dkfeat.sources.base import Source


MOST_SOURCES, MOST_RUNS, MOST_DOTS, SPEED_STEPS = 50, 30, 1500, 48
BAD_ROWS = 10
"""Maximum number of quarantined rows in the report."""


LABEL_BYTES = 1 << 30
"""Maximum size in bytes of the shards read to count labels."""
MOST_CLASSES = 100
"""Maximum number of distinct labels to count."""
MOST_SHOWN = 30
"""Maximum number of classes in the chart."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RunReport(page.Page):
    """Facts about the runs of a data set; `run_report` collects them."""

    target: str
    """Folder or URL of the data set."""
    status: Status
    """State of the data set."""
    data: ShardDataset | None
    """Committed rows; None before the first commit."""
    logs: tuple[RunLog, ...]
    """Logs of the runs, oldest first; runs without a log are left out."""
    labels: LabelCounts | None
    """Counts of labels; None if nothing is committed, or rows have no labels or more than a hundred."""
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

    def _repr_html_(self) -> str:
        return card(self.title, self.figures, note=self.status.state)

    @property
    def title(self) -> str:
        """Title of the page and of the card."""
        return f"Report of {printable(self.target)}"

    @property
    def _inputs(self) -> list[str]:  # type: ignore[override]
        return [place for place in remembered_source(self.logs) if "**" not in place]

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
            size = manifest.size
            figures["rows"] = f"{manifest.rows:,}"
            if self.data.has_features:
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
        """Plain JSON values with the figures of the page."""
        known: dict[str, Any] = {"target": self.target, "state": self.status.state}
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
        known["labels"] = None
        if self.labels is not None:
            known["labels"] = asdict(self.labels) | {"counts": [list(pair) for pair in self.labels.counts.items()]}
        known["runs"] = [_log_mapping(log) for log in self.logs]
        known["kernel_estimates"] = {"note": self.kernel_note} if self.kernel is None else self.kernel.to_mapping()
        return known

    def to_html(self) -> str:
        """Page of the whole report as HTML text; charts need matplotlib and are left out without it."""
        return render(
            "run_report.html",
            title=self.title,
            report=self,
            has_matplotlib=has_matplotlib(),
            bad_rows=[{"place": row.place, "reason": row.message, "text": row.text} for row in self.bad_rows],
            **_log_values(self.logs, self.last_run),
            **_data_values(self.data),
            **_label_values(self.labels, self.data),
            **_estimate_values(self.kernel),
        )


def _log_mapping(log: RunLog) -> dict[str, Any]:
    stages = [{key: value for key, value in asdict(stage).items() if key != "points"} for stage in log.stages]
    names = ("batch", "outcome", "error", "started", "ended", "where", "shards")
    return {name: getattr(log, name) for name in names} | {"shards_found": log.found, "stages": stages}


@target_parameters
def run_report(
    target: str | PathLike[str] | Target,
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    *,
    pair_rows: int = 256,
    random_state: int = 0,
    storage_options: Mapping[str, Any] | None = None,
) -> RunReport:
    r"""Report on the runs of a data set: speed, shards, labels, bad rows, and errors of kernel estimates.

    The function writes nothing and does not disturb a run in progress. It reads labels from up to 1 GiB of shards,
    spread over the data set, and the first rows of up to eight splits of the source.

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
    >>> report.labels.counts, report.logs[0].outcome, report.kernel.n_rows
    ({-1: 1, 1: 2}, 'committed', 3)
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
        labels=None if data is None else _read_labels(data),
        bad_rows=() if data is None else tuple(islice(data.quarantine(), BAD_ROWS)),
        kernel=kernel,
        kernel_note=note,
    )


def _log_values(logs: Sequence[RunLog], last: RunLog | None) -> dict[str, Any]:
    """Values of the section on speed: charts of the last and of the longest run, a table of runs, errors."""
    shown = logs[-MOST_RUNS:][::-1]
    note = f"{counted(len(logs), 'run')}, the newest first{_limit_note(len(logs), MOST_RUNS)}"
    note += "; found: shards that an earlier run had made" if any(log.found for log in shown) else ""
    stages = [] if last is None else [(stage, last) for stage in last.stages]
    if logs:
        longest = max(logs, key=lambda log: 0.0 if log.main_stage is None else log.main_stage.seconds)
        if longest is not last and longest.main_stage is not None:
            stages.append((longest.main_stage, longest))
    return {
        "speed": [_speed(stage, log) for stage, log in stages if stage.seconds > 0 and stage.rows],
        "runs": [row for log in shown for row in _run_rows(log)],
        "runs_note": note,
        "errors": [log for log in shown if log.error],
    }


def _run_rows(log: RunLog) -> list[dict[str, object]]:
    ended = log.ended[:16].replace("T", " ")
    own: dict[str, object] = {"batch": log.batch, "ended": ended, "outcome": log.outcome, "where": log.where}
    rows = []
    for stage in log.stages:
        row = own | {
            "stage": stage.stage,
            "splits": f"{stage.tasks:,} of {stage.total_tasks:,}",
            "rows": f"{stage.rows:,}",
            "seconds": f"{stage.seconds:,.1f}",
        }
        if stage.seconds > 0:
            row["rows/s"] = f"{stage.rows / stage.seconds:,.0f}"
            row["MB/s"] = f"{stage.source_bytes / stage.seconds / 1e6:,.1f}"
        if stage is log.main_stage and log.found:
            row["found"] = f"{log.found:,}"
        rows.append(row)
    return rows or [own]


def _speed(stage: StageLog, log: RunLog) -> str:
    seconds = [0.0, *(point[0] for point in stage.points)]
    rows = [0, *(point[1] for point in stage.points)]
    n = max(1, min(SPEED_STEPS, len(stage.points) // 2))
    unit, name = (
        (3600.0, "hours") if stage.seconds > 7200 else (60.0, "minutes") if stage.seconds > 180 else (1.0, "seconds")
    )
    edges = np.linspace(0.0, max(stage.seconds, seconds[-1]), n + 1)
    speeds = np.diff(np.interp(edges, seconds, rows)) / np.diff(edges)
    caption = f"Rows a second since the stage began; the run ended {log.outcome} at {log.ended[:19].replace('T', ' ')}"
    caption += f"; {log.found:,} of {log.shards:,} shards were there already" if log.found else ""
    title = f"Speed of {stage.stage}, batch {log.batch:,}, rows/s"
    return page.steps(title, edges / unit, speeds.tolist(), name, f"{caption}.")


def _data_values(data: ShardDataset | None) -> dict[str, Any]:
    """Values of the sections on source, settings and shards."""
    if data is None:
        return {"shard_facts": []}
    manifest = data.manifest
    size = show_bytes(sum(source.size for source in manifest.sources))
    files = f"{counted(len(manifest.sources), 'file')}, {size} as stored"
    if manifest.unterminated:
        files += f"; {len(manifest.unterminated):,} without a final line end, perhaps cut off"
    sources = [
        {"file": printable(source.name), "size": show_bytes(source.size), "rows": f"{source.rows:,}"}
        | ({"set aside": f"{source.n_bad_rows:,}"} if manifest.n_bad_rows else {})
        | ({"final line end": "missing" if source.final_newline is False else ""} if manifest.unterminated else {})
        for source in manifest.sources[:MOST_SOURCES]
    ]
    measured = {"rows": [entry.rows for entry in manifest.shards], "bytes": [entry.size for entry in manifest.shards]}
    return {
        "sources": sources,
        "source_note": files + _limit_note(len(manifest.sources), MOST_SOURCES),
        "settings": _settings(data),
        "shard_facts": [_quantiles(name, values) for name, values in measured.items() if values],
        "bad_reasons": [{"reason": name, "rows": f"{count:,}"} for name, count in manifest.bad_rows.items()],
    }


def _settings(data: ShardDataset) -> dict[str, object]:
    spec, manifest = data.spec, data.manifest
    made, run = spec["map"], manifest.run
    versions, size, most = run.get("versions"), spec["split"]["blocksize"], spec["split"]["max_piece_rows"]
    shown = {
        "map": f"{made.get('map')} version {made.get('version')}",
        "parameters": _parameters(made.get("params", {})),
        "seed": made.get("seed"),
        "input": _parameters(spec["input"]),
        "layout": f"{spec['output']['layout']}, {spec['output']['row_bytes']:,} bytes a row before Parquet",
        "columns": None if data.has_features else ", ".join(manifest.schema),
        "model": spec["model"]["sha256"] if data.layout == "predictions" else None,
        "duplicates": f"dropped from {spec[DROPPED]['rows']:,} rows" if DROPPED in spec else None,
        "piece": ("" if size is None else f"{show_bytes(int(size))}, ") + f"at most {most:,} rows",
        "fingerprint": manifest.spec_fp,
        "last commit": f"batch {manifest.number:,}, {run.get('ended')}, on {run.get('host')}",
        "versions": _parameters(versions) if isinstance(versions, Mapping) else "",
        "arithmetic": "; ".join(manifest.numeric_envs),
    }
    return {name: str(value) for name, value in shown.items() if value not in ("", None)}


def _quantiles(name: str, values: Sequence[int]) -> dict[str, object]:
    low, middle, high = (f"{value:,.0f}" for value in np.quantile(values, [0, 0.5, 1]))
    return {"": name, "least": low, "median": middle, "most": high, "total": f"{sum(values):,}"}


def _estimate_values(found: Estimates | None) -> dict[str, Any]:
    """Values of the section on kernel estimates."""
    if found is None:
        return {"estimates": [], "estimate_facts": {}}
    pairs = found.pairs
    kept = np.random.default_rng(0).permutation(len(pairs))[:MOST_DOTS]
    caption = f"A dot is a pair of rows, {len(kept):,} of {len(pairs):,} pairs"
    caption += "" if pairs.deviations is None else "; the band is two standard errors by theory"
    title = "Estimates against the exact kernel"
    theory = f", {pairs.note}" if pairs.note and pairs.deviations is not None else pairs.note
    same = "computed again, equal to those in the shards" if found.same else "computed again, not equal to the shards"
    within = pairs.share_within
    facts = {
        "kernel": pairs.kernel,
        "sample": f"{found.n_rows:,} rows, from the beginnings of {counted(found.n_shards, 'split')}",
        "root mean squared error": f"{pairs.error:.4g}",
        "by theory": theory if pairs.expected_error is None else f"{pairs.expected_error:.4g}{theory}",
        "mean error": f"{found.mean_error:+.4g}",
        "within the band": None if within is None else f"{within:.1%} of pairs, about 95% are expected",
        "features": same,
    }
    return {
        "estimates": [page.estimates(title, pairs, kept, f"{caption}.")],
        "estimate_facts": {name: value for name, value in facts.items() if value is not None},
    }


def _parameters(values: Mapping[str, Any]) -> str:
    shown = ((key, value) for key, value in values.items() if value is not None)
    return ", ".join(f"{key}={str(value)[:80]}" for key, value in shown)


def _limit_note(there: int, most: int) -> str:
    return f"; {most:,} of them are shown" if there > most else ""


def _label_values(labels: LabelCounts | None, data: ShardDataset | None) -> dict[str, Any]:
    """Values of the section on labels: a chart of their numbers of rows, or if there are many of the most frequent."""
    if labels is None or data is None or not labels.counts:
        return {"labels": [], "labels_note": "", "label_rows": []}
    shown = sorted(sorted(labels.counts.items(), key=lambda pair: -pair[1])[:MOST_SHOWN])
    rows = [(show_label(label), count) for label, count in shown]
    note = f"Rows of each label, {labels.rows:,} in all"
    if labels.n_shards < len(data.manifest.shards):
        note += f", of {labels.n_shards:,} shards spread over the data set"
    note += "; a row may have several" if data.spec["input"].get("multilabel") else ""
    note += f"; the {MOST_SHOWN} most frequent of {len(labels.counts):,}" if len(labels.counts) > MOST_SHOWN else ""

    def show(count: float) -> str:
        return f"{count:,.0f} ({count / max(1, labels.rows):.1%})"

    return {
        "labels": [page.bars("Rows by label", rows, show, f"{note}.")],
        "labels_note": f"{note}.",
        "label_rows": [{"label": label, "rows": f"{count:,}"} for label, count in rows],
    }


def _read_labels(data: ShardDataset) -> LabelCounts | None:
    """Count the labels in up to 1 GiB of shards, spread over the data set; None without labels, or for quantities."""
    labels = data.manifest.labels
    if "label" not in data.manifest.schema or not data.n_rows or labels is None or len(labels) > MOST_CLASSES:
        return None
    return count_labels(data.shards, LABEL_BYTES)
