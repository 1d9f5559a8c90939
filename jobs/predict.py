"""Predict for what a job file lists: ``python jobs/predict.py conf/letter.yaml``."""

from __future__ import annotations

import click

from dkfeat.cli import DkfeatCommand
from dkfeat.cli._storage import resolve_options
from dkfeat.cli.build import build_rows, load_job, run_settings
from dkfeat.learn.predictions import predict


@click.command("predict", cls=DkfeatCommand)
@click.argument("conf")
def main(conf: str) -> None:
    """Run the `predict` parts of the job file CONF, one after the other.

    The exit status is that of the dkfeat command. Parts that are done
    already write nothing, so a scheduler may simply run the job again.
    """
    job = load_job(conf, needs="predict")
    with run_settings(job.run) as runs:
        for part in job.predict:
            manifest = predict(
                part.model,
                target=part.out,
                scores=part.scores,
                on_bad_row=part.on_bad_row,
                max_bad_rows=part.max_bad_rows,
                target_options=resolve_options(part.target_options, "target_options"),
                **build_rows(part),
                **next(runs),
            )
            print(f"{part.out}: predictions for {manifest.rows:,} rows")


if __name__ == "__main__":
    main()
