"""A report of runs as one page: figures first, then source, settings, speed, shards, labels, bad rows and estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.html import page, table
from dkfeat.io.remote import printable
from dkfeat.maps._kernel_pairs import error_band
from dkfeat.report import charts
from dkfeat.wording import counted, show_bytes

if TYPE_CHECKING:
    from dkfeat.io.run_logs import RunLog, StageLog
    from dkfeat.maps._kernel_pairs import KernelPairs
    from dkfeat.report.run_report import RunReport

__all__ = ["run_page"]

CSS = (
    """
dl.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem 1.5rem;
             margin: 1rem 0; }
dl.figures div { border-top: 2px solid var(--line); padding-top: .3rem; }
dl.figures dt { color: var(--quiet); font-size: .9rem; } dl.figures dd { margin: 0; font-size: 1.25rem; }
.quiet { color: var(--quiet); } td, th { vertical-align: top; } .facts td { text-align: left; }
.runs td { white-space: nowrap; padding: .25rem .55rem; } .runs th { padding: .25rem .55rem; }
.runs td:nth-child(4), .runs th:nth-child(4) { white-space: normal; text-align: left; min-width: 8rem; }
.texts td, .texts th { text-align: left; } .texts table { margin: .8rem 0; }
.facts td { overflow-wrap: anywhere; }
.facts th { font-weight: 400; color: var(--quiet); white-space: nowrap; padding-left: 0; }
""".strip()
    + "\n"
    + charts.CSS
)

STATES = {
    "running": "a run is writing to it",
    "damaged": "committed shards are missing",
    "unfinished": "a batch was left half-way; the same run again goes on",
    "empty": "nothing is committed",
    "complete": "all that was planned is committed",
}
MOST_SOURCES, MOST_RUNS, MOST_BARS, MOST_CLASSES, MOST_DOTS, SPEED_STEPS = 50, 30, 120, 30, 1500, 48


def run_page(report: RunReport) -> str:
    """HTML of a report."""
    parts = [_summary(report), _source(report), _settings(report), _speed(report), _shards(report), _labels(report)]
    parts += [_bad_rows(report), _estimates(report)]
    return page(f"Report of {printable(report.target)}", [part for part in parts if part], CSS)


def _summary(report: RunReport) -> str:
    state = report.status.state
    lines = [f'<p><strong id="state">{state}</strong>: {STATES[state]}.</p>']
    if report.status.unfinished is not None:
        batch = report.status.unfinished
        lines.append(
            f"<p>Batch {batch.number:,} is unfinished: {batch.splits_done:,} of {batch.splits:,} splits are done.</p>"
        )
    figures = report.figures
    cells = [
        f'<div><dt>{escape(name)}</dt><dd id="{name.replace(" ", "-")}">{escape(value)}</dd></div>'
        for name, value in figures.items()
    ]
    return "\n".join([*lines, f'<dl class="figures">{"".join(cells)}</dl>' if cells else ""])


def _source(report: RunReport) -> str:
    if report.data is None:
        return ""
    sources = report.data.manifest.sources
    rows = [
        {"file": printable(source.name), "size": show_bytes(source.size), "rows": f"{source.rows:,}"}
        | ({"set aside": f"{source.n_bad_rows:,}"} if report.data.manifest.n_bad_rows else {})
        for source in sources[:MOST_SOURCES]
    ]
    whole = f"{counted(len(sources), 'file')}, {show_bytes(sum(source.size for source in sources))} as stored"
    return table("Source", rows, whole + _cut(len(sources), MOST_SOURCES))


def _settings(report: RunReport) -> str:
    if report.data is None:
        return ""
    spec, manifest = report.data.spec, report.data.manifest
    run = manifest.run
    made = spec["map"]
    versions = run.get("versions")
    shown = {
        "map": f"{made.get('map')} version {made.get('version')}",
        "parameters": _words(made.get("params", {})),
        "seed": made.get("seed"),
        "input": _words(spec["input"]),
        "layout": f"{spec['output']['layout']}, {spec['output']['row_bytes']:,} bytes a row before Parquet",
        "piece": f"{show_bytes(int(spec['split']['blocksize']))}, at most {spec['split']['max_piece_rows']:,} rows",
        "fingerprint": manifest.spec_fp,
        "last commit": f"batch {manifest.number:,}, {run.get('ended')}, on {run.get('host')}",
        "versions": _words(versions) if isinstance(versions, Mapping) else "",
        "arithmetic": run.get("numeric_env"),
    }
    return _facts("Settings", {name: value for name, value in shown.items() if value not in ("", None)})


def _speed(report: RunReport) -> str:
    if not report.logs:
        return '<h2>Speed</h2>\n<p class="quiet">No run has left a log here.</p>'
    drawn = []
    if (last := report.last_run) is not None:
        drawn += [_over_time(stage, last) for stage in last.stages if stage.seconds > 0 and stage.rows]
    longest = max(report.logs, key=lambda log: 0.0 if log.main_stage is None else log.main_stage.seconds)
    if longest is not last and (stage := longest.main_stage) is not None and stage.rows:
        drawn.append(_over_time(stage, longest))
    shown = report.logs[-MOST_RUNS:][::-1]
    note = f"{counted(len(report.logs), 'run')}, the newest first{_cut(len(report.logs), MOST_RUNS)}"
    note += "; found are shards that an earlier run had left" if any(log.found for log in shown) else ""
    rows = [row for log in shown for row in _run_rows(log)]
    errors = [f"<p>{_time(log)}, batch {log.batch:,}: {escape(log.error)}</p>" for log in shown if log.error]
    runs = f'<div class="runs">{table("", rows, note)}</div>'
    return "\n".join([_charts_under("Speed", drawn), "<h3>Runs</h3>", runs, *errors])


def _run_rows(log: RunLog) -> list[dict[str, object]]:
    ended = log.ended[:16].replace("T", " ")
    own: dict[str, object] = {"batch": log.batch, "ended": ended, "outcome": log.outcome, "where": log.where}
    rows = []
    for stage in log.stages or (None,):
        row = dict(own)
        if stage is not None:
            row |= {
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
    return rows


def _over_time(stage: StageLog, log: RunLog) -> str:
    seconds = [0.0, *(point[0] for point in stage.points)]
    rows = [0, *(point[1] for point in stage.points)]
    n = max(1, min(SPEED_STEPS, len(stage.points) // 2))
    unit, name = (
        (3600.0, "hours") if stage.seconds > 7200 else (60.0, "minutes") if stage.seconds > 180 else (1.0, "seconds")
    )
    edges = np.linspace(0.0, max(stage.seconds, seconds[-1]), n + 1)
    done = np.interp(edges, seconds, rows)
    speeds = [(b - a) / (end - start) for (a, b), (start, end) in zip(pairwise(done), pairwise(edges), strict=True)]
    what = f"Rows a second since the stage began; the run ended {log.outcome} at {log.ended[:19].replace('T', ' ')}"
    what += f"; {log.found:,} of {log.shards:,} shards were there already" if log.found else ""
    return charts.steps(
        f"Speed of {stage.stage}, batch {log.batch:,}, rows/s", (edges / unit).tolist(), speeds, name, f"{what}."
    )


def _shards(report: RunReport) -> str:
    if report.data is None or not report.data.manifest.shards:
        return ""
    entries = report.data.manifest.shards
    n = min(len(entries), MOST_BARS)
    bounds = [len(entries) * place // n for place in range(n + 1)]
    edges = [float(bound) for bound in bounds]
    what = "A bar is a shard" if n == len(entries) else f"A bar is the mean of some {len(entries) // n:,} shards"
    drawn, facts = [], []
    for name, values in (("rows", [entry.rows for entry in entries]), ("bytes", [entry.size for entry in entries])):
        means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
        title = f"{name.capitalize()} of the shards"
        drawn.append(charts.columns(title, edges, means, "shard, in the source's order", f"{what}."))
        low, middle, high = np.quantile(values, [0, 0.5, 1])
        facts.append(
            {
                "": name,
                "least": f"{low:,.0f}",
                "median": f"{middle:,.0f}",
                "most": f"{high:,.0f}",
                "total": f"{sum(values):,}",
            }
        )
    return "\n".join([_charts_under("Shards", drawn), table("", facts)])


def _labels(report: RunReport) -> str:
    labels = report.labels
    if report.data is None or labels is None:
        return ""
    of = (
        ""
        if labels.n_shards == len(report.data.manifest.shards)
        else f", of {labels.n_shards:,} shards spread over the data set"
    )
    if labels.counts:
        shown = sorted(labels.counts, key=lambda pair: -pair[1])[:MOST_CLASSES]
        shown = sorted(shown) if len(shown) == len(labels.counts) else shown
        what = f"Rows of each label, {labels.rows:,} in all{of}"
        what += "; a row may have several" if labels.multilabel else ""
        what += (
            f"; the {MOST_CLASSES} most frequent of {len(labels.counts):,}" if len(shown) < len(labels.counts) else ""
        )

        def show(count: float) -> str:
            return f"{count:,.0f} ({count / max(1, labels.rows):.1%})"

        named = [(f"{label:g}", count) for label, count in shown]
        return _charts_under("Labels", [charts.bars("Rows by label", named, show, f"{what}.")])
    if not labels.edges:
        return ""
    what = f"Labels of {labels.rows:,} rows{of}."
    drawn = charts.columns("Rows by label", labels.edges, labels.histogram, "label", what)
    return _charts_under("Labels", [drawn])


def _bad_rows(report: RunReport) -> str:
    if report.data is None:
        return ""
    manifest = report.data.manifest
    empty = "Every row has features."
    if manifest.n_empty_rows:
        share = manifest.n_empty_rows / manifest.rows
        empty = f"{manifest.n_empty_rows:,} of {manifest.rows:,} rows ({share:.2%}) have no features."
    lines = ["<h2>Empty rows and rows set aside</h2>", f"<p>{empty}</p>"]
    if not manifest.n_bad_rows:
        return "\n".join([*lines, "<p>No row was set aside.</p>"])
    were = "was" if manifest.n_bad_rows == 1 else "were"
    bad = f"{counted(manifest.n_bad_rows, 'bad row')} {were} set aside"
    lines.append(f"<p>{bad}: by reason, and the first of them.</p>")
    reasons = [{"reason": reason, "rows": f"{count:,}"} for reason, count in manifest.bad_rows.items()]
    first = [{"place": row.place, "reason": row.message, "text": row.text} for row in report.bad_rows]
    return "\n".join([*lines, table("", reasons), f'<div class="texts">{table("", first)}</div>'])


def _estimates(report: RunReport) -> str:
    found = report.kernel
    heading = "<h2>Kernel estimates</h2>"
    if found is None:
        return f'{heading}\n<p class="quiet" id="kernel-note">{escape(report.kernel_note)}</p>' if report.data else ""
    pairs = found.pairs
    kept = np.random.default_rng(0).permutation(len(pairs))[:MOST_DOTS]
    dots = list(zip(pairs.exact[kept].tolist(), pairs.estimates[kept].tolist(), strict=True))
    band = _band(pairs)
    what = f"A dot is a pair of rows, {len(kept):,} of {len(pairs):,} pairs"
    what += "; the band is two standard errors by theory" if band else ""
    title = "Estimates against the exact kernel"
    drawn = charts.scatter(title, dots, f"exact {pairs.kernel}", f"{what}.", band=band)
    theory = f", {pairs.note}" if pairs.note and pairs.deviations is not None else pairs.note
    same = "made again, they are those of the shards" if found.same else "made again, they differ from the shards"
    facts = {
        "kernel": pairs.kernel,
        "sample": f"{found.n_rows:,} rows, from the beginnings of {counted(found.n_shards, 'split')}",
        "root mean squared error": f"{pairs.error:.4g}",
        "by theory": theory if pairs.expected_error is None else f"{pairs.expected_error:.4g}{theory}",
        "mean error": f"{found.mean_error:+.4g}",
        "within the band": None
        if pairs.share_within is None
        else f"{pairs.share_within:.1%} of pairs, about 95% if all is well",
        "features": same,
    }
    shown = {name: value for name, value in facts.items() if value is not None}
    return "\n".join([heading, _charts([drawn]), _facts("", shown)])


def _band(pairs: KernelPairs) -> list[tuple[float, float, float]]:
    """Two standard errors below and above the diagonal, where theory has one."""
    if pairs.deviations is None:
        return []
    points = zip(*(values.tolist() for values in error_band(pairs.exact, pairs.deviations)), strict=True)
    return [(at, at - 2 * error, at + 2 * error) for at, error in points]


def _facts(title: str, facts: Mapping[str, object]) -> str:
    heading = [f"<h2>{escape(title)}</h2>"] if title else []
    rows = [f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items()]
    return "\n".join([*heading, '<div class="wide"><table class="facts">', *rows, "</table></div>"])


def _charts(drawn: Sequence[str]) -> str:
    return f'<div class="charts">{"".join(drawn)}</div>' if drawn else ""


def _charts_under(title: str, drawn: Sequence[str]) -> str:
    return f"<h2>{escape(title)}</h2>\n{_charts(drawn)}"


def _words(values: Mapping[str, Any]) -> str:
    shown = ((key, value) for key, value in values.items() if value is not None)
    return ", ".join(f"{key}={str(value)[:80]}" for key, value in shown)


def _cut(there: int, most: int) -> str:
    return f"; {most:,} of them are shown" if there > most else ""


def _time(log: RunLog) -> str:
    return escape(log.ended[:19].replace("T", " "))
