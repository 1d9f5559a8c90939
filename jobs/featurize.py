"""Featurize the sources of a job file: ``python jobs/featurize.py conf/letter.yaml``."""

from __future__ import annotations

import click

from dkfeat.cli import DkfeatCommand
from dkfeat.cli.jobs import load_job, open_runs, run_featurize
from dkfeat.messages import counted


@click.command("featurize", cls=DkfeatCommand)
@click.argument("conf")
def main(conf: str) -> None:
    """Run the `featurize` parts of the job file CONF, one after the other.

    The exit status is that of the dkfeat command. Completed parts write
    nothing, so a scheduler may simply run the job again.
    """
    job = load_job(conf, needs="featurize")
    with open_runs(job.run, job.featurize) as parts:
        for part, run in parts:
            manifest = run_featurize(part, run)
            print(f"{part.out}: {counted(manifest.rows, 'row')} in {counted(len(manifest.shards), 'shard')}")


if __name__ == "__main__":
    main()
