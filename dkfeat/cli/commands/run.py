"""``dkfeat run``: the runs of a job file, and the nightly mode, which reports events as JSON lines."""

from __future__ import annotations

import glob
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dkfeat import config
from dkfeat.cli.commands.train import shown_scores, train_and_save
from dkfeat.cli.declared import Choice
from dkfeat.cli.group import LOG, DkfeatCommand, text_of
from dkfeat.cli.options import output_options, progress_of, resolve_options, target_of
from dkfeat.cli.output import note, print_result
from dkfeat.cli.rows import build_encoder, build_map
from dkfeat.errors import ConfigError, DkfeatError, ShardError, SourceNotFoundError, SpecConflictError, TargetBusyError
from dkfeat.filesystems.urls import is_url
from dkfeat.messages import counted
from dkfeat.sources.formats import as_source

if TYPE_CHECKING:
    from dkfeat.cli.output import LogLines
    from dkfeat.engine.open import Target
    from dkfeat.sources.base import Source
    from dkfeat.store.commit.status import Status
    from dkfeat.store.manifest.manifest import Manifest


Part = TypeVar("Part")
Result = tuple[dict[str, Any], str]


def load_job(path: str, needs: Sequence[str] = ()) -> config.JobConfig:
    """Read a job file, with defaults from Dask's configuration, and check its sources and maps by making them.

    Sections that it `needs` must not be empty, nor may all be. A model that is trained must be saved, unless it is
    scored and no later step that runs lacks it.
    """
    from dkfeat.config.settings import errors_at

    job = config.load_config(path)
    runs = needs or tuple(SECTIONS)
    empty = [name for name in runs if not getattr(job, name)]
    if empty and (needs or len(empty) == len(SECTIONS)):
        raise ConfigError(f"{path}: lists nothing under `{', '.join(empty)}`")
    for section in ("featurize", "predict", "evaluate"):
        for number, part in enumerate(getattr(job, section)):
            with errors_at(f"{path}: {section}[{number}].source"):
                if part.source is not None:
                    build_source(part.source)
            with errors_at(f"{path}: {section}[{number}].map"):
                if getattr(part, "map", None) is not None:
                    build_map(part.map)._check_params()
            with errors_at(f"{path}: {section}[{number}].encoder"):
                build_encoder(getattr(part, "encoder", None))
    if job.train is not None and job.train.out is None and "train" in runs:
        models = [part.model for name in ("predict", "evaluate") if name in runs for part in getattr(job, name)]
        lacking = [name for name in models if not (is_url(name) or Path(name).exists())]
        if lacking or job.train.test is job.train.validation is None:
            why = f"{lacking[0]}, which a later step reads, does not exist" if lacking else "nothing uses the model"
            raise ConfigError(f"{path}: train.out: not given, and {why}; give a folder to keep the model")
    return job


def build_source(settings: config.SourceConfig) -> Source:
    """Make the source that the settings describe."""
    storage_options = resolve_options(settings.storage_options, "source.storage_options")
    return as_source(settings.urlpath, storage_options, settings.format, **settings.options)


def build_rows(part: config.PredictConfig | config.EvaluateConfig) -> dict[str, Any]:
    """Make the arguments ``source`` and ``storage_options`` of a `predict` or `evaluate` part of a job file."""
    source = part.shards if part.source is None else build_source(part.source)
    return {"source": source, "storage_options": resolve_options(part.storage_options, "storage_options")}


@contextmanager
def _open_runs(run: config.RunConfig, parts: Sequence[Part]) -> Iterator[Iterator[tuple[Part, config.RunConfig]]]:
    """Yield each part of a job file with its run settings.

    A cluster that the file names is started by the first part that needs it, and is used by all parts.
    """
    from dkfeat.engine.clusters.open import SharedCluster

    with ExitStack() as stack:
        if run.cluster is not None:
            sizes = {name: getattr(run, name) for name in ("n_workers", "threads_per_worker", "memory_limit")}
            shared = stack.enter_context(SharedCluster(run.cluster, **sizes))
            changes: dict[str, Any] = {"cluster": shared, **dict.fromkeys(sizes)}
            run = replace(run, **changes)
        yield ((part, run) for part in parts)


