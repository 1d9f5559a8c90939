"""Charts and tables of the page of a run report: speed, data, labels, kernel estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.engine.dataset.labels import count_labels, spread
from dkfeat.engine.resolve import DROPPED
from dkfeat.filesystems.urls import printable
from dkfeat.messages import counted, show_bytes, show_label
from dkfeat.report import charts

if TYPE_CHECKING:
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.report.estimates import Estimates
    from dkfeat.store.commit.run_log import RunLog, StageLog


MOST_SOURCES, MOST_RUNS, MOST_BARS, MOST_DOTS, SPEED_STEPS = 50, 30, 120, 1500, 48


def log_values(logs: Sequence[RunLog], last: RunLog | None, draws: bool) -> dict[str, Any]:
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
        "speed": [_speed(stage, log) for stage, log in stages if draws and stage.seconds > 0 and stage.rows],
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
    return charts.steps(title, edges / unit, speeds.tolist(), name, f"{caption}.")


def data_values(data: ShardDataset | None, draws: bool) -> dict[str, Any]:
    """Values of the sections on source, settings and shards."""
    if data is None:
        return {"shards": [], "shard_facts": []}
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
        "shards": [_columns(name, values) for name, values in measured.items() if draws and values],
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


def _columns(name: str, values: Sequence[int]) -> str:
    n = min(len(values), MOST_BARS)
    bounds = [len(values) * place // n for place in range(n + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    caption = "A bar is a shard." if n == len(values) else f"A bar is the mean of about {len(values) // n:,} shards."
    title = f"{name.capitalize()} of the shards"
    return charts.columns(title, bounds, means, "shard, in the source's order", caption)


def _quantiles(name: str, values: Sequence[int]) -> dict[str, object]:
    low, middle, high = (f"{value:,.0f}" for value in np.quantile(values, [0, 0.5, 1]))
    return {"": name, "least": low, "median": middle, "most": high, "total": f"{sum(values):,}"}


def estimate_values(found: Estimates | None, draws: bool) -> dict[str, Any]:
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
        "estimates": [charts.estimates(title, pairs, kept, f"{caption}.")] if draws else [],
        "estimate_facts": {name: value for name, value in facts.items() if value is not None},
    }


def _parameters(values: Mapping[str, Any]) -> str:
    shown = ((key, value) for key, value in values.items() if value is not None)
    return ", ".join(f"{key}={str(value)[:80]}" for key, value in shown)


def _limit_note(there: int, most: int) -> str:
    return f"; {most:,} of them are shown" if there > most else ""


LABEL_BYTES = 1 << 30
"""Maximum size in bytes of the shards read to count labels."""
MOST_CLASSES = 100
"""Maximum number of distinct labels to count; with more the report shows a histogram."""
MOST_SHOWN = 30
"""Maximum number of classes in the chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Counts or histogram of the labels in the shards that were read."""

    counts: tuple[tuple[float, int], ...] = ()
    """Pairs of a label and its number of rows, by label; empty if there is a histogram."""
    edges: tuple[float, ...] = ()
    """Edges of the histogram's bins."""
    histogram: tuple[int, ...] = ()
    """Number of rows in each bin."""
    rows: int
    """Number of rows in these shards."""
    n_shards: int
    """Number of shards read."""
    multilabel: bool
    """True if a row may have any number of labels."""

    def describe(self, n_shards: int) -> str:
        """Describe the chart in one sentence; `n_shards` is the number of shards of the data set."""
        of = "" if self.n_shards == n_shards else f", of {self.n_shards:,} shards spread over the data set"
        if not self.counts:
            return f"Labels of {self.rows:,} rows{of}."
        text = f"Rows of each label, {self.rows:,} in all{of}"
        text += "; a row may have several" if self.multilabel else ""
        text += f"; the {MOST_SHOWN} most frequent of {len(self.counts):,}" if len(self.counts) > MOST_SHOWN else ""
        return f"{text}."

    def most_frequent(self) -> list[tuple[str, int]]:
        """Labels in the chart and their numbers of rows, in order of labels, or the most frequent if there are many."""
        if len(self.counts) <= MOST_SHOWN:
            shown = sorted(self.counts)
        else:
            shown = sorted(self.counts, key=lambda pair: -pair[1])[:MOST_SHOWN]
        return [(show_label(label), count) for label, count in shown]

    def chart(self, n_shards: int) -> str:
        """SVG of the counts, or of the histogram."""
        caption = self.describe(n_shards)
        if not self.counts:
            return charts.columns("Rows by label", self.edges, self.histogram, "label", caption)

        def show(count: float) -> str:
            return f"{count:,.0f} ({count / max(1, self.rows):.1%})"

        return charts.bars("Rows by label", self.most_frequent(), show, caption)


def label_values(labels: Labels | None, data: ShardDataset | None, draws: bool) -> dict[str, Any]:
    """Values of the section on labels."""
    if labels is None or data is None or not (labels.counts or labels.edges):
        return {"labels": [], "labels_note": "", "label_rows": []}
    n_shards = len(data.manifest.shards)
    return {
        "labels": [labels.chart(n_shards)] if draws else [],
        "labels_note": labels.describe(n_shards),
        "label_rows": [{"label": label, "rows": f"{count:,}"} for label, count in labels.most_frequent()],
    }


def read_labels(data: ShardDataset) -> Labels | None:
    """Count the labels in up to 1 GiB of shards, spread over the data set; None if rows have no labels."""
    if "label" not in data.manifest.schema or not data.n_rows:
        return None
    labels, multilabel = data.manifest.labels, bool(data.spec["input"].get("multilabel"))
    if labels is not None and len(labels) <= MOST_CLASSES:
        found = count_labels(data.shards, LABEL_BYTES)
        counts = tuple(found.counts.items())
        return Labels(counts=counts, rows=found.rows, n_shards=found.n_shards, multilabel=multilabel)
    chosen = spread([entry for entry in data.manifest.shards if entry.rows], LABEL_BYTES)
    drawn = [np.asarray(data.shards.read(entry, data.verifies, only=("label",)).y) for entry in chosen]
    heights, edges = np.histogram(np.concatenate(drawn), bins=30)
    return Labels(
        edges=tuple(edges.tolist()),
        histogram=tuple(heights.tolist()),
        rows=sum(entry.rows for entry in chosen),
        n_shards=len(chosen),
        multilabel=multilabel,
    )
