"""Evaluate the models of a job file: ``python jobs/evaluate.py conf/letter.yaml``."""

from __future__ import annotations

import click

from dkfeat.cli import DkfeatCommand
from dkfeat.cli.jobs import build_rows, load_job, open_runs
from dkfeat.learn.evaluate.evaluate import evaluate
from dkfeat.learn.evaluate.result import check_report_folder


@click.command("evaluate", cls=DkfeatCommand)
@click.argument("conf")
def main(conf: str) -> None:
    """Run the `evaluate` parts of the job file CONF, one after the other.

    The exit status is that of the dkfeat command.
    """
    job = load_job(conf, needs="evaluate")
    for part in job.evaluate:
        if part.out is not None:  # fails before the evaluation, not after
            check_report_folder(part.out, overwrite=part.overwrite)
    with open_runs(job.run, job.evaluate) as parts:
        for part, run in parts:
            found = evaluate(part.model, **build_rows(part), client=run, progress=run.progress)
            if part.out is not None:
                given = part.shards or part.source.urlpath
                title = f"{part.model} on {given if isinstance(given, str) else ', '.join(given)}"
                found.save(part.out, title, overwrite=part.overwrite)
            figures = ", ".join(f"{name} {value:.4f}" for name, value in found.summary.items())
            print(f"{part.model}: {found.n_rows:,} rows, {figures}")


if __name__ == "__main__":
    main()