def run_featurize(part: config.FeaturizeConfig, run: config.RunConfig) -> Manifest:
    """Run one `featurize` part of a job file."""
    from dkfeat.engine.featurize import featurize
    from dkfeat.engine.open import with_bad_rows

    return featurize(
        with_bad_rows(build_source(part.source), part.on_bad_row, part.max_bad_rows),
        _target(part, run, on_changed_source=part.on_changed_source),
        None if part.map is None else build_map(part.map),
        like=part.like,
        encoder=build_encoder(part.encoder),
        layout=part.layout,
        delta=part.delta,
        client=run,
        progress=run.progress,
    )


def _target(part: config.FeaturizeConfig | config.PredictConfig, run: config.RunConfig, **policy: Any) -> Target:
    options = {"target_options": resolve_options(part.target_options, "target_options"), "resume": run.resume}
    return target_of(part.out, options | policy)


def _featurize(part: config.FeaturizeConfig, run: config.RunConfig) -> Result:
    manifest = run_featurize(part, run)
    record = {"featurize": part.out, "rows": manifest.rows, "shards": len(manifest.shards)}
    return record, f"{part.out}: {counted(manifest.rows, 'row')} in {counted(len(manifest.shards), 'shard')}"


def _train(part: config.TrainConfig, run: config.RunConfig) -> Result:
    options = {item.name: getattr(part, item.name) for item in fields(part)}
    options["storage_options"] = resolve_options(part.storage_options, "train.storage_options")
    in_parts = getattr(part.solver, "parts", None) is not None
    model, last = train_and_save(**options, client=run if in_parts else None, progress=bool(run.progress))
    lines = []
    if part.out is not None:
        kind = f"model of {counted(len(model.classes), 'class')}" if len(model.classes) else "regression"
        lines.append(f"{part.out}: {kind}")
    scores = {name: last.get(name) for name in ("test_accuracy", "test_r2", "validation_accuracy", "validation_r2")}
    for name, score in (shown_scores(last, "test") | shown_scores(last, "validation")).items():
        lines.append(f"{name.replace('_r2', ' R²').replace('_', ' ')} {score}")
    return {"train": part.out, **scores}, "\n".join(lines)


def _predict(part: config.PredictConfig, run: config.RunConfig) -> Result:
    from dkfeat.engine.open import with_bad_rows
    from dkfeat.learn.predict import predict

    given = build_rows(part)
    source = with_bad_rows(given.pop("source"), part.on_bad_row, part.max_bad_rows)
    given |= {"client": run, "progress": run.progress}
    rows = predict(part.model, source, _target(part, run), scores=part.scores, **given).rows
    return {"predict": part.out, "rows": rows}, f"{part.out}: predictions for {counted(rows, 'row')}"


def _evaluate(part: config.EvaluateConfig, run: config.RunConfig) -> Result:
    from dkfeat.learn.evaluate.evaluate import evaluate
    from dkfeat.learn.evaluate.evaluation import check_report_folder

    if part.out is not None:  # fails before the evaluation, not after
        check_report_folder(part.out, overwrite=part.overwrite)
    found = evaluate(part.model, **build_rows(part) | {"client": run, "progress": run.progress})
    if part.out is not None:
        given = part.shards if part.source is None else part.source.urlpath
        title = f"{part.model} on {given if isinstance(given, str) else ', '.join(given or ())}"
        found.save(part.out, title, overwrite=part.overwrite)
    figures = ", ".join(f"{name} {value:.4f}" for name, value in found.summary.items())
    record = {"evaluate": part.model, "rows": found.n_rows, **found.summary}
    return record, f"{part.model}: {counted(found.n_rows, 'row')}, {figures}"


SECTIONS: dict[str, Callable[[Any, config.RunConfig], Result]] = {
    "featurize": _featurize,
    "train": _train,
    "predict": _predict,
    "evaluate": _evaluate,
}
"""Sections of job files, in the order in which they are run; each function returns a result as record and as text."""


