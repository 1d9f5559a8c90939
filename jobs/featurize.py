"""Featurize what a job file lists: ``python jobs/featurize.py conf/letter.yaml``."""

from __future__ import annotations

import click

from dkfeat.cli import DkfeatCommand
from dkfeat.cli.build import load_job, run_part, run_settings
from dkfeat.wording import counted


@click.command("featurize", cls=DkfeatCommand)
@click.argument("conf")
def main(conf: str) -> None:
    """Run the `featurize` parts of the job file CONF, one after the other.

    The exit status is that of the dkfeat command. Parts that are done
    already write nothing, so a scheduler may simply run the job again.
    """
    job = load_job(conf, needs="featurize")
    with run_settings(job.run) as runs:
        for part in job.featurize:
            manifest = run_part(part, next(runs))
            print(f"{part.out}: {counted(manifest.rows, 'row')} in {counted(len(manifest.shards), 'shard')}")


if __name__ == "__main__":
    main()
