"""``dkfeat run``: the runs of a job file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.group import DkfeatCommand, set_log
from dkfeat.cli.options.declared import Choice
from dkfeat.cli.options.shared import output_options, progress_of
from dkfeat.cli.output import note, print_result
from dkfeat.errors import ConfigError
from dkfeat.messages import counted

if TYPE_CHECKING:
    from dkfeat.config import JobConfig


Results = Iterator[tuple[dict[str, Any], str]]


def _featurize(job: JobConfig) -> Results:
    from dkfeat.cli.jobs import open_runs, run_featurize

    with open_runs(job.run, job.featurize) as parts:
        for part, run in parts:
            manifest = run_featurize(part, run)
            record = {"featurize": part.out, "rows": manifest.rows, "shards": len(manifest.shards)}
            yield record, f"{part.out}: {counted(manifest.rows, 'row')} in {counted(len(manifest.shards), 'shard')}"


def _train(job: JobConfig) -> Results:
    from dkfeat.cli.jobs import open_runs
    from dkfeat.cli.options.shared import options_at, resolve_options
    from dkfeat.engine.open import Target
    from dkfeat.learn.model_files import check_target
    from dkfeat.learn.train import train

    assert job.train is not None  # because the section is there
    options = {item.name: getattr(job.train, item.name) for item in fields(job.train)}
    shards, out, resume = (options.pop(name) for name in ("shards", "out", "resume"))
    if options["checkpoint"] is not None:
        options["checkpoint"] = Target(options["checkpoint"], resume=resume)
    of_store = resolve_options(options["storage_options"], "train.storage_options")
    options["storage_options"] = options_at(shards, of_store)
    if out is not None:
        check_target(out, of_store, job.train.checkpoint)  # fails before the training, not after
    in_parts = getattr(job.train.solver, "parts", None) is not None
    with open_runs(job.run, [job.train]) as parts:
        for _, run in parts:
            progress = progress_of(
                click.get_current_context(), lambda log: lambda entry: log("epoch", **entry), wanted=bool(run.progress)
            )
            model = train(shards, **options, client=run if in_parts else None, progress=progress)
    if out is not None:
        model.save(out, storage_options=of_store)
    last = next(entry for entry in model.history if entry["epoch"] == model.training["epoch"])
    lines = [] if out is None else [f"{out}: model of {len(model.classes)} classes"]
    if lines and not len(model.classes):
        lines = [f"{out}: regression"]
    if last.get("test_accuracy") is not None:
        lines.append(f"test accuracy {last['test_accuracy']:.2%}")
    elif last.get("test_r2") is not None:
        lines.append(f"test R² {last['test_r2']:.4f}")
    yield {"train": out, "test_accuracy": last.get("test_accuracy"), "test_r2": last.get("test_r2")}, "\n".join(lines)


def _predict(job: JobConfig) -> Results:
    from dkfeat.cli.jobs import open_runs, run_predict

    with open_runs(job.run, job.predict) as parts:
        for part, run in parts:
            rows = run_predict(part, run).rows
            yield {"predict": part.out, "rows": rows}, f"{part.out}: predictions for {rows:,} rows"


def _evaluate(job: JobConfig) -> Results:
    from dkfeat.cli.jobs import build_rows, open_runs
    from dkfeat.learn.evaluate import evaluate
    from dkfeat.learn.evaluation import check_report_folder

    for part in job.evaluate:
        if part.out is not None:  # fails before the evaluation, not after
            check_report_folder(part.out, overwrite=part.overwrite)
    with open_runs(job.run, job.evaluate) as parts:
        for part, run in parts:
            found = evaluate(part.model, **build_rows(part) | {"client": run, "progress": run.progress})
            if part.out is not None:
                given = part.shards if part.source is None else part.source.urlpath
                title = f"{part.model} on {given if isinstance(given, str) else ', '.join(given or ())}"
                found.save(part.out, title, overwrite=part.overwrite)
            figures = ", ".join(f"{name} {value:.4f}" for name, value in found.summary.items())
            record = {"evaluate": part.model, "rows": found.n_rows, **found.summary}
            yield record, f"{part.model}: {found.n_rows:,} rows, {figures}"


SECTIONS = {"featurize": _featurize, "train": _train, "predict": _predict, "evaluate": _evaluate}
"""Sections of job files, in the order in which they are run; each function yields results as records and as text."""


def _run_sections(conf: str, names: Sequence[str]) -> None:
    """Run sections of a job file; without names, those that it has."""
    from dkfeat.cli.jobs import load_job

    job = load_job(conf, needs=names[0] if names else None)
    present = [name for name in SECTIONS if getattr(job, name)]
    missing = [name for name in names if name not in present]
    if missing or not present:
        raise ConfigError(f"{conf}: lists nothing under `{', '.join(missing or SECTIONS)}`")
    progress: Any = progress_of(click.get_current_context(), wanted=job.run.progress)
    job = replace(job, run=replace(job.run, progress=progress))
    for name in SECTIONS:
        if name in (names or present):
            for record, text in SECTIONS[name](job):
                print_result(record)
                for line in text.splitlines():
                    note(line)


def _run_nightly(ctx: click.Context, conf: str, log_file: str | None) -> None:
    """Run the nightly mode, with its events on standard output or at the end of a file."""
    from dkfeat.cli.jobs import run_nightly
    from dkfeat.cli.output import LogLines, check_log

    stream = sys.stdout
    if log_file is not None:
        check_log(log_file)
        # the buffer is larger than any line, so that lines of two processes do not mix
        file = Path(log_file).open("a", encoding="ascii", buffering=1 << 20)  # noqa: SIM115 - the context closes it
        stream = ctx.with_resource(file)
    log = LogLines(stream, job=conf)
    set_log(ctx, log)
    ctx.with_resource(log.collecting())
    ctx.exit(run_nightly(conf, log))


_log_option = click.option(
    "--log", "log_file", metavar="FILE", help="Append the lines of a nightly run to FILE, not to standard output."
)


@click.command(cls=DkfeatCommand)
@click.argument("conf")
@click.option(
    "--only", multiple=True, type=Choice(list(SECTIONS)), help="Section to run. Repeatable.  [default: all in CONF]"
)
@click.option("--nightly", is_flag=True, help="Add new files under featurize, and report events as lines of JSON.")
@_log_option
@output_options
@click.pass_context
def run(ctx: click.Context, /, conf: str, only: tuple[str, ...], nightly: bool, log_file: str | None) -> None:
    """Run the sections of the job file CONF: featurize, train, predict, evaluate.

    Completed runs write nothing, so the same command again continues. With
    --nightly the command may be started at any time, even while it is running:
    committed files are not read again, an interrupted batch is finished, and a
    target that another run holds is skipped. Every run under featurize is
    started, even if an earlier one failed. The exit status is then that of the
    first one that failed; 4 if none failed and some were skipped; else 0, even
    if no file is new.

    For example:
      dkfeat run conf/letter.yaml
      dkfeat run conf/letter.yaml --only train --only evaluate
      dkfeat run conf/nightly.yaml --nightly --log nightly.log
    """
    if nightly:
        if only:
            raise click.UsageError("--nightly runs the section featurize; leave out --only", ctx)
        _run_nightly(ctx, conf, log_file)
    elif log_file is not None:
        raise click.UsageError("--log is for --nightly; leave it out", ctx)
    else:
        _run_sections(conf, only)


def script(section: str) -> click.Command:
    """Make the command of a script in ``jobs/``: a section of a job file, or "nightly"."""

    @click.command(section, cls=DkfeatCommand, help=f"Do what `dkfeat run CONF --only {section}` does.")
    @click.argument("conf")
    def only(conf: str) -> None:
        _run_sections(conf, [section])

    @click.command(section, cls=DkfeatCommand, help="Do what `dkfeat run CONF --nightly` does.")
    @click.argument("conf")
    @_log_option
    @click.pass_context
    def nightly(ctx: click.Context, /, conf: str, log_file: str | None) -> None:
        _run_nightly(ctx, conf, log_file)

    return nightly if section == "nightly" else only