def _run_sections(conf: str, names: Sequence[str]) -> None:
    """Run sections of a job file; without names, those that it has."""
    job = load_job(conf, names)
    progress: Any = progress_of(click.get_current_context(), wanted=job.run.progress)
    for name in (name for name in SECTIONS if getattr(job, name) and name in (names or SECTIONS)):
        parts: Any = getattr(job, name)
        with _open_runs(replace(job.run, progress=progress), [parts] if name == "train" else parts) as runs:
            for part, run in runs:
                record, text = SECTIONS[name](part, run)
                print_result(record)
                for line in text.splitlines():
                    note(line)


def _check(conf: str) -> Result:
    """Check a job file and the cluster file that it names; no data is read."""
    from dkfeat.config.settings import errors_at
    from dkfeat.engine.clusters.local import check_memory

    job = load_job(conf)
    with errors_at(conf):
        check_memory(job.run.memory_limit)
    if job.run.cluster is not None:
        config.load_cluster(job.run.cluster)
    parts = {name: getattr(job, name) for name in SECTIONS}
    counts = {name: len(part) if isinstance(part, tuple) else int(part is not None) for name, part in parts.items()}
    listed = ", ".join(f"{name} {n}" for name, n in counts.items() if n)
    return {"file": conf, **counts}, f"{conf}: valid job file with {listed}"


BUSY = TargetBusyError.exit_code


def _run_nightly(conf: str, log: LogLines) -> int:
    """Run all `featurize` parts of a job file, even if an earlier one failed.

    Parameters
    ----------
    conf : str
        Job file.
    log : LogLines
        Receives the events.

    Returns
    -------
    status : int
        Exit status of the first part that failed; 4 if none failed and some were skipped because another run holds
        their targets; else 0.
    """
    began = time.monotonic()
    job = load_job(conf, needs=["featurize"])
    progress: Any = log.progress if job.run.progress else False
    waiting: set[str] = set()
    with _open_runs(replace(job.run, progress=progress), job.featurize) as parts:
        results = [_run_part(part, run, log, waiting) for part, run in parts]
    failed = [status for status in results if status]
    status = failed[0] if failed else BUSY if None in results else 0
    log("end", level="error" if failed else "info", exit_code=status, seconds=_since(began))
    return status


def _run_part(part: config.FeaturizeConfig, run: config.RunConfig, log: LogLines, waiting: set[str]) -> int | None:
    """Run a part; return its exit status, or None if the part was skipped because its target is busy."""
    began = time.monotonic()

    def tell(event: str, **values: Any) -> None:
        log(event, target=part.out, **values, seconds=_since(began))

    log("start", target=part.out, source=part.source.urlpath)
    try:
        before = _status(part)
        is_unstarted = before is None or (before.committed is None and before.unfinished is None)
        keeps = part.on_changed_source == "keep" and before is not None and before.unfinished is None
        present = _present(part) if is_unstarted or keeps else part  # committed files may have been moved away
        if part.like in waiting or present is None:
            if is_unstarted:
                waiting.add(part.out)
            tell("waiting", message=f"the source has no files {'yet' if is_unstarted else 'now'}")
            return 0
        try:
            # if only some patterns of a first batch match, the others are most likely mistakes
            manifest = run_featurize(part if is_unstarted else present, run)
        except SourceNotFoundError as error:
            if is_unstarted or _finds_files(build_source(part.source)):
                raise
            raise SpecConflictError(
                f"{error}; files of it were planned or committed: is a disk not mounted?"
            ) from error
    except TargetBusyError as error:
        tell("skipped", level="warning", reason="busy", message=str(error))
        return None
    except (DkfeatError, OSError) as error:
        status = error.exit_code if isinstance(error, DkfeatError) else ShardError.exit_code
        tell("failed", level="error", error=type(error).__name__, message=text_of(error), exit_code=status)
        return status
    last = None if before is None else before.committed
    tell(
        "unchanged" if last is not None and last.number == manifest.number else "committed",
        manifest=manifest.number,
        commit=manifest.run.get("id"),
        rows=manifest.rows,
        new_rows=manifest.rows - (last.rows if last else 0),
        bad_rows=manifest.n_bad_rows or None,
        shards=len(manifest.shards),
        new_shards=len(manifest.shards) - (last.shards if last else 0),
    )
    return 0


