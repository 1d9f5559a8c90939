"""Predict for the rows of a job file: ``python jobs/predict.py conf/letter.yaml``."""

from __future__ import annotations

import click

from dkfeat.cli import DkfeatCommand
from dkfeat.cli.jobs import load_job, open_runs, run_predict


@click.command("predict", cls=DkfeatCommand)
@click.argument("conf")
def main(conf: str) -> None:
    """Run the `predict` parts of the job file CONF, one after the other.

    The exit status is that of the dkfeat command. Completed parts write
    nothing, so a scheduler may simply run the job again.
    """
    job = load_job(conf, needs="predict")
    with open_runs(job.run, job.predict) as parts:
        for part, run in parts:
            manifest = run_predict(part, run)
            print(f"{part.out}: predictions for {manifest.rows:,} rows")


if __name__ == "__main__":
    main()