def _status(part: config.FeaturizeConfig) -> Status | None:
    from dkfeat.store.commit.status import status

    target_options = resolve_options(part.target_options, "target_options")
    try:
        return status(part.out, storage_options=target_options)
    except ShardError:  # no target yet, or a damaged one, which the run reports
        return None


def _present(part: config.FeaturizeConfig) -> config.FeaturizeConfig | None:
    """Leave out patterns that match nothing in an existing folder; None if no pattern is left."""
    source = build_source(part.source)
    urlpath = tuple(
        path
        for path, pattern in zip(source.urlpath, source.patterns, strict=True)
        if not (glob.has_magic(pattern) and ("://" in pattern or _folder(pattern).exists()))  # else not mounted perhaps
        or _finds_files(source.replaced(urlpath=(path,)))
    )
    if not urlpath:
        return None
    # file names are relative to the common folder of all patterns, which must not change
    if len({_folder(pattern) for pattern in source.patterns}) > 1:
        return part
    return replace(part, source=replace(part.source, urlpath=urlpath))


def _finds_files(source: Source) -> bool:
    try:
        source.files()
    except SourceNotFoundError:
        return False
    return True


def _folder(pattern: str) -> Path:
    """Return the deepest parent folder of a pattern that has no wildcards."""
    return next(folder for folder in Path(pattern).parents if not glob.has_magic(str(folder)))


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)


@click.command(cls=DkfeatCommand)
@click.argument("conf")
@click.option(
    "--only", multiple=True, type=Choice(list(SECTIONS)), help="Section to run. Repeatable.  [default: all in CONF]"
)
@click.option("--dry-run", is_flag=True, help="Check CONF and the cluster file that it names; read no data.")
@click.option("--nightly", is_flag=True, help="Add new files under featurize, and report events as lines of JSON.")
@output_options
@click.pass_context
def run(ctx: click.Context, /, conf: str, only: tuple[str, ...], dry_run: bool, nightly: bool) -> None:
    """Run the sections of the job file CONF: featurize, train, predict, evaluate.

    Completed runs write nothing, so the same command again continues. With
    --nightly the command may be started at any time, even while it is running:
    committed files are not read again, an interrupted batch is finished, and a
    target that another run holds is skipped. Every run under featurize is
    started, even if an earlier one failed. The exit status is then that of the
    first one that failed; 4 if none failed and some were skipped; else 0, even
    if no file is new.

    --dry-run checks keys, types and ranges, and constructs maps and sources.

    For example:
      dkfeat run conf/letter.yaml --dry-run
      dkfeat run conf/letter.yaml
      dkfeat run conf/letter.yaml --only train --only evaluate
      dkfeat run conf/nightly.yaml --nightly >> nightly.log
    """
    from dkfeat.cli.output import LogLines

    if dry_run:
        record, text = _check(conf)
        print_result(record)
        note(text)
        return
    if not nightly:
        _run_sections(conf, only)
        return
    if only:
        raise click.UsageError("--nightly runs the section featurize; leave out --only", ctx)
    log = LogLines(sys.stdout, job=conf)
    ctx.meta[LOG] = log
    ctx.with_resource(log.collecting())
    ctx.exit(_run_nightly(conf, log))


def script(name: str) -> click.Command:
    """Make the command of a script in ``jobs/``: a section of a job file, or "nightly"."""
    is_nightly = name == "nightly"
    option = "--nightly" if is_nightly else f"--only {name}"

    @click.command(name, cls=DkfeatCommand, help=f"Do what `dkfeat run CONF {option}` does.")
    @click.argument("conf")
    def main(**given: Any) -> None:
        assert run.callback is not None  # the function above
        run.callback(**given, only=() if is_nightly else (name,), dry_run=False, nightly=is_nightly)

    return main
